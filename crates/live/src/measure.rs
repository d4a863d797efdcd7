//! Measuring this machine: its constants, each with method and spread.
