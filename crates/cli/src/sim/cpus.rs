//! Where the time of a run's CPUs has gone: busy, in each idle state, and how fast they were.

use crate::figures::RunFigures;
use homenode_config::write_list;
use homenode_core::topology::Hardware;
use homenode_report::{CpuTimes, cpu_times};
use homenode_sim::CpuFigures;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// So many CPUs, or last-level caches, are told one by one.
const ONE_BY_ONE: usize = 16;

/// Some CPUs together, by place.
fn together(run: &RunFigures, places: &[usize], label: String) -> CpuTimes {
    let percent = |ps: u64| ps as f64 * 100.0 / (run.time_ps as f64 * places.len() as f64).max(1.0);
    let busy_ps = places.iter().map(|&p| run.cpus[p].busy_ps).sum();
    let clocks = places.iter().map(|&p| run.cpus[p].clocks).sum();
    let of_state = |s| percent(places.iter().map(|&p| run.idle[p].time_ps[s]).sum());
    CpuTimes {
        label,
        busy: percent(busy_ps),
        idle: (0..run.idle_states.len()).map(of_state).collect(),
        mean_mhz: CpuFigures { busy_ps, clocks, ..CpuFigures::default() }.mean_mhz(),
    }
}

/// For people: all CPUs, then each, or those of each last-level cache where they are many.
/// Nothing where the machine's file has neither idle states nor clocks.
pub(super) fn text(run: &RunFigures, machine: &Hardware, which: &str) -> String {
    let all: Vec<usize> = (0..run.cpus.len()).collect();
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, cpu) in machine.cpus.iter().enumerate() {
        let key = if all.len() > ONE_BY_ONE { cpu.llc } else { cpu.id.0 };
        groups.entry(key).or_default().push(place);
    }
    let mut rows = vec![together(run, &all, "all".into())];
    if (2..=ONE_BY_ONE).contains(&groups.len()) {
        rows.extend(groups.values().map(|places| {
            let ids: Vec<u32> = places.iter().map(|&p| machine.cpus[p].id.0).collect();
            together(run, places, write_list(&ids))
        }));
    }
    match cpu_times(&rows, &run.idle_states) {
        table if table.is_empty() => table,
        table => format!("\nTime of CPUs{which} [%]\n{table}"),
    }
}

/// Each CPU as JSON; nothing where the machine's file has neither idle states nor clocks.
pub(super) fn json(run: &RunFigures, machine: &Hardware) -> Option<Value> {
    let clocks = machine.cpus.iter().any(|c| c.mhz.is_some());
    if run.idle_states.is_empty() && !clocks {
        return None;
    }
    let ns = |ps: u64| ps as f64 / 1000.0;
    let of = |((cpu, busy), idle): ((&homenode_core::topology::Cpu, &CpuFigures), _)| {
        let idle: &homenode_sim::IdleFigures = idle;
        let states: Vec<Value> = run
            .idle_states
            .iter()
            .zip(idle.time_ps.iter().zip(&idle.stays))
            .map(|(name, (&time, [usage, above, below]))| {
                json!({"state": name, "time_ns": ns(time), "usage": usage, "above": above,
                    "below": below})
            })
            .collect();
        json!({
            "cpu": cpu.id.0,
            "busy_ns": ns(busy.busy_ps),
            "mean_mhz": busy.mean_mhz(),
            "idle": states,
        })
    };
    Some(machine.cpus.iter().zip(&run.cpus).zip(&run.idle).map(of).collect())
}
