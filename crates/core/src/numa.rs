//! NUMA balancing: who is sampled, when, how much, and what a hint fault does.
//!
//! A task that has run for `scan_delay_ms` has part of its address space marked
//! inaccessible ([`scan`], [`window`]). The fault on a marked page shows who uses
//! it from where ([`faults`]), may move the page ([`filter`]), tunes the next period ([`period`]) and says where
//! the task is at home ([`weights`]): it goes there ([`homing`]).
//!
//! Units: times in ticks carry `jiffies` in their names, CPU time is in
//! nanoseconds, periods are in milliseconds, addresses are page numbers (`vpn`).
//! Scan sequences are signed 32-bit numbers that wrap, as in the kernel.

pub mod scan;

pub mod window;

pub mod period;

pub mod faults;

pub mod filter;

pub mod weights;

pub mod homing;

pub mod rebind;
