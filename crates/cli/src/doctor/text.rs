//! Findings for people.

use super::Findings;
use crate::nodes;
use homenode_core::policy::choice::cell;
use homenode_core::policy::facts::Known;
use homenode_core::policy::matrix::Decision;
use homenode_core::policy::seen::{Shows, Source};
use homenode_core::units::{Bytes, count};
use homenode_live::people::name::printable;
use homenode_live::probe::{CAPABILITIES, LoadEvents, meaning};
use homenode_live::sched_ext::SchedExt;

/// Columns of the text: what a terminal has, if it is not a wide one.
const WIDTH: usize = 100;
/// Columns before the text of a line.
const INDENT: usize = 22;

/// Lines of a page, each with a label before it.
struct Page(String);

impl Page {
    fn title(&mut self, title: &str) {
        self.0 += &format!("\n{title}\n");
    }
    /// A label and its text, which is folded between words.
    fn line(&mut self, label: &str, text: &str) {
        let mut label = format!("  {label}");
        let mut row = String::new();
        let end = |label: &mut String, row: &mut String, out: &mut String| {
            out.push_str(format!("{label:<INDENT$}{row}").trim_end());
            out.push('\n');
            label.clear();
            row.clear();
        };
        for word in text.split_ascii_whitespace() {
            if !row.is_empty() && INDENT + row.chars().count() + 1 + word.chars().count() > WIDTH {
                end(&mut label, &mut row, &mut self.0);
            }
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
        end(&mut label, &mut row, &mut self.0);
    }
}

fn tried(done: Option<Result<(), i32>>) -> String {
    match done {
        Some(Ok(())) => "works".to_owned(),
        Some(Err(errno)) => format!("error {errno} ({})", meaning_of_call(errno)),
        None => "not tried".to_owned(),
    }
}

fn meaning_of_call(errno: i32) -> &'static str {
    match errno {
        25 => "this kernel doesn't know it",
        38 => "this kernel doesn't have it",
        1 | 13 => "not privileged",
        _ => "not answered",
    }
}

/// What is said of it where it is so, where it is not, and where that is not known.
fn said(is_so: Option<bool>, [yes, no, unknown]: [&'static str; 3]) -> &'static str {
    match is_so {
        Some(true) => yes,
        Some(false) => no,
        None => unknown,
    }
}

fn or<T: ToString>(value: Option<T>, other: &str) -> String {
    value.map_or_else(|| other.to_owned(), |v| v.to_string())
}

fn list(words: &[impl ToString]) -> String {
    match words {
        [] => "none".to_owned(),
        _ => words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn text(found: &Findings) -> String {
    let mut page = Page(String::new());
    machine(found, &mut page);
    page.title("heat");
    page.line("homenode would use", &found.choice.to_string());
    for source in Source::ALL {
        heat(found, source, &mut page);
    }
    matrix(found, &mut page);
    sources(found, &mut page);
    placement(found, &mut page);
    scheduler(found, &mut page);
    rights(found, &mut page);
    missing(found, &mut page);
    page.0
}

fn machine(found: &Findings, page: &mut Page) {
    let p = &found.probe;
    page.0 = format!("Linux {}\n", printable(&or(p.kernel.as_deref(), "of unknown release")));
    page.title("machine");
    let t = match &p.topology {
        Ok(t) => t,
        Err(why) => return page.line("nodes", &format!("can't be read: {}", printable(why))),
    };
    let model = t.model.as_deref().unwrap_or("unnamed processor");
    let within = if t.virtual_machine { " in a virtual machine" } else { "" };
    page.line("processor", &format!("{}{within}", printable(model)));
    for (n, row) in t.nodes.iter().zip(&t.distances) {
        let id = u32::from(n.id.0);
        let cpus: Vec<u32> = t.cpus.iter().filter(|c| c.node == n.id).map(|c| c.id.0).collect();
        let cpus =
            if cpus.is_empty() { "none".to_owned() } else { homenode_config::write_list(&cpus) };
        let tier = p.tiers.iter().find(|(_, nodes)| nodes.contains(&id));
        let tier = tier.map_or("no tier".to_owned(), |(t, _)| format!("tier {t}"));
        let row = row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let node = format!("{}, CPUs {cpus}, {tier}, distances {row}", nodes::size(n.size()));
        page.line(&format!("node {id}"), &node);
    }
    for note in &t.notes {
        page.line("", &printable(note));
    }
}

fn heat(found: &Findings, source: Source, page: &mut Page) {
    let lacks = found.lacks(source);
    let offered = match lacks.as_slice() {
        [] if source.shows() == Shows::Nothing => {
            "offered: where pages are, without heat".to_owned()
        }
        [] => "offered".to_owned(),
        some => {
            let some: Vec<String> = some.iter().map(ToString::to_string).collect();
            format!("not offered: {}", some.join("; "))
        }
    };
    page.line(source.name(), &offered);
    page.line("", &format!("in use: {}", source.sheet().disturbs));
}

/// The row of this machine: what is decided how with each source.
fn matrix(found: &Findings, page: &mut Page) {
    page.title("what could be decided here");
    for source in Source::ALL {
        if !found.lacks(source).is_empty() {
            page.line(source.name(), "nothing: it is not offered");
            continue;
        }
        for (i, d) in Decision::ALL.into_iter().enumerate() {
            let label = if i == 0 { source.name() } else { "" };
            page.line(label, &format!("{}: {}", d.title(), cell(d, source, &found.facts)));
        }
    }
}

fn sources(found: &Findings, page: &mut Page) {
    let p = &found.probe;
    let (d, h) = (&p.damon, &p.hints);
    page.title("what the kernel has for it");
    let [sysfs, vaddr, paddr] = [d.sysfs, d.vaddr, d.paddr].map(Known::name);
    let damon = format!("sysfs {sysfs}, virtual address spaces {vaddr}, physical memory {paddr}");
    page.line("DAMON", &damon);
    for s in &d.slots {
        let state = said(s.on, ["runs", "is off", "may not be looked at"]);
        let on = s.operations.as_deref().map_or(String::new(), |o| format!(" on {}", printable(o)));
        let pid = or(s.pid, "none");
        page.line("", &format!("kdamond {} of somebody else {state}{on}, PID {pid}", s.index));
    }
    if d.threads.len() > d.slots.len() {
        page.line("", &format!("threads of kdamonds: PID {}", list(&d.threads)));
    }
    if !d.modules.is_empty() {
        page.line("", &format!("switched on: {}", list(&d.modules)));
    }
    let (built, mode) = (h.built.name(), or(h.mode, "unseen"));
    let limit = or(h.promote_rate_limit_mbps.map(|m| format!("{m} MB/s")), "none");
    let hints = format!("built {built}, kernel.numa_balancing {mode}, promotion limit {limit}");
    page.line("hint faults", &hints);
    let functions = match p.symbols.readable {
        true => list(&h.functions),
        false => "unseen".to_owned(),
    };
    page.line("", &format!("functions to watch: {functions}"));
    let points = match &h.tracefs {
        Some(at) => format!("{} (tracefs at {at})", list(&h.tracepoints)),
        None => "unseen, as tracefs is not mounted or not readable".to_owned(),
    };
    page.line("tracepoints", &points);
    let btf = match h.btf_bytes {
        Some(bytes) => format!("/sys/kernel/btf/vmlinux, {bytes} bytes"),
        None => "none".to_owned(),
    };
    page.line("BTF", &format!("{btf}; BPF built {}", h.bpf.name()));
    page.line("PMU", &list(&p.pmu.devices));
    for t in &p.pmu.tried {
        let became = match t.error {
            None => "opens".to_owned(),
            Some(e) => format!("error {e} ({})", meaning(e)),
        };
        page.line("", &format!("{}: {became}", t.name));
    }
    let cycles = match p.pmu.cycles {
        None => "not tried".to_owned(),
        Some(Ok(())) => "open".to_owned(),
        Some(Err(e)) => format!("error {e} ({})", meaning(e)),
    };
    page.line("", &format!("hardware cycles: {cycles}"));
    let follows = match p.pmu.loads {
        LoadEvents::Opens(_) | LoadEvents::Untried(_) => "",
        LoadEvents::NoPmu | LoadEvents::Unknown | LoadEvents::Failed(_) => {
            "; each is taken to be waited for alone"
        }
    };
    page.line("", &format!("loads at once: {}{follows}", p.pmu.loads));
    let pages = &p.pages;
    let (scan, query) = (tried(pages.pagemap_scan), tried(pages.page_query));
    let maps = Known::from_bool(pages.numa_maps).name();
    let ways = format!("PAGEMAP_SCAN {scan}; move_pages as a question {query}; numa_maps {maps}");
    page.line("pages", &ways);
    let dirty = match pages.soft_dirty {
        Known::Yes => {
            "yes: of writes only; clearing them takes them from CRIU, and each page's \
                       next write then faults"
        }
        known => known.name(),
    };
    page.line("", &format!("soft-dirty bits {dirty}"));
    let reclaim = format!(
        "clear_refs {}: it clears accessed bits, which misleads reclaim; idle page bitmap {}; \
         MGLRU {}",
        Known::from_bool(pages.clear_refs).name(),
        Known::from_bool(pages.page_idle).name(),
        printable(&or(pages.lru_gen.as_deref(), "not built"))
    );
    page.line("", &reclaim);
    page.line("configuration", &or(p.config.from.as_deref(), "not found"));
}

fn placement(found: &Findings, page: &mut Page) {
    let p = &found.probe;
    page.title("the kernel's own placement");
    page.line("demotion", said(p.demotion_enabled, ["on", "off", "this kernel has none"]));
    let weights = match &p.interleave {
        None => "this kernel has none".to_owned(),
        Some(i) => {
            let weights: Vec<_> = i.weights.iter().map(|(n, w)| format!("node {n}: {w}")).collect();
            let auto = said(i.auto, [", made by the kernel", ", set by hand", ""]);
            format!("{}{auto}", list(&weights))
        }
    };
    page.line("weighted interleave", &weights);
    let scheduler = match &p.sched_ext {
        SchedExt::None => {
            "not built: `homenode sched` needs Linux 6.13 or newer with CONFIG_SCHED_CLASS_EXT"
                .to_owned()
        }
        SchedExt::Free => "no scheduler is loaded: `homenode sched` can be".to_owned(),
        SchedExt::Taken(name) => format!("the scheduler {} is loaded", printable(name)),
    };
    page.line("sched_ext", &scheduler);
    let Some(run) = p.ksm.run else {
        return page.line("KSM", "this kernel has none");
    };
    let merging = format!(
        "run {run}, merge_across_nodes {}, pages_sharing {}, {} registered{}",
        or(p.ksm.merge_across_nodes, "not there"),
        or(p.ksm.pages_sharing, "unseen"),
        count(p.ksm.registered.len() as u64, "process", "processes"),
        match p.ksm.unseen {
            0 => String::new(),
            n => format!(", {n} could not be asked"),
        }
    );
    page.line("KSM", &merging);
    /// More are a list for `merge drive --observe`.
    const MOST: usize = 8;
    for (pid, name, stat) in p.ksm.registered.iter().take(MOST) {
        let pages = count(stat.merging_pages, "page", "pages");
        page.line("", &format!("{pid} {}: {pages} merged", printable(name)));
    }
    if p.ksm.registered.len() > MOST {
        page.line("", &format!("and {} more", p.ksm.registered.len() - MOST));
    }
}

fn scheduler(found: &Findings, page: &mut Page) {
    page.title("scheduler statistics");
    let lacks = found.stats_lack();
    let live = match lacks.as_slice() {
        [] => "homenode stats --system can count".to_owned(),
        lacks => {
            let lack = |(what, how): &(&str, &str)| format!("{what} is missing: {how}");
            lacks.iter().map(lack).collect::<Vec<_>>().join("; ")
        }
    };
    page.line("live", &live);
    let own = match found.probe.config.has("CONFIG_SCHEDSTATS") {
        Known::Yes => "yes; the switch is kernel.sched_schedstats",
        Known::No => "this kernel has none",
        Known::Unseen => "unseen",
    };
    page.line("the kernel's own", own);
}

fn rights(found: &Findings, page: &mut Page) {
    let r = &found.probe.rights;
    page.title("rights");
    page.line("user", &format!("effective UID {}", or(r.euid, "unseen")));
    let (has, not): (Vec<_>, Vec<_>) = CAPABILITIES.into_iter().partition(|(_, b)| r.has(*b));
    let names = |caps: &[(&str, u32)]| list(&caps.iter().map(|c| c.0).collect::<Vec<_>>());
    let without = if not.is_empty() { String::new() } else { format!("; without {}", names(&not)) };
    page.line("capabilities", &format!("{}{without}", names(&has)));
    let limits = format!(
        "perf_event_paranoid {}, kptr_restrict {}, unprivileged_bpf_disabled {}, Yama's \
         ptrace_scope {}, lockdown {}",
        or(r.perf_event_paranoid, "unseen"),
        or(r.kptr_restrict, "unseen"),
        or(r.unprivileged_bpf_disabled, "unseen"),
        or(r.ptrace_scope, "none"),
        printable(&or(r.lockdown.as_deref(), "none")),
    );
    page.line("limits", &limits);
    let size = |b: u64| if b == u64::MAX { "none".to_owned() } else { nodes::size(Bytes(b)) };
    let memlock = r.memlock.map(|(s, h)| format!("{} (at most {})", size(s), size(h)));
    page.line("RLIMIT_MEMLOCK", &or(memlock, "not asked"));
    let (first, other) = ("the machine's own user namespace", "a user namespace of its own");
    let userns = said(r.first_userns, [first, other, "user namespace unseen"]);
    let pidns = if r.sees_kthreads { "kernel threads seen" } else { "kernel threads not seen" };
    let sys = said(r.sys_read_only, ["/sys read-only", "/sys writable", "/sys not mounted"]);
    let filter = if r.seccomp == Some(true) { ", a seccomp filter is on" } else { "" };
    let signs = match r.container.as_slice() {
        [] => String::new(),
        some => format!(", signs of a container: {}", list(some)),
    };
    page.line("surroundings", &format!("{userns}, {pidns}, {sys}{filter}{signs}"));
}

fn missing(found: &Findings, page: &mut Page) {
    page.title("what is missing, and how to get it");
    let before = page.0.len();
    for source in Source::ALL {
        for (i, lack) in found.lacks(source).iter().enumerate() {
            let label = if i == 0 { source.name() } else { "" };
            page.line(label, &format!("{lack}: {}", lack.remedy()));
        }
    }
    for (i, (what, how)) in found.advice().iter().enumerate() {
        let label = if i == 0 { "besides" } else { "" };
        page.line(label, &format!("{}: {how}", printable(what)));
    }
    if page.0.len() == before {
        page.line("nothing", "");
    }
    if !found.probe.unseen.is_empty() {
        page.title("what could not be seen for want of privilege");
        for path in &found.probe.unseen {
            page.line("", &printable(path));
        }
    }
}
