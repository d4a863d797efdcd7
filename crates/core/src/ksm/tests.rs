//! Merging on a machine with real bytes: scripts in, text out.

mod host;

mod vectors;

mod files;

mod swarm;

mod canaries;
