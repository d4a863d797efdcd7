//! Scripts for every shape, the texts of real kernels, and bodies that find what a kernel
//! has wrong.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

/// A machine of so many nodes with one last-level cache each.
fn shape(llcs: u32, cores: u32, threads: u32) -> Shape {
    let place = |cpu: u32| Place { cpu, core: cpu / threads, llc: cpu / (cores * threads) };
    Shape::new((0..llcs * cores * threads).map(place).collect()).unwrap()
}

#[test]
fn each_shape_has_a_script_that_can_be_played() {
    let shapes = [
        ("flat", shape(1, 4, 1), "same near"),
        ("smt", shape(1, 2, 2), "same sibling near"),
        ("nodes", shape(2, 2, 1), "same near far"),
        ("smt-nodes", shape(2, 2, 2), "same sibling near far"),
    ];
    for (name, shape, pairs) in shapes {
        let script = script(&shape);
        script.check().unwrap();
        let told = script.steps.iter().filter(|step| !step.prepares).count();
        assert!((40..=65).contains(&told), "{name}: {told} steps are told");
        for pair in ["same", "sibling", "near", "far"] {
            let head = format!("{pair}: a wakes b by a futex and sleeps");
            let has = script.steps.iter().any(|step| step.about == head);
            assert_eq!(has, pairs.split(' ').any(|p| p == pair), "{name}: {head}");
        }
        let cpus = script.tasks.iter().filter(|task| task.cpus.len() == 1).count();
        assert_eq!(script.tasks.len() - cpus, 3, "{name}: three may run anywhere");
    }
}

/// Else where a task begins hangs on a scene before, which boots need not have in common.
#[test]
fn each_scene_puts_its_tasks_in_their_places() {
    for shape in [shape(1, 4, 1), shape(1, 2, 2), shape(2, 2, 1), shape(2, 2, 2)] {
        let mut placed: Vec<Name> = Vec::new();
        let mut before = false;
        for step in script(&shape).steps {
            if step.prepares && !before {
                placed.clear();
            }
            before = step.prepares;
            for part in &step.parts {
                if step.prepares {
                    placed.push(part.who);
                } else if ["a", "b", "c"].contains(&part.who) {
                    assert!(placed.contains(&part.who), "{}: {}", step.about, part.who);
                }
            }
        }
    }
}

#[test]
fn shapes_that_a_script_is_not_for_are_refused() {
    let place = |cpu| Place { cpu, core: cpu, llc: 0 };
    assert!(Shape::new(vec![place(0)]).is_err());
    assert!(Shape::new((0..9).map(place).collect()).is_err());
    assert!(Shape::new(vec![place(1), place(0)]).is_err());
}

/// A script of two tasks and one step.
fn small(parts: Vec<Part>) -> Script {
    let tasks = ["a", "b"].map(|name| Task { name, cpus: vec![0, 1] }).to_vec();
    let (about, lasts) = ("x".to_owned(), Picos::from_ms(300));
    let step = Step { about, lasts, prepares: false, parts };
    Script { tasks, steps: vec![step], untold: Vec::new() }
}

fn part(who: Name, start: Start, acts: Vec<Act>) -> Part {
    Part { who, start, acts }
}

#[test]
fn a_script_that_would_hang_is_refused() {
    let now = Start::At(Picos::ZERO);
    let pipe = Start::Woken(By::Pipe);
    let wake = |who| Act::Wake(who, By::Pipe);
    let check = |parts| small(parts).check();
    check(vec![part("a", now, vec![wake("b")]), part("b", pipe, vec![])]).unwrap();
    let cases = [
        (vec![part("b", pipe, vec![])], "woken 0 times by Pipe and waits 1"),
        (vec![part("a", now, vec![wake("b")])], "b has no part"),
        (
            vec![part("a", now, vec![wake("b"), wake("b")]), part("b", pipe, vec![])],
            "woken 2 times by Pipe and waits 1",
        ),
        (
            vec![part("a", now, vec![Act::Wake("b", By::Futex)]), part("b", pipe, vec![])],
            "woken 0 times by Pipe",
        ),
        (vec![part("a", now, vec![]), part("a", now, vec![])], "twice"),
        (vec![part("z", now, vec![])], "z is not there"),
        (vec![part("a", now, vec![Act::Allow("z", vec![0])])], "z is not there"),
        (vec![part("f", Start::Forked, vec![])], "forked 0 times"),
    ];
    for (parts, want) in cases {
        let got = check(parts).unwrap_err();
        assert!(got.contains(want), "{got}: {want}");
    }
}

/// What kernels print, taken from guests: 6.1.176, 6.12.95, 7.3.4.
const REAL: [(&str, &str, &str, &str); 3] = [
    (
        "6.1",
        include_str!("real/6.1.schedstat.txt"),
        include_str!("real/6.1.sched.txt"),
        include_str!("real/6.1.sched-off.txt"),
    ),
    (
        "6.12",
        include_str!("real/6.12.schedstat.txt"),
        include_str!("real/6.12.sched.txt"),
        include_str!("real/6.12.sched-off.txt"),
    ),
    (
        "7.3",
        include_str!("real/7.3.schedstat.txt"),
        include_str!("real/7.3.sched.txt"),
        include_str!("real/7.3.sched-off.txt"),
    ),
];

#[test]
fn files_of_real_kernels_are_read() {
    let mut shown = String::new();
    for (version, schedstat, on, off) in REAL {
        let cpus = cpu_counts(schedstat).unwrap();
        assert_eq!(cpus.len(), 8);
        let _ = writeln!(shown, "{version} cpu0 {:?} cpu7 {:?}", cpus[0], cpus[7]);
        let _ = writeln!(shown, "  {:?}", task_counts(on).unwrap());
        let _ = writeln!(shown, "  wait_max {:?}", counts::millis(on, "wait_max"));
        let error = task_counts(off).unwrap_err();
        assert!(error.contains("has no row nr_forced_migrations"), "{error}");
        assert_eq!(counts::millis(off, "wait_max"), None);
    }
    assert_eq!(
        shown,
        "6.1 cpu0 [1101, 6, 541, 479] cpu7 [61, 6, 96, 32]\n  \
         [184, 177, 7, 1, 0, 176, 0, 0, 176, 0, 0, 0, 185]\n  wait_max Some(20058959)\n\
         6.12 cpu0 [1677, 281, 744, 579] cpu7 [952, 441, 314, 217]\n  \
         [117, 79, 38, 1, 0, 78, 0, 0, 78, 0, 0, 0, 120]\n  wait_max Some(55921767)\n\
         7.3 cpu0 [988, 3, 316, 235] cpu7 [42, 7, 39, 10]\n  \
         [122, 84, 38, 1, 0, 83, 0, 0, 83, 0, 0, 0, 124]\n  wait_max Some(59973285)\n"
    );
}

#[test]
fn the_cpu_is_behind_a_name_that_may_hold_anything() {
    let rest = (3..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(last_cpu(&format!("17 (a) b (c) {rest}\n")), Ok(39));
    assert!(last_cpu("17 (a) 1 2").is_err());
    assert!(last_cpu("").is_err());
}

/// A kernel that counts as it is told to, and takes the switch as real ones do.
#[derive(Default)]
struct Fake {
    on: bool,
    steps: usize,
    /// What a step adds to the counters of both tasks: first those of the first step.
    adds: Vec<u64>,
    count: u64,
    /// `wait_max` and `wait_sum` in nanoseconds.
    waits: ([u64; 2], [u64; 2]),
    tasks: Vec<Name>,
    fault: Option<Fault>,
}

/// What a kernel can have wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    TakesTwo,
    TakesFromAnybody,
    ShowsWhileOff,
    CountsWhileOff,
    ForgetsStamps,
    StampsCountTwice,
}

impl SchedStage for Fake {
    fn begin(&mut self, script: &Script) -> Result<(), Finding> {
        self.tasks = script.names();
        Ok(())
    }
    fn step(&mut self) -> Result<(), Finding> {
        let (ms, fault) = (1_000_000, self.fault);
        self.count += self.adds.get(self.steps).copied().unwrap_or(0);
        match self.steps {
            1 => self.waits = ([4 * ms, 3 * ms], [40 * ms, 39 * ms]),
            2 if fault == Some(Fault::CountsWhileOff) => self.waits.1[0] += ms,
            3 => {
                self.on = true;
                if fault != Some(Fault::ForgetsStamps) {
                    self.waits.0[1] = 703 * ms;
                }
            }
            4 if fault == Some(Fault::StampsCountTwice) => self.waits.0[1] = 900 * ms,
            _ => {}
        }
        self.steps += 1;
        Ok(())
    }
    fn pid(&mut self, who: Name) -> Option<u32> {
        (0..).zip(&self.tasks).find(|(_, name)| **name == who).map(|(i, _)| i + 1)
    }
    fn cpu(&mut self, _who: Name) -> Result<u32, Finding> {
        Ok(self.count as u32 % 2)
    }
    fn read(&mut self, path: &str) -> Result<String, Finding> {
        if path == SWITCH {
            return Ok(format!("{}\n", u8::from(self.on)));
        }
        if path == "/proc/schedstat" {
            let n = self.count;
            return Ok(format!("version 16\ncpu0 0 0 {n} 0 0 0 1 1 1\ncpu1 0 0 0 0 0 0 1 1 1\n"));
        }
        let pid: usize = path.split('/').nth(2).and_then(|pid| pid.parse().ok()).unwrap();
        let mut text = format!("x ({pid}, #threads: 1)\n");
        let shown = self.on || self.fault == Some(Fault::ShowsWhileOff);
        for field in TASK_FIELDS.iter().filter(|field| shown || field.contains("switches")) {
            let _ = writeln!(text, "{field:<45}:{:>21}", self.count);
        }
        if shown {
            let i = (pid - 1).min(1);
            for (name, ns) in
                [("wait_max", self.waits.0[i]), ("wait_sum", self.waits.1[i]), ("sleep_max", 0)]
            {
                let (ms, rest) = (ns / 1_000_000, ns % 1_000_000);
                let _ = writeln!(text, "{name:<45}:{ms:>14}.{rest:06}");
            }
        }
        Ok(text)
    }
    fn write(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        assert_eq!(path, SWITCH);
        match text {
            "0" => self.on = false,
            "1" => self.on = true,
            "2" if self.fault == Some(Fault::TakesTwo) => {}
            _ => return Err(format!("EINVAL: {path} = {text}")),
        }
        Ok(())
    }
    fn write_unprivileged(&mut self, path: &str, text: &str) -> Result<(), Finding> {
        if self.fault == Some(Fault::TakesFromAnybody) {
            return self.write(path, text);
        }
        Err(format!("EPERM: {path} = {text}"))
    }
    fn end(&mut self) {
        self.tasks.clear();
    }
}

#[test]
fn a_step_is_told_by_what_it_added() {
    let mut script = small(vec![part("a", Start::At(Picos::ZERO), vec![])]);
    let x = script.steps[0].clone();
    script.steps.push(Step { about: "not told".to_owned(), prepares: true, ..x.clone() });
    script.steps.push(Step { about: "y".to_owned(), ..x });
    let mut fake = Fake { adds: vec![2, 8, 1], ..Fake::default() };
    let found = text(&run(&mut fake, &script).unwrap());
    let two = |name: &str, cpu: u32, n: u32| {
        let fields = TASK_FIELDS.map(|field| format!(" {} {n}", field.trim_start_matches("se.")));
        format!("{name} cpu {cpu}{}\n", fields.concat())
    };
    let cpu0 =
        |n: u32| format!("- cpu0 sched_count {n} sched_goidle 0 ttwu_count 0 ttwu_local 0\n");
    let want = format!(
        "## 0 x\n{}{}{}## 1 y\n{}{}{}",
        two("a", 0, 2),
        two("b", 0, 2),
        cpu0(2),
        two("a", 1, 1),
        two("b", 1, 1),
        cpu0(1)
    );
    assert_eq!(found, want);
    assert!(!fake.on, "the switch is what it was");
}

#[test]
fn a_run_is_held_against_what_boots_had_in_common() {
    let expected = "for people\nkernel 6.12\n\n## 0 x\na cpu 1 nr_wakeups 1\n- cpu0 ttwu_count 1\n\
                    ## 1 y\n? 2 of 5: a cpu 1\n? 3 of 5: a cpu 2\n";
    let found = "## 0 x\na cpu 1 nr_wakeups 1\n- cpu0 ttwu_count 7\n## 1 y\na cpu 0\n";
    let verdict = compare(expected, found).unwrap();
    assert_eq!(verdict, Verdict { judged: 1, open: 1, different: vec![], cpus: 1, cpus_same: 0 });
    let verdict = compare(expected, &found.replace("nr_wakeups 1", "nr_wakeups 2")).unwrap();
    assert_eq!(
        verdict.different,
        ["step 0 x: expected a cpu 1 nr_wakeups 1; found a cpu 1 nr_wakeups 2"]
    );
    let error = compare(expected, &found.replace("1 y", "1 z")).unwrap_err();
    assert!(error.contains("step 1 was \"1 y\" and is \"1 z\""), "{error}");
    assert!(compare(expected, "").unwrap_err().contains("is \"nothing\""));
}

#[test]
fn a_kernel_that_switches_as_real_ones_do_is_right() {
    let ms = 1_000_000;
    let seen = switching(&mut Fake::default(), 1).unwrap();
    assert_eq!(seen, Switched { first: [4 * ms, 3 * ms], second: [4 * ms, 703 * ms] });
}

#[test]
fn each_thing_that_a_switch_can_have_wrong_is_found() {
    let cases = [
        (Fault::TakesTwo, "takes 2"),
        (Fault::TakesFromAnybody, "written without CAP_SYS_ADMIN"),
        (Fault::ShowsWhileOff, "is shown while statistics are off"),
        (Fault::CountsWhileOff, "while statistics were off"),
        (Fault::ForgetsStamps, "one waited for its turn all the time off"),
        (Fault::StampsCountTwice, "counted once more"),
    ];
    for (fault, want) in cases {
        let mut fake = Fake { fault: Some(fault), ..Fake::default() };
        let got = switching(&mut fake, 1).unwrap_err();
        assert!(got.contains(want), "{fault:?}: {got}");
    }
}

proptest! {
    #[test]
    fn odd_texts_are_no_panic(text in "(cpu[0-9]{1,3}( [0-9]{1,22}){0,9}\n|[a-z_.]{1,12} *: *[-0-9.]{0,22}\n|## .*\n|.*\n)*") {
        let _ = (cpu_counts(&text), task_counts(&text), last_cpu(&text));
        let _ = counts::millis(&text, "wait_max");
        let _ = compare(&text, &text);
        sections(&text);
    }
}
