//! Programs whose threads wait in their own ways: recorded, and replayed as they run. Skipped,
//! with the reason printed, where QEMU's user mode or a compiler is not there.

mod support {
    pub(crate) mod programs;
}

use homenode_fixtures::Folder;
use support::programs::{recorded, replayed};

/// Twenty rounds of 20 ms each, of which it computes for a part. Under the emulator it is late
/// in each of them and does not sleep.
const PERIODIC: &str = r#"
    #include <time.h>
    int main(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        for (int i = 0; i < 20; i++) {
            for (volatile long j = 0; j < 2000000; j++);
            t.tv_nsec += 20000000;
            if (t.tv_nsec >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
        }
        return 0;
    }"#;

#[test]
fn rounds_that_begin_by_the_clock_do_so_in_a_replay() {
    let folder = Folder::new();
    let Some((_, code)) = recorded(&folder, PERIODIC, &["./p"]) else { return };
    assert_eq!(code, 0);
    let time = replayed(&folder, &[]);
    assert!((0.395..0.45).contains(&time), "{time}");
}
