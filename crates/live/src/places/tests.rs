//! Pages of this process and of others, on this machine, on both ways there are.

use super::*;
use homenode_fixtures::Folder;
use std::process::{Command, Stdio};

/// Memory of one's own: private, without swap reserved for it, in small pages.
struct Own {
    start: *mut u8,
    bytes: usize,
}

impl Own {
    fn map(pages: usize) -> Self {
        let bytes = pages << 12;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let modes = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, modes, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // SAFETY: our own mapping; it changes no contents.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Self { start: start.cast(), bytes }
    }
    fn write(&self, page: usize) {
        assert!(page << 12 < self.bytes);
        // SAFETY: inside of the mapping, to which nobody holds a reference.
        unsafe { self.start.add(page << 12).write_volatile(1) }
    }
    fn read(&self, page: usize) {
        assert!(page << 12 < self.bytes);
        // SAFETY: as above.
        unsafe { self.start.add(page << 12).read_volatile() };
    }
    fn span(&self, pages: std::ops::Range<u64>) -> Span {
        let first = self.start as u64 >> 12;
        Span { start: first + pages.start, end: first + pages.end }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

fn who(pid: u32) -> Who {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap();
    Who { pid, start: start(&stat).unwrap() }
}
fn me() -> Who {
    who(std::process::id())
}
fn sum(found: &ByNode) -> u64 {
    found.values().map(|p| p.0).sum()
}

/// The ways that this kernel offers: as it is, and as if it were older.
fn ways() -> Vec<(&'static str, ThisKernel)> {
    let old = ThisKernel { scans: false, ..ThisKernel::new("/") };
    let mut new = ThisKernel::new("/");
    let _ = new.within(me(), Span { start: 1, end: 2 });
    if !new.scans {
        println!("skipped: this kernel has no PAGEMAP_SCAN, only the older way is tried");
        return vec![("pagemap", old)];
    }
    vec![("PAGEMAP_SCAN", new), ("pagemap", old)]
}

#[test]
fn what_was_touched_is_counted_and_nothing_else() {
    let own = Own::map(4096);
    (100..150).for_each(|p| own.write(p));
    own.write(4095);
    // Only read: the page of zeros.
    own.read(1000);
    for (name, mut kernel) in ways() {
        let mut of = |pages| kernel.within(me(), own.span(pages)).unwrap();
        assert_eq!(sum(&of(0..4096)), 51, "{name}");
        assert_eq!(sum(&of(120..130)), 10, "{name}");
        assert_eq!(of(200..4095), ByNode::new(), "{name}");
        let here = with_memory(Path::new("/"));
        assert!(of(0..4096).keys().all(|n| here.contains(&n.0)), "{name}");
    }
}

// specs/live.md#places: what frames tell is what asking tells.
#[test]
fn frames_tell_the_same_as_questions() {
    let own = Own::map(4096);
    (0..4096).filter(|p| p % 7 != 3 && *p < 3000).for_each(|p| own.write(p));
    let root = Path::new("/");
    if !sees_frames(root) {
        println!("skipped: pagemap shows no frames without CAP_SYS_ADMIN");
        return;
    }
    let Some(frames) = Frames::read(root, &with_memory(root)) else {
        println!("skipped: neither memory blocks nor zones are told");
        return;
    };
    let kernel = ThisKernel::new("/");
    let pagemap = kernel.files.open(me(), "pagemap").unwrap();
    let count = |frames| {
        let mut asked = Asked::new(me().pid, None, frames);
        let got = present::scan(&pagemap, own.span(0..4096), |piece| asked.add(piece));
        got.map(|()| (asked.addresses.len(), asked.done().unwrap()))
    };
    let (Ok((queries, by_frames)), Ok((_, by_queries))) =
        (count(Some((&frames, &pagemap))), count(None))
    else {
        println!("skipped: this kernel has no PAGEMAP_SCAN");
        return;
    };
    assert_eq!(by_frames, by_queries);
    assert_eq!(sum(&by_frames), (0..3000).filter(|p| p % 7 != 3).count() as u64);
    assert_eq!(queries, 0, "all frames are known");
}

// specs/live.md#places: a census finds memory that lies together, idle as it may be; by
// mappings where the kernel tells no more.
#[test]
fn a_census_finds_what_lies_together() {
    let own = Own::map(1000);
    (0..300).chain(600..640).for_each(|p| own.write(p));
    for (name, mut kernel) in [
        ("this kernel", ThisKernel::new("/")),
        ("before 6.7", ThisKernel { scans: false, ..ThisKernel::new("/") }),
    ] {
        let Some(all) = kernel.extents(me()) else {
            println!("skipped: {name} has no numa_maps");
            continue;
        };
        assert!(all.windows(2).all(|w| w[0].0.end <= w[1].0.start), "{name}: they rise");
        let ours = own.span(0..300);
        let (span, pages) =
            all.iter().find(|(s, _)| s.start <= ours.start && s.end >= ours.end).unwrap();
        // The kernel may join it with a neighbour.
        assert!(sum(pages) >= 300 && sum(pages) <= span.pages().0, "{name}: {pages:?} in {span:?}");
        if kernel.scans {
            let hole = own.span(400..500);
            assert!(all.iter().all(|(s, _)| s.end <= hole.start || s.start >= hole.end), "{name}");
            let more = own.span(600..640);
            assert!(all.iter().any(|(s, _)| s.holds(more.start) && s.end >= more.end), "{name}");
        }
        let nobody = Who { pid: me().pid, start: me().start + 1 };
        assert_eq!(kernel.extents(nobody), None, "{name}");
    }
}

#[test]
fn many_spans_at_once_are_each_counted() {
    let own = Own::map(100 * 1000);
    (0..1000).for_each(|i| (0..i % 65).for_each(|p| own.write(i * 100 + p)));
    let spans: Vec<Span> = (0..1000).map(|i| own.span(i * 100..i * 100 + 64)).collect();
    for (name, mut kernel) in ways() {
        let begun = std::time::Instant::now();
        let found = kernel.within_each(me(), &spans).unwrap();
        println!("{name}: 1000 spans took {:?}", begun.elapsed());
        let pages: Vec<u64> = found.iter().map(sum).collect();
        assert_eq!(pages, (0..1000).map(|i| i % 65).collect::<Vec<_>>(), "{name}");
        assert_eq!(kernel.within_each(me(), &[]), Some(Vec::new()), "{name}");
        let nobody = Who { pid: me().pid, start: me().start + 1 };
        assert_eq!(kernel.within_each(nobody, &spans), None, "{name}");
    }
}

/// A look at 100 pages in 1 TiB goes through no more than those: on the older way half
/// of it would already be a gigabyte of zeros.
#[test]
fn a_sparse_mapping_costs_what_is_in_it() {
    const TIB: usize = 1 << 28;
    let own = Own::map(TIB);
    (0..100).for_each(|i| own.write(i * (TIB / 100)));
    for (name, mut kernel) in ways() {
        let begun = std::time::Instant::now();
        let found = kernel.within(me(), own.span(0..TIB as u64)).unwrap();
        println!("{name}: 1 TiB with 100 pages took {:?}", begun.elapsed());
        assert_eq!(sum(&found), 100, "{name}");
        let begun = std::time::Instant::now();
        let most = kernel.within(me(), own.span(1000..TIB as u64)).unwrap();
        println!("{name}: all but a little of it took {:?}", begun.elapsed());
        assert_eq!(sum(&most), 99, "{name}");
        let begun = std::time::Instant::now();
        let whole = kernel.within(me(), crate::machine::WHOLE).unwrap();
        println!("{name}: the whole process took {:?}", begun.elapsed());
        assert!(sum(&whole) > 100, "{name}: {whole:?}");
        let begun = std::time::Instant::now();
        let census = kernel.census(me()).unwrap();
        println!("{name}: its census took {:?}", begun.elapsed());
        assert!(sum(&census) > 100, "{name}: {census:?}");
    }
}

// specs/live.md#places: while one thread asks, others of the process map and unmap memory beside.
#[test]
fn mappings_that_were_joined_and_are_not_any_more_are_counted() {
    let maps = [Span { start: 10, end: 30 }, Span { start: 40, end: 50 }];
    let mut totals = Totals::default();
    for line in [
        // A neighbour of the first that came: nothing of it was touched.
        "a000 default",
        "14000 default anon=5 N0=3 N1=2",
        "1a000 default anon=1 N1=1",
        // Between the two, and above both: they have come since.
        "1f000 default anon=7 N0=7",
        "32000 default anon=7 N0=7",
    ] {
        totals.note(&maps, &numa_maps::Line::parse(line).unwrap());
    }
    let pages = ByNode::from([(NodeId(0), Pages(3)), (NodeId(1), Pages(3))]);
    assert_eq!(totals.0, BTreeMap::from([(10, pages)]));
}

#[test]
fn a_huge_page_counts_as_the_pages_that_it_is() {
    let own = Own::map(2048);
    // SAFETY: our own mapping; it changes no contents.
    unsafe { libc::madvise(own.start.cast(), own.bytes, libc::MADV_HUGEPAGE) };
    (0..2048).for_each(|p| own.write(p));
    for (name, mut kernel) in ways() {
        assert_eq!(sum(&kernel.within(me(), own.span(0..2048)).unwrap()), 2048, "{name}");
        assert_eq!(sum(&kernel.within(me(), own.span(700..1500)).unwrap()), 800, "{name}");
    }
}

#[test]
fn numa_maps_and_looking_page_by_page_agree() {
    let Ok(file) = File::open("/proc/self/numa_maps") else {
        println!("skipped: this kernel has no numa_maps");
        return;
    };
    let own = Own::map(512);
    (0..512).filter(|p| p % 3 != 0).for_each(|p| own.write(p));
    let first = own.span(0..1).start;
    let mut told = None;
    numa_maps::each(BufReader::new(file), |line| {
        if line.start == first {
            told = Some(line.nodes.into_iter().collect::<ByNode>());
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    for (name, mut kernel) in ways() {
        let found = kernel.within(me(), own.span(0..512)).unwrap();
        // A neighbour of the same kind may have become one mapping with it.
        let Some(told) = &told else { continue };
        assert!(sum(told) >= sum(&found) && sum(&found) == 341, "{name}: {told:?}, {found:?}");
    }
}

#[test]
fn another_process_is_looked_at_and_one_that_ended_is_none() {
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let them = who(child.id());
    let reused = Who { start: them.start + 1, ..them };
    for (name, mut kernel) in ways() {
        let whole = kernel.within(them, crate::machine::WHOLE);
        assert!(whole.is_some_and(|f| sum(&f) > 0), "{name}");
        assert!(kernel.census(them).is_some_and(|f| sum(&f) > 0), "{name}");
        // The number is theirs, but it is not them.
        assert_eq!(kernel.census(reused), None, "{name}");
        assert_eq!(kernel.within(reused, crate::machine::WHOLE), None, "{name}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for (name, mut kernel) in ways() {
        assert_eq!(kernel.census(them), None, "{name}");
        assert_eq!(kernel.within(them, crate::machine::WHOLE), None, "{name}");
        assert_eq!(kernel.refused().load(Ordering::Relaxed), 0, "{name}");
    }
}

/// A root whose processes are this machine's, and which says that it has several nodes.
fn of_nodes(list: &str) -> Folder {
    let root = Folder::new().with("sys/devices/system/node/has_memory", list);
    std::os::unix::fs::symlink("/proc", root.join("proc")).unwrap();
    root
}

#[test]
fn with_several_nodes_each_is_told() {
    if !Path::new("/proc/self/numa_maps").exists() {
        println!("skipped: this kernel has no numa_maps");
        return;
    }
    let root = of_nodes("0-1\n");
    let own = Own::map(4096);
    (0..4096).for_each(|p| own.write(p));
    let mut kernel = ThisKernel::new(&*root);
    let census = kernel.census(me()).unwrap();
    assert!(sum(&census) >= 4096, "{census:?}");
    let here = with_memory(Path::new("/"));
    assert!(census.keys().all(|n| here.contains(&n.0)), "{census:?}");
    assert_eq!(sum(&kernel.within(me(), own.span(5..4096)).unwrap()), 4091);
}

#[test]
fn who_may_not_be_asked_is_counted() {
    // SAFETY: it only asks.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can become somebody else");
        return;
    }
    let root = of_nodes("0-1\n");
    let path = root.to_owned();
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
    let them = who(child.id());
    let told = std::thread::spawn(move || {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: the bare call changes this thread alone, which ends here.
        let r = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(r, 0, "{}", io::Error::last_os_error());
        let mut kernel = ThisKernel::new(path);
        let found = (kernel.census(them), kernel.within(them, Span { start: 1, end: 1 << 30 }));
        let refused = kernel.refused().load(Ordering::Relaxed);
        // What every user may read is enough where there is one node.
        let one = ThisKernel::new("/").census(them).is_some();
        (found, refused, one, with_memory(Path::new("/")).len())
    });
    let (found, refused, one, nodes) = told.join().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((found, refused), ((None, None), 2));
    assert!(one || nodes > 1);
}

#[test]
fn the_start_is_found_behind_any_name() {
    let mut stat = b"7 (a) b\xff (c) S 1".to_vec();
    (2..20).for_each(|n| stat.extend(format!(" {n}").bytes()));
    assert_eq!(start(&stat), Some(19));
    assert_eq!(start(b"7 (a) S 1 2"), None);
    assert_eq!(start(b""), None);
}

#[test]
fn resident_pages_are_read_from_status() {
    let text = "VmRSSx:\t9 kB\nVmRSS:\t     400 kB\nHugetlbPages:\t    2048 kB\n";
    assert_eq!(resident(text), Pages(612));
    assert_eq!(resident("Name:\tkthreadd\n"), Pages(0));
    assert_eq!(resident("VmRSS:\nHugetlbPages: x"), Pages(0));
    assert_eq!(with_memory(Path::new("/nowhere")), [0]);
}
