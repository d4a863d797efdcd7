//! Nodes' memory: /proc/zoneinfo.
