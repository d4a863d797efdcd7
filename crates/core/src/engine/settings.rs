//! What a user may want otherwise.

use crate::scenario::{AdmissionChoice, Margin};
use crate::units::{MBps, Picos};

/// Makes [`Settings`], its defaults, and [`SETTINGS`] of the same rows.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $Settings:ident {
            numbers {
                $($(#[doc = $doc:literal])* $number:ident: $Number:ty = $default:expr, in $range:expr;)*
            }
            choices {
                $($(#[doc = $said:literal])* $choice:ident: $Choice:ty = $usual:expr;)*
            }
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $Settings {
            $($(#[doc = $doc])* pub $number: $Number,)*
            $($(#[doc = $said])* pub $choice: $Choice,)*
        }

        impl Default for $Settings {
            fn default() -> Self {
                Self { $($number: $default,)* $($choice: $usual,)* }
            }
        }

        /// All settings that are amounts, in the order of [`Settings`].
        pub const SETTINGS: &[SettingKind] = &[$(SettingKind {
            name: stringify!($number),
            about: concat!($($doc,)*),
            unit: <$Number as Amount>::UNIT,
            range: $range,
            get: |s| s.$number.get(),
            set: |s, value| s.$number = <$Number>::of(value),
        },)*];
    };
}

const MS: u64 = Picos::from_ms(1).0;
const SECOND: u64 = Picos::from_secs(1).0;

settings! {
    /// Settings of an engine. Every default is a budget or a time scale of
    /// homenode's own; none is fitted to a workload.
    ///
    /// Source: specs/engine.md#settings.
    pub struct Settings {
        numbers {
            /// Processor time that a process must have used before it is sampled; it
            /// begins strictly after. Whole milliseconds, rounded up, to 2^32 - 1.
            /// Default 1 s: the kernel's `scan_delay_ms`.
            start_delay: Picos = Picos::from_secs(1), in [0, 3600 * SECOND];
            /// How often it decides, above 0. Default 1 s.
            interval: Picos = Picos::from_secs(1), in [10 * MS, 3600 * SECOND];
            /// Share of one CPU that looking and deciding may take, in thousandths, 0 to 1000;
            /// as much may go into moves that have not come to save what they took. 0 orders no
            /// look and no move. Default 10: 1 %.
            cpu_permille: u32 = 10, in [0, 1000];
            /// What is moved, in 10^6 bytes a second, counted over `horizon`, as long as it has not
            /// come to save what it took; 0 moves nothing. Default 100.
            moved_mbps: MBps = MBps(100), in [0, 65_536];
            /// Most that is moved in a second whatever it saves, in 10^6 bytes. Default 1000: a
            /// twentieth of what one channel of DDR4 carries. What is less than `moved_mbps` bounds
            /// that too.
            most_mbps: MBps = MBps(1000), in [0, 65_536];
            /// Longest time for which one order may hold a process up; bounds the pages
            /// of a move, which has one at least. Default 1 ms.
            stall: Picos = Picos::from_ms(1), in [MS / 1000, SECOND];
            /// For how long memory is taken to stay as hot as it is: over this time a
            /// move must save more than it costs. Default 10 s.
            horizon: Picos = Picos::from_secs(10), in [10 * MS, 3600 * SECOND];
            /// Half-life of the short average of heat, above 0. Default 1 s.
            short: Picos = Picos::from_secs(1), in [10 * MS, 3600 * SECOND];
            /// Half-life of the long average, above 0. Default 8 s.
            long: Picos = Picos::from_secs(8), in [10 * MS, 3600 * SECOND];
            /// Heat older than this moves nothing up. Default 5 s: DAMON tells ten times a
            /// second, a scan for hint faults comes by once in some seconds.
            fresh: Picos = Picos::from_secs(5), in [10 * MS, 3600 * SECOND];
            /// A placement older than this is looked at again before it is acted upon,
            /// since the kernel moves pages too. Default 10 s.
            look_again: Picos = Picos::from_secs(10), in [10 * MS, 3600 * SECOND];
            /// Most stretches of memory that are told apart, over all processes, at least
            /// 16 for each; one takes about 150 bytes. Default 65536.
            most_spans: usize = 1 << 16, in [16, 1 << 24];
            /// Processor time of taking in one observation. Default 100 ns, assumed: a
            /// look-up in an ordered map of that size.
            per_seen: Picos = Picos::from_ns(100), in [0, MS];
            /// Processor time per stretch of memory and decision. Default 800 ns: 680 to 950 ns
            /// were measured with 18,000 stretches of samples on an AMD EPYC, a third of it for the
            /// estimate.
            per_span: Picos = Picos::from_ns(800), in [0, MS];
            /// Processor time of asking where one page is. Default 39 ns: reading `pagemap`, which
            /// tells frames to who may see them, took 10.1 ms for 1 GiB. Asking `move_pages` took 317.
            look_page: Picos = Picos::from_ns(39), in [0, MS];
            /// Processor time of a census, for each page. Default 39 ns, as of a look; reading
            /// `numa_maps`, where no frames are shown, took 12.3 ms for 1 GiB, 47 ns a page.
            count_page: Picos = Picos::from_ns(39), in [0, MS];
            /// Orders that may be on their way at once, besides those to begin sampling.
            /// Default 8: enough that a slow copy does not idle the others.
            most_open: usize = 8, in [1, 1024];
            /// As how many loads under way at once a program's are taken at most, where CPUs
            /// count them: what an access saves is divided by them. Default 1: each is waited
            /// for by itself, whatever is counted, and memory goes to who accesses most; with
            /// more it goes to who waits longest.
            most_at_once: u32 = 1, in [1, 64];
            /// How often pages that were busy are tried again. Default 3.
            retries: u32 = 3, in [0, 16];
            /// Wait before the first retry; doubles with each. Default 2 s.
            backoff: Picos = Picos::from_secs(2), in [10 * MS, 3600 * SECOND];
        }
        choices {
            /// How full promotions may make a node. Default B, what the kernel merged.
            admission: AdmissionChoice = AdmissionChoice::B;
            /// Margin of the demotion mark, for the admission rule. Default the kernel's.
            margin: Margin = Margin::Kernel;
        }
    }
}

/// A setting that is an amount: what there is to know of it, and how it is read and changed.
#[derive(Clone, Copy, Debug)]
pub struct SettingKind {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it counts.
    pub unit: SettingUnit,
    range: [u64; 2],
    get: fn(&Settings) -> u64,
    set: fn(&mut Settings, u64),
}

impl SettingKind {
    /// The one of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|s| s.name == name)
    }
    /// Its value, in its unit.
    pub fn get(&self, settings: &Settings) -> u64 {
        (self.get)(settings)
    }
    /// The least and the largest value that [`set`](Self::set) takes.
    pub fn range(&self) -> [u64; 2] {
        self.range
    }
    /// Changes it.
    ///
    /// # Errors
    /// The least and the largest value, where this one lies outside of them.
    pub fn set(&self, settings: &mut Settings, value: u64) -> Result<(), [u64; 2]> {
        let [least, most] = self.range;
        if !(least..=most).contains(&value) {
            return Err(self.range);
        }
        (self.set)(settings, value);
        Ok(())
    }
}

/// What a setting counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingUnit {
    /// A time; its value is in picoseconds.
    Time,
    /// 10^6 bytes a second.
    MBps,
    /// A plain number.
    Number,
}

/// A setting's value as a number.
trait Amount {
    const UNIT: SettingUnit;
    fn of(value: u64) -> Self;
    fn get(self) -> u64;
}
impl Amount for Picos {
    const UNIT: SettingUnit = SettingUnit::Time;
    fn of(value: u64) -> Self {
        Self(value)
    }
    fn get(self) -> u64 {
        self.0
    }
}
impl Amount for MBps {
    const UNIT: SettingUnit = SettingUnit::MBps;
    fn of(value: u64) -> Self {
        Self(value)
    }
    fn get(self) -> u64 {
        self.0
    }
}
impl Amount for u32 {
    const UNIT: SettingUnit = SettingUnit::Number;
    fn of(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }
    fn get(self) -> u64 {
        u64::from(self)
    }
}
impl Amount for usize {
    const UNIT: SettingUnit = SettingUnit::Number;
    fn of(value: u64) -> Self {
        Self::try_from(value).unwrap_or(Self::MAX)
    }
    fn get(self) -> u64 {
        self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_what_it_was_set_to_and_nothing_else_changes() {
        for kind in SETTINGS {
            let default = Settings::default();
            let [least, most] = kind.range();
            assert!((least..=most).contains(&kind.get(&default)), "{}", kind.name);
            for value in [least, most] {
                let mut s = default;
                assert_eq!(kind.set(&mut s, value), Ok(()), "{}", kind.name);
                assert_eq!(kind.get(&s), value, "{}", kind.name);
                let others = SETTINGS.iter().filter(|other| other.name != kind.name);
                for other in others {
                    assert_eq!(other.get(&s), other.get(&default), "{}", other.name);
                }
            }
            let mut s = default;
            assert_eq!(kind.set(&mut s, most + 1), Err([least, most]), "{}", kind.name);
            assert_eq!(s, default, "a value outside changes nothing");
        }
    }
}
