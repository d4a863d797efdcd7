//! What zoneinfo says, and what becomes of it when it is damaged.

use super::*;

#[test]
fn this_machine_has_zones() {
    let nodes = Zoneinfo::new(Path::new("/")).look().unwrap();
    let zones: Vec<_> = nodes.iter().flat_map(|(_, zones)| zones).collect();
    assert!(!zones.is_empty());
    for z in zones {
        let m = &z.marks;
        assert!(m.min <= m.low && m.low <= m.high && m.high <= m.promo, "{z:?}");
        assert!(z.free <= m.managed, "{z:?}");
    }
}
