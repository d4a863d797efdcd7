//! specs/numa.md#rebind

use super::*;

fn n(all: &[u16]) -> Vec<NodeId> {
    all.iter().map(|&i| NodeId(i)).collect()
}
fn bind(all: &[u16]) -> Mempolicy {
    Mempolicy::Bind { nodes: n(all), balancing: false }
}

#[test]
fn nodes_are_mapped_by_their_place() {
    let (three, two) = (n(&[0, 1, 2]), n(&[0, 2]));
    assert_eq!(rebind(&bind(&[1]), &three, &two), bind(&[2]), "the next node");
    assert_eq!(rebind(&bind(&[2]), &three, &two), bind(&[0]), "though 2 is still there");
    assert_eq!(rebind(&bind(&[0, 1, 2]), &three, &two), bind(&[0, 2]));
    // Back again: what was bound to 1 stays with whom it came to share a place.
    assert_eq!(rebind(&bind(&[2]), &two, &three), bind(&[1]));
    assert_eq!(rebind(&bind(&[0]), &two, &three), bind(&[0]));
    assert_eq!(rebind(&bind(&[7]), &three, &two), bind(&[7]), "it never had memory");
    assert_eq!(rebind(&bind(&[1]), &three, &[]), bind(&[1]), "nobody has memory");
}

#[test]
fn other_policies() {
    let (three, two) = (n(&[0, 1, 2]), n(&[0, 1]));
    let same = [Mempolicy::Default, Mempolicy::Local, Mempolicy::Preferred(NodeId(2))];
    for p in same {
        assert_eq!(rebind(&p, &three, &two), p);
    }
    assert_eq!(
        rebind(&Mempolicy::Interleave(n(&[1, 2])), &three, &two),
        Mempolicy::Interleave(n(&[0, 1]))
    );
    let weights = |w: &[(u16, u8)]| {
        Mempolicy::WeightedInterleave(w.iter().map(|&(i, w)| (NodeId(i), w)).collect())
    };
    assert_eq!(rebind(&weights(&[(0, 5), (2, 3)]), &three, &two), weights(&[(0, 5)]));
    assert_eq!(rebind(&weights(&[(1, 4), (2, 3)]), &three, &two), weights(&[(0, 3), (1, 4)]));
}

#[test]
fn what_a_call_may_set() {
    let there = n(&[0, 2]);
    assert_eq!(settable(&bind(&[0, 1]), &there), Some(bind(&[0])));
    assert_eq!(settable(&bind(&[1]), &there), None);
    assert_eq!(settable(&Mempolicy::Preferred(NodeId(1)), &there), None);
    assert_eq!(
        settable(&Mempolicy::Preferred(NodeId(2)), &there),
        Some(Mempolicy::Preferred(NodeId(2)))
    );
    assert_eq!(settable(&Mempolicy::Interleave(n(&[1])), &there), None);
    assert_eq!(settable(&Mempolicy::Default, &[]), Some(Mempolicy::Default));
    let weighted = Mempolicy::WeightedInterleave(vec![(NodeId(1), 2)]);
    assert_eq!(settable(&weighted, &there), None);
}
