//! Moving pages.
