//! Where pages are.
