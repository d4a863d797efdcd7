//! Properties, on random streams.
