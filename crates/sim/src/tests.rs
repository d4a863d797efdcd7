//! Tests that look inside: the kernel's paths one by one, on small machines.

#[path = "../tests/support/mod.rs"]
mod support;

mod bench;
mod checker;
mod executive;
mod files;
mod flush;
mod generations;
mod hooks;
mod huge;
mod idle;
mod lists;
mod loads;
mod merge;
mod offline;
mod paths;
mod replay;
mod sampling;
mod spins;
mod steps;
mod stream;
mod wakelist;
