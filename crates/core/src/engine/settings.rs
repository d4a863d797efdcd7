//! What a user may want otherwise.

use crate::scenario::{AdmissionChoice, Margin};
use crate::units::{MBps, Picos};

/// Settings of an engine. Every default is a budget or a time scale of
/// homenode's own; none is fitted to a workload.
///
/// Source: specs/engine.md#settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processor time that a process must have used before it is sampled; it
    /// begins strictly after. Whole milliseconds, rounded up, to 2^32 - 1.
    /// Default 1 s: the kernel's `scan_delay_ms`.
    pub start_delay: Picos,
    /// How often it decides, above 0. Default 1 s.
    pub interval: Picos,
    /// Share of one CPU that looking and deciding may take, in thousandths, 0 to 1000;
    /// as much may go into moves that have not come to save what they took. 0 orders no
    /// look and no move. Default 10: 1 %.
    pub cpu_permille: u32,
    /// What is moved, in 10^6 bytes a second, counted over `horizon`, as long as it has not
    /// come to save what it took; 0 moves nothing. Default 100.
    pub moved_mbps: MBps,
    /// Most that is moved in a second whatever it saves, in 10^6 bytes. Default 1000: a
    /// twentieth of what one channel of DDR4 carries. What is less than `moved_mbps` bounds
    /// that too.
    pub most_mbps: MBps,
    /// Longest time for which one order may hold a process up; bounds the pages
    /// of a move, which has one at least. Default 1 ms.
    pub stall: Picos,
    /// For how long memory is taken to stay as hot as it is: over this time a
    /// move must save more than it costs. Default 10 s.
    pub horizon: Picos,
    /// Half-life of the short average of heat, above 0. Default 1 s.
    pub short: Picos,
    /// Half-life of the long average, above 0. Default 8 s.
    pub long: Picos,
    /// Heat older than this moves nothing up. Default 5 s: DAMON tells ten times a
    /// second, a scan for hint faults comes by once in some seconds.
    pub fresh: Picos,
    /// A placement older than this is looked at again before it is acted upon,
    /// since the kernel moves pages too. Default 10 s.
    pub look_again: Picos,
    /// How full promotions may make a node. Default B, what the kernel merged.
    pub admission: AdmissionChoice,
    /// Margin of the demotion mark, for the admission rule. Default the kernel's.
    pub margin: Margin,
    /// Most stretches of memory that are told apart, over all processes, at least
    /// 16 for each; one takes about 150 bytes. Default 65536.
    pub most_spans: usize,
    /// Processor time of taking in one observation. Default 100 ns, assumed: a
    /// look-up in an ordered map of that size.
    pub per_seen: Picos,
    /// Processor time per stretch of memory and decision. Default 800 ns: 680 to 950 ns
    /// were measured with 18,000 stretches of samples on an AMD EPYC, a third of it for the
    /// estimate.
    pub per_span: Picos,
    /// Processor time of asking where one page is. Default 39 ns: reading `pagemap`, which
    /// tells frames to who may see them, took 10.1 ms for 1 GiB. Asking `move_pages` took 317.
    pub look_page: Picos,
    /// Processor time of a census, for each page. Default 39 ns, as of a look; reading
    /// `numa_maps`, where no frames are shown, took 12.3 ms for 1 GiB, 47 ns a page.
    pub count_page: Picos,
    /// Orders that may be on their way at once, besides those to begin sampling.
    /// Default 8: enough that a slow copy does not idle the others.
    pub most_open: usize,
    /// How often pages that were busy are tried again. Default 3.
    pub retries: u32,
    /// Wait before the first retry; doubles with each. Default 2 s.
    pub backoff: Picos,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            start_delay: Picos::from_secs(1),
            interval: Picos::from_secs(1),
            cpu_permille: 10,
            moved_mbps: MBps(100),
            most_mbps: MBps(1000),
            stall: Picos::from_ms(1),
            horizon: Picos::from_secs(10),
            short: Picos::from_secs(1),
            long: Picos::from_secs(8),
            fresh: Picos::from_secs(5),
            look_again: Picos::from_secs(10),
            admission: AdmissionChoice::B,
            margin: Margin::Kernel,
            most_spans: 1 << 16,
            per_seen: Picos::from_ns(100),
            per_span: Picos::from_ns(800),
            look_page: Picos::from_ns(39),
            count_page: Picos::from_ns(39),
            most_open: 8,
            retries: 3,
            backoff: Picos::from_secs(2),
        }
    }
}
