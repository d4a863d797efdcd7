//! TOML for machines and scenarios, with the position of every error.
