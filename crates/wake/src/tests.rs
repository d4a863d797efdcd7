//! The vectors of the specification, told as stories; tens of thousands of random wake-ups
//! beside a slow model; and the same inside the kernel.

mod bpf;
mod like_the_model;
mod machine;
mod model;
mod random;
mod vectors;
