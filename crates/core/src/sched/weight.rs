//! Weights: what a nice level is worth, and how fast virtual time passes for it.
//!
//! A task of weight `w` that runs for `t` ages by `t * 1024 / w` in virtual time, so of two
//! tasks that age alike the heavier one runs more. Nice 0 weighs 1024; a step of nice is a
//! factor of about 1.25. The kernel multiplies by the inverse `2^32 / w` instead of dividing, and
//! what that loses is part of the rule: 4 ms at nice 5 (weight 335) are 12,226,865 ns.
//!
//! Weights of entities are kept times 1024 ([`SCALE`]), so that a small share of a group
//! is not rounded away; arithmetic of virtual time uses them without that factor.
//!
//! Source: specs/sched-fair.md#weights (Linux 6.12).

/// Weight of a task of nice -20 to 19, in that order.
pub const NICE: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906, 3121, 2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87,
    70, 56, 45, 36, 29, 23, 18, 15,
];

/// Weight of a task of policy idle, whatever its nice.
pub const IDLE: u32 = 3;

/// Weight of nice 0: where virtual time is time.
pub const NICE_0: u32 = 1024;

/// Entities' weights are kept times this.
pub const SCALE: u32 = 1024;

/// Least and greatest weight of a group, as `cpu.weight` can ask for it.
pub const GROUP: std::ops::RangeInclusive<u32> = 2..=1 << 18;

/// Weight of a nice level, which is cut to -20..=19.
///
/// Source: specs/sched-fair.md#weights.
pub const fn of_nice(nice: i8) -> u32 {
    let nice = if nice < -20 {
        -20
    } else if nice > 19 {
        19
    } else {
        nice
    };
    NICE[(nice + 20) as usize]
}

/// Weight of a group that was given `cpu_weight` (1..=10000, 100 is a nice 0 task's), without [`SCALE`].
///
/// Rounded to the nearest, ties up; what is out of range is cut.
///
/// Source: specs/sched-fair.md#groups.
pub const fn of_cpu_weight(cpu_weight: u32) -> u32 {
    let cpu_weight = if cpu_weight < 1 {
        1
    } else if cpu_weight > 10_000 {
        10_000
    } else {
        cpu_weight
    };
    let w = (cpu_weight * 1024 + 50) / 100;
    if w < *GROUP.start() { *GROUP.start() } else { w }
}

/// A weight as entities carry it: with the factor, without, and ready to multiply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The weight times [`SCALE`].
    pub scaled: u32,
    /// The weight that virtual time and averages use: at least 2.
    pub w: u32,
    /// `1024 * inverse`, halved until it fits, and the shift that undoes it.
    factor: u32,
    shift: u8,
}

impl Load {
    /// Of a task: the inverse comes from the nice table.
    pub fn of_task(nice: i8, idle: bool) -> Load {
        if idle {
            return Load::with_inverse(IDLE * SCALE, IDLE, 1_431_655_765);
        }
        let w = of_nice(nice);
        // To the nearest, as all of the table but four entries, which the kernel has cut.
        let near = ((1_u64 << 32) + u64::from(w) / 2) / u64::from(w);
        let cut = (1_u64 << 32) / u64::from(w);
        let inverse = if matches!(nice, 13 | 14 | 16 | 17) { cut } else { near };
        Load::with_inverse(w * SCALE, w, inverse as u32)
    }

    /// Of anything else: a group's share, a sum. `scaled` is the weight times [`SCALE`].
    pub fn of_scaled(scaled: u32) -> Load {
        let w = scale_down(u64::from(scaled)) as u32;
        Load::with_inverse(scaled, w, inverse(w))
    }

    fn with_inverse(scaled: u32, w: u32, inverse: u32) -> Load {
        let (factor, shift) = fixed_point(NICE_0, inverse);
        Load { scaled, w, factor, shift }
    }

    /// Virtual time of `t` ns of run time: `t` at exactly nice 0's weight.
    ///
    /// Source: specs/sched-fair.md#virtual-time.
    #[inline]
    pub fn vd(&self, t: u64) -> u64 {
        if self.scaled == NICE_0 * SCALE {
            return t;
        }
        ((u128::from(t) * u128::from(self.factor)) >> self.shift) as u64
    }
}

/// A weight without [`SCALE`]: never rounded to less than 2, but 0 stays 0.
#[inline]
pub const fn scale_down(scaled: u64) -> u64 {
    if scaled == 0 {
        return 0;
    }
    let w = scaled >> 10;
    if w < 2 { 2 } else { w }
}

/// `2^32 / w` of what is not in the table: rounded down from one less.
fn inverse(w: u32) -> u32 {
    u32::MAX.checked_div(w).unwrap_or(u32::MAX)
}

/// `a * inverse` as a factor of 32 bits and the shift that belongs to it.
fn fixed_point(a: u32, inverse: u32) -> (u32, u8) {
    let f = u64::from(a) * u64::from(inverse);
    let over = (64 - f.leading_zeros()).saturating_sub(32);
    ((f >> over) as u32, (32 - over) as u8)
}

/// `t * a / w` in the kernel's fixed point, where `w` is any weight.
///
/// Source: specs/sched-fair.md#virtual-time.
pub fn calc_delta(t: u64, a: u32, w: u32) -> u64 {
    let (factor, shift) = fixed_point(a, inverse(w));
    ((u128::from(t) * u128::from(factor)) >> shift) as u64
}

/// How the base slice grows with the number of CPUs (`tunable_scaling`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// By 1 + floor(log2 of CPUs).
    #[default]
    Log,
    /// By CPUs.
    Linear,
}

/// The base slice in ns that a kernel of 6.12 starts with on so many CPUs, of which 8 count.
///
/// Source: specs/sched-fair.md#slices.
pub const fn base_slice_ns(online_cpus: usize, scaling: Scaling) -> u32 {
    700_000 * scaling_factor(online_cpus, scaling)
}

/// By what slices and granularities are multiplied on so many CPUs, of which 8 count.
///
/// Source: specs/sched-fair.md#slices.
pub const fn scaling_factor(online_cpus: usize, scaling: Scaling) -> u32 {
    let cpus = if online_cpus > 8 {
        8
    } else if online_cpus < 1 {
        1
    } else {
        online_cpus as u32
    };
    match scaling {
        Scaling::None => 1,
        Scaling::Log => 1 + cpus.ilog2(),
        Scaling::Linear => cpus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specs: specs/sched-fair.md#weights.
    #[test]
    fn inverses_are_the_kernels() {
        let kernel: [u32; 40] = [
            48388, 59856, 76040, 92818, 118348, 147320, 184698, 229616, 287308, 360437, 449829,
            563644, 704093, 875809, 1099582, 1376151, 1717300, 2157191, 2708050, 3363326, 4194304,
            5237765, 6557202, 8165337, 10153587, 12820798, 15790321, 19976592, 24970740, 31350126,
            39045157, 49367440, 61356676, 76695844, 95443717, 119304647, 148102320, 186737708,
            238609294, 286331153,
        ];
        for (i, &inverse) in kernel.iter().enumerate() {
            let nice = i as i8 - 20;
            assert_eq!(
                Load::of_task(nice, false),
                Load::with_inverse(of_nice(nice) * SCALE, of_nice(nice), inverse),
                "nice {nice}"
            );
        }
    }

    /// Specs: specs/sched-fair.md#virtual-time.
    #[test]
    fn virtual_time_of_a_tick() {
        let vd = |nice| Load::of_task(nice, false).vd(4_000_000);
        let got = [-20, -5, 0, 5, 13, 19].map(vd);
        assert_eq!(got, [46146, 1312399, 4_000_000, 12226865, 73142856, 273066666]);
        assert_eq!(Load::of_task(0, true).vd(4_000_000), 1365333333);
        // A sum: two tasks' share of a period, as CFS of old would have it.
        assert_eq!(calc_delta(24_000_000, 1024, 2048), 11_999_994);
    }

    /// Specs: specs/sched-fair.md#groups.
    #[test]
    fn weights_of_groups() {
        assert_eq!(
            [1, 100, 150, 10_000, 0, 99_999].map(of_cpu_weight),
            [10, 1024, 1536, 102_400, 10, 102_400]
        );
        assert_eq!([0, 1, 2048, 5000].map(scale_down), [0, 2, 2, 4]);
    }

    /// Specs: specs/sched-fair.md#slices.
    #[test]
    fn base_slices() {
        let log = [1, 2, 3, 4, 7, 8, 64].map(|c| base_slice_ns(c, Scaling::Log) / 1000);
        assert_eq!(log, [700, 1400, 1400, 2100, 2100, 2800, 2800]);
        assert_eq!(base_slice_ns(64, Scaling::Linear), 5_600_000);
        assert_eq!(base_slice_ns(64, Scaling::None), 700_000);
    }
}
