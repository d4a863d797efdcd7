//! Programs that want more than the fast node has, under each kind of lists and with huge pages
//! or without: what is scanned, reclaimed, demoted and activated.
//!
//! ```text
//!   loop      1.2 times the fast node is read end to end, again and again
//!   beside    a hot set on the fast node; memory that is touched once goes by it
//!   fill      more than all nodes have above their low marks
//! ```
//!
//! As with [`super::lists`] nobody accesses a page while kswapd looks, so that its rules decide
//! and not who was faster: programs read when they are asked to, and a neighbour takes what is
//! free down to below the low marks; then one waits until kswapd rests.
//!
//! Figures have the kernel's names of what they count, by whoever it is done.
//!
//! Source: specs/end-to-end.md#pressure

use super::lists::{CHUNK, bystander, knobs, rest};
use super::split::{UNDISTURBED, given_up};
use super::tiering::{neighbour, tiered, zones_on};
use super::{At, Counters, Figures, Finding, KernelStage, Program, Reads, Runs};
use super::{placed, under};
use homenode_core::units::{HUGE_PAGES, NodeId};

/// Turns of the loop, and of the hot set: how often it is read.
const TURNS: u32 = 2;
/// How often memory is touched once between two readings of the hot set.
const SCANS: u32 = 3;
/// The loop is so many tenths of what is free on the fast node at first.
const LOOP_TENTHS: u64 = 12;
/// The hot set is one so manieth of it.
const HOT_PART: u64 = 3;

/// The program's pages; how many of a hot set stayed on the fast node.
const SIZE: &str = "program_pages";
const STAYED: &str = "hot_pages_on_fast_node";
/// Rounds of kswapd.
const ROUNDS: &str = "pageoutrun";

homenode_core::named! {
    /// What is run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum What {
        /// A loop over 1.2 times the fast node.
        Loop => "loop",
        /// A hot set beside memory that is touched once.
        Beside => "beside",
        /// A fill beyond all tiers.
        Fill => "fill",
    }
}

/// What is run on which nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is run.
    pub what: What,
    /// The node with the CPUs.
    pub fast: NodeId,
    /// The node of a slower tier.
    pub slow: NodeId,
    /// Generations in the place of active and inactive lists.
    pub generations: bool,
    /// Whether the programs ask for huge pages.
    pub huge: bool,
}

impl Case {
    /// All cases of one thing that is run.
    pub fn all(what: What, fast: NodeId, slow: NodeId) -> Vec<Self> {
        let of = |(generations, huge)| Self { what, fast, slow, generations, huge };
        [(false, false), (true, false), (false, true), (true, true)].map(of).into()
    }
    /// A short name.
    pub fn name(&self) -> String {
        let lists = if self.generations { "MGLRU" } else { "lists" };
        let pages = if self.huge { "huge" } else { "base" };
        format!("{}, {lists}, {pages}", self.what.name())
    }
    /// Figures that are shown and not compared, since boots of one kernel differ by more, or
    /// since a difference is known; what medians come to: specs/end-to-end.md#pressure.
    ///
    /// - A turn of the loop may end early or go on to its goal: [`super::lists::ended_early`].
    /// - Beside a scan generations let go of more of a hot set than the simulated ones.
    /// - How often a kswapd goes round that can only fail hangs on other programs:
    ///   specs/exceptions/kswapd-rounds.md. One that has failed before goes round less often.
    ///
    /// * `real` – what the real kernel did.
    pub fn open(&self, real: &Figures) -> &'static [&'static str] {
        let rounds = real.get(ROUNDS).copied().unwrap_or(0);
        match (self.what, self.generations, self.huge) {
            (What::Loop, _, _) => &[ROUNDS, "pgsteal", "pgdemote", "thp_migration_success"],
            (What::Beside, false, _) => &[ROUNDS],
            (What::Beside, true, _) => {
                &[ROUNDS, STAYED, "pgsteal", "pgdemote", "thp_fault_alloc", "thp_migration_success"]
            }
            (What::Fill, false, false) if rounds <= UNDISTURBED => &[ROUNDS, "pgsteal", "pgdemote"],
            (What::Fill, _, _) => &[
                ROUNDS,
                "pgsteal",
                "pgdemote",
                "pgscan",
                "pgactivate",
                "thp_fault_alloc",
                "thp_split_page",
            ],
        }
    }
}

/// Runs a case. Where no tier is slower nothing can be demoted: `None`.
///
/// # Errors
/// What this machine did that no kernel does.
pub fn pressed<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Option<Figures>, Finding> {
    if !tiered(stage, (case.fast, case.slow))? {
        return Ok(None);
    }
    let huge = if case.huge { "madvise" } else { "never" };
    under(stage, &knobs(case.generations, huge), |stage| {
        let before = Counters::of(stage)?;
        let mut figures = match case.what {
            What::Loop => looped(stage, case)?,
            What::Beside => beside(stage, case)?,
            What::Fill => filled(stage, case)?,
        };
        let now = Counters::of(stage)?;
        let sum = |names: &[&str]| names.iter().map(|name| now.grown(&before, name)).sum::<u64>();
        figures.extend([
            ("pgscan", sum(&["pgscan_kswapd", "pgscan_direct"])),
            ("pgsteal", sum(&["pgsteal_kswapd", "pgsteal_direct"])),
            ("pgdemote", sum(&["pgdemote_kswapd", "pgdemote_direct"])),
            ("pgpromote", sum(&["pgpromote_success"])),
            ("pgactivate", sum(&["pgactivate"])),
            (ROUNDS, sum(&["pageoutrun"])),
            ("thp_fault_alloc", sum(&["thp_fault_alloc"])),
            ("thp_migration_success", sum(&["thp_migration_success"])),
            ("thp_split_page", sum(&["thp_split_page"])),
        ]);
        judge(case, &figures)?;
        Ok(figures)
    })
    .map(Some)
}

/// What is free on a node above its low marks.
fn above_low<S: KernelStage>(stage: &mut S, node: NodeId) -> Result<u64, Finding> {
    Ok(zones_on(stage, node)?.iter().map(|z| z.above(z.low)).sum())
}

/// Somebody takes what is free on the fast node, and so much more that kswapd has to come. Huge
/// pages go down to the low marks: a first touch of one takes them down to the min marks, and
/// wakes nobody.
fn room_is_made<S: KernelStage>(stage: &mut S, case: &Case) -> Result<(), Finding> {
    let huge = huge_above_low(stage, case)?;
    if huge > 0 {
        neighbour(stage, (case.fast, case.fast), huge, true)?;
    }
    let pages = above_low(stage, case.fast)? + CHUNK;
    neighbour(stage, (case.fast, case.fast), pages, false)?;
    rest(stage, case.fast)
}

/// Pages of the huge ones that fit above a node's low marks; each zone may lack a part of one.
fn huge_above_low<S: KernelStage>(stage: &mut S, case: &Case) -> Result<u64, Finding> {
    let whole = (above_low(stage, case.fast)? / HUGE_PAGES).saturating_sub(2);
    Ok(if case.huge { whole * HUGE_PAGES } else { 0 })
}

fn program(case: &Case, name: &'static str, pages: u64, on: At) -> Program {
    Program {
        name,
        hot: pages,
        cold: 0,
        on,
        huge: Some(case.huge),
        later: None,
        runs: Runs::Pinned(case.fast),
        reads: Reads::Walks(TURNS),
    }
}

fn looped<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    if case.generations {
        bystander(stage, case.fast)?;
    }
    let pages = above_low(stage, case.fast)? * LOOP_TENTHS / 10;
    let who = stage.start(&program(case, "loop", pages, At::Anywhere))?;
    for _ in 0..TURNS {
        stage.walk(&who)?;
        room_is_made(stage, case)?;
    }
    Ok(Figures::from([(SIZE, pages)]))
}

fn beside<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    if case.generations {
        bystander(stage, case.fast)?;
    }
    let pages = above_low(stage, case.fast)? / HOT_PART;
    let who = stage.start(&program(case, "hot", pages, At::First(case.fast)))?;
    for _ in 0..TURNS {
        stage.walk(&who)?;
        for _ in 0..SCANS {
            room_is_made(stage, case)?;
        }
    }
    let there = placed(stage, &who, who.hot, pages)?;
    let stayed = there.get(&case.fast).map_or(0, |p| p.0);
    Ok(Figures::from([(SIZE, pages), (STAYED, stayed)]))
}

fn filled<S: KernelStage>(stage: &mut S, case: &Case) -> Result<Figures, Finding> {
    let fill = |huge, pages| Program {
        huge: Some(huge),
        reads: Reads::Walks(0),
        ..program(case, "fill", pages, At::Anywhere)
    };
    let huge = huge_above_low(stage, case)?;
    if huge > 0 {
        stage.start(&fill(true, huge))?;
    }
    let pages = above_low(stage, case.fast)? + above_low(stage, case.slow)? + CHUNK;
    stage.start(&fill(false, pages))?;
    given_up(stage)?;
    Ok(Figures::from([(SIZE, huge + pages)]))
}

/// What holds on every kernel.
fn judge(case: &Case, figures: &Figures) -> Result<(), Finding> {
    let one = |name: &str| figures.get(name).copied().unwrap_or(0);
    let (scanned, stolen, demoted) = (one("pgscan"), one("pgsteal"), one("pgdemote"));
    hold!(one("pgpromote") == 0, "balancing is off, and {} pages came up", one("pgpromote"));
    hold!(demoted > 0, "the fast node is full, demotion is on, and nothing went down");
    hold!(stolen >= demoted, "{demoted} pages went down, {stolen} count as reclaimed");
    hold!(scanned >= stolen, "{stolen} pages were reclaimed, {scanned} were scanned");
    let huge = one("thp_fault_alloc");
    hold!(!case.huge || huge > 0, "huge pages were asked for, and none came");
    hold!(case.huge || one("thp_split_page") == 0, "no page is huge, and some were split");
    Ok(())
}
