//! The compiled programs, as build.rs made them.

/// libelf wants an object to begin at a multiple of 8.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($(#[$doc:meta])* $name:ident, $file:literal) => {
        $(#[$doc])*
        pub static $name: &[u8] = {
            static BYTES: &Aligned<[u8]> =
                &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".bpf.o")));
            &BYTES.0
        };
    };
}

object!(
    /// Looks on where the kernel decides about a page at a NUMA hint fault.
    HINTS,
    "hints"
);

object!(
    /// Tells what the scheduler does with some tasks, or with all.
    RECORD,
    "record"
);

object!(
    /// Counts what the scheduler does with tasks.
    STATS,
    "stats"
);

object!(
    /// The scheduler of sched_ext.
    SCX,
    "scx"
);

object!(
    /// Watches the fair class choose CPUs.
    CHOICES,
    "choices"
);

#[cfg(test)]
object!(
    /// One that no kernel takes.
    REFUSED,
    "refused"
);
