//! Where this thread runs, and how fast a core goes.

use super::stats::{per_operation, timed};
use homenode_core::units::CpuId;
use std::time::{Duration, Instant};

/// CPUs that an affinity mask of ours can name.
const CPUS_MAX: usize = 8192;

/// A mask of the kernel's, larger than the C library's.
type Mask = [u64; CPUS_MAX / 64];

fn get() -> Option<Mask> {
    let mut mask: Mask = [0; CPUS_MAX / 64];
    // SAFETY: the mask is as large as is said; thread 0 is the calling one.
    let r = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of::<Mask>(), mask.as_mut_ptr())
    };
    (r > 0).then_some(mask)
}

fn set(mask: &Mask) -> bool {
    // SAFETY: as in `get`; the kernel only reads the mask.
    let r =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of::<Mask>(), mask.as_ptr()) };
    r == 0
}

/// CPUs that this thread may run on, in rising order; empty if unknown.
pub(crate) fn allowed() -> Vec<CpuId> {
    let Some(mask) = get() else { return vec![] };
    let has = |c: &u32| mask[*c as usize / 64] >> (c % 64) & 1 == 1;
    (0..CPUS_MAX as u32).filter(has).map(CpuId).collect()
}

/// Binds this thread to one CPU; false if the system refuses.
pub(crate) fn pin(cpu: CpuId) -> bool {
    let mut mask: Mask = [0; CPUS_MAX / 64];
    let Some(word) = mask.get_mut(cpu.index() / 64) else { return false };
    *word = 1 << (cpu.index() % 64);
    set(&mask)
}

/// CPU time that this thread has used.
pub(crate) fn own_time() -> Duration {
    homenode_live::machine::time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Repeats `pass`, which does so many operations, for a slot after one untimed pass or a
/// tenth of the slot; mean CPU time of an operation, in picoseconds.
pub(crate) fn average(slot: Duration, operations: u64, mut pass: impl FnMut()) -> f64 {
    let on_clock = Instant::now();
    pass();
    while on_clock.elapsed() < slot / 10 {
        pass();
    }
    // The clock on the wall is cheap to look at, the one of CPU time a system call.
    let (began, on_clock) = (own_time(), Instant::now());
    let mut passes = 0;
    loop {
        pass();
        passes += 1;
        if on_clock.elapsed() >= slot {
            let took = own_time() - began;
            return took.as_nanos() as f64 * 1e3 / (passes * operations) as f64;
        }
    }
}

/// Gives this thread its affinity back when dropped.
pub(crate) struct KeepAffinity(Option<Mask>);

impl KeepAffinity {
    pub(crate) fn new() -> Self {
        Self(get())
    }
}

impl Drop for KeepAffinity {
    fn drop(&mut self) {
        if let Some(mask) = &self.0 {
            set(mask);
        }
    }
}

/// Additions in one batch of the instruction loops.
const ADDITIONS: u64 = 64 * 1_000;

/// Time of an addition that waits for the one before it, in picoseconds: one
/// cycle. `None` on processors whose instructions we do not write down.
pub(super) fn dependent_add(slot: Duration) -> Option<f64> {
    per_operation(slot, || chain_of_additions().then(|| timed(ADDITIONS, additions)))
}

/// Whether [`additions`] counts instructions on this processor.
const fn chain_of_additions() -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// `ADDITIONS` additions of a register, each waiting for the one before. (An
/// addition of a small constant would not do: some cores fold those.)
#[inline(never)]
fn additions() {
    let (mut sum, one) = (0u64, std::hint::black_box(1u64));
    for _ in 0..ADDITIONS / 64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: additions between two registers that the compiler gives out.
        unsafe {
            std::arch::asm!(".rept 64", "add {0}, {1}", ".endr", inout(reg) sum, in(reg) one,
                options(nomem, nostack));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: additions between two registers that the compiler gives out.
        unsafe {
            std::arch::asm!(".rept 64", "add {0}, {0}, {1}", ".endr", inout(reg) sum, in(reg) one,
                options(nomem, nostack));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            sum = sum.wrapping_add(one);
        }
    }
    std::hint::black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn affinity_comes_back() {
        let before = allowed();
        assert!(!before.is_empty());
        {
            let _keep = KeepAffinity::new();
            if pin(before[0]) {
                assert_eq!(allowed(), before[..1]);
            }
        }
        assert_eq!(allowed(), before);
        assert!(!pin(CpuId(u32::MAX)));
    }

    #[test]
    fn an_addition_takes_a_cycle() {
        let Some(ps) = dependent_add(Duration::from_millis(2)) else { return };
        // Between 10 GHz and 100 MHz.
        assert!((100.0..10_000.0).contains(&ps), "{ps}");
    }
}
