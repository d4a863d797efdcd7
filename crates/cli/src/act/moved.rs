//! What was moved: each move into the ledger, sums by process, and whether it pays.

use super::came::Accesses;
use super::counted::Counted;
use super::pays::Pays;
use super::show::Shower;
use super::{Actual, no_ledger};
use crate::drive::{Onlooker, mean_heat};
use crate::here::{Here, own_time};
use crate::seen::Recording;
use homenode_core::engine::Engine;
use homenode_core::policy::order::Act;
use homenode_core::policy::seen::{Span, Who};
use homenode_core::topology::Hardware;
use homenode_core::units::{NodeId, PAGE_SIZE, Picos};
use homenode_live::ledger::Writer;
use homenode_live::people::guest::roles;
use homenode_machine::{Around as _, Deed, Machine as _};
use homenode_report::{
    ActEnd, ActProcess, ActState, GuestThreads, LedgerEntry, LedgerMover, TrialReport, failed_bytes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Time between two looks at the kernel's counters.
const COUNT_EVERY: Picos = Picos::from_secs(10);
/// Time between two rows of a process where they are added.
const ROW_EVERY: Picos = Picos::from_secs(5);

/// The wall clock, which only the ledger has.
pub(super) fn unix_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
}

/// Watches the engine act.
pub(super) struct Moved<'a> {
    here: &'a Here,
    root: PathBuf,
    ledger: Writer,
    shower: Shower,
    counted: Counted,
    pays: Pays,
    /// Where what the engine is told goes, if it is kept.
    recording: Option<Recording>,
    /// Own time before anything was done.
    own: Picos,
    begun: Option<Picos>,
    shown: Picos,
    looked: Picos,
    processes: BTreeMap<Who, ActProcess>,
    names: BTreeMap<Who, String>,
    /// Those of which something has changed since they were shown.
    changed: BTreeSet<Who>,
    watched: u64,
    moved_pages: u64,
    /// Threads that were brought to nodes.
    brought: u64,
    /// Of these, pages that the kernel's counters were not told yet.
    uncounted: u64,
    kernel_bytes: BTreeMap<LedgerMover, u64>,
    notes: Vec<String>,
    /// Why it ends by itself.
    why: Option<String>,
    /// Whether it ends where moving does not pay; in a trial that is for the trial to say.
    judges: bool,
    trouble: Option<anyhow::Error>,
}

impl<'a> Moved<'a> {
    pub(super) fn new(
        here: &'a Here,
        horizon: Picos,
        ledger: Writer,
        shower: Shower,
        counted: Counted,
        own: Picos,
    ) -> Self {
        Self {
            here,
            root: here.found.root.clone(),
            ledger,
            shower,
            counted,
            pays: Pays::new(horizon),
            recording: None,
            own,
            begun: None,
            shown: Picos::ZERO,
            looked: Picos::ZERO,
            processes: BTreeMap::new(),
            names: BTreeMap::new(),
            changed: BTreeSet::new(),
            watched: 0,
            moved_pages: 0,
            brought: 0,
            uncounted: 0,
            kernel_bytes: BTreeMap::new(),
            notes: Vec::new(),
            why: None,
            judges: true,
            trouble: None,
        }
    }

    /// What the engine is told is kept up to each step.
    pub(super) fn keep_with(&mut self, recording: Recording) {
        self.recording = Some(recording);
    }

    /// A line that is no row.
    pub(super) fn say(&mut self, text: &str) {
        let said = self.shower.say(text);
        self.keep(said);
    }

    /// Whether it ends by itself where moving does not pay.
    pub(super) fn judge(&mut self, judges: bool) {
        self.judges = judges;
    }
    /// What a trial came to.
    pub(super) fn tell(&mut self, trial: &TrialReport) {
        let told = self.shower.trial(trial);
        self.keep(told);
    }
    /// Why it ends, unless it has ended by itself.
    pub(super) fn ends(&mut self, why: &str) {
        self.why.get_or_insert_with(|| why.to_owned());
    }

    /// Of all accesses that are told of those who are there, the share on fast nodes, in
    /// percent; `None` where too little is known.
    pub(super) fn fast_share(&self, engine: &Engine) -> Option<f64> {
        let mut all = Accesses::default();
        for who in self.names.keys() {
            add_accesses(&mut all, engine, *who);
        }
        all.fast_percent()
    }

    /// Keeps the first thing that went wrong; it ends then.
    fn keep(&mut self, done: anyhow::Result<()>) {
        if let Err(e) = done {
            self.trouble.get_or_insert(e);
        }
    }

    /// What is kept of a process for which an order has reported.
    fn process(&mut self, who: Who) -> &mut ActProcess {
        let name = self.names.get(&who).cloned().unwrap_or_default();
        self.changed.insert(who);
        let p = self.processes.entry(who).or_insert_with(|| ActProcess {
            pid: who.pid,
            start_ticks: who.start,
            ..ActProcess::default()
        });
        p.name = name;
        p.orders += 1;
        p
    }

    /// The row of an order about a process, in which nothing was moved yet.
    fn row(&self, who: Who, deed: &Deed, saves: f64) -> LedgerEntry {
        LedgerEntry {
            unix_ms: unix_ms(),
            mover: LedgerMover::Homenode,
            pid: Some(who.pid),
            start_ticks: Some(who.start),
            name: Some(self.names.get(&who).cloned().unwrap_or_default()),
            from: None,
            to: None,
            tried_bytes: 0,
            moved_bytes: 0,
            failed_bytes: BTreeMap::new(),
            threads: None,
            guest: None,
            cause: deed.order.why.name().to_owned(),
            expected_saves_s: Some(saves),
            took_s: Some(deed.took.as_secs_f64()),
            by: std::process::id(),
        }
    }

    /// One move: its row in the ledger, and the sums.
    fn book(&mut self, deed: &Deed, gain: i64) -> Option<LedgerEntry> {
        let Act::Move { who, ref spans, from, to } = deed.order.act else { return None };
        let p = self.process(who);
        p.tried_bytes += deed.tried.0 * PAGE_SIZE;
        let failed = failed_bytes(&deed.fails);
        for (cause, bytes) in &failed {
            *p.failed_bytes.entry(cause.clone()).or_default() += bytes;
        }
        let moved = deed.moved.0;
        if moved > 0 {
            *p.moved_bytes.entry(format!("{from}>{to}")).or_default() += moved * PAGE_SIZE;
        }
        // What is expected of the whole order holds for the pages that moved.
        let named: u64 = spans.iter().map(|s| s.pages().0).sum();
        let part = moved.min(named) as f64 / named.max(1) as f64;
        let saves = deed.order.expect.saves.as_secs_f64() * part;
        p.expected_saves_s += saves;
        p.took_s += deed.took.as_secs_f64();
        if moved > 0 {
            self.pays.moved(deed.at, who, spans.clone(), moved, gain);
        }
        self.moved_pages += moved;
        self.uncounted += moved;
        Some(LedgerEntry {
            from: Some(from.0),
            to: Some(to.0),
            tried_bytes: deed.tried.0 * PAGE_SIZE,
            moved_bytes: moved * PAGE_SIZE,
            failed_bytes: failed,
            ..self.row(who, deed, saves)
        })
    }

    /// Threads that were brought to a node: their row in the ledger.
    fn book_threads(&mut self, deed: &Deed) -> Option<LedgerEntry> {
        let Act::Affine { who, node } = deed.order.act else { return None };
        let brought = deed.moved.0;
        let saves = if brought > 0 { deed.order.expect.saves.as_secs_f64() } else { 0.0 };
        let p = self.process(who);
        *p.threads_brought.entry(node.to_string()).or_default() += brought;
        p.expected_saves_s += saves;
        self.brought += brought;
        let guest = roles(Path::new("/"), who.pid).map(|r| GuestThreads {
            vcpu: r.vcpu,
            vhost: r.vhost,
            emulator: r.emulator,
        });
        let threads = Some(brought);
        Some(LedgerEntry { to: Some(node.0), threads, guest, ..self.row(who, deed, saves) })
    }

    fn write(&mut self, entries: &[LedgerEntry]) {
        let lines: Vec<String> = entries.iter().map(LedgerEntry::to_json).collect();
        if let Err(e) = self.ledger.add(lines.iter().map(String::as_str)) {
            self.trouble.get_or_insert(no_ledger(&e));
        }
    }

    fn count(&mut self) {
        let ours = std::mem::take(&mut self.uncounted);
        let rows = self.counted.rows(unix_ms(), ours);
        for row in &rows {
            *self.kernel_bytes.entry(row.mover).or_default() += row.moved_bytes;
        }
        self.write(&rows);
    }

    /// Shares on fast nodes; of those whose first pages have just moved, how it was before.
    fn measure(&mut self, engine: &Engine, came: &BTreeMap<Who, i128>) {
        let machine = &self.here.found.machine;
        let several = machine.nodes.iter().any(|n| n.managed().0 > 0 && !engine.is_fast(n.id));
        if !several {
            return;
        }
        for (who, p) in &mut self.processes {
            let mut all = Accesses::default();
            add_accesses(&mut all, engine, *who);
            let now = all.fast_percent();
            if p.fast_before_percent.is_none() {
                if let Some(came) = came.get(who).filter(|_| p.moved() > 0) {
                    p.fast_before_percent = now.and(all.without(*came).fast_percent());
                }
            }
            // Of one that has ended the last that was known stays.
            if now.is_some() && now != p.fast_now_percent {
                p.fast_now_percent = now;
                self.changed.insert(*who);
            }
        }
    }

    fn state(&self, now: Picos, only: Option<&BTreeSet<Who>>) -> ActState {
        let wanted = |who: &Who| only.is_none_or(|only| only.contains(who));
        let rows = self.processes.iter().filter(|(who, _)| wanted(who));
        let mut processes: Vec<ActProcess> = rows.map(|(_, p)| p.clone()).collect();
        processes.sort_by_key(|p| (std::cmp::Reverse(p.moved()), p.pid));
        let since = now.saturating_sub(self.begun.unwrap_or(now));
        ActState { since_s: since.as_secs_f64(), processes, watched: self.watched }
    }

    fn show(&mut self, now: Picos) {
        let live = self.shower.is_live();
        if !live && (self.changed.is_empty() || now < self.shown + ROW_EVERY) {
            return;
        }
        let changed = std::mem::take(&mut self.changed);
        let state = self.state(now, (!live).then_some(&changed));
        self.shown = now;
        let done = self.shower.state(&state);
        self.keep(done);
    }

    /// The end. What was wrong comes with it.
    ///
    /// * `cost` – own processor time since the beginning; `kernel` that of the source.
    /// * `why` – where it did not end by itself.
    pub(super) fn finish(
        mut self,
        now: Picos,
        cost: Picos,
        kernel: Option<Picos>,
        why: &str,
        more: Vec<String>,
    ) -> Option<anyhow::Error> {
        if self.trouble.is_none() {
            self.count();
        }
        let acted = now.saturating_sub(self.begun.unwrap_or(now));
        let share = |part: Picos| part.0 as f64 * 100.0 / acted.0.max(1) as f64;
        let mut notes = std::mem::take(&mut self.notes);
        if let Some(kernel) = kernel {
            let name = self.here.source.name();
            notes.push(format!("in the kernel {:.2} % of one CPU for {name}", share(kernel)));
        }
        let told = |p: &ActProcess| p.fast_before_percent.is_some();
        if self.moved_pages == 0 && self.brought == 0 {
            notes.push("nothing that was seen in use would have paid for a move".to_owned());
        } else if !self.processes.values().any(told) {
            notes.push(format!(
                "benefit not measurable here: {} does not show on which nodes the accesses are",
                self.here.source.name()
            ));
        }
        notes.push(format!("each move is in {}", self.ledger.path().display()));
        notes.extend(more);
        let names = [
            (LedgerMover::KernelBalancing, "the kernel's balancing"),
            (LedgerMover::KernelDemotion, "the kernel's demotion"),
            (LedgerMover::Other, "others"),
        ];
        let kernel_bytes = names
            .into_iter()
            .filter_map(|(mover, name)| Some((name.to_owned(), *self.kernel_bytes.get(&mover)?)));
        let end = ActEnd {
            acted_s: acted.as_secs_f64(),
            why: self.why.clone().unwrap_or_else(|| why.to_owned()),
            moved_bytes: self.moved_pages * PAGE_SIZE,
            kernel_bytes: kernel_bytes.collect(),
            own_s: cost.as_secs_f64(),
            own_percent: share(cost),
            notes,
        };
        let state = self.state(now, None);
        if !self.shower.is_live() {
            let done = self.shower.state(&state);
            self.keep(done);
        }
        let done = self.shower.end(&state, &end);
        self.keep(done);
        self.trouble
    }
}

/// Adds a process's accesses by where they go.
fn add_accesses(all: &mut Accesses, engine: &Engine, who: Who) {
    for s in engine.stretches(who) {
        let (heat, pages) = (s.heat, s.span.pages().0);
        all.add(heat, pages, s.on.as_deref(), &|node| engine.is_fast(node));
    }
}

/// Picoseconds that an access takes less on `to` than on `from`, from the CPUs that are
/// nearest to the faster one of them.
fn gain(machine: &Hardware, engine: &Engine, from: NodeId, to: NodeId) -> i64 {
    let latency = |cpu: NodeId, on: NodeId| {
        let link = machine.links.iter().find(|l| l.from == cpu && l.to == on)?;
        i64::try_from(link.read_latency.value).ok()
    };
    let near = if engine.is_fast(to) { to } else { from };
    let cpus: BTreeSet<NodeId> = machine.cpus.iter().map(|c| c.node).collect();
    let best = cpus.into_iter().filter_map(|cpu| Some((latency(cpu, near)?, cpu))).min();
    let known = best.and_then(|(_, cpu)| Some(latency(cpu, from)? - latency(cpu, to)?));
    known.unwrap_or(0)
}

impl Onlooker<Actual> for Moved<'_> {
    fn step(&mut self, machine: &Actual, engine: &Engine, deeds: Vec<Deed>) -> bool {
        let recorded = machine.inside().inside();
        let (now, live) = (machine.now(), recorded.inside());
        if self.begun.is_none() {
            (self.begun, self.shown, self.looked) = (Some(now), now, now);
        }
        let there: BTreeSet<Who> = live.people().map(|p| p.who).collect();
        self.watched = there.len() as u64;
        for p in live.people() {
            let name = self.names.entry(p.who).or_default();
            if *name != p.name {
                name.clone_from(&p.name);
            }
        }
        if let (Some(recording), Some(notes)) = (&self.recording, recorded.notes()) {
            live.people().for_each(|p| notes.name(p.who, &p.name));
            recording.keep();
        }
        // Of those that come and go only who was acted for is kept.
        let processes = &self.processes;
        self.names.retain(|who, _| there.contains(who) || processes.contains_key(who));
        for (who, p) in self.processes.iter_mut().filter(|(w, p)| !p.gone && !there.contains(w)) {
            p.gone = true;
            self.changed.insert(*who);
        }
        let mut stretches: BTreeMap<Who, Vec<(Span, u64)>> = BTreeMap::new();
        let mut heat = |who: Who, spans: &[Span]| {
            let known = stretches
                .entry(who)
                .or_insert_with(|| engine.stretches(who).map(|s| (s.span, s.heat)).collect());
            mean_heat(known, spans)
        };
        let (mut rows, mut came) = (Vec::new(), BTreeMap::<Who, i128>::new());
        for deed in &deeds {
            let Act::Move { who, ref spans, from, to } = deed.order.act else {
                rows.extend(self.book_threads(deed));
                continue;
            };
            let accesses = heat(who, spans).saturating_mul(deed.moved.0.into());
            let accesses = i128::try_from(accesses).unwrap_or(i128::MAX);
            let way = i128::from(engine.is_fast(to)) - i128::from(engine.is_fast(from));
            let sum = came.entry(who).or_default();
            *sum = sum.saturating_add(accesses.saturating_mul(way));
            let gain = gain(&self.here.found.machine, engine, from, to);
            rows.extend(self.book(deed, gain));
        }
        self.write(&rows);
        self.measure(engine, &came);
        if now >= self.looked + COUNT_EVERY {
            self.looked = now;
            self.count();
        }
        self.pays.forget(&|who| there.contains(&who));
        let own = own_time(&self.root).saturating_sub(self.own);
        let cost = own + live.source_spent().unwrap_or_default();
        if let Some(period) = self.pays.period(now, cost, &mut heat) {
            if period.stop && self.judges {
                self.why = Some(format!(
                    "moving did not pay (what was moved saved {:.1} ms lately, which cost {:.1} ms)",
                    period.saved * 1e3,
                    period.cost * 1e3
                ));
            }
        }
        self.show(now);
        if self.why.is_none() && !self.here.goes_on(live) {
            self.why = Some("all of these processes have ended".to_owned());
        }
        self.why.is_none() && self.trouble.is_none() && self.shower.is_read()
    }
}
