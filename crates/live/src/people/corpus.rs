//! What guests of each kernel showed in /proc, for tests of parsers.

use proptest::prelude::*;

/// A file of the corpus, as Linux 6.1, 6.12 and 7.3 had it.
macro_rules! corpus {
    ($name:literal) => {
        [
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/proc/6.1/", $name))
                .as_slice(),
            include_bytes!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/fixtures/proc/6.12/",
                $name
            )),
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/proc/7.3/", $name)),
        ]
    };
}
pub(crate) use corpus;

/// A text with something cut, doubled or changed, as no kernel writes it.
pub(crate) fn damaged(corpus: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let change = (0..5u8, any::<u16>(), any::<u16>(), any::<u8>());
    let changes = prop::collection::vec(change, 1..6);
    (prop::sample::select(corpus), changes).prop_map(|(text, changes)| {
        let mut text = text.to_vec();
        for (how, a, b, byte) in changes {
            if text.is_empty() {
                break;
            }
            let (a, b) = (usize::from(a) % text.len(), usize::from(b) % text.len());
            let (from, to) = (a.min(b), a.max(b));
            match how {
                0 => text.truncate(from),
                1 => text[from] = byte,
                2 => text.swap(from, to),
                3 => drop(text.drain(from..to)),
                _ => {
                    let part = text[from..to].to_vec();
                    text.splice(from..from, part);
                }
            }
        }
        text
    })
}
