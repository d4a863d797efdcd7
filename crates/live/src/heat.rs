//! Sources of heat.

pub mod damon;
mod epoll;
pub mod hints;
pub mod samples;
