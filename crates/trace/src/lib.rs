//! Recordings of memory accesses: reading and writing them.
