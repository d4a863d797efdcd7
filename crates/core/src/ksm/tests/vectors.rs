//! specs/ksm.md word by word: scripts in, text out. `counts` prints shared, sharing,
//! unshared, volatile; chains, dups.

use super::host::{check, check_on_all, check_with};
use crate::kernel::KernelVersion::{self, V3_8, V5_18, V6_1, V6_12, V7_3};
use crate::ksm::Rules;

fn check_on(version: KernelVersion, script: &str, expected: &str) {
    check_with(Rules::of(version), 2, script, expected);
}

// specs/ksm.md#one-page: two identical pages merge during the second full pass.
#[test]
fn two_pages_take_two_passes() {
    check(
        "proc A xx; pass 1; counts; pass 1; counts; show pages_scanned; show full_scans",
        "0,0,0,2;0,0
         1,1,0,0;0,0
         4
         2",
    );
    // The frame is that of the page scanned now: the later page's node wins.
    check(
        "proc A x 0; proc B x 1; pass 2; where A 0; where B 0",
        "merged on node 1, tree 0
         merged on node 1, tree 0",
    );
}

// specs/ksm.md#versions: before 6.12 a newcomer merges on its first visit, today on its second.
#[test]
fn newcomers() {
    let script = "proc A xx; pass 2; proc B x; pass 1; counts; pass 1; counts";
    for version in [V3_8, V5_18, V6_1] {
        check_on(version, script, "1,2,0,0;0,0\n1,2,0,0;0,0");
    }
    for version in [V6_12, V7_3] {
        check_on(version, script, "1,1,0,1;0,0\n1,2,0,0;0,0");
    }
}

// specs/ksm.md#chains: N identical pages under limit M.
#[test]
fn chains_vectors() {
    for (n, m, expected) in [
        (3, 2, "1,1,1,0;0,0"),
        (4, 2, "2,2,0,0;1,2"),
        (6, 3, "2,4,0,0;1,2"),
        (258, 256, "2,256,0,0;1,2"),
        (300, 7, "43,257,0,0;1,43"),
    ] {
        let pages = "x".repeat(n);
        let script =
            format!("knob max_page_sharing {m}; proc A {pages}; pass 2; counts; pass 3; counts");
        check(&script, &format!("{expected}\n{expected}"));
    }
}

// specs/ksm.md#chains: shared = q + [r >= 2], unshared = [r = 1], dups = shared if above 1.
#[test]
fn chains_formula() {
    for m in 2..=6usize {
        for n in 2..=20usize {
            let (q, r) = (n / m, n % m);
            let (shared, unshared) = (q + usize::from(r >= 2), usize::from(r == 1));
            let sharing = n - shared - unshared;
            let (chains, dups) = if shared > 1 { (1, shared) } else { (0, 0) };
            let script =
                format!("knob max_page_sharing {m}; proc A {}; pass 3; counts", "x".repeat(n));
            check(&script, &format!("{shared},{sharing},{unshared},0;{chains},{dups}"));
        }
    }
}

// specs/ksm.md#chains: a further duplicate goes to the head; a walk takes the first
// candidate; after the interval it drops all stale ones and takes the fullest;
// a chain of one collapses, but not by insertion.
#[test]
fn chains_are_pruned() {
    let four = "knob max_page_sharing 3; proc A xxx; pass 2; proc B xxx; pass 2; nodes; counts;";
    check(
        &format!(
            "{four}
             unmap A 0; unmap A 1; unmap A 2
             pass 1; counts; nodes    # the walk of the first pass drops items, not the node
             proc C yy; pass 2; counts; nodes"
        ),
        "0:3 0:3
         2,4,0,0;1,2
         1,2,0,0;1,1
         0:3
         2,3,0,0;1,1
         0:3 0:2",
    );
    // The same after the interval: the search for another content collapses it.
    check(
        &format!(
            "{four}
             unmap A 0; unmap A 1; unmap A 2; pass 1; counts
             jiffies 499; proc C y; pass 2; counts
             jiffies 1; proc D z; pass 2; counts"
        ),
        "0:3 0:3
         2,4,0,0;1,2
         1,2,0,0;1,1
         1,2,1,0;1,1
         1,2,2,0;0,0",
    );
    // Without a prune the first with room is taken, with one the fullest; it
    // comes to the front if it has room for two.
    let two = |limit: u32, rest: &str| {
        let pages = "x".repeat(limit as usize);
        format!(
            "knob max_page_sharing {limit}; proc A {pages}; pass 2; proc B {pages}; pass 2
             unmap A 0; unmap B 0; unmap B 1; pass 1; nodes; {rest}; proc C x; pass 2; nodes"
        )
    };
    check(&two(6, "jiffies 499"), "0:4 0:5\n0:5 0:5");
    check(&two(6, "jiffies 500"), "0:4 0:5\n0:4 0:6");
    check(&two(6, "unmap A 1; jiffies 500"), "0:4 0:5\n0:5 0:4");
    check(&two(6, "unmap B 2; jiffies 500"), "0:4 0:5\n0:3 0:6");
    check(&two(6, "unmap A 1; unmap A 2; jiffies 500"), "0:4 0:5\n0:5 0:3");
    // A search for another content prunes as well: the next one does not.
    check(&two(6, "proc D y; pass 1; jiffies 500; pass 1"), "0:4 0:5\n0:5 0:5");
}

// specs/ksm.md#chains: candidates have between 0 and max_page_sharing items.
#[test]
fn forks_go_over_the_limit() {
    check(
        "knob max_page_sharing 2; proc A xx; pass 2; fork A B; counts; pass 1; counts; nodes
         pass 1; counts",
        "1,1,0,0;0,0
         1,3,0,0;0,0
         0:4
         1,3,0,0;0,0",
    );
}

// specs/ksm.md#one-page, step 1: a fork's child is attached at its first visit, without a gate.
#[test]
fn forked_children() {
    check(
        "proc A xx; pass 2; fork A B; step; step; step; step; counts",
        "InPlace
         InPlace
         Attached
         Attached
         1,3,0,0;0,0",
    );
    // specs/ksm.md#one-page, step 4: an unmerged page that fork shares is the same page.
    check(
        "proc A u; fork A B; pass 1; step; step; step; counts",
        "Inserted
         Volatile(SamePage)
         PassEnded
         0,0,1,1;0,0",
    );
}

// specs/ksm.md#registration: fork inherits registration but no items; new slots go behind the
// cursor, between passes last; dead ones with items just behind it.
#[test]
fn order_of_address_spaces() {
    check("proc A a; proc B b; proc C c; list; fork A D; list", "ABC\nABCD");
    // The cursor is in B when D comes: D is visited after C of the next pass.
    check(
        "proc A aa; proc B bb; proc C cc; step; step; step; proc D dd; list
         exit C; list; proc E e; exit E; list",
        "Volatile(Changed)
         Volatile(Changed)
         Volatile(Changed)
         ADBC
         ADB
         ADB",
    );
    // C has items: it goes just behind the cursor, ahead of the next in turn.
    check(
        "proc A aa; proc B bb; proc C cc; pass 1; step; exit C; list; exit A; list; pass 1; list; counts",
        "Inserted
         ACB
         ACB
         B
         1,1,0,0;0,0",
    );
    // Between passes the dead go first; while everything is unmerged the new go last.
    check(
        "proc A a; proc B b; proc C c; pass 1; exit C; list; pass 1; list",
        "CAB
         AB",
    );
    check("proc A aa; proc B b; pass 1; step; knob run 2; proc C c; list; pass 0", "Inserted\nABC");
}

// specs/ksm.md#counters: after the exit of all sharers pages_shared stays until a visit.
#[test]
fn counters_lag_behind_exits() {
    check(
        "proc A xx; proc B b; pass 2; exit A; counts; stale; pass 1; counts; stale",
        "1,1,1,0;0,0
         1 stale
         0,0,1,0;0,0
         0 stale",
    );
}

// specs/ksm.md#pass: floor(P / n) + 1 batches a pass; 0 never advances, nor an empty list.
#[test]
fn batches() {
    for (n, without_end) in [(5, 2), (10, 1), (11, 0), (1, 10), (3, 3), (100, 0)] {
        let script =
            format!("proc A abcdefghij; knob pages_to_scan {n}; batch 50; show full_scans");
        check(&script, &format!("{without_end} without an end\n1"));
    }
    check("proc A ab; knob pages_to_scan 0; batch 9; show full_scans", "9 without an end\n0");
    check("batch 9; show full_scans", "9 without an end\n0");
    check("proc A ab; knob run 0; batch 9; show full_scans", "9 without an end\n0");
}

// specs/ksm.md#pass: an address space without mergeable mapping leaves the list, one
// without pages does not.
#[test]
fn who_stays_listed() {
    check(
        "proc A ab; proc B .; pass 1; list; unmergeable A; pass 1; list; show pages_volatile",
        "AB\nB\n0",
    );
    check("proc A ..; pass 2; list; show full_scans", "A\n2");
}

// specs/ksm.md#pass: items for absent addresses are dropped on the way.
#[test]
fn absent_addresses() {
    check(
        "proc A abcd; pass 2; counts; unmap A 1; unmap A 3; counts; pass 1; counts",
        "0,0,4,0;0,0
         0,0,4,0;0,0
         0,0,2,0;0,0",
    );
}

// specs/ksm.md#pass: each item stays counted as unshared until its visit.
#[test]
fn unshared_until_visited() {
    check(
        "proc A ab; pass 2; counts; write A 0 c; write A 1 d; step; counts; step; counts",
        "0,0,2,0;0,0
         Volatile(Changed)
         0,0,1,1;0,0
         Volatile(Changed)
         0,0,0,2;0,0",
    );
}

// specs/ksm.md#one-page, step 2: the checksum starts as 0, so a page hashing to 0 passes at once.
#[test]
fn gate() {
    check("proc A HH; pass 1; counts", "1,1,0,0;0,0");
    check(
        "proc A xx; pass 1; write A 0 y; pass 1; counts; write A 0 x; pass 1; counts; pass 1; counts",
        "0,0,1,1;0,0
         0,0,1,1;0,0
         1,1,0,0;0,0",
    );
}

// specs/ksm.md#one-page: a write copies; the item keeps its checksum, so the old content
// restored in time merges again at once; 7.3 wiped it.
#[test]
fn old_content_restored() {
    let script = "proc A xxx; pass 2; counts; write A 0 q; write A 0 x; counts; pass 1; counts
                  pass 1; counts";
    check_on(V6_12, script, "1,2,0,0;0,0\n1,2,0,0;0,0\n1,2,0,0;0,0\n1,2,0,0;0,0");
    check_on(V7_3, script, "1,2,0,0;0,0\n1,2,0,0;0,0\n1,1,0,1;0,0\n1,2,0,0;0,0");
}

// specs/ksm.md#one-page, step 2: zero pages; the item is volatile and vanishes next pass.
#[test]
fn zero_pages() {
    check(
        "knob use_zero_pages 1; proc A 00x; pass 2; counts; show ksm_zero_pages
         pass 1; counts; show general_profit
         fork A B; show ksm_zero_pages; exit B; show ksm_zero_pages
         write A 0 q; show ksm_zero_pages; knob run 2; show ksm_zero_pages",
        "0,0,1,2;0,0
         2
         0,0,1,0;0,0
         8128
         4
         2
         1
         0",
    );
    check("proc A 00; pass 2; counts; show ksm_zero_pages", "1,1,0,0;0,0\n0");
    // Zero pages do not make a switch busy.
    check(
        "knob use_zero_pages 1; proc A 00; pass 2; knob merge_across_nodes 0; counts",
        "0,0,0,2;0,0",
    );
    // A pinned page of zeroes goes on to the trees.
    check("knob use_zero_pages 1; proc A 00; pin A 0; pass 2; counts", "0,0,1,1;0,0");
}

// specs/ksm.md#one-page, step 5: a pair with one pinned is 0,0,1,1, whichever it is.
#[test]
fn pinned_pages() {
    for pinned in 0..2 {
        let script =
            format!("proc A xx; pin A {pinned}; pass 4; counts; unpin A {pinned}; pass 1; counts");
        check(&script, "0,0,1,1;0,0\n1,1,0,0;0,0");
    }
    check(
        "proc A xxx; pin A 2; pass 3; counts; unpin A 2; pass 1; counts",
        "1,1,0,1;0,0\n1,2,0,0;0,0",
    );
}

// specs/ksm.md#one-page, step 5: two subpages of one huge page fail once, splitting it.
#[test]
fn huge_pages() {
    check("proc A xxab; huge A 0 4; pass 2; counts; pass 1; counts", "0,0,3,1;0,0\n1,1,2,0;0,0");
    check("proc A xa; proc B xb; huge A 0 2; huge B 0 2; pass 2; counts", "1,1,2,0;0,0");
}

// specs/ksm.md#one-page, step 3: a locked page is tried again next pass.
#[test]
fn locked_pages() {
    check(
        "proc A xx; pass 2; proc B x; pass 1; lock A 0; pass 1; counts; unlock A 0; pass 1; counts",
        "1,1,0,1;0,0\n1,2,0,0;0,0",
    );
}

// specs/ksm.md#one-page, step 4: a page on the path that is gone, and one that now lives
// elsewhere.
#[test]
fn unstable_obstacles() {
    check(
        "proc A a; proc B b; pass 1; step; unmap A 0; step; counts",
        "Inserted
         Volatile(PathGone)
         0,0,1,1;0,0",
    );
    check(
        "knob merge_across_nodes 0; proc A x 0; proc B x 0; pass 1; step; move A 0 1; step",
        "Inserted
         Volatile(OtherNode)",
    );
    check(
        "proc A x 0; proc B x 0; pass 1; step; move A 0 1; step; counts",
        "Inserted
         Paired
         1,1,0,0;0,0",
    );
}

// specs/ksm.md#smart-scan: processed in passes 1, 2, 3, 4, 6, 9, 14, 23, 32; a
// skip costs no budget and leaves the tree.
#[test]
fn smart_scan() {
    check(
        "knob smart_scan 1; proc A u; visits A 0 42; show pages_skipped; show pages_scanned",
        "1,2,3,4,6,9,14,23,32,41
         32
         10",
    );
    check("proc A u; visits A 0 9", "1,2,3,4,5,6,7,8,9");
    check(
        "knob smart_scan 1; proc A u; pass 4; counts; pass 1; counts",
        "0,0,1,0;0,0\n0,0,0,1;0,0",
    );
    // Merged pages are never skipped.
    check("knob smart_scan 1; proc A xx; visits A 0 12", "1,2,3,4,5,6,7,8,9,10,11,12");
    check_on(V6_1, "proc A u; visits A 0 9", "1,2,3,4,5,6,7,8,9");
}

// specs/ksm.md#versions: 7.3 skips no item that is still marked stable; 6.12 may.
#[test]
fn smart_scan_and_marked_stable() {
    let script = "knob smart_scan 1; proc A x; pass 4; proc B x; pass 4; counts; write A 0 q; step";
    check_on(V6_12, script, "1,1,0,0;0,0\nInPlace");
    check_on(V7_3, script, "1,1,0,0;0,0\nVolatile(Changed)");
}

// specs/ksm.md#structures: with merge_across_nodes 0 only pages of one node merge.
#[test]
fn trees_per_node() {
    check(
        "knob merge_across_nodes 0; proc A xx 0; proc B xx 1; pass 2; counts; nodes; where A 0; where B 0",
        "2,2,0,0;0,0
         0:2 1:2
         merged on node 0, tree 0
         merged on node 1, tree 1",
    );
    check("proc A xx 0; proc B xx 1; pass 2; counts", "1,3,0,0;0,0");
    check("knob merge_across_nodes 0; proc A x 0; proc B x 1; pass 5; counts", "0,0,2,0;0,0");
}

const TWO_AND_TWO: &str = "knob merge_across_nodes 0; proc A xx 0; proc B xx 1; pass 2; counts;";

// specs/ksm.md#migration, measured: node 0's page moved to 1; both moved across; across=1: nothing.
#[test]
fn moved_pages() {
    check(
        &format!("{TWO_AND_TWO} move A 0 1; pass 1; counts; nodes; pass 2; counts"),
        "2,2,0,0;0,0\n2,2,0,0;1,2\n1:2 1:2\n2,2,0,0;1,2",
    );
    check(
        &format!("{TWO_AND_TWO} move A 0 1; move B 0 0; pass 1; counts; nodes; pass 1; counts"),
        "2,2,0,0;0,0\n2,2,0,0;1,1\n0:2 1:2\n2,2,0,0;1,1",
    );
    check(
        "proc A xx 0; proc B xx 0; pass 2; move A 0 1; pass 2; counts; nodes",
        "1,3,0,0;0,0\n0:4",
    );
}

// specs/ksm.md#migration, the table's other rows.
#[test]
fn homes_of_moved_pages() {
    // No twin: it is inserted.
    check(
        "knob merge_across_nodes 0; proc A xx 0; pass 2; move A 0 1; nodes; pass 1; nodes; counts",
        "0:2\n1:2\n1,1,0,0;0,0",
    );
    // A full one's visiting item falls into the unstable tree and comes back.
    check(
        "knob merge_across_nodes 0; knob max_page_sharing 2; proc A xx 0; pass 2; move A 0 1
         pass 1; nodes; counts; pass 1; nodes; counts",
        "1:1\n1,0,1,0;0,0\n1:2\n1,1,0,0;0,0",
    );
    // Mapped once, twin full: it stays on the migrate list, its item is unshared.
    check(
        "knob merge_across_nodes 0; knob max_page_sharing 2; proc A xx 0; proc B xx 1; pass 2
         write A 1 q; move A 0 1; pass 1; nodes; counts; pass 1; nodes; counts",
        "1:2 waits:0
         1,1,1,1;0,0
         1:2 waits:0
         1,1,2,0;0,0",
    );
    // Mapped once, twin with room: meant to merge, but always fails.
    check(
        &format!(
            "{TWO_AND_TWO} write A 1 q; move A 0 1; step; counts; where A 0; pass 3; counts; nodes"
        ),
        "2,2,0,0;0,0
         Volatile(Refused(Merged))
         2,1,0,1;0,0
         merged on node 1, waits
         1,1,1,1;0,0
         1:2 waits:0",
    );
    // A misplaced twin with room, met by a newcomer, goes to the migrate list;
    // the newcomer goes on to the unstable tree.
    check(
        "knob merge_across_nodes 0; proc A q 0; proc B xx 0; pass 2; write A 0 x; pass 1
         move B 0 1; step; nodes; counts; pass 1; nodes; counts",
        "Inserted
         waits:2
         1,1,1,0;0,0
         1:2
         1,1,1,0;0,0",
    );
    // Met by a page mapped once, it is replaced by it.
    check(
        "knob merge_across_nodes 0; proc A xx 0; proc B xx 1; pass 2; write A 1 q
         move A 0 1; move B 0 0; step; nodes; pass 1; nodes; counts",
        "InPlace
         1:2 waits:2
         0:2 1:1
         2,1,0,1;0,0",
    );
}

// specs/seeds.md#s4: pages that hot-remove has moved end in the right tree: the
// seed's problem 2.
#[test]
fn hot_remove_rehomes() {
    let script = "knob merge_across_nodes 0; proc A xxyy 0; proc B zz 1; pass 2; nodes
         leaving 0; show run; left 0; show run; pass 1; nodes; counts; where A 0; where A 2";
    check(
        script,
        "0:2 0:2 1:2
         all moved
         5
         1
         1:2 1:2 1:2
         3,3,0,0;0,0
         merged on node 1, tree 1
         merged on node 1, tree 1",
    );
}

// specs/ksm.md#offline: while memory goes offline ksmd and writers of three files wait.
#[test]
fn offline_blocks() {
    check(
        "proc A xx; knob run 0; leaving 1; show run; knob run 1; knob merge_across_nodes 0
         knob max_page_sharing 3; knob max_page_sharing 256; knob max_page_sharing 1; cancel
         show run; knob run 1; leaving 1; show run; batch 3; show full_scans; left 1; pass 1; show full_scans",
        "all moved
         4
         Waits
         Waits
         Waits
         EINVAL
         0
         all moved
         5
         3 without an end
         0
         1",
    );
    // A page that is freed meanwhile leaves a node, which goes with the memory.
    check(
        "knob merge_across_nodes 0; proc A xx 1; pass 2; unmap A 0; leaving 0; unmap A 1; stale; left 0
         stale; nodes",
        "all moved
         1 stale
         0 stale",
    );
}

// specs/ksm.md#offline: a chain whose duplicates have all gone with the memory goes, too.
#[test]
fn offline_takes_chains() {
    check(
        "knob merge_across_nodes 0; knob max_page_sharing 2; proc A xxxx 1; pass 2; counts; leaving 0
         unmap A 0; unmap A 1; unmap A 2; unmap A 3; left 0; counts; nodes",
        "2,2,0,0;1,2
         all moved
         0,0,0,4;0,0",
    );
}

// specs/ksm.md#unmerge: run=2 unmerges everything, keeps registrations, resets full_scans.
#[test]
fn unmerge() {
    check(
        "proc A xxx; proc B xx; pass 3; counts; knob run 2; counts; show full_scans; list; show run; nodes
         knob run 1; pass 2; counts; show full_scans",
        "1,4,0,0;0,0
         0,0,0,0;0,0
         0
         AB
         2

         1,4,0,0;0,0
         2",
    );
    // In the middle of a pass.
    check(
        "proc A xxab; pass 2; step; step; knob run 2; counts; knob run 1; pass 2; counts",
        "InPlace\nInPlace\n0,0,0,0;0,0\n1,1,2,0;0,0",
    );
    // No memory: run becomes 0, what was done is done.
    check(
        "proc A xxx; pass 2; copies 1; knob run 2; show run; counts; copies 9; knob run 1; pass 2; counts",
        "ENOMEM
         0
         1,2,0,0;0,0
         1,2,0,0;0,0",
    );
    check(
        "proc A xxab; pass 2; step; copies 0; knob run 2; knob run 1; pass 1; counts",
        "InPlace\nENOMEM\n1,1,2,0;0,0",
    );
    // MADV_UNMERGEABLE: no memory, or done; items go at the next visit.
    check(
        "proc A xx; pass 2; copies 0; unmergeable A; copies 9; unmergeable A; counts; pass 1; counts; list",
        "EAGAIN\n1,1,0,0;0,0\n0,0,0,0;0,0\n",
    );
}

// specs/ksm.md#switch: EBUSY in the order equality, sharing, memory; then run=2,
// switch, run=1. The unmerged copies are beside the merged page, all on node 1.
#[test]
fn switching() {
    check(
        "proc A xx 0; proc B xx 1; pass 2; counts
         knob merge_across_nodes 1; knob merge_across_nodes 0; knob max_page_sharing 256
         knob max_page_sharing 3; knob run 2; knob merge_across_nodes 0; knob run 1; pass 2; counts
         knob merge_across_nodes 1; knob run 2; knob merge_across_nodes 1; knob run 1; pass 2; counts",
        "1,3,0,0;0,0
         EBUSY
         EBUSY
         1,3,0,0;0,0
         EBUSY
         1,3,0,0;0,0",
    );
    check("no-trees 1; knob merge_across_nodes 0; show merge_across_nodes; no-trees 0
           knob merge_across_nodes 0; no-trees 1; knob merge_across_nodes 1; knob merge_across_nodes 0",
        "ENOMEM\n1");
    // run=1 does not forbid it: nothing is shared.
    check(
        "proc A ab; pass 2; counts; knob merge_across_nodes 0; pass 1; counts",
        "0,0,2,0;0,0\n0,0,2,0;0,0",
    );
}

// specs/ksm.md#switch: EBUSY also for a node whose page is still mapped though no item
// hangs at it; a stale one goes. The seed's problem 1.
#[test]
fn stale_nodes_at_a_switch() {
    // A child maps the page, its own item not yet made; the parent has exited.
    check(
        "proc A xx; pass 2; fork A B; exit A; step; counts; knob merge_across_nodes 0; step; counts",
        "Attached
         1,0,0,0;0,0
         EBUSY
         Attached
         1,1,0,0;0,0",
    );
    let stale = "proc A xx; proc B yy; pass 2; exit A; exit B; step; counts; stale; nodes;";
    // The items are gone, the nodes are not: nobody has touched them... but
    // ksmd drops a stale node with its last item, so they go with the items.
    check(&format!("{stale} knob merge_across_nodes 0"), "PassEnded\n0,0,0,0;0,0\n0 stale");
}

// specs/seeds.md#s4, problem 1: nodes without items that come from items which left while
// the page was still mapped elsewhere. A switch drops them.
#[test]
fn no_stale_node_survives_a_switch() {
    check_on_all(
        "proc A xx; pass 2; fork A B; write A 0 p; write A 1 q; step; step; counts; nodes;
         unmap B 0; unmap B 1; stale; knob merge_across_nodes 0; stale; pass 2; counts",
        "Volatile(Changed)
         Volatile(Changed)
         0,0,0,2;0,0
         0:0
         1 stale
         0 stale
         0,0,2,0;0,0",
    );
}

// specs/ksm.md#switch: success also empties the migrate list.
#[test]
fn a_switch_empties_the_migrate_list() {
    check(
        &format!(
            "{TWO_AND_TWO} write A 1 q; move A 0 1; pass 1; nodes; unmap A 0; unmap B 0; unmap B 1
                  knob run 0; counts; knob merge_across_nodes 1; knob run 1; pass 1; counts
                  knob merge_across_nodes 1; nodes"
        ),
        "2,2,0,0;0,0
         1:2 waits:0
         1,1,0,2;0,0
         EBUSY
         0,0,1,0;0,0",
    );
    // Pruned at the start of a pass, too, with trees per node.
    check(
        &format!("{TWO_AND_TWO} write A 1 q; move A 0 1; pass 1; nodes; unmap A 0; pass 1; nodes"),
        "2,2,0,0;0,0
         1:2 waits:0
         1:2",
    );
}

// specs/ksm.md#registration: prctl is not in 6.1; it survives exec, madvise does not.
#[test]
fn exec() {
    check("proc A xx; pass 2; exec A B any; list; pass 1; list; counts", "AB\nB\n0,0,0,0;0,0");
    check("proc A xx; pass 2; exec A B madvise; list; pass 1; list", "A\n");
    check_on(V6_1, "proc A xx; pass 2; exec A B any; list; pass 1; list", "A\n");
}

// specs/ksm.md#counters: general_profit and the sum over processes differ by shared pages.
#[test]
fn profit() {
    check(
        "proc A xxxx; proc B abc; pass 2; show general_profit; show pages_shared",
        &format!("{}\n1", 3 * 4096 - 7 * 64),
    );
    check("proc A abc; pass 2; show general_profit", "-192");
}
