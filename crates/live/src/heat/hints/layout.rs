//! Where this kernel keeps what a hint fault tells.
//!
//! Every hint fault of the kernels that are known goes through one function, once for a
//! page or huge page, before anything is decided:
//!
//! ```text
//! 6.1          mpol_misplaced(struct page *page,   struct vm_area_struct *vma, addr)
//! 6.12, 7.3    mpol_misplaced(struct folio *folio, struct vm_fault *vmf,       addr)
//!
//! flags   │ node │ zone │ last_cpupid, if it fits │ … │ bits of state │
//!         63     ◀ NODES_SHIFT ▶                                      0
//! ```
//!
//! The kernel's own description (BTF) tells the arguments and members. Widths are not in
//! it, but arrays are: a zonelist holds `MAX_NUMNODES × MAX_NR_ZONES + 1` references.
//! Worked example, Debian: 5121 references, 5 zones, so 1024 nodes: 10 bits from bit 54
//! on. Zones take 3 bits; `last_cpupid` is 8 bits of PID and 13 of CPU (8192 CPUs), and
//! as there is no member `_last_cpupid` it is in the flags, from bit 30 on.
//!
//! On x86-64 memory is always mapped as one array (`SPARSEMEM_VMEMMAP`), so that no
//! section stands before the node.
//!
//! Source: specs/live.md#hint-fault.

use super::error::HintsError;
use libbpf_rs::btf::types::{Array, Composite, Enum, Func, FuncProto, MemberAttr, Ptr, Struct};
use libbpf_rs::btf::{Btf, BtfType};
use std::ffi::OsStr;

/// The function that is watched.
pub(super) const FUNCTION: &str = "mpol_misplaced";
/// `LAST__PID_SHIFT`.
const PID_BITS: u32 = 8;
/// `PAGE_ACCESS_TIME_MIN_BITS`: with fewer, the time is kept more coarsely.
const TIME_BITS_MIN: u32 = 12;

/// What BTF says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Which argument is the page or folio.
    pub(super) page_arg: u32,
    /// Which is the address.
    pub(super) addr_arg: u32,
    /// Which is the mapping or the fault that holds it.
    pub(super) area_arg: u32,
    /// Byte of the fault at which the mapping is; `None` if it is the mapping itself.
    pub(super) area_at: Option<u32>,
    /// Byte of the page at which the flags are.
    pub(super) flags_at: u32,
    /// Byte of the page at which `_last_cpupid` is, if it is a member.
    pub(super) cpupid_at: Option<u32>,
    /// References in a zonelist.
    pub(super) zonerefs: u32,
    /// `MAX_NR_ZONES`.
    pub(super) zones: u32,
}

/// Where a page's stamp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Not known.
    None,
    /// In the flags, from this bit on.
    Flags(u32),
    /// At this byte of the page.
    Field(u32),
}

/// What the BPF program has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) facts: Facts,
    /// Bit of the flags where the node begins; it ends with the highest.
    pub(super) node_shift: u32,
    pub(super) stamp: Stamp,
    /// Bits of a stamp.
    pub(super) stamp_bits: u32,
    /// Bits by which a stamp is shifted to be in ms.
    pub(super) stamp_scale: u32,
    /// Ticks in a second.
    pub(super) hz: u32,
}

fn unknown(what: impl Into<String>) -> HintsError {
    HintsError::Unknown { what: what.into() }
}

impl Facts {
    /// Reads them.
    ///
    /// # Errors
    /// [`HintsError::Unknown`] where something is not as in the kernels that are known.
    pub(super) fn read(btf: &Btf<'_>) -> Result<Self, HintsError> {
        let missing = || unknown(format!("this kernel has no function {FUNCTION}"));
        let function: Func<'_> = named(btf, FUNCTION).ok_or_else(missing)?;
        let function: BtfType<'_> = *function;
        let odd = |what: &str| unknown(format!("the kernel's {FUNCTION} has no argument {what}"));
        let proto = function.next_type().and_then(|t| FuncProto::try_from(t).ok());
        let proto = proto.ok_or_else(|| odd("at all"))?;
        let (mut page, mut addr, mut area) = (None, None, None);
        for (arg, param) in (0..).zip(proto.iter()) {
            let name = param.name.and_then(OsStr::to_str).unwrap_or_default();
            let behind = btf.type_by_id::<BtfType<'_>>(param.ty).and_then(pointed_at);
            let kind = behind.and_then(|t| t.name()).and_then(OsStr::to_str);
            match kind {
                Some("page" | "folio") => page = behind.map(|t| (arg, t)),
                Some("vm_area_struct" | "vm_fault") => area = behind.map(|t| (arg, t)),
                None if matches!(name, "addr" | "address") => addr = Some(arg),
                _ => {}
            }
        }
        let (page_arg, page) = page.ok_or_else(|| odd("that is a page or folio"))?;
        let (area_arg, area) = area.ok_or_else(|| odd("that is a mapping"))?;
        let addr_arg = addr.ok_or_else(|| odd("`addr`"))?;
        let area_at = match area.name().and_then(OsStr::to_str) {
            Some("vm_fault") => {
                let at = member(btf, area, "vma", 0);
                Some(at.ok_or_else(|| unknown("the kernel's vm_fault has no member `vma`"))?.0)
            }
            _ => None,
        };
        let flags = member(btf, page, "flags", 0);
        let flags_at = match flags {
            // A number, or since 6.18 a structure of one.
            Some((at, of)) if bytes(of) == Some(8) => at,
            _ => return Err(unknown("the kernel's pages have no `flags` of 64 bits")),
        };
        let list: Option<Struct<'_>> = named(btf, "zonelist");
        let refs = list.and_then(|l| member(btf, *l, "_zonerefs", 0));
        let refs = refs.and_then(|(_, t)| Array::try_from(t).ok());
        let zones: Option<Enum<'_>> = named(btf, "zone_type");
        let zones = zones.and_then(|z| {
            let most = |name: Option<&OsStr>| name == Some(OsStr::new("__MAX_NR_ZONES"));
            z.iter().find(|v| most(v.name)).map(|v| v.value)
        });
        let width = || unknown("the kernel's BTF doesn't tell how many nodes there can be");
        Ok(Self {
            page_arg,
            addr_arg,
            area_arg,
            area_at,
            flags_at,
            cpupid_at: member(btf, page, "_last_cpupid", 0).map(|(at, _)| at),
            zonerefs: u32::try_from(refs.ok_or_else(width)?.capacity()).map_err(|_| width())?,
            zones: u32::try_from(zones.ok_or_else(width)?).map_err(|_| width())?,
        })
    }
}

/// A type of that name and kind.
fn named<'b, K: TryFrom<BtfType<'b>>>(btf: &'b Btf<'_>, name: &str) -> Option<K> {
    // Names are not unique: a function may be called as a structure is.
    btf.type_by_name(name).or_else(|| {
        let mut all = btf.type_by_kind::<BtfType<'_>>();
        all.find_map(|t| (t.name() == Some(OsStr::new(name))).then(|| K::try_from(t).ok())?)
    })
}

fn pointed_at(t: BtfType<'_>) -> Option<BtfType<'_>> {
    let pointer = Ptr::try_from(t.skip_mods_and_typedefs()).ok()?;
    Some(pointer.next_type()?.skip_mods_and_typedefs())
}

/// Deepest nesting of anonymous members that is looked into.
const DEEP: u32 = 6;

/// Byte and type of a member, also of one in anonymous structures and unions.
fn member<'b>(
    btf: &'b Btf<'_>,
    of: BtfType<'b>,
    name: &str,
    deep: u32,
) -> Option<(u32, BtfType<'b>)> {
    let all = Composite::try_from(of.skip_mods_and_typedefs()).ok()?;
    for at in 0..all.len() {
        let m = all.get(at)?;
        let offset = match m.attr {
            MemberAttr::Normal { offset } | MemberAttr::BitField { size: 0, offset } => offset / 8,
            MemberAttr::BitField { .. } => continue,
        };
        let Some(of) = btf.type_by_id::<BtfType<'_>>(m.ty) else { continue };
        let of = of.skip_mods_and_typedefs();
        match m.name.filter(|n| !n.is_empty()) {
            Some(n) if n == name => return Some((offset, of)),
            None if deep < DEEP => {
                if let Some((inner, of)) = member(btf, of, name, deep + 1) {
                    return Some((offset.checked_add(inner)?, of));
                }
            }
            _ => {}
        }
    }
    None
}

/// Size of a number or structure.
fn bytes(t: BtfType<'_>) -> Option<usize> {
    use libbpf_rs::btf::{HasSize, types::Int};
    match Int::try_from(t) {
        Ok(int) => Some(int.size()),
        Err(t) => Struct::try_from(t).ok().map(|s| s.size()),
    }
}

impl Layout {
    /// Works out where things are.
    ///
    /// * `cpus` – `CONFIG_NR_CPUS`, if it is known.
    /// * `hz` – ticks in a second, if they are known. Without either no stamps are read.
    ///
    /// # Errors
    /// [`HintsError::Unknown`] if the node of a page can't be found.
    pub(super) fn of(facts: Facts, cpus: Option<u32>, hz: Option<u32>) -> Result<Self, HintsError> {
        let references = facts.zonerefs.saturating_sub(1);
        let nodes = references.checked_div(facts.zones).unwrap_or(0);
        let whole = nodes.checked_mul(facts.zones) == Some(references);
        if !whole || !nodes.is_power_of_two() || !(2..=1 << 16).contains(&nodes) {
            return Err(unknown(format!(
                "a zonelist of {} references for {} zones tells no number of nodes",
                facts.zonerefs, facts.zones
            )));
        }
        let node_shift = u64::BITS - nodes.ilog2();
        // Bits for that many different zones.
        let zone_bits = facts.zones.next_power_of_two().ilog2();
        // Kernels differ in how they round other numbers of CPUs.
        let cpu_bits = cpus.filter(|c| c.is_power_of_two()).map(u32::ilog2);
        // Ticks that are no whole ms are rounded in several ways.
        let hz = hz.filter(|hz| [100, 250, 300, 1000].contains(hz));
        let stamp_bits = cpu_bits.map_or(0, |bits| PID_BITS + bits);
        let stamp = match (cpu_bits, hz, facts.cpupid_at) {
            (None, ..) | (_, None, _) => Stamp::None,
            (.., Some(at)) => Stamp::Field(at),
            (.., None) => match node_shift.checked_sub(zone_bits + stamp_bits) {
                Some(at) => Stamp::Flags(at),
                None => Stamp::None,
            },
        };
        Ok(Self {
            facts,
            node_shift,
            stamp,
            stamp_bits: stamp_bits.min(31),
            stamp_scale: TIME_BITS_MIN.saturating_sub(stamp_bits),
            hz: hz.unwrap_or(0),
        })
    }

    /// What is added to an age, in ms, to have the longest that it can be: both ends are
    /// read from a clock that goes by ticks.
    pub(super) fn tick_ms(&self) -> u64 {
        match self.hz {
            0 => 0,
            hz => u64::from(1000_u32.div_ceil(hz)),
        }
    }

    /// `struct settings` of the BPF program.
    pub(super) fn settings(&self) -> Vec<u8> {
        let (stamp, stamp_at) = match self.stamp {
            Stamp::None => (0, 0),
            Stamp::Flags(at) => (1, at),
            Stamp::Field(at) => (2, at),
        };
        let words = [
            self.facts.page_arg,
            self.facts.addr_arg,
            self.facts.area_arg,
            self.facts.area_at.unwrap_or(u32::MAX),
            self.facts.flags_at,
            self.node_shift,
            stamp,
            stamp_at,
            (1 << self.stamp_bits) - 1,
            self.stamp_scale,
            self.hz,
        ];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    /// Debian's 6.1; 6.12 and 7.3 differ in `area_at` only.
    const DEBIAN: Facts = Facts {
        page_arg: 0,
        addr_arg: 2,
        area_arg: 1,
        area_at: None,
        flags_at: 0,
        cpupid_at: None,
        zonerefs: 5121,
        zones: 5,
    };

    #[test]
    fn widths_follow_from_arrays() {
        let show = |facts: Facts, cpus, hz| match Layout::of(facts, cpus, hz) {
            Ok(l) => format!(
                "node from bit {}, stamp {:?} of {} bits << {}, tick {} ms\n",
                l.node_shift,
                l.stamp,
                l.stamp_bits,
                l.stamp_scale,
                l.tick_ms()
            ),
            Err(e) => format!("{e}\n"),
        };
        let small = Facts { zonerefs: 4 * 4 + 1, zones: 4, ..DEBIAN };
        let text = [
            show(DEBIAN, Some(8192), Some(250)),
            show(Facts { cpupid_at: Some(60), ..DEBIAN }, Some(8192), Some(1000)),
            show(small.clone(), Some(8), Some(300)),
            show(DEBIAN, Some(6000), Some(250)),
            show(DEBIAN, None, Some(250)),
            show(DEBIAN, Some(8192), Some(1024)),
            show(Facts { zonerefs: 6, ..DEBIAN }, Some(64), Some(250)),
            show(Facts { zones: 3, ..DEBIAN }, Some(64), Some(250)),
            show(Facts { zones: 0, ..DEBIAN }, Some(64), Some(250)),
        ];
        expect![[r#"
            node from bit 54, stamp Flags(30) of 21 bits << 0, tick 4 ms
            node from bit 54, stamp Field(60) of 21 bits << 0, tick 1 ms
            node from bit 62, stamp Flags(49) of 11 bits << 1, tick 4 ms
            node from bit 54, stamp None of 0 bits << 12, tick 4 ms
            node from bit 54, stamp None of 0 bits << 12, tick 4 ms
            node from bit 54, stamp None of 21 bits << 0, tick 0 ms
            a zonelist of 6 references for 5 zones tells no number of nodes: hint faults can't be watched on this kernel (Linux 6.1, 6.12 and 7.3 are known to work). Use another source, and please report it
            a zonelist of 5121 references for 3 zones tells no number of nodes: hint faults can't be watched on this kernel (Linux 6.1, 6.12 and 7.3 are known to work). Use another source, and please report it
            a zonelist of 5121 references for 0 zones tells no number of nodes: hint faults can't be watched on this kernel (Linux 6.1, 6.12 and 7.3 are known to work). Use another source, and please report it
        "#]]
        .assert_eq(&text.concat());
    }

    #[test]
    fn this_kernels_own_description_is_understood_or_refused() {
        let btf = match Btf::from_path("/sys/kernel/btf/vmlinux") {
            Ok(btf) => btf,
            Err(error) => return println!("skipped: this kernel shows no BTF: {error}"),
        };
        match Facts::read(&btf) {
            Ok(facts) => {
                println!("{facts:?}");
                assert_eq!((facts.page_arg, facts.area_arg, facts.addr_arg), (0, 1, 2));
                assert!(Layout::of(facts, Some(64), Some(250)).is_ok());
            }
            Err(error) => println!("refused: {error}"),
        }
        assert!(named::<Func<'_>>(&btf, "no_function_is_called_so").is_none());
    }

    proptest! {
        #[test]
        fn odd_facts_never_panic(
            numbers in proptest::array::uniform8(prop_oneof![any::<u32>(), 0..70_u32]),
            cpus: Option<u32>,
            hz: Option<u32>,
        ) {
            let [page_arg, addr_arg, area_arg, area_at, flags_at, at, zonerefs, zones] = numbers;
            let cpupid_at = (at > 9).then_some(at);
            let area_at = Some(area_at);
            let facts =
                Facts { page_arg, addr_arg, area_arg, area_at, flags_at, cpupid_at, zonerefs, zones };
            if let Ok(layout) = Layout::of(facts, cpus, hz) {
                prop_assert!((32..64).contains(&layout.node_shift));
                prop_assert_eq!(layout.settings().len(), 11 * 4);
            }
        }
    }
}
