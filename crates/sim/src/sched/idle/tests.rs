use super::*;
use crate::random::Stream;
use homenode_core::sched::idle::Table;

const US: u64 = 1_000_000;
const MS: u64 = 1000 * US;

fn haswell() -> Idling {
    Idling::new(&IdleCosts::of_table(Table::HaswellEp, WokenBy::Store), 1, false)
}

/// Idle for so long, and busy for 1 µs, again and again; the state of each time and what
/// leaving it took, in µs. Its next timer is always 3 ms away.
fn rests(it: &mut Idling, lengths: &[u64]) -> String {
    let mut now = 0;
    it.leave(0, 0, 0);
    let mut text = String::new();
    for length in lengths {
        it.enter(0, now, now + 3 * MS);
        now += length * US;
        it.lapse(0, now);
        let state = it.cpus[0].state;
        let takes = it.leave(0, now, 0);
        text.push_str(&format!("{}/{} ", it.states[state].name, takes / US));
        now += takes + US;
    }
    text
}

#[test]
fn rests_of_one_length_get_the_state_that_pays() {
    // specs/idle.md#select: 50 µs make C1E, 500 µs C6, 1 µs POLL.
    let mut it = haswell();
    let text = rests(&mut it, &[50; 10]);
    assert!(text.ends_with("C1E/10 C1E/10 "), "{text}");
    let mut it = haswell();
    let text = rests(&mut it, &[500; 10]);
    assert!(text.ends_with("C6/133 C6/133 "), "{text}");
    let mut it = haswell();
    // A stay that is no longer than twice its state's exit counts as half of itself: it takes
    // some more until the governor believes it.
    let text = rests(&mut it, &[1; 30]);
    assert!(text.ends_with("POLL/0 POLL/0 "), "{text}");
}

#[test]
fn a_long_rest_ends_in_the_deepest_state_with_the_tick_stopped() {
    let mut it = haswell();
    assert_eq!(rests(&mut it, &[1_000_000]), "C6/133 ");
    // So does one that a governor, which has seen short ones only, did not expect: POLL ends at
    // its limit, or the tick that was kept ends the stay.
    let mut it = haswell();
    rests(&mut it, &[1; 20]);
    let text = rests(&mut it, &[20_000]);
    assert_eq!(text, "C6/133 ");
    assert!(it.cpus[0].tick_stopped);
    assert!(it.usage(0, 0)[0].usage > 0, "it had been polling");
}

#[test]
fn polling_ends_at_its_limit() {
    let mut it = haswell();
    rests(&mut it, &[1; 20]);
    it.enter(0, 100 * MS, 103 * MS);
    assert_eq!(it.cpus[0].state, 0);
    // 20 µs: the residency of C1E (specs/idle.md#poll).
    assert_eq!(it.cpus[0].ends, 100 * MS + 20 * US);
    it.lapse(0, 100 * MS + 21 * US);
    assert_eq!(it.cpus[0].since, 100 * MS + 20 * US);
}

#[test]
fn whoever_comes_while_a_cpu_leaves_its_state_waits_for_the_rest_only() {
    let mut it = haswell();
    it.leave(0, 0, 0);
    it.enter(0, 0, NEVER);
    // A device's interrupt finds it in C6.
    assert_eq!(it.disturb(0, 100 * MS), 133 * US);
    assert_eq!(it.disturb(0, 100 * MS + 33 * US), 100 * US);
    assert_eq!(it.leave(0, 100 * MS + 133 * US, 0), 0);
    // Idle since this very moment: there is no state to leave.
    it.enter(0, 101 * MS, NEVER);
    assert_eq!(it.leave(0, 101 * MS, 0), 0);
}

#[test]
fn only_states_that_watch_no_line_need_an_interrupt() {
    let ipi = 700_000;
    for (woken_by, takes) in [(WokenBy::Store, 0), (WokenBy::Interrupt, ipi)] {
        let mut it = Idling::new(&IdleCosts::of_table(Table::HaswellEp, woken_by), 1, false);
        assert_eq!(it.leave(0, MS, ipi), takes + 133 * US, "{woken_by:?}");
        let mut it = Idling::new(&IdleCosts::of_table(Table::Halt, woken_by), 1, false);
        assert_eq!(it.leave(0, MS, ipi), takes);
    }
}

#[test]
fn time_in_states_is_the_idle_time_to_the_picosecond() {
    let mut it = haswell();
    let (mut now, mut idle) = (0, 0);
    let mut random = crate::random::Stream::new(7, "rests");
    it.leave(0, 0, 0);
    for round in 0..4000 {
        let timer = if random.below(2) == 0 { NEVER } else { now + random.below(20 * MS) };
        it.enter(0, now, timer);
        // Times of like lengths follow each other, so that the governor learns them.
        let most = [2 * US, 90 * US, MS, 20 * MS][round / 50 % 4];
        let length = random.below(most);
        let woken = now + length;
        if random.below(3) == 0 {
            let _ = it.disturb(0, now + length / 2);
        }
        assert_eq!(it.times(0, woken).iter().sum::<u64>(), idle + length, "while it is idle");
        let takes = it.leave(0, woken, 0);
        idle += length + takes;
        now = woken + takes;
        assert_eq!(it.times(0, now).iter().sum::<u64>(), idle, "after it");
        now += random.below(3 * US);
    }
    let usage = it.usage(0, now);
    assert!(usage.iter().all(|u| u.usage > 0), "each state was used: {usage:?}");
    let told: u64 = usage.iter().map(|u| u.time_ns).sum();
    let stays: u64 = usage.iter().map(|u| u.usage).sum();
    assert!((0..=stays).contains(&(idle / 1000 - told)), "each stay is cut to whole ns");
    assert!(usage.iter().map(|u| u.above).sum::<u64>() > 0, "some were too short");
    assert!(usage.iter().map(|u| u.below).sum::<u64>() > 0, "some were too long");
}

#[test]
fn a_cpu_knows_its_next_timer_and_forgets_those_that_were_taken_back() {
    let mut it = haswell();
    it.set_timer(0, 9 * MS, 0, 1);
    it.set_timer(0, 5 * MS, 0, 2);
    it.set_timer(0, 7 * MS, 0, 3);
    let all = |_, _| true;
    assert_eq!(it.next_timer(0, 0, all), 5 * MS);
    assert_eq!(it.next_timer(0, 0, |what, _| what != 2), 7 * MS);
    assert_eq!(it.next_timer(0, 8 * MS, all), 9 * MS);
    assert_eq!(it.next_timer(0, 9 * MS, all), NEVER);
}

#[test]
fn a_state_that_is_off_is_not_entered() {
    let mut it = haswell();
    it.leave(0, 0, 0);
    it.disable(0, 4, true);
    it.enter(0, 0, NEVER);
    assert_eq!(it.leave(0, MS, 0), 33 * US, "C3 instead of C6");
}

#[test]
fn a_cpu_that_was_woken_for_nobody_is_idle_again() {
    let mut it = haswell();
    let takes = it.leave(0, MS, 0);
    assert_eq!(takes, 133 * US);
    // Who was to run is throttled, or asleep already.
    it.stay_on(0, MS + takes);
    for now in [MS, MS + 50 * US, MS + takes, 2 * MS, 90 * MS] {
        assert_eq!(it.times(0, now).iter().sum::<u64>(), now, "at {now}");
    }
    assert_eq!(it.leave(0, 90 * MS, 0), 133 * US);
}

/// All that has ended by itself is ended, whichever CPUs are looked at for that.
#[test]
fn what_ends_by_itself_is_found_among_all_cpus() {
    let mut random = Stream::new(1, "lapse");
    let table = IdleCosts::of_table(Table::HaswellEp, WokenBy::Store);
    let mut all = Idling::new(&table, 100, false);
    let mut each = all.clone();
    let mut lapsed = 0;
    for now in (1..3000).map(|i| i * 37 * US) {
        let cpu = random.below(100) as usize;
        for it in [&mut all, &mut each] {
            if it.cpus[cpu].idle {
                it.leave(cpu, now, 0);
            } else {
                it.enter(cpu, now, now + 9 * MS);
            }
        }
        if random.below(3) > 0 {
            let before = all.exit.clone();
            all.lapse_all(now);
            (0..100).for_each(|cpu| each.lapse(cpu, now));
            lapsed += usize::from(all.exit != before);
            let seen = |it: &Idling| {
                it.cpus.iter().map(|c| (c.idle, c.state, c.since, c.ends)).collect::<Vec<_>>()
            };
            assert_eq!((seen(&all), &all.exit), (seen(&each), &each.exit), "at {now}");
        }
    }
    assert!(lapsed > 5, "{lapsed} times a stay had ended");
}
