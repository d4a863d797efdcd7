//! Made-up figures, on both sides of each conclusion.
