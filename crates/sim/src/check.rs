//! Checkers: what must hold of any simulation at any moment, counted anew.
//!
//! A [`Checker`] looks on at a run (it is told of promotions, refusals, moves and
//! time) and, whenever it is asked, recounts everything from the columns of pages:
//! it trusts no count that the kernel keeps. It is slow and meant for tests.
//!
//! | what | against |
//! |---|---|
//! | resident pages and frames of a zone, plus its free and isolated pages | its managed pages |
//! | pages of a zone's blocks that are not offline | its managed pages |
//! | members and pages of a list | the list's own counts |
//! | pages that belong to a generation, members of its list | the zone's counts, the generations that there are |
//! | entries of a space that are in memory | its resident set |
//! | entries that name a frame | the frame's mappers |
//! | anonymous entries on the swap device | slots that are taken |
//! | words of blocks that no mapping has | zero |
//! | pages allocated, freed and moved | pages in use per node |
//! | moves that were reported | moves that were counted |
//! | pages whose content is known, entries of merged frames | read-only |
//! | frames that carry a stable node | each another one |
//! | entries of the page of zeroes | what merging counts |
//! | items, trees and lists of merging | `Ksm::faults` |
//! | who runs on a CPU, and whether it is idle | its queue of the fair class |
//! | tasks that want to run, and those whose sleep is delayed | the queues' counts |
//! | time of tasks on a CPU, idle and on the way to a task | the time, to the picosecond |
//! | what a task had of CPUs | its processor time |
//! | time that CPUs idled beside tasks that waited for them | what is counted of it |
//! | how far virtual run times are from their queue's mean, how long a task waits | `fair` |

mod cpus;
mod fair;
mod queues;

use crate::content::{Content, Merged};
use crate::kernel::hotplug::BlockState;
use crate::lists::Lru;
use crate::memory::{BLOCK, FRAME_ITEM, ZERO_FRAME};
use crate::page::{OnList, State, Word};
use crate::simulation::Simulation;
use crate::vmstat::Item;
use crate::watch::Watch;
use homenode_core::hold;
use homenode_core::scenario::{AdmissionChoice, Margin, Swap};
use homenode_core::units::HUGE_PAGES;
use homenode_core::units::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Looks on at one simulation.
pub struct Checker {
    seen: Arc<Mutex<Seen>>,
    /// Pages have been moved by `move_pages`, which has no counter of its own: then
    /// moves are bounded by the other counters, not equal to them.
    pub moves_by_hand: bool,
}

#[derive(Default)]
struct Seen {
    told: cpus::Told,
    wasted: cpus::Wasted,
    bounds: fair::Bounds,
    last: u64,
    moved: BTreeMap<(usize, usize), u64>,
    promoted: u64,
    found: Vec<String>,
}

impl Seen {
    fn say(&mut self, text: String) {
        // The first findings tell most; a broken count repeats itself for ever.
        if self.found.len() < 20 {
            self.found.push(text);
        }
    }
}

struct Witness {
    seen: Arc<Mutex<Seen>>,
    /// Choice *b*: promotions leave the high mark alone. A contender's hooks promise nothing.
    above_high: bool,
    /// Per place of a node: every refusal of a base page is followed by a wake-up.
    signals: Vec<bool>,
}

impl Witness {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no checker panics while it writes")
    }
}

impl Watch for Witness {
    fn promoted(&mut self, node: usize, pages: u64, free: u64, high: u64) {
        let mut seen = self.seen();
        seen.promoted += pages;
        if self.above_high && free <= high {
            seen.say(format!(
                "a promotion of {pages} left node place {node} with {free} free, high is {high}"
            ));
        }
    }
    fn moved(&mut self, item: u32, from: usize, to: usize, pages: u64) {
        let mut seen = self.seen();
        *seen.moved.entry((from, to)).or_default() += pages;
        if from == to {
            seen.say(format!("item {item:#x} moved from node place {from} to itself"));
        }
    }
    fn moved_within(&mut self, node: usize, pages: u64) {
        let mut seen = self.seen();
        *seen.moved.entry((node, node)).or_default() += pages;
    }
    fn refused(&mut self, node: usize, pages: u64, demotion_signalled: bool) {
        // A huge page can be too large for a node that kswapd finds balanced.
        if self.signals[node] && pages == 1 && !demotion_signalled {
            self.seen()
                .say(format!("a promotion to node place {node} was refused and nobody was woken"));
        }
    }
    fn queued(&mut self, task: usize, waits: Option<u32>, now: u64) {
        self.seen().told.queued(task, waits, now);
    }
    fn runs(&mut self, cpu: usize, task: usize, now: u64, clock: u64, ran: u64) {
        self.seen().told.runs(cpu, task, now, clock, ran);
    }
    fn stops(
        &mut self,
        cpu: usize,
        task: usize,
        now: u64,
        clock: u64,
        ran: u64,
        waits: Option<u32>,
    ) {
        self.seen().told.stops(cpu, task, now, (clock, ran), waits);
    }
    fn rests(&mut self, cpu: usize, from: u64) {
        self.seen().told.rests(cpu, from);
    }
    fn comes_out(&mut self, cpu: usize, is: bool, now: u64) {
        self.seen().told.comes_out(cpu, is, now);
    }
    fn acted(&mut self, lasts: u64) {
        self.seen().bounds.acted(lasts);
    }
    fn time(&mut self, now: u64) {
        let mut seen = self.seen();
        if now < seen.last {
            let last = seen.last;
            seen.say(format!("time went back from {last} to {now} ps"));
        }
        seen.last = now;
    }
}

impl Checker {
    /// Begins to look on, from the start of a run: replaces whoever does so.
    pub fn watch(sim: &mut Simulation) -> Self {
        let (told, wasted) = cpus::Told::of(sim);
        let bounds = fair::Bounds::of(sim);
        let seen = Seen { last: sim.now(), told, wasted, bounds, ..Seen::default() };
        let seen = Arc::new(Mutex::new(seen));
        let model = &sim.kernel.model;
        let witness = Witness {
            seen: seen.clone(),
            above_high: !sim.kernel.inside.own && model.admission == AdmissionChoice::B,
            // Not so where there is nothing to demote, or a zone so small that it has no
            // band between its marks: what is full for a promotion is then balanced.
            signals: (0..sim.kernel.memory.nodes.len())
                .map(|node| {
                    let zones = &sim.kernel.memory.nodes[node].zones;
                    let bands = zones.iter().map(|&z| sim.kernel.marks[z]);
                    !sim.kernel.inside.own
                        && model.margin != Margin::PostedQuarter
                        && bands.map(|m| m.promo > m.high).reduce(|a, b| a && b) == Some(true)
                })
                .collect(),
        };
        sim.watch(Box::new(witness));
        Self { seen, moves_by_hand: false }
    }

    /// Everything that is wrong now or was wrong on the way; empty if nothing is.
    pub fn findings(&self, sim: &Simulation) -> Vec<String> {
        let mut found = recount(sim);
        let mut seen = self.seen.lock().expect("no checker panics while it writes");
        let Seen { told, wasted, bounds, .. } = &mut *seen;
        found.extend(told.recount(sim, wasted));
        found.extend(fair::recount(sim, told, bounds));
        found.extend(seen.found.iter().cloned());
        let k = &sim.kernel;
        for (from, row) in k.moved.iter().enumerate() {
            for (to, &n) in row.iter().enumerate() {
                let reported = seen.moved.get(&(from, to)).copied().unwrap_or(0);
                hold!(found, n == reported, "{reported} pages moved {from} -> {to}, counted {n}");
            }
        }
        let itself = seen.moved.iter().filter(|((a, b), _)| a == b).map(|(_, n)| n).sum::<u64>();
        let within = k.hotplug.within;
        hold!(
            found,
            itself == within,
            "{itself} pages moved inside a node, {within} by hot-remove"
        );
        let promoted = k.stat.get(Item::PgpromoteSuccess);
        hold!(
            found,
            promoted >= seen.promoted,
            "{} promotions seen, pgpromote_success {promoted}",
            seen.promoted
        );
        let asked = k.stat.get(Item::PgdemoteKswapd)
            + k.stat.get(Item::PgdemoteDirect)
            + k.stat.get(Item::PgdemoteKhugepaged)
            + k.stat.get(Item::NumaPagesMigrated);
        let asked = asked + k.hotplug.moved;
        let moves: u64 = seen.moved.values().sum();
        found.extend(queues::recount(sim));
        hold!(
            found,
            if self.moves_by_hand { asked <= moves } else { asked == moves },
            "{moves} pages moved, {asked} by reclaim, hint faults and hot-remove together"
        );
        found
    }

    /// Runs until all programs have ended or virtual time has reached `stop`, and
    /// looks every `step` picoseconds.
    ///
    /// # Errors
    /// What was found first, with the time at which it was.
    pub fn run(&self, sim: &mut Simulation, stop: u64, step: u64) -> Result<(), String> {
        loop {
            let next = sim.now().saturating_add(step.max(1)).min(stop);
            sim.run_until(next);
            let found = self.findings(sim);
            if !found.is_empty() {
                return Err(format!("at {} ps:\n  {}", sim.now(), found.join("\n  ")));
            }
            if sim.idle() || sim.now() >= stop {
                return Ok(());
            }
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct OnOne {
    pages: u64,
    members: u64,
}

/// What the columns say.
#[derive(Default)]
struct Count {
    used: BTreeMap<usize, u64>,
    lists: BTreeMap<(usize, Lru), OnOne>,
    /// Per zone, generation modulo 4 and type: pages that belong to it, members of its list.
    gens: BTreeMap<(usize, usize, bool), (u64, u64)>,
    rss: BTreeMap<usize, u64>,
    mappers: BTreeMap<u32, Vec<u32>>,
    swapped: u64,
    /// Entries of the page of zeroes, by space.
    zeroes: BTreeMap<usize, u64>,
}

fn recount(sim: &Simulation) -> Vec<String> {
    let k = &sim.kernel;
    let m = &k.memory;
    let mut c = Count::default();
    let mut found = Vec::new();
    let mut huge = 0;
    for (b, block) in m.blocks.iter().enumerate() {
        let first = b as u32 * BLOCK;
        let words = &m.words[first as usize..(first + BLOCK) as usize];
        if block.space == 0 {
            if let Some(i) = words.iter().position(|&w| w != 0) {
                found.push(format!("block {b} is free, but its page {i} is not clear"));
            }
            continue;
        }
        let number = block.space as usize - 1;
        let Some(space) = k.spaces.get(number).and_then(Option::as_ref) else {
            found.push(format!("block {b} belongs to space {number}, which is gone"));
            continue;
        };
        hold!(
            found,
            space.place(block.step * u64::from(BLOCK), block.file) == Some(first),
            "space {number} doesn't know its block {b}"
        );
        for (i, &w) in words.iter().enumerate() {
            if w == 0 {
                continue;
            }
            let (w, page) = (Word(w), first + i as u32);
            let vpn = block.step * u64::from(BLOCK) + i as u64;
            hold!(
                found,
                space.find(vpn).is_some_and(|v| space.vmas[v].kind.file == block.file),
                "space {number} has an entry at {vpn}, but no mapping"
            );
            match w.state() {
                State::None => {
                    found.push(format!("page {page} holds nothing but bits: {:#x}", w.0))
                }
                State::Swapped => c.swapped += u64::from(!block.file),
                State::Present | State::ProtNone if m.is_zero_page(w) => {
                    hold!(
                        found,
                        !w.writable() && m.mappers(ZERO_FRAME).is_empty(),
                        "page {page} may write to the page of zeroes"
                    );
                    *c.zeroes.entry(number).or_default() += 1;
                }
                State::Present | State::ProtNone => {
                    *c.rss.entry(number).or_default() += 1;
                    if w.shared() {
                        hold!(found, !block.huge, "page {page} of a huge page is shared");
                        c.mappers.entry(w.frame()).or_default().push(page);
                    } else {
                        let tail = block.huge && i > 0;
                        place(sim, &mut c, &mut found, page, w, tail, block.huge, block.file);
                    }
                }
            }
        }
        if block.huge {
            let head = Word(words[0]);
            let whole = words.iter().all(|&w| Word(w).resident() && Word(w).zone() == head.zone());
            hold!(found, whole, "the huge page of block {b} has parts elsewhere");
            hold!(found, !block.table, "the huge page of block {b} has a page table too");
            huge += 1;
        } else {
            let used = words.iter().any(|&w| w != 0);
            hold!(found, block.table || !used, "block {b} has entries and no page table");
        }
    }
    // Each huge page came by a fault or by khugepaged, and is split or freed once.
    let came = k.stat.get(Item::ThpFaultAlloc) + k.khugepaged.pages_collapsed;
    let split = k.stat.get(Item::ThpSplitPmd);
    hold!(
        found,
        huge + split <= came,
        "{came} huge pages came, {huge} are there, thp_split_pmd {split}"
    );
    let mut frames = 0;
    m.each_frame(|frame, w, n| {
        frames += 1;
        let item = frame | FRAME_ITEM;
        let mut named = c.mappers.get(&frame).cloned().unwrap_or_default();
        let mut mappers = m.mappers(frame).to_vec();
        hold!(
            found,
            mappers.iter().enumerate().all(|(i, &p)| m.mapper_at(p) == i),
            "a mapper of frame {frame} doesn't know its place: {mappers:?}"
        );
        named.sort_unstable();
        mappers.sort_unstable();
        hold!(
            found,
            named == mappers && n == named.len(),
            "frame {frame} is mapped by {named:?}, but believes {mappers:?}"
        );
        place(sim, &mut c, &mut found, item, w, false, false, m.is_file(item));
    });
    hold!(
        found,
        frames == c.mappers.len(),
        "{frames} frames are in use, entries name {}",
        c.mappers.len()
    );
    contents(sim, &c, &mut found);
    against_counts(sim, &c, &mut found);
    found
}

/// What is kept of contents and merging, against the entries.
fn contents(sim: &Simulation, c: &Count, found: &mut Vec<String>) {
    let k = &sim.kernel;
    let m = &k.memory;
    let Some(column) = m.contents.as_deref() else { return };
    hold!(
        found,
        column.lens() == (m.words.len(), m.nr_frames()),
        "contents reach {:?} pages and frames, of {} and {}",
        column.lens(),
        m.words.len(),
        m.nr_frames()
    );
    m.each_entry(|page, w, block| {
        if w.resident() && !w.shared() {
            let known = column.known(page) != Content::OWN;
            hold!(
                found,
                !(known && (w.writable() || block.file)),
                "page {page} holds {:?} and may be written",
                m.content(page)
            );
            hold!(
                found,
                known || !column.is_armed(page),
                "page {page} is armed though nobody has looked"
            );
        }
        hold!(
            found,
            !(w.shared() && m.is_merged(w.frame()) && w.writable()),
            "page {page} may write to merged frame {}",
            w.frame()
        );
    });
    let mut nodes = std::collections::BTreeSet::new();
    for &frame in c.mappers.keys() {
        hold!(
            found,
            column.merged(frame) == Merged::No || column.of_frame(frame) != Content::OWN,
            "merged frame {frame} holds nothing known"
        );
        if let Merged::Node(node) = column.merged(frame) {
            hold!(found, nodes.insert(node), "two frames carry stable node {node}");
        }
    }
    let ksm = k.ksm();
    let zeroes: u64 = c.zeroes.values().sum();
    let counted = ksm.counters().ksm_zero_pages;
    hold!(
        found,
        counted == zeroes as i64,
        "{zeroes} entries map the page of zeroes, counted {counted}"
    );
    for (&space, &n) in &c.zeroes {
        let counted = k.mm_of(space).map_or(0, |mm| ksm.mm_stat(mm).zero_pages);
        hold!(
            found,
            counted == n as i64,
            "space {space} has {n} pages of zeroes, counted {counted}"
        );
    }
    found.extend(ksm.faults(k).into_iter().map(|f| format!("merging: {f}")));
}

/// Counts one page (or part of a huge one) in its zone, and an item on its list.
fn place(
    sim: &Simulation,
    c: &mut Count,
    found: &mut Vec<String>,
    item: u32,
    w: Word,
    tail: bool,
    huge: bool,
    file: bool,
) {
    let m = &sim.kernel.memory;
    let Some(zone) = m.zones.get(w.zone()) else {
        found.push(format!("item {item:#x} lies in zone {}, which there isn't", w.zone()));
        return;
    };
    *c.used.entry(w.zone()).or_default() += 1;
    if m.has_generations() {
        match (m.listed(item).is_some(), tail) {
            (false, true) => {}
            (false, false) => found.push(format!("item {item:#x} is on no list")),
            (true, true) => found.push(format!("page {item:#x} inside a huge page is on a list")),
            (true, false) => {
                let at = |index| (w.zone(), index, file);
                let pages = if huge { u64::from(BLOCK) } else { 1 };
                c.gens.entry(at(w.gen_index())).or_default().0 += pages;
                c.gens.entry(at(m.gen_list_of(item))).or_default().1 += 1;
            }
        }
        return;
    }
    match (w.on_list(), tail) {
        (OnList::Isolated, true) => {}
        (OnList::Isolated, false) => found.push(format!("item {item:#x} is on no list")),
        (_, true) => found.push(format!("page {item:#x} inside a huge page is on a list")),
        (on, false) => {
            let lru = Lru::of(file, on == OnList::Active);
            let list = c.lists.entry((zone.node, lru)).or_default();
            list.members += 1;
            list.pages += if huge { u64::from(BLOCK) } else { 1 };
        }
    }
}

/// Generations against what zones and nodes have of them.
fn against_generations(sim: &Simulation, c: &Count, found: &mut Vec<String>) {
    let k = &sim.kernel;
    hold!(
        found,
        k.knobs.lru_gen.core() == k.memory.has_generations(),
        "lru_gen is {:?}, and memory is kept otherwise",
        k.knobs.lru_gen
    );
    if !k.memory.has_generations() {
        return;
    }
    for (i, zone) in k.memory.zones.iter().enumerate() {
        let g = &k.kswapd[zone.node].generations;
        for (file, index) in [false, true].into_iter().flat_map(|f| (0..4).map(move |i| (f, i))) {
            let mine = c.gens.get(&(i, index, file)).copied().unwrap_or_default();
            let theirs = k.memory.of_generation(i, index, file);
            let what = if file { "files'" } else { "anonymous" };
            hold!(
                found,
                mine == theirs,
                "zone {i}, {what} generation {index}: {mine:?} pages and members, counted {theirs:?}"
            );
            hold!(
                found,
                mine == (0, 0) || g.seq_of(file, index).is_some(),
                "zone {i}: {what} pages {mine:?} in generation {index}, which there isn't: {g:?}"
            );
        }
    }
    for (n, of) in k.kswapd.iter().enumerate() {
        let g = &of.generations;
        for file in [false, true] {
            let count = g.count(file);
            hold!(found, (2..=4).contains(&count), "node place {n} has {count} generations: {g:?}");
        }
    }
}

fn against_counts(sim: &Simulation, c: &Count, found: &mut Vec<String>) {
    let k = &sim.kernel;
    let mut used_on = vec![0u64; k.memory.nodes.len()];
    let online = k.hotplug.blocks.iter().filter(|b| b.state != BlockState::Offline);
    let mut sizes = vec![0; k.memory.zones.len()];
    online.for_each(|b| sizes[b.zone] += b.pages);
    for (i, zone) in k.memory.zones.iter().enumerate() {
        let (size, managed) = (sizes[i], zone.managed);
        hold!(found, size == managed, "zone {i}: its blocks have {size} pages, managed {managed}");
        let used = c.used.get(&i).copied().unwrap_or(0);
        used_on[zone.node] += used;
        hold!(
            found,
            used + zone.free + zone.isolated == zone.managed,
            "zone {i}: {used} used + {} free + {} isolated, managed {}",
            zone.free,
            zone.isolated,
            zone.managed
        );
    }
    against_generations(sim, c, found);
    for (n, node) in k.memory.nodes.iter().enumerate() {
        for lru in Lru::ALL {
            let mine = c.lists.get(&(n, lru)).copied().unwrap_or_default();
            let theirs = OnOne { pages: node.on(lru), members: node.members_on(lru) };
            hold!(found, mine == theirs, "node place {n} {lru:?}: {mine:?}, counted {theirs:?}");
        }
    }
    for (i, space) in k.spaces.iter().enumerate() {
        let rss = c.rss.get(&i).copied().unwrap_or(0);
        let believed = space.as_ref().map_or(0, |s| s.rss);
        hold!(found, rss == believed, "space {i}: {rss} pages in memory, rss {believed}");
    }
    let device = match k.model.swap {
        Swap::None => 0,
        Swap::Device(pages) => pages.0,
    };
    hold!(
        found,
        c.swapped + k.swap_free == device + k.swap_shared,
        "swap: {} entries + {} free, device of {device} + {} shared",
        c.swapped,
        k.swap_free,
        k.swap_shared
    );
    // Counters, per node and for the machine.
    let get = |i| k.stat.get(i);
    for (n, &used) in used_on.iter().enumerate() {
        let came = k.stat.of(n, Item::Pgalloc) + k.moved.iter().map(|row| row[n]).sum::<u64>();
        let went = k.stat.of(n, Item::Pgfree) + k.moved[n].iter().sum::<u64>();
        hold!(found, came == went + used, "node place {n}: {came} came, {went} went, {used} used");
        let success = k.stat.of(n, Item::PgmigrateSuccess);
        let moved = k.moved.iter().map(|row| row[n]).sum::<u64>();
        hold!(
            found,
            success == moved,
            "node place {n}: pgmigrate_success {success}, moved {moved}"
        );
        for (steal, scan) in [
            (Item::PgstealKswapd, Item::PgscanKswapd),
            (Item::PgstealDirect, Item::PgscanDirect),
            (Item::PgdemoteKswapd, Item::PgstealKswapd),
            (Item::PgdemoteDirect, Item::PgstealDirect),
            (Item::PgstealKhugepaged, Item::PgscanKhugepaged),
            (Item::PgdemoteKhugepaged, Item::PgstealKhugepaged),
        ] {
            let (a, b) = (k.stat.of(n, steal), k.stat.of(n, scan));
            hold!(found, a <= b, "node place {n}: {} {a} > {} {b}", steal.name(), scan.name());
        }
    }
    for (less, more) in [
        (Item::PgpromoteSuccess, Item::NumaPagesMigrated),
        (Item::NumaPagesMigrated, Item::PgmigrateSuccess),
        (Item::NumaHintFaults, Item::Pgfault),
        (Item::NumaHintFaultsLocal, Item::NumaHintFaults),
        (Item::Pgmajfault, Item::Pgfault),
        (Item::Pswpin, Item::Pgmajfault),
        (Item::ThpMigrationSplit, Item::ThpMigrationFail),
        (Item::ThpMigrationSplit, Item::ThpSplitPage),
        (Item::ThpSwpoutFallback, Item::ThpSplitPage),
        (Item::ThpSplitPage, Item::ThpSplitPmd),
    ] {
        let (a, b) = (get(less), get(more));
        hold!(found, a <= b, "{} {a} > {} {b}", less.name(), more.name());
    }
    let (huge, all) = (get(Item::NumaHugePteUpdates), get(Item::NumaPteUpdates));
    hold!(found, huge * 512 <= all, "numa_huge_pte_updates {huge}, numa_pte_updates {all}");
    // A huge page is one allocation.
    let whole = get(Item::ThpFaultAlloc) + get(Item::ThpCollapseAlloc);
    let alloc = get(Item::Pgalloc) - (HUGE_PAGES - 1) * whole;
    for (a, b) in [(Item::NumaHit, Item::NumaMiss), (Item::NumaLocal, Item::NumaOther)] {
        let sum = get(a) + get(b);
        hold!(found, sum == alloc, "{} + {} = {sum}, {alloc} allocations", a.name(), b.name());
    }
    let (miss, foreign) = (get(Item::NumaMiss), get(Item::NumaForeign));
    hold!(found, miss == foreign, "numa_miss {miss}, numa_foreign {foreign}");
    // Reclaim moves downwards only, promotion upwards only.
    let (mut down, mut up) = (0, 0);
    for (from, row) in k.moved.iter().enumerate() {
        let id = |place: usize| NodeId(k.memory.nodes[place].id);
        let lower = k.tiers.demotion_fallback(&sim.machine, id(from));
        for (to, &n) in row.iter().enumerate() {
            let (was_lower, was_upper) = (k.hotplug.lower[from][to], k.hotplug.upper[from][to]);
            down += if was_lower || lower.contains(&id(to)) { n } else { 0 };
            up += if was_upper || k.top[to] && !k.top[from] { n } else { 0 };
        }
    }
    let (whole, all) = (get(Item::ThpMigrationSuccess), get(Item::PgmigrateSuccess));
    hold!(found, whole * 512 <= all, "thp_migration_success {whole}, pgmigrate_success {all}");
    let (made, alloc) = (k.khugepaged.pages_collapsed, get(Item::ThpCollapseAlloc));
    hold!(found, made <= alloc, "pages_collapsed {made}, thp_collapse_alloc {alloc}");
    let demoted =
        get(Item::PgdemoteKswapd) + get(Item::PgdemoteDirect) + get(Item::PgdemoteKhugepaged);
    hold!(found, demoted <= down, "{demoted} demoted, {down} moved to lower tiers");
    let promoted = get(Item::PgpromoteSuccess);
    hold!(found, promoted <= up, "{promoted} promoted, {up} moved to the top tier");
}
