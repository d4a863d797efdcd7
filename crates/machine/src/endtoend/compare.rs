//! How far the figures of two machines may lie apart, and why.
//!
//! ```text
//!   larger ≤ smaller × percent / 100 + slack        near
//!
//!   pte_updates   real 6144   simulated 4096   800 % + 256    near
//!   hot_fast      real 2048   simulated    0   100 % + 512    a difference
//! ```
//!
//! The slack is what a kernel does without anybody's being told. So a figure that is 0
//! on one machine has to be small on the other: the direction is part of it.
//!
//! Source: specs/end-to-end.md#factors

use super::Figures;
use std::fmt;

/// How far a figure may be apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Its name.
    pub figure: &'static str,
    /// The larger may be so many hundredths of the smaller, 100 or more …
    pub percent: u64,
    /// … and so much more.
    pub slack: u64,
    /// Why it can't be nearer.
    pub why: &'static str,
}

const fn factor(figure: &'static str, percent: u64, slack: u64, why: &'static str) -> Factor {
    Factor { figure, percent, slack, why }
}

/// All of them. A figure without a row has to be equal.
pub const FACTORS: &[Factor] = &[
    factor(
        "pte_updates",
        800,
        256,
        "a scan costs an emulated machine more processor time, most on a busy host, and the \
         kernel scans the less; a real program has a stack and a heap too",
    ),
    factor("hint_faults", 800, 256, "as pte_updates: each marked entry faults once"),
    factor("pages_migrated", 200, 512, "pages of a program's stack and heap; room comes and goes"),
    factor("promoted", 200, 512, "as pages_migrated"),
    factor(
        "demoted_kswapd",
        400,
        12_288,
        "a pass of kswapd ends once it has reclaimed the sum of the high marks, and not where \
         the node is balanced: a pass more or less",
    ),
    factor("demoted_direct", 100, 0, "nobody has to reclaim by himself"),
    factor("direct_scans", 100, 0, "as demoted_direct"),
    factor("stalls", 100, 0, "as demoted_direct"),
    factor("with_thread", 100, 204, "a tenth of the burst's pages may be left behind"),
    factor("where_put", 100, 204, "as with_thread"),
    factor("preferred", 100, 0, "there is one node where its memory is"),
    factor("thread_node", 100, 0, "as preferred"),
    factor("hot_fast", 100, 512, "a quarter of the hot pages may be on their way"),
    factor("cold_fast", 100, 0, "nobody reads them"),
    factor("filled", 100, 1024, "lists of the CPUs hold pages that count as taken"),
    factor("high_marks", 100, 64, "rounding by zones"),
    factor("thp_on_node", 100, 2, "other programs may have huge pages too, under always"),
    factor(
        "thp_fault_alloc",
        100,
        8,
        "as thp_on_node; a program that begins has a stack and a heap",
    ),
    factor(
        "numa_hit",
        100,
        2048,
        "a huge page counts as one; what a program takes to begin, and others, some hundreds",
    ),
    factor("collapse_first", 100, 0, "4096 units a wake, 512 of them for each stretch"),
    factor("collapse_second", 100, 0, "as collapse_first"),
    factor(
        "collapse_third",
        100,
        2,
        "where a page is still in a CPU's list, the huge page that was had for its stretch is given \
         back, and had once more later: 21 had and 20 made in one boot",
    ),
    factor("collapse_failed", 100, 0, "the second failure ends a wake"),
    factor("collapse_pages", 100, 0, "as collapse_first"),
    factor("collapse_rounds", 100, 1, "other programs' mappings are looked at too"),
    factor("split_filled", 105, 1, "what is free at first"),
    factor("split_left", 130, 4, "as lists_scanned"),
    factor("split_whole", 130, 2, "as lists_scanned"),
    factor("split_failed", 130, 2, "as lists_scanned"),
    factor("split_to_move", 130, 2, "as lists_scanned"),
    factor("split_pages", 130, 2, "as lists_scanned"),
    factor("split_moved", 130, 512, "as lists_scanned; others take of the slow node's last pages"),
    factor("split_demoted", 130, 256, "as lists_scanned; other programs' pages"),
    factor("split_scanned", 130, 512, "as lists_scanned"),
    factor("split_rounds", 100, 1, "one may be under way"),
    factor("program_pages", 105, 0, "as walker"),
    factor("hot_pages_on_fast_node", 130, 0, "as pgscan"),
    factor("pgscan", 130, 256, "the rules alone decide: specs/end-to-end.md#pressure"),
    factor("pgsteal", 130, 256, "as pgscan"),
    factor("pgdemote", 130, 256, "as pgscan"),
    factor("pgpromote", 100, 0, "balancing is off"),
    factor("pgactivate", 130, 256, "as pgscan; pages of programs that look"),
    factor("thp_migration_success", 150, 2, "as pgscan; 12 to 20 in five boots of one kernel"),
    factor("thp_split_page", 200, 2, "as pgscan; one base page more or less is a huge one more"),
    factor("walker", 105, 0, "lists of the CPUs hold pages that count as taken"),
    factor("lists_scanned", 130, 0, "the rules alone decide: specs/end-to-end.md#lists"),
    factor("lists_demoted", 130, 0, "as lists_scanned"),
    factor("lists_activated", 130, 0, "as lists_scanned"),
    factor("lists_deactivated", 130, 0, "as lists_scanned"),
];

/// A figure that is too far apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub figure: &'static str,
    /// What the real kernel has; `None` if it has no such figure.
    pub real: Option<u64>,
    /// What the simulated one has.
    pub simulated: Option<u64>,
    /// What would have been near enough.
    pub factor: Factor,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |n: Option<u64>| n.map_or_else(|| "not counted".to_owned(), |n| n.to_string());
        write!(
            f,
            "{}: real {}, simulated {}; at most {} % and {} more was expected",
            self.figure,
            shown(self.real),
            shown(self.simulated),
            self.factor.percent,
            self.factor.slack
        )
    }
}

/// The figures that are farther apart than [`FACTORS`] allow, in the order of their names.
/// Those that a case leaves `open` are not looked at.
pub fn compare(real: &Figures, simulated: &Figures, open: &[&str]) -> Vec<Difference> {
    let mut names: Vec<&'static str> = real.keys().chain(simulated.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !open.contains(name));
    let apart = |figure: &'static str| {
        let row = FACTORS.iter().find(|f| f.figure == figure).copied();
        let factor = row.unwrap_or(factor(figure, 100, 0, "nothing is known about it"));
        let (real, simulated) = (real.get(figure).copied(), simulated.get(figure).copied());
        let near = match (real, simulated) {
            (Some(a), Some(b)) => {
                a.max(b) <= a.min(b).saturating_mul(factor.percent) / 100 + factor.slack
            }
            _ => false,
        };
        (!near).then_some(Difference { figure, real, simulated, factor })
    };
    names.into_iter().filter_map(apart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_apart_or_missing_is_a_difference() {
        let real = Figures::from([("pte_updates", 6144), ("stalls", 0), ("demoted_kswapd", 19500)]);
        let near = Figures::from([("pte_updates", 2048), ("stalls", 0), ("demoted_kswapd", 8000)]);
        assert_eq!(compare(&real, &near, &[]), []);
        let far = Figures::from([("pte_updates", 2048), ("stalls", 1), ("demoted_kswapd", 0)]);
        let names: Vec<_> = compare(&real, &far, &[]).iter().map(|d| d.figure).collect();
        assert_eq!(names, ["demoted_kswapd", "stalls"]);
        assert_eq!(compare(&real, &far, &["stalls"]).len(), 1);
        let missing = compare(&real, &Figures::from([("stalls", 0)]), &[]);
        assert_eq!(
            missing[0].to_string(),
            "demoted_kswapd: real 19500, simulated not counted; at most 400 % and 12288 more was \
             expected"
        );
        assert_eq!(missing.len(), 2);
    }

    #[test]
    fn each_figure_has_one_row_with_a_reason() {
        for (i, row) in FACTORS.iter().enumerate() {
            assert!(row.percent >= 100 && !row.why.is_empty(), "{row:?}");
            assert!(FACTORS[..i].iter().all(|other| other.figure != row.figure), "{row:?}");
        }
    }
}
