use super::*;
use proptest::prelude::*;

struct Keys(Vec<(u32, Link)>);

impl Links for Keys {
    fn link(&self, n: u32) -> &Link {
        &self.0[n as usize].1
    }
    fn link_mut(&mut self, n: u32) -> &mut Link {
        &mut self.0[n as usize].1
    }
}

fn add(keys: &mut Keys, root: &mut Root, key: u32) -> u32 {
    keys.0.push((key, Link::default()));
    let n = keys.0.len() as u32 - 1;
    let (mut parent, mut side, mut at) = (NIL, Ordering::Less, root.0);
    while at != NIL {
        parent = at;
        side = key.cmp(&keys.0[at as usize].0);
        let l = keys.link(at);
        at = if side == Ordering::Greater { l.right() } else { l.left() };
    }
    root.insert(keys, parent, side, n);
    n
}

/// The tree as text: red ones in brackets.
fn draw(keys: &Keys, n: u32) -> String {
    if n == NIL {
        return ".".to_owned();
    }
    let (key, l) = &keys.0[n as usize];
    let own = if l.is_red() { format!("[{key}]") } else { key.to_string() };
    match (l.left(), l.right()) {
        (NIL, NIL) => own,
        (a, b) => format!("({} {own} {})", draw(keys, a), draw(keys, b)),
    }
}

// The shapes of a textbook's red-black tree, which the kernel's are too: the
// example of 41, 38, 31, 12, 19, 8 and its removal in rising order.
#[test]
fn textbook_shapes() {
    let (mut keys, mut root) = (Keys(vec![]), Root::EMPTY);
    let order = [41, 38, 31, 12, 19, 8];
    let mut seen = Vec::new();
    for key in order {
        add(&mut keys, &mut root, key);
        seen.push(draw(&keys, root.0));
    }
    for key in [8, 12, 19, 31, 38, 41] {
        let n = order.iter().position(|k| *k == key).unwrap() as u32;
        root.erase(&mut keys, n);
        seen.push(draw(&keys, root.0));
    }
    assert_eq!(
        seen,
        [
            "41",
            "([38] 41 .)",
            "([31] 38 [41])",
            "(([12] 31 .) 38 41)",
            "(([12] 19 [31]) 38 41)",
            "((([8] 12 .) [19] 31) 38 41)",
            "((12 [19] 31) 38 41)",
            "((. 19 [31]) 38 41)",
            "(31 38 41)",
            "(. 38 [41])",
            "41",
            ".",
        ]
    );
}

proptest! {
    #[test]
    fn stays_balanced_and_ordered(ops in prop::collection::vec((0u32..64, 0u8..8), 1..300)) {
        let (mut keys, mut root) = (Keys(vec![]), Root::EMPTY);
        let mut inside: Vec<u32> = Vec::new();
        for (key, op) in ops {
            match op {
                0..=3 => {
                    let n = add(&mut keys, &mut root, key);
                    inside.push(n);
                }
                4..=6 if !inside.is_empty() => {
                    let n = inside.swap_remove(key as usize % inside.len());
                    root.erase(&mut keys, n);
                }
                7 if !inside.is_empty() => {
                    let place = key as usize % inside.len();
                    let old = inside[place];
                    keys.0.push((keys.0[old as usize].0, Link::default()));
                    let new = keys.0.len() as u32 - 1;
                    root.replace(&mut keys, old, new);
                    inside[place] = new;
                }
                _ => {}
            }
            prop_assert_eq!(root.faults(&keys), Vec::<String>::new());
            let found: Vec<u32> = root.elements(&keys).map(|n| keys.0[n as usize].0).collect();
            let mut expected: Vec<u32> = inside.iter().map(|n| keys.0[*n as usize].0).collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}

// A broken tree is found: silence of `faults` means something.
#[test]
fn faults_are_found() {
    let (mut keys, mut root) = (Keys(vec![]), Root::EMPTY);
    for key in 0..20 {
        add(&mut keys, &mut root, key);
    }
    assert!(root.faults(&keys).is_empty());
    let leaf = root.first(&keys).unwrap();
    let red = keys.link(leaf).is_red();
    keys.link_mut(leaf).set_red(!red);
    assert!(!root.faults(&keys).is_empty());
}
