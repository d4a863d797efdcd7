//! What can be tried with one node: that nothing moves, and why. Guests have several
//! (`move-orders`, `conformance`).

use super::*;
use proptest::prelude::*;

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
        let mut mover = MovePages { scans, ..MovePages::new("/") };
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
fn nobody_is_gone() {
    let (_memory, span) = half_touched();
    let gone = Fails { gone: Pages(16), ..Fails::default() };
    for who in [Who { start: 1, ..me() }, Who { pid: 0, start: 0 }, Who { pid: 1 << 30, start: 0 }]
    {
        let got = MovePages::new("/").carry(who, &[span], NodeId(0), NodeId(1));
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
