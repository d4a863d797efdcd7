//! The QEMU plugin that records a program's memory accesses.
