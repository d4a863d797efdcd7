//! How right a policy is about the machine that it runs on.
//!
//! ```text
//! machine ──▶ simulation                       seed, name of the figure ──▶ factor, 0.7 to 1.3
//!    └─▶ each figure × its factor ──▶ policy
//! ```
//!
//! What a policy is told of latencies, bandwidths and costs, and what load adds to a latency, is off
//! by a factor of its own, alike for all policies of one seed: no contender is made for the figures
//! that the simulator has. What a policy measures itself (how long its moves took, how many accesses
//! it sampled) is right.
//!
//! Source: specs/compare.md#knowledge.

use anyhow::{Result, anyhow};
use homenode_core::costs::{Constant, Cost, Unit};
use homenode_core::topology::Hardware;
use homenode_core::units::NodeId;
use twox_hash::XxHash3_64;

/// How far figures may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Not at all.
    #[default]
    Exact,
    /// By so many hundredths up or down, at most.
    Within(u32),
}

impl Knowledge {
    /// The most that figures may be off.
    const MOST: u32 = 90;

    /// `exact` or `30%`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "exact" {
            return Ok(Self::Exact);
        }
        let percent = text.strip_suffix('%').and_then(|n| n.parse().ok());
        let percent = percent.filter(|p| (1..=Self::MOST).contains(p));
        percent.map(Self::Within).ok_or_else(|| {
            anyhow!("{text:?} is no knowledge; write exact, or by how much figures may be off: 1% to {}%", Self::MOST)
        })
    }
    /// The factor of a figure, in thousandths.
    fn factor(self, seed: u64, figure: &str) -> u64 {
        let Self::Within(percent) = self else { return 1000 };
        let (off, span) = (u64::from(percent) * 10, u64::from(percent) * 20 + 1);
        let hash = XxHash3_64::oneshot_with_seed(seed, figure.as_bytes());
        1000 - off + ((u128::from(hash) * u128::from(span)) >> 64) as u64
    }
    /// The machine as policies are told it.
    pub(crate) fn told(self, machine: &Hardware, seed: u64) -> Hardware {
        let mut machine = machine.clone();
        let off = |constant: &mut Constant, figure: &str| {
            let wide = u128::from(constant.value) * u128::from(self.factor(seed, figure)) / 1000;
            constant.value = u64::try_from(wide).unwrap_or(u64::MAX).max(1);
        };
        for link in &mut machine.links {
            let way = format!("{} {}", link.from, link.to);
            off(&mut link.read_latency, &format!("latency of loads {way}"));
            off(&mut link.write_latency, &format!("latency of stores {way}"));
            off(&mut link.read_bandwidth, &format!("bandwidth of loads {way}"));
            off(&mut link.write_bandwidth, &format!("bandwidth of stores {way}"));
        }
        let costs = Cost::ALL.iter().copied().filter(|c| c.unit() == Unit::Nanoseconds);
        for cost in costs.filter(|_| self != Self::Exact) {
            let mut constant = machine.costs.constant(cost);
            off(&mut constant, cost.name());
            machine.costs.0.insert(cost, constant);
        }
        machine
    }
    /// By what factor, in thousandths, policies are told what load adds to a node's latency.
    pub(crate) fn load(self, node: NodeId, seed: u64) -> u32 {
        self.factor(seed, &format!("load of node {node}")) as u32
    }
    /// For captions; nothing where it is exact.
    pub(crate) fn note(self) -> Option<String> {
        let Self::Within(percent) = self else { return None };
        Some(format!(
            "what contenders are told of the machine (latencies, bandwidths, costs, what load adds) is \
             off by up to {percent} % either way, each figure by its own factor, another one with each \
             seed; --knowledge exact tells them what the simulator has"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Hardware {
        let text = include_str!("../../../../machines/small-cxl.toml");
        homenode_config::parse_machine("small-cxl.toml", text).expect("a machine")
    }

    #[test]
    fn figures_are_off_each_by_its_own_factor_and_the_same_with_the_same_seed() {
        let (right, thirty) = (machine(), Knowledge::Within(30));
        assert_eq!(Knowledge::Exact.told(&right, 1), right);
        assert_eq!(thirty.told(&right, 1), thirty.told(&right, 1));
        let mut factors = Vec::new();
        for seed in 1..=50 {
            let told = thirty.told(&right, seed);
            for (a, b) in right.links.iter().zip(&told.links) {
                factors.push(b.read_latency.value as f64 / a.read_latency.value as f64);
            }
            let moved = |m: &Hardware| m.costs.get(Cost::MigratePage) as f64;
            factors.push(moved(&told) / moved(&right));
            factors.push(f64::from(thirty.load(NodeId(0), seed)) / 1000.0);
            assert_eq!(told.nodes, right.nodes, "how much memory there is, it counts itself");
        }
        factors.sort_by(f64::total_cmp);
        let (low, high) = (factors[0], factors[factors.len() - 1]);
        assert!((0.7..0.75).contains(&low) && (1.25..=1.3).contains(&high), "{low} to {high}");
        factors.dedup();
        assert!(factors.len() > 150, "{}", factors.len());
    }

    #[test]
    fn a_text_that_says_no_knowledge_is_told_what_it_may_be() {
        assert_eq!(Knowledge::parse("30%").expect("a share"), Knowledge::Within(30));
        assert_eq!(Knowledge::parse("exact").expect("a word"), Knowledge::Exact);
        for text in ["30", "0%", "91%", "wrong"] {
            let error = Knowledge::parse(text).expect_err(text).to_string();
            assert!(error.contains("1% to 90%"), "{error}");
        }
    }
}
