use super::*;
use crate::numa::faults::TaskFaults;

fn ids(nr: u16) -> Vec<NodeId> {
    (0..nr).map(NodeId).collect()
}

fn distances(rows: &[&[u32]]) -> Distances {
    let all = ids(rows.len() as u16);
    let rows: Vec<Vec<u32>> = rows.iter().map(|r| r.to_vec()).collect();
    Distances::new(&all, &rows, &all)
}

pub(crate) fn faults(by_node: &[u64]) -> TaskFaults {
    let nodes = by_node.iter().map(|&f| NodeFaults { mem: [0, f], ..NodeFaults::default() });
    TaskFaults { nodes: nodes.collect(), total: by_node.iter().sum(), ..TaskFaults::default() }
}

fn group(by_node: &[u64]) -> GroupFaults {
    GroupFaults::found(1, &faults(by_node))
}

/// Two boards of two nodes each.
fn boards() -> Distances {
    distances(&[&[10, 16, 28, 28], &[16, 10, 28, 28], &[28, 28, 10, 16], &[28, 28, 16, 10]])
}

/// A ring of four nodes: opposite ones are reached through their neighbours.
fn ring() -> Distances {
    distances(&[&[10, 16, 22, 16], &[16, 10, 16, 22], &[22, 16, 10, 16], &[16, 22, 16, 10]])
}

// specs/numa.md#shapes
#[test]
fn shapes() {
    assert_eq!(distances(&[&[10]]).shape(), Shape::Direct);
    assert_eq!(distances(&[&[10, 21], &[21, 10]]).shape(), Shape::Direct);
    let even = distances(&[&[10, 20, 20], &[20, 10, 20], &[20, 20, 10]]);
    assert_eq!(even.shape(), Shape::Direct, "all equally far");
    assert_eq!(ring().shape(), Shape::Mesh);
    assert_eq!(boards().shape(), Shape::Backplane);
    // A node without CPUs is no way through, and its distance is not one of theirs.
    let rows = [vec![10, 16, 28], vec![16, 10, 28], vec![28, 28, 10]];
    let expander = Distances::new(&ids(3), &rows, &ids(2));
    assert_eq!((expander.shape(), expander.with_cpus()), (Shape::Direct, &ids(2)[..]));
}

// specs/numa.md#weights: between nodes that are all equally far, the share of a node's own faults.
#[test]
fn direct_weights() {
    let d = distances(&[&[10, 21], &[21, 10]]);
    let t = faults(&[50, 900, 50]);
    assert_eq!([0, 1, 2, 9].map(|n| d.task_weight(&t, NodeId(n), 21)), [50, 900, 50, 0]);
    assert_eq!(d.task_weight(&TaskFaults::default(), NodeId(0), 21), 0);
    assert_eq!(d.group_weight(None, NodeId(0), 21), 0);
    assert_eq!(d.group_weight(Some(&group(&[1, 2])), NodeId(1), 21), 666);
}

// specs/numa.md#weights: the vector of a mesh whose largest distance is 28.
#[test]
fn mesh_weights() {
    let d =
        distances(&[&[10, 16, 22, 28], &[16, 10, 16, 22], &[22, 16, 10, 16], &[28, 22, 16, 10]]);
    assert_eq!(d.shape(), Shape::Mesh);
    let t = faults(&[100, 80, 60, 760]);
    // 100 + 80·12/18 + 60·6/18; what is farthest away counts for nothing.
    assert_eq!(d.task_weight(&t, NodeId(0), 28), 173);
    assert_eq!(d.task_weight(&t, NodeId(0), 16), 173, "the pair's distance doesn't matter");
}

// specs/numa.md#weights: on a backplane, nodes nearer than the two that are compared count in full.
#[test]
fn backplane_weights() {
    let d = boards();
    let t = faults(&[100, 200, 300, 400]);
    assert_eq!(d.task_weight(&t, NodeId(0), 28), 300, "with the other of its board");
    assert_eq!(d.task_weight(&t, NodeId(2), 28), 700);
    assert_eq!(d.task_weight(&t, NodeId(0), 16), 100, "on one board each counts for itself");
}

// specs/numa.md#weights: where a group is at home.
#[test]
fn home_of_groups() {
    let direct = distances(&[&[10, 21], &[21, 10]]);
    assert_eq!(direct.home_of_group(&group(&[9, 1]), NodeId(0)), NodeId(0));
    // Of the ring, node 1 lies between the two that have the faults.
    assert_eq!(ring().home_of_group(&group(&[400, 190, 410, 0]), NodeId(2)), NodeId(1));
    // The board with more faults wins, though a node of the other has the most; then its better node.
    assert_eq!(boards().home_of_group(&group(&[500, 0, 300, 310]), NodeId(0)), NodeId(3));
    assert_eq!(boards().home_of_group(&group(&[0, 0, 0, 0]), NodeId(2)), NodeId(2));
}
