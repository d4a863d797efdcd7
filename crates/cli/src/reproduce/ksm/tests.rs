//! The whole pipeline, tiny.
