//! Memory tiering: hot pages up, cold pages down.
//!
//! [`tiers`] says which nodes are fast and where cold pages go; [`mode`] is the
//! bit field that switches the parts; [`promote`] decides what is hot;
//! [`watermarks`] whether the fast node has room for it; [`reclaim`] what is
//! cold and how hard kswapd works, on active and inactive lists; [`mglru`] the same
//! with generations.

pub mod tiers;

pub mod mode;

pub mod promote;

pub mod watermarks;

pub mod reclaim;

pub mod mglru;
