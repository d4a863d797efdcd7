//! Programs: what tasks run. The steps of a scenario, a recording, and every daemon are
//! programs; the executive gives them turns and knows none of them.
//!
//! | program | private | acts |
//! |---|---|---|
//! | [`steps`], [`ids`] | accesses to pages that are there | faults, the other steps |
//! | [`crate::replay`] | rows of accesses, computing | faults, system calls |
//! | [`scripted`] | computing | the acts of a script of scheduling |
//! | [`actor`] | computing | the steps of a recorded life |
//! | [`worker`] | computing | the beginning and the end of each work |
//! | [`daemons`] | – | everything they do |
//!
//! Source: docs/decisions/0014-time-and-tasks.md.

mod actor;
mod calls;
mod compute;
mod daemons;
mod ids;
mod scripted;
mod steps;
mod stretch;
mod worker;

pub(crate) use actor::{Cast, Hog};
pub(crate) use daemons::{Homenode, Kdamond, Kswapd, Writer};
pub(crate) use ids::Ids;
pub(crate) use scripted::{Crew, Scripted};
pub(crate) use steps::Steps;
pub(crate) use worker::Worker;

pub(crate) use crate::simulation::{Ahead, Program};
