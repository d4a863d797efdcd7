//! Events that sample the addresses of memory accesses: which there are, and whether
//! they can be opened.
//!
//! A PMU describes itself in `/sys/bus/event_source/devices/NAME`: `type` is its number,
//! `events/mem-loads` an event as terms (`event=0xcd,umask=0x1,ldlat=3`), and `format/TERM`
//! where the bits of a term go (`config:0-7`, `config1:0-15`, `config:0-7,32-35`). Worked
//! example: `event=0xcd` with `config:0-7` and `umask=0x1` with `config:8-15` make
//! config 0x1cd; `ldlat=3` with `config1:0-15` makes config1 3.

use super::calls::Calls;
use super::event::Event;
use super::loads::{self, LoadEvents};
use super::root::Root;
use homenode_core::list::ranges as ranges_of;
use homenode_core::policy::facts::Sampling;
use std::collections::BTreeMap;

/// A prime, as `specs/sources.md#pmu` has it.
const SAMPLE_PERIOD: u64 = 10_007;

/// An event that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name, as perf has it: `cpu/mem-loads/`.
    pub name: String,
    /// What is opened together, the leader first.
    pub group: Vec<Event>,
    /// The error number with which opening it failed, if it did.
    pub error: Option<i32>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Names of all PMUs.
    pub devices: Vec<String>,
    /// Events that sample addresses, as they were tried.
    pub tried: Vec<Tried>,
    /// Whether the plainest hardware counter (cycles) opens, else its error number; `None`
    /// if it wasn't tried.
    pub cycles: Option<Result<(), i32>>,
    /// What it comes to.
    pub sampling: Sampling,
    /// Events that count loads that are under way.
    pub loads: LoadEvents,
}

/// Bits of a term: which field, and where its low bits go, from the lowest.
fn parse_format(text: &str) -> Option<(usize, Vec<(u32, u32)>)> {
    let (field, ranges) = text.trim().split_once(':')?;
    let field = ["config", "config1", "config2"].iter().position(|f| *f == field)?;
    let ranges = ranges_of(ranges)?;
    ranges.iter().all(|(_, hi)| *hi < 64).then_some((field, ranges))
}

/// A number as perf's files have it.
fn parse_value(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The three config words of an event's terms; `None` if a term has no format or does
/// not fit into it.
fn assemble(terms: &str, formats: &BTreeMap<String, String>) -> Option<[u64; 3]> {
    let mut out = [0_u64; 3];
    for term in terms.trim().split(',') {
        let (name, value) = match term.split_once('=') {
            Some((name, value)) => (name.trim(), parse_value(value.trim())?),
            None => (term.trim(), 1),
        };
        let (field, ranges) = parse_format(formats.get(name)?)?;
        let mut rest = value;
        for (lo, hi) in ranges {
            let width = hi - lo + 1;
            let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
            out[field] |= (rest & mask) << lo;
            rest = if width >= 64 { 0 } else { rest >> width };
        }
        if rest != 0 {
            return None;
        }
    }
    Some(out)
}

/// A kind of event: its name and the events to open together, the leader first.
type Candidate = (String, Vec<Event>);

fn candidates(root: &Root, device: &str) -> Vec<Candidate> {
    let folder = format!("sys/bus/event_source/devices/{device}");
    let Some(kind) = root.number::<u32>(&format!("{folder}/type")) else { return vec![] };
    let names = root.names(&format!("{folder}/format")).unwrap_or_default();
    let format = |n: String| Some((n.clone(), root.text(&format!("{folder}/format/{n}"))?));
    let formats: BTreeMap<String, String> = names.into_iter().filter_map(format).collect();
    let event = |[config, config1, config2]: [u64; 3], precise| Event {
        kind,
        config,
        config1,
        config2,
        precise,
        user_only: true,
        period: SAMPLE_PERIOD,
        aux: false,
    };
    let mut out = Vec::new();
    // AMD: every tagged instruction; addresses are part of the sample.
    if device == "ibs_op" {
        let config = formats.get("cnt_ctl").and_then(|_| assemble("cnt_ctl=1", &formats));
        let all = Event { user_only: false, ..event(config.unwrap_or_default(), 0) };
        out.push(("ibs_op//".to_owned(), vec![all]));
    }
    // Arm's statistical profiling.
    if device.starts_with("arm_spe") {
        let config = assemble("load_filter=1", &formats).unwrap_or_default();
        out.push((format!("{device}//"), vec![Event { aux: true, ..event(config, 0) }]));
    }
    // Intel: loads above a latency, by PEBS. Where there is an auxiliary event it has to
    // lead the group.
    let named = |name: &str| assemble(&root.text(&format!("{folder}/events/{name}"))?, &formats);
    if let Some(loads) = named("mem-loads") {
        let aux = named("mem-loads-aux").map(|aux| Event { period: 0, ..event(aux, 0) });
        let group = aux.into_iter().chain([event(loads, 2)]).collect();
        out.push((format!("{device}/mem-loads/"), group));
    }
    out
}

/// Looks for PMUs, opens and closes what could sample addresses.
pub(super) fn look(root: &Root, calls: &dyn Calls) -> Pmu {
    let devices = root.names("sys/bus/event_source/devices").unwrap_or_default();
    let mut out = Pmu { devices, ..Pmu::default() };
    // perf's number for hardware counters is 0, and 0 are cycles.
    out.cycles = calls.perf_open(&[Event { user_only: true, ..Event::default() }]);
    let mut unseen = false;
    for (name, group) in out.devices.iter().flat_map(|d| candidates(root, d)) {
        match calls.perf_open(&group) {
            Some(done) => out.tried.push(Tried { name, group, error: done.err() }),
            None => unseen = true,
        }
    }
    out.sampling = sum_up(&out.tried, unseen);
    out.loads = loads::look(root, &out.devices, calls);
    out
}

fn sum_up(tried: &[Tried], unseen: bool) -> Sampling {
    let refused = |e: i32| e == libc::EACCES || e == libc::EPERM;
    let mut open = tried.iter().filter(|t| t.error.is_none()).peekable();
    if open.peek().is_some() {
        let read = open.any(|t| !t.group.iter().any(|e| e.aux));
        return if read { Sampling::Opens } else { Sampling::OwnForm };
    }
    match tried.iter().filter_map(|t| t.error).next() {
        Some(_) if tried.iter().filter_map(|t| t.error).any(refused) => Sampling::Refused,
        Some(errno) => Sampling::Failed(errno),
        None if unseen => Sampling::Unseen,
        None => Sampling::NoDevice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn intel() -> BTreeMap<String, String> {
        [
            ("event", "config:0-7"),
            ("umask", "config:8-15"),
            ("ldlat", "config1:0-15"),
            ("wide", "config2:0-63"),
            ("split", "config:16-17,20-21"),
            ("bit", "config:19"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
    }

    #[test]
    fn terms_go_where_their_format_says() {
        let of = |t| assemble(t, &intel());
        assert_eq!(of("event=0xcd,umask=0x1,ldlat=3"), Some([0x1cd, 3, 0]));
        assert_eq!(of("bit"), Some([1 << 19, 0, 0]));
        // 0b1101: the low two at 16, the high two at 20.
        assert_eq!(of("split=13"), Some([1 << 16 | 3 << 20, 0, 0]));
        assert_eq!(of("wide=0xffffffffffffffff"), Some([0, 0, u64::MAX]));
        assert_eq!(of("event=0x100"), None, "does not fit");
        assert_eq!(of("other=1"), None, "no format");
        assert_eq!(of("event=?"), None);
        assert_eq!(of(""), None);
    }

    #[test]
    fn one_that_opens_is_enough_and_privilege_is_the_first_reason() {
        let t = |error| Tried { name: "x".into(), group: vec![], error };
        assert_eq!(sum_up(&[t(Some(2)), t(None)], false), Sampling::Opens);
        assert_eq!(sum_up(&[t(Some(2)), t(Some(13))], false), Sampling::Refused);
        assert_eq!(sum_up(&[t(Some(95))], true), Sampling::Failed(95));
        assert_eq!(sum_up(&[], true), Sampling::Unseen);
        let spe = Tried { group: vec![Event { aux: true, ..Event::default() }], ..t(None) };
        assert_eq!(sum_up(std::slice::from_ref(&spe), false), Sampling::OwnForm);
        assert_eq!(sum_up(&[spe, t(None)], false), Sampling::Opens);
        assert_eq!(sum_up(&[], false), Sampling::NoDevice);
    }

    proptest! {
        #[test]
        fn odd_files_never_panic(
            terms in "[a-z=,0-9x?]{0,40}|\\PC{0,20}",
            format in "config[0-3]?:[0-9,-]{0,12}|\\PC{0,20}",
        ) {
            let mut formats = intel();
            formats.insert("event".into(), format);
            let _ = assemble(&terms, &formats);
            let _ = assemble("event=0xffff", &formats);
        }
        #[test]
        fn every_bit_of_a_value_finds_its_place(value in any::<u64>(), at in 0_u32..64) {
            let formats = [("v".to_owned(), format!("config:{at}-63"))].into();
            let fits = at == 0 || value >> (64 - at) == 0;
            let got = assemble(&format!("v={value}"), &formats);
            prop_assert_eq!(got, fits.then(|| [value << at, 0, 0]));
        }
    }
}
