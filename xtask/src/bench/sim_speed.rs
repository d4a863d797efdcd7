//! Exact simulation of page accesses, tiering on, beside libCacheSim's LRU.

use anyhow::Result;

use super::hotloop::{Hotloop, path_text};
use super::peers::LibCacheSim;
use super::{Samples, Setting, Verdict};

/// Threads, and `lru_gen/enabled`: today's default, and active and inactive lists.
const CASES: [(u64, u64); 4] = [(1, 7), (1, 0), (8, 7), (64, 7)];

/// The peer's own default, and what suits this many pages best (tried from 18 to
/// 24): what it would do for someone who tunes it is shown beside.
const HASHPOWER: u32 = 24;
const HASHPOWER_TUNED: u32 = 19;

pub(super) fn run(setting: &Setting<'_>) -> Result<Verdict> {
    let hotloop = Hotloop::build(setting)?;
    let peer = LibCacheSim::install(setting.ws)?;
    let pages: u64 = setting.pick(1 << 20, 1 << 14);
    let n: u64 = setting.pick(20_000_000, 200_000);
    // The peer runs the ids once; ours runs them over and over, until scans, faults
    // and moves have had their time.
    let accesses: u64 = setting.pick(200_000_000, 200_000);
    // The peer's cache is as large as our fast memory.
    let fast = pages / 4;
    let ids = hotloop.ids(setting, n, pages)?;

    let mut ours = [const { Samples(Vec::new()) }; CASES.len()];
    let mut faulting = ours.clone();
    let mut moved = ours.clone();
    let (mut theirs, mut tuned) = (Samples::default(), Samples::default());
    let mut miss_ratio = 0.0;
    for _ in 0..setting.pick(5, 1) {
        for (index, (threads, lru_gen)) in CASES.iter().enumerate() {
            let figures = hotloop.figures(
                "sim",
                &[
                    ("ids", &path_text(&ids)?),
                    ("pages", &pages),
                    ("fast-pages", &fast),
                    ("threads", threads),
                    ("lru-gen", lru_gen),
                    // Many threads get through as many in less virtual time.
                    ("n", &(accesses * (*threads).min(5))),
                ],
            )?;
            ours[index].push(figures.rate("accesses")?);
            let accesses = figures.number("accesses")?;
            faulting[index].push(figures.number("pgfault")? / accesses * 100.0);
            moved[index].push(figures.number("pgpromote_success")? + figures.number("pgdemote")?);
        }
        let (rate, misses) = peer.lru(&ids, fast, HASHPOWER)?;
        theirs.push(rate);
        miss_ratio = misses;
        tuned.push(peer.lru(&ids, fast, HASHPOWER_TUNED)?.0);
    }

    println!(
        "  {n} Gauss ids of {pages} pages ({accesses} accesses for ours, five times as many with several threads), {fast} of them in fast memory; M accesses/s, median (lowest to highest)"
    );
    for (index, (threads, lru_gen)) in CASES.iter().enumerate() {
        let lists = if *lru_gen == 0 { "lists" } else { "" };
        println!(
            "  ours, {threads:>2} threads {lists:<6}{:<31} {:.2} % of accesses fault, {:.0} pages moved",
            ours[index].shown(1),
            faulting[index].median(),
            moved[index].median(),
        );
    }
    println!(
        "  libCacheSim LRU       {:<32} {:.2} % of accesses miss",
        theirs.shown(1),
        miss_ratio * 100.0
    );
    println!(
        "  the same, tuned       {:<32} hash table of 2^{HASHPOWER_TUNED} slots; ours is {:.1} times as fast",
        tuned.shown(1),
        ours[0].median() / tuned.median(),
    );
    let one = ours[0].median().min(ours[1].median());
    let (many, peer) = (ours[CASES.len() - 1].median(), theirs.median());
    let ratio = one / peer;
    Ok(Verdict {
        ours: one,
        peer,
        unit: "M accesses/s",
        ratio,
        goal: "ratio >= 25, >= 100 M/s with 1 thread, >= 60 M/s with 64",
        pass: ratio >= 25.0 && one >= 100.0 && many >= 60.0,
    })
}
