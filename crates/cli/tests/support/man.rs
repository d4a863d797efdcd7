//! What a manual page and a command's help name, for tests that hold one to the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The text of a page below `docs/man`.
pub(crate) fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man").join(name);
    fs::read_to_string(path).expect("the page is there")
}

/// Names of long options: whatever stands behind the mark.
pub(crate) fn options(text: &str, mark: &str) -> BTreeSet<String> {
    text.split(mark)
        .skip(1)
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect())
        .filter(|name: &String| !name.is_empty())
        .collect()
}
