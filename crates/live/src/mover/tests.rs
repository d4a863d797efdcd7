//! What can be tried with one node: that nothing moves, and why. Guests have several
//! (`move-orders`, `conformance`).

use super::*;
use proptest::prelude::*;

const STALL: Duration = Duration::from_millis(1);

fn me() -> Who {
    let pid = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = &stat[stat.rfind(')').unwrap() + 1..];
    Who { pid, start: rest.split_ascii_whitespace().nth(19).unwrap().parse().unwrap() }
}

/// Sixteen pages of which the first eight are in memory.
fn half_touched() -> (Vec<u8>, Span) {
    let mut memory = Vec::<u8>::with_capacity(17 << 12);
    let first = (memory.as_ptr() as u64 >> 12) + 1;
    let spare = memory.spare_capacity_mut();
    let skip = (first << 12) as usize - spare.as_ptr() as usize;
    spare[skip..skip + (8 << 12)].iter_mut().step_by(1 << 12).for_each(|b| {
        b.write(1);
    });
    (memory, Span { start: first, end: first + 16 })
}

#[test]
fn nothing_goes_to_a_node_that_is_not_there() {
    let (_memory, span) = half_touched();
    let on = NodeId(with_memory("/".as_ref())[0]);
    for scans in [true, false] {
        let mut mover = MovePages { scans, ..MovePages::new("/", STALL) };
        let got = mover.carry(me(), &[span], on, NodeId(1023));
        assert_eq!(got.moved, Pages(0));
        assert_eq!(got.fails.all(), Pages(16), "{got:?}");
        // Memory that was free before may hold pages behind those that we touched.
        assert!(got.fails.no_room.0 >= 8 && got.fails.absent.0 <= 8, "{got:?}");
        let got = mover.carry(me(), &[span], NodeId(1023), on);
        assert_eq!(got.fails, Fails { absent: Pages(16), ..Fails::default() });
        let got = mover.carry(me(), &[span], on, on);
        assert_eq!(got.fails, Fails { absent: Pages(16), ..Fails::default() });
    }
}

#[test]
fn what_a_call_takes_for_itself_is_measured_on_a_page_of_our_own() {
    let mut real = Real::new();
    for _ in 0..3 {
        let took = real.empty().expect("a page of our own stays where it is");
        assert!(took > Duration::ZERO);
    }
}

#[test]
fn nobody_is_gone() {
    let (_memory, span) = half_touched();
    let gone = Fails { gone: Pages(16), ..Fails::default() };
    for who in [Who { start: 1, ..me() }, Who { pid: 0, start: 0 }, Who { pid: 1 << 30, start: 0 }]
    {
        let got = MovePages::new("/", STALL).carry(who, &[span], NodeId(0), NodeId(1));
        assert_eq!((got.moved, got.fails), (Pages(0), gone), "{who}");
    }
}

fn pieces(text: &[(u64, u64)]) -> Vec<Piece> {
    text.iter().map(|&(page, pages)| Piece { page, pages }).collect()
}

#[test]
fn pieces_near_each_other_are_looked_at_together() {
    let spans = together(&pieces(&[(0, 1), (1, 4), (20, 1), (100, 1), (400, 512)]));
    let spans: Vec<_> = spans.iter().map(|s| (s.start, s.end)).collect();
    assert_eq!(spans, [(0, 21), (100, 101), (400, 912)]);
}

#[test]
fn a_huge_page_that_was_split_is_sorted_out() {
    // 8 to 16 was one; now 8 and 9 have moved, 10 has not, 11 is gone, the rest is new.
    let after = [
        (Piece { page: 7, pages: 1 }, 1),
        (Piece { page: 8, pages: 2 }, 1),
        (Piece { page: 10, pages: 1 }, 0),
        (Piece { page: 11, pages: 1 }, -libc::ENOENT),
        (Piece { page: 12, pages: 8 }, 0),
    ];
    let mut left = after.as_slice();
    let before = pieces(&[(8, 8), (18, 1), (30, 1)]);
    let got: Vec<_> = before.iter().map(|p| sort_out(p, &mut left, NodeId(0), NodeId(1))).collect();
    assert_eq!(got[0], (Pages(2), pieces(&[(10, 1), (12, 4)])));
    assert_eq!(got[1], (Pages(0), pieces(&[(18, 1)])));
    assert_eq!(got[2], (Pages(0), Vec::new()));
}

proptest! {
    /// However pages lie before and after: each is counted once at most.
    #[test]
    fn no_page_is_counted_twice(
        before in proptest::collection::vec((1u64..4, 1u64..6), 1..12),
        after in proptest::collection::vec((1u64..4, 1u64..6, 0i32..3), 0..12),
    ) {
        let mut at = 0;
        let mut next = |gap: u64, pages| {
            let piece = Piece { page: at + gap - 1, pages };
            at = piece.page + pages;
            piece
        };
        let before: Vec<Piece> = before.into_iter().map(|(g, n)| next(g, n)).collect();
        let mut at = 0;
        let mut node = vec![2; 200];
        let after: Vec<_> = after
            .into_iter()
            .map(|(gap, pages, on)| {
                let piece = Piece { page: at + gap - 1, pages };
                at = piece.page + pages;
                (piece.page..at).for_each(|p| node[p as usize] = on);
                (piece, on)
            })
            .collect();
        let mut left = after.as_slice();
        for piece in &before {
            let (on, stayed) = sort_out(piece, &mut left, NodeId(0), NodeId(1));
            let mine = &node[piece.page as usize..(piece.page + piece.pages) as usize];
            prop_assert_eq!(on.0, mine.iter().filter(|n| **n == 1).count() as u64);
            let stayed: u64 = stayed.iter().map(|p| p.pages).sum();
            prop_assert_eq!(stayed, mine.iter().filter(|n| **n == 0).count() as u64);
        }
    }
}

/// A kernel of two nodes, in which each page is on one of them, and which answers for some
/// pages with an errno. A call takes as long as it is told.
#[derive(Default)]
struct Script {
    on: std::rc::Rc<std::cell::RefCell<std::collections::BTreeMap<u64, i32>>>,
    /// Status of pages that don't move.
    status: std::collections::BTreeMap<u64, i32>,
    /// What the calls return, one after the other, in place of moving anything.
    calls: std::collections::VecDeque<i32>,
    /// What is done before a call.
    before: Option<Box<dyn FnMut()>>,
    /// Pages of each call.
    sent: std::rc::Rc<std::cell::RefCell<Vec<usize>>>,
    /// Time of a call, and all of it so far.
    takes: Duration,
    now: Duration,
}

impl Calls for Script {
    fn query(&mut self, _: u32, addresses: &[usize], status: &mut Vec<i32>) -> io::Result<()> {
        status.clear();
        let on = self.on.borrow();
        status.extend(addresses.iter().map(|a| on.get(&((*a >> 12) as u64)).copied().unwrap_or(0)));
        Ok(())
    }
    fn frames(&mut self, _: &Path) -> Option<&Frames> {
        None
    }
    fn send(
        &mut self,
        _: u32,
        addresses: &[usize],
        to: NodeId,
        status: &mut Vec<i32>,
    ) -> io::Result<u64> {
        self.now += self.takes;
        if let Some(before) = &mut self.before {
            before();
        }
        self.sent.borrow_mut().push(addresses.len());
        status.clear();
        match self.calls.pop_front() {
            None | Some(0) => {}
            Some(errno) => {
                status.resize(addresses.len(), UNTOLD);
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        let mut on = self.on.borrow_mut();
        for a in addresses {
            let page = (*a >> 12) as u64;
            match self.status.get(&page) {
                Some(errno) => status.push(-errno),
                None => {
                    on.insert(page, i32::from(to.0));
                    status.push(i32::from(to.0));
                }
            }
        }
        Ok(0)
    }
    fn empty(&mut self) -> Option<Duration> {
        None
    }
    fn now(&self) -> Duration {
        self.now
    }
}

/// A root with two nodes and the processes of this machine.
fn two_nodes() -> homenode_fixtures::Folder {
    let at = homenode_fixtures::Folder::new();
    let node = at.join("sys/devices/system/node");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("has_memory"), "0-1\n").unwrap();
    std::os::unix::fs::symlink("/proc", at.join("proc")).unwrap();
    at
}

/// Memory of this process, all of it touched, and the number of its first page.
fn touched(pages: usize) -> (Vec<u8>, u64) {
    let memory = vec![1u8; (pages + 1) << 12];
    let first = (memory.as_ptr() as u64 >> 12) + 1;
    (memory, first)
}

fn scripted(root: &std::path::Path, script: Script) -> MovePages {
    MovePages { calls: Box::new(script), ..MovePages::new(root, STALL) }
}

/// Sixteen pages of this process, which must not move while the cpuset forbids node 1; then
/// the file says so and the test has nothing to show.
fn allowed_here(root: &std::path::Path) -> bool {
    let files = Files { root: root.to_owned() };
    let allowed = Policies::default().of(&files, me()).unwrap().cpuset_allows(NodeId(1));
    if !allowed {
        println!("skipped: this process may not have memory of a node 1");
    }
    allowed
}

#[test]
fn each_page_that_stays_has_its_cause() {
    let root = two_nodes();
    if !allowed_here(&root) {
        return;
    }
    let (_memory, first) = touched(16);
    let span = Span { start: first, end: first + 16 };
    let status = [(0, libc::EBUSY), (1, libc::ENOMEM), (2, libc::EACCES), (3, libc::EFAULT)];
    let status = status.map(|(i, errno)| (first + i, errno)).into();
    let script = Script { status, ..Script::default() };
    let got = scripted(&root, script).carry(me(), &[span], NodeId(0), NodeId(1));
    let due = Fails {
        // A page that is there, of which the kernel says that it isn't, can't be moved now.
        busy: Pages(2),
        no_room: Pages(1),
        forbidden: Pages(1),
        ..Fails::default()
    };
    assert_eq!((got.moved, got.fails), (Pages(12), due));
}

#[test]
fn what_ends_a_call_ends_the_order_and_what_moved_before_counts() {
    let root = two_nodes();
    if !allowed_here(&root) {
        return;
    }
    let all = 1000u64;
    for (errno, due) in [
        // The node goes offline in the middle; it is full; the cpuset changes; the process ends.
        (libc::ENODEV, Fails { no_room: Pages(all - 128), ..Fails::default() }),
        (libc::ENOMEM, Fails { no_room: Pages(all - 128), ..Fails::default() }),
        (libc::EACCES, Fails { forbidden: Pages(all - 128), ..Fails::default() }),
        (libc::ESRCH, Fails { gone: Pages(all - 128), ..Fails::default() }),
    ] {
        let (_memory, first) = touched(all as usize);
        let span = Span { start: first, end: first + all };
        let script = Script { calls: [0, errno].into(), ..Script::default() };
        let got = scripted(&root, script).carry(me(), &[span], NodeId(0), NodeId(1));
        assert_eq!((got.moved, got.fails), (Pages(128), due), "{errno}");
    }
}

#[test]
fn calls_get_smaller_until_they_keep_to_the_budget() {
    let root = two_nodes();
    if !allowed_here(&root) {
        return;
    }
    let (_memory, first) = touched(600);
    let span = Span { start: first, end: first + 600 };
    let script = Script { takes: STALL * 3, ..Script::default() };
    let sent = std::rc::Rc::clone(&script.sent);
    let got = scripted(&root, script).carry(me(), &[span], NodeId(0), NodeId(1));
    assert_eq!(got.moved, Pages(600));
    assert_eq!(sent.borrow()[..4], [128, 42, 16, 16]);
    // A call that hangs: the rest is left for later.
    let (_memory, first) = touched(600);
    let span = Span { start: first, end: first + 600 };
    let script =
        Script { takes: STALL * 1000, status: [(first, libc::EBUSY)].into(), ..Script::default() };
    let got = scripted(&root, script).carry(me(), &[span], NodeId(0), NodeId(1));
    assert_eq!((got.moved, got.fails.busy), (Pages(127), Pages(473)));
}

#[test]
fn a_process_that_ends_or_becomes_another_on_the_way_is_no_error() {
    let root = two_nodes();
    if !allowed_here(&root) {
        return;
    }
    // Its memory is ours, as far as the script is asked: what counts is whether it lives.
    let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = child.id();
    let start = crate::people::stat::start_of(&crate::place::Place::here(), pid).unwrap();
    let who = Who { pid, start };
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let stack = maps.lines().find(|l| l.ends_with("[stack]")).unwrap();
    let (from, to) = stack.split(' ').next().unwrap().split_once('-').unwrap();
    let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap() >> 12;
    let span = Span { start: number(from), end: number(to) };
    let all = span.pages();
    let got = scripted(&root, Script::default()).carry(who, &[span], NodeId(0), NodeId(1));
    assert!(got.moved.0 > 0 && got.moved + got.fails.all() == all, "{got:?}");
    // Another start under the same number.
    let other = Who { start: start + 1, ..who };
    let got = scripted(&root, Script::default()).carry(other, &[span], NodeId(0), NodeId(1));
    assert_eq!((got.moved, got.fails.gone), (Pages(0), all));
    // It ends while the kernel is at work.
    let script = Script {
        before: Some(Box::new(move || {
            let _ = child.kill();
            let _ = child.wait();
        })),
        ..Script::default()
    };
    let got = scripted(&root, script).carry(who, &[span], NodeId(0), NodeId(1));
    assert_eq!(got.moved, Pages(0), "what became of it is not known: {got:?}");
    assert_eq!(got.fails.all(), all);
}

#[test]
fn memory_that_an_exec_has_left_behind_is_absent() {
    let root = two_nodes();
    if !allowed_here(&root) {
        return;
    }
    let (_memory, first) = touched(16);
    // As after exec: the number and the start are the same, and nothing is there.
    let nowhere = Span { start: first >> 8, end: (first >> 8) + 16 };
    let got = scripted(&root, Script::default()).carry(me(), &[nowhere], NodeId(0), NodeId(1));
    assert_eq!((got.moved, got.fails.absent), (Pages(0), Pages(16)));
}
