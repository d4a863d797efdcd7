//! Stories: what was seen as text in, orders as text out.

mod random;
mod rig;
mod sparse;
mod stories;
