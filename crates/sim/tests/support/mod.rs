//! Small machines and scenarios, as all rooms' tests have them.
#![allow(unused_imports, unreachable_pub, reason = "each test takes what it needs")]

pub use homenode_fixtures::machine::*;
pub use homenode_fixtures::scenario::*;
