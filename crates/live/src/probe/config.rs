//! What the kernel was built with: its configuration, and the names of its functions.

use super::root::Root;
use homenode_core::policy::facts::Known;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// A configuration is some 300 kB; more is damaged.
const CONFIG_MAX: u64 = 16 << 20;

/// Options of the kernel, where some file tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The file they were read from, such as `/proc/config.gz`.
    pub from: Option<String>,
    /// `CONFIG_...` to `y`, `m` or a value; options that are not set are not here.
    options: BTreeMap<String, String>,
}

impl Config {
    /// Reads the lines `CONFIG_NUMA=y`; everything else is passed over.
    pub fn parse(from: &str, text: &str) -> Self {
        let pairs = text.lines().filter_map(|l| l.trim().split_once('='));
        let options = pairs.filter(|(key, _)| key.starts_with("CONFIG_"));
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { from: Some(from.to_owned()), options }
    }
    /// Whether an option is `y` or `m`; unseen without a configuration.
    pub fn has(&self, option: &str) -> Known {
        match (&self.from, self.options.get(option).map(String::as_str)) {
            (None, _) => Known::Unseen,
            (_, Some("y" | "m")) => Known::Yes,
            _ => Known::No,
        }
    }
}

/// From the first of the files that distributions put it into.
pub(super) fn read_config(root: &Root, release: Option<&str>) -> Config {
    if let Some(packed) = root.bytes("proc/config.gz") {
        let mut text = Vec::new();
        let mut unpack = flate2::read::GzDecoder::new(&packed[..]).take(CONFIG_MAX);
        if unpack.read_to_end(&mut text).is_ok() {
            return Config::parse("/proc/config.gz", &String::from_utf8_lossy(&text));
        }
    }
    // A release is one name; anything else would lead out of the folder.
    let release = release.filter(|r| !r.is_empty() && !r.contains('/') && !r.starts_with('.'));
    for name in release.into_iter().flat_map(|r| {
        [
            format!("boot/config-{r}"),
            format!("lib/modules/{r}/config"),
            format!("usr/lib/modules/{r}/config"),
        ]
    }) {
        if let Some(text) = root.text(&name) {
            return Config::parse(&format!("/{name}"), &text);
        }
    }
    Config::default()
}

/// Functions at which a hint fault can be watched with its address, best first
/// (specs/live.md#hint-fault).
pub(super) const HINT_FUNCTIONS: [&str; 1] = ["mpol_misplaced"];
/// A function that only a kernel with DAMON's virtual address spaces has.
const VADDR_FUNCTION: &str = "damon_va_prepare_access_checks";
/// One that every kernel has: where it is missing, names of functions are not told.
const SURE_FUNCTION: &str = "vfs_read";

/// Which of the functions that matter here the kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Whether `/proc/kallsyms`, or the kernel's BTF, could be read and has functions.
    pub readable: bool,
    found: BTreeSet<&'static str>,
}

impl Symbols {
    /// Whether there is a function; unseen where the list can't be read.
    pub fn has(&self, name: &str) -> Known {
        match self.readable {
            false => Known::Unseen,
            true => Known::from_bool(self.found.contains(name)),
        }
    }
    /// The functions that hint faults pass through, as far as they are there.
    pub fn hint_functions(&self) -> Vec<&'static str> {
        HINT_FUNCTIONS.into_iter().filter(|f| self.found.contains(f)).collect()
    }
    pub(super) fn vaddr(&self) -> Known {
        self.has(VADDR_FUNCTION)
    }
}

/// The name in a line such as `ffffffff813b90d0 T task_numa_fault`, if it is a function
/// of the kernel itself.
fn function_in(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(u8::is_ascii_whitespace);
    let (_address, kind, name) = (words.next()?, words.next()?, words.next()?);
    (matches!(kind, b"T" | b"t" | b"W" | b"w") && words.next().is_none()).then_some(name)
}

/// The same from the names in the kernel's BTF, which everybody may read: a service with systemd's
/// `ProtectKernelTunables=` sees no `kallsyms`. A name there may be that of anything; ours are
/// functions that are called by pointer or from other files, so that none is folded into another.
fn names_in_btf(root: &Root, out: &mut Symbols) {
    let mut found = BTreeSet::new();
    let mut some = false;
    let whole = root.pieces("sys/kernel/btf/vmlinux", 0, |name| {
        some |= name == SURE_FUNCTION.as_bytes();
        let known = HINT_FUNCTIONS.into_iter().chain([VADDR_FUNCTION]);
        found.extend(known.filter(|k| k.as_bytes() == name));
    });
    if whole && some {
        (out.readable, out.found) = (true, found);
    }
}

pub(super) fn read_symbols(root: &Root) -> Symbols {
    let mut out = Symbols::default();
    let mut any = false;
    let whole = root.lines("proc/kallsyms", |line| {
        if let Some(name) = function_in(line) {
            any = true;
            let known = HINT_FUNCTIONS.into_iter().chain([VADDR_FUNCTION]);
            out.found.extend(known.filter(|k| k.as_bytes() == name));
        }
    });
    out.readable = whole && any;
    if !out.readable {
        names_in_btf(root, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_read_and_the_absent_ones_are_off() {
        let text =
            "# comment\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=\"n\"\nX=y\n";
        let config = Config::parse("/boot/config", text);
        let of = |o| config.has(o).name();
        assert_eq!(
            ["CONFIG_A", "CONFIG_B", "CONFIG_C", "CONFIG_D", "CONFIG_E", "X"].map(of),
            ["yes", "yes", "no", "no", "no", "no"]
        );
        assert_eq!(Config::default().has("CONFIG_A"), Known::Unseen);
    }

    #[test]
    fn functions_are_told_from_data_and_modules() {
        let name =
            |l: &str| function_in(l.as_bytes()).map(|n| String::from_utf8_lossy(n).into_owned());
        assert_eq!(name("0000000000000000 T task_numa_fault").as_deref(), Some("task_numa_fault"));
        assert_eq!(name("0 t a.isra.0").as_deref(), Some("a.isra.0"));
        assert_eq!(name("0 D data"), None);
        assert_eq!(name("0 t func\t[module]"), None);
        assert_eq!(name(""), None);
    }

    proptest! {
        #[test]
        fn odd_configurations_and_symbols_never_panic(text in any::<Vec<u8>>()) {
            let lossy = String::from_utf8_lossy(&text);
            let _ = Config::parse("x", &lossy).has("CONFIG_NUMA");
            let _ = text.split(|b| *b == b'\n').filter_map(function_in).count();
        }
    }
}
