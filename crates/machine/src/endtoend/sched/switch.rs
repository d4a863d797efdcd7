//! The switch of the statistics, off → on → off → on: what is counted while it is on, what
//! stands still while it is off, and what a stamp that was left behind does to a maximum.
//!
//! ```text
//!        0 ms    100        400                1100      1400    1500
//!  switch off     on         off                 on                off
//!  p, q    └ share a CPU, computing ──────────────────────────────┘
//!                 │ wait_start is stamped and closed at each turn
//!                            │ one of the two waits: its stamp stays
//!                                                │ first pick: a wait of 700 ms and more
//! ```
//!
//! Source: specs/end-to-end.md#switch

use super::counts::millis;
use super::{
    Act, Finding, LONGEST_TURN, Name, Part, SWITCH, SchedStage, Script, Start, Step, Task,
};
use homenode_core::units::Picos;

/// What a kernel showed; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// `wait_max` of the two tasks after the first time on.
    pub first: [u64; 2],
    /// The same after the second.
    pub second: [u64; 2],
}

const TASKS: [Name; 2] = ["p", "q"];
/// How long the switch is off in the midst of the script.
const OFF: Picos = Picos::from_ms(700);

/// Turns the switch while two tasks share the CPU `cpu`.
///
/// # Errors
/// What does not hold: a text other than 0 and 1 is taken, or taken from who has no right
/// to; rows are shown while it is off, or counters move; or waits are not what they have
/// to be.
pub fn switching<S: SchedStage>(stage: &mut S, cpu: u32) -> Result<Switched, Finding> {
    let before = stage.read(SWITCH)?;
    let found = refusals(stage).and_then(|()| turns(stage, cpu));
    stage.end();
    stage.write(SWITCH, before.trim())?;
    found
}

fn refusals<S: SchedStage>(stage: &mut S) -> Result<(), Finding> {
    for value in ["0", "1"] {
        stage.write(SWITCH, value)?;
        for odd in ["2", "-1", "x"] {
            match stage.write(SWITCH, odd) {
                Err(why) => hold!(why.starts_with("EINVAL"), "{odd}: {why}"),
                Ok(()) => return Err(format!("{SWITCH} takes {odd}")),
            }
        }
        let other = if value == "0" { "1" } else { "0" };
        match stage.write_unprivileged(SWITCH, other) {
            Err(why) => hold!(why.starts_with("EPERM"), "without CAP_SYS_ADMIN: {why}"),
            Ok(()) => return Err(format!("{SWITCH} is written without CAP_SYS_ADMIN")),
        }
        let now = stage.read(SWITCH)?;
        hold!(now.trim() == value, "{SWITCH} is {now:?} after refusals, was {value}");
        // A second time is no error and changes nothing.
        stage.write(SWITCH, value)?;
    }
    Ok(())
}

fn turns<S: SchedStage>(stage: &mut S, cpu: u32) -> Result<Switched, Finding> {
    stage.write(SWITCH, "0")?;
    let ms = Picos::from_ms;
    let computes = |who| Part { who, start: Start::At(ms(0)), acts: vec![Act::Run(ms(150))] };
    let alone = |about: &str| Step {
        about: about.to_owned(),
        lasts: ms(900),
        prepares: false,
        parts: TASKS.map(computes).to_vec(),
    };
    let writes = |acts: Vec<Act>| Part { who: "r", start: Start::At(ms(100)), acts };
    let through = Step {
        about: "on, off and on again while both compute".to_owned(),
        lasts: ms(4000),
        prepares: false,
        parts: vec![
            Part { acts: vec![Act::Run(ms(700))], ..computes("p") },
            Part { acts: vec![Act::Run(ms(700))], ..computes("q") },
            writes(vec![
                Act::Write(SWITCH, "1"),
                Act::Sleep(ms(300)),
                Act::Write(SWITCH, "0"),
                Act::Sleep(OFF),
                Act::Write(SWITCH, "1"),
            ]),
        ],
    };
    let mut steps = vec![alone("off"), alone("on"), alone("off again"), through];
    steps.push(alone("on, after all"));
    let other = u32::from(cpu == 0);
    let mut tasks = TASKS.map(|name| Task { name, cpus: vec![cpu] }).to_vec();
    tasks.push(Task { name: "r", cpus: vec![other] });
    let script = Script { tasks, steps, untold: Vec::new() };
    script.check()?;
    stage.begin(&script)?;
    let rows = |stage: &mut S, name: &str| -> Result<[Option<u64>; 2], Finding> {
        let mut found = [None; 2];
        for (value, who) in found.iter_mut().zip(TASKS) {
            let pid = stage.pid(who).ok_or_else(|| format!("the task {who} is not there"))?;
            *value = millis(&stage.read(&format!("/proc/{pid}/sched"))?, name);
        }
        Ok(found)
    };
    let shown = |stage: &mut S, name: &str| -> Result<[u64; 2], Finding> {
        match rows(stage, name)? {
            [Some(p), Some(q)] => Ok([p, q]),
            none => Err(format!("{name} is not shown while statistics are on: {none:?}")),
        }
    };
    stage.step()?;
    for name in ["wait_max", "wait_sum", "sleep_max"] {
        let found = rows(stage, name)?;
        hold!(found == [None; 2], "{name} is shown while statistics are off: {found:?}");
    }
    stage.write(SWITCH, "1")?;
    let none = shown(stage, "wait_sum")?;
    hold!(none == [0; 2], "there was waiting while statistics were off: {none:?} ns");
    stage.step()?;
    let first = shown(stage, "wait_max")?;
    let waits = first.iter().all(|ns| (1..LONGEST_TURN.as_ns()).contains(ns));
    hold!(waits, "two tasks that share a CPU waited at most {first:?} ns at a time");
    let sum = shown(stage, "wait_sum")?;
    stage.write(SWITCH, "0")?;
    stage.step()?;
    stage.write(SWITCH, "1")?;
    let later = shown(stage, "wait_sum")?;
    hold!(later == sum, "wait_sum went from {sum:?} to {later:?} ns while statistics were off");
    stage.write(SWITCH, "0")?;
    stage.step()?;
    let second = shown(stage, "wait_max")?;
    // Who ran at the moment of the switch has no stamp that is old; who waited has.
    let stale = second.iter().filter(|ns| **ns >= OFF.as_ns()).count();
    hold!(
        stale == usize::from(stage.keeps_stamps()),
        "of two tasks one waited for its turn all the time off: {second:?} ns"
    );
    stage.step()?;
    // A stamp counts once: what was waited since is short again, and can't be the maximum.
    let last = shown(stage, "wait_max")?;
    for (then, now) in second.iter().zip(last) {
        let once = if *then >= OFF.as_ns() { now == *then } else { now < LONGEST_TURN.as_ns() };
        hold!(once, "a stale stamp counted once more: {second:?}, then {last:?} ns");
    }
    Ok(Switched { first, second })
}
