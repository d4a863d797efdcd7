//! Waiting for what comes about by itself.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Looks until there is something, and gives that. It has long, since others may use the
/// machine too, but not for ever: then the test fails, and says what did not come about.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{what} did not come about");
        sleep(Duration::from_millis(5));
    }
}
