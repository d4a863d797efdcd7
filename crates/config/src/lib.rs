//! TOML for machines, scenarios and truth checks, with the position of every error.
//!
//! A file becomes a typed value of `homenode-core` or one sentence that says
//! where (file, line, column, key), what is wrong, and what is allowed:
//!
//! ```text
//! box.toml:14:41: link[0].read_latency.value: -3 is negative; a latency lies between 0.001 and 1000000 ns
//! ```
//!
//! Nothing here touches floating point: `89.3` ns becomes 89 300 ps digit by
//! digit, so that a file means the same on every machine.
//!
//! Reading order: [`ConfigError`], [`read_machine`], [`write_machine`],
//! [`read_scenario`], [`add_node`], [`read_act`].
#![forbid(unsafe_code)]

mod error;
mod tree;

mod list;
mod quantity;

mod act;
mod cpu;
mod files;
mod fit;
mod group;
mod guest;
mod machine;
mod map;
mod notes;
mod parts;
mod policy;
mod process;
mod scale;
mod scenario;
mod step;
mod truth;
mod truth_cpu;
mod truth_merge;
mod truth_replay;
mod truth_sched;
mod write;

pub use act::{ActFile, FastNodes, Users, parse_act, read_act};
pub use error::ConfigError;
pub use fit::{Misfit, check};
pub use list::{parse_list, write_list};
pub use machine::{parse_machine, read_machine};
pub use notes::notes;
pub use parts::{AddNode, Part, PartError, Size, add_node, parse_add_node, shrink_dram};
pub use quantity::{parse_rate, parse_size, parse_time, write_rate, write_size, write_time};
pub use scenario::{
    ScenarioFile, parse_scenario, read_scenario, read_scenario_and_machine, set_choice,
};
pub use tree::suggestion;
pub use truth::{TruthPlan, TruthProgram, parse_truth};
pub use truth_cpu::{CpuBench, CpuCase, CpuPlan, parse_truth_cpu};
pub use truth_merge::{MergeCase, MergeLook, MergePlan, parse_truth_merge};
pub use truth_replay::{ReplayPlan, ReplayProgram, parse_truth_replay};
pub use truth_sched::{SchedCase, SchedPlan, SchedProgram, parse_truth_sched};
pub use write::{write_machine, write_machine_file};
