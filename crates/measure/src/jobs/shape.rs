//! A build as a scenario: of what was recorded, so many classes of jobs of equal number.
//!
//! ```text
//!  make ─┬─▶ sh ─▶ gcc ─┬─▶ cc1  ◀── the heaviest of the job: its time, faults, memory
//!        │              └─▶ as   ◀── the others: how many, and what one takes
//!        └─▶ sh ─▶ rm                 jobs in the order of their heaviest, cut in classes
//! ```
//!
//! Who starts jobs is the command itself, and whoever has its name or starts one that has: makes
//! that call makes become one.
//!
//! Source: specs/workloads.md#build.

use super::{Job, Tree};
use std::fmt::Write as _;

/// What a scenario is made with, beside the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The scenario's name and what it shows.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// The machine that it names.
    pub machine: String,
    /// Jobs that run at once at most.
    pub at_most: u32,
}

/// A class of jobs, all of which are taken to be alike: means of those that were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// User time of the heaviest process of a job, ns.
    pub user_ns: u64,
    /// Its first touches, in pages.
    pub pages: u64,
    /// Of these, what it came back to within a window, in thousandths.
    pub hot: u64,
    /// Other processes of a job.
    pub others: u64,
}

/// A build's job graph, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Jobs that were recorded.
    pub jobs: usize,
    /// By class, the lightest first.
    pub classes: Vec<Class>,
    /// User time and first touches of one of the other processes.
    pub other: (u64, u64),
    /// User time of who starts jobs, for each of them.
    pub starts_ns: u64,
    /// Windows in which memory was looked at.
    pub windows: usize,
}

/// User time in thousandths of all processor time, by the kernel's ticks; all where none were seen.
fn user_share<'a>(jobs: impl Iterator<Item = &'a Job>) -> u64 {
    let [user, system] = jobs.fold([0, 0], |sum, j| [sum[0] + j.ticks[0], sum[1] + j.ticks[1]]);
    (user * 1000).checked_div(user + system).unwrap_or(1000)
}

fn mean(sum: u64, n: usize) -> u64 {
    sum.checked_div(n as u64).unwrap_or(0)
}

impl Shape {
    /// Sums a recording up.
    ///
    /// * `classes` – at most as many as there are jobs.
    pub fn of(tree: &Tree, classes: usize) -> Self {
        let all = &tree.jobs;
        let Some(command) = all.first() else { return Self::default() };
        // A process stands behind who started it, so from the last on all below is known.
        let mut starts: Vec<bool> = all.iter().map(|j| j.name == command.name).collect();
        for i in (1..all.len()).rev() {
            if let (true, Some(parent)) = (starts[i], all[i].parent) {
                starts[parent] = true;
            }
        }
        // The job that a process belongs to.
        let mut root: Vec<Option<usize>> = vec![None; all.len()];
        for i in 1..all.len() {
            if !starts[i] {
                let parent = all[i].parent.unwrap_or(0);
                root[i] = if starts[parent] { Some(i) } else { root[parent] };
            }
        }
        let mut jobs: Vec<(u64, usize, u64)> = Vec::new();
        for job in (0..all.len()).filter(|&i| root[i] == Some(i)) {
            let mine = (0..all.len()).filter(|&i| root[i] == Some(job));
            let n = mine.clone().count() as u64;
            if let Some(heaviest) = mine.max_by_key(|&i| all[i].ran_ns) {
                jobs.push((all[heaviest].ran_ns, heaviest, n - 1));
            }
        }
        jobs.sort_unstable();
        let heaviest: Vec<usize> = jobs.iter().map(|j| j.1).collect();
        let share = user_share(heaviest.iter().map(|&i| &all[i]));
        let hot = |of: &[(u64, usize, u64)]| {
            let windows = of.iter().flat_map(|j| &all[j.1].used);
            let (used, there) = windows.fold((0, 0), |s, w| (s.0 + w.0, s.1 + w.1));
            (used * 1000).checked_div(there)
        };
        let overall = hot(&jobs).unwrap_or(1000);
        let classes = classes.clamp(1, jobs.len().max(1));
        let class = |k: usize| {
            let mine = &jobs[jobs.len() * k / classes..jobs.len() * (k + 1) / classes];
            let n = mine.len();
            let sum = |f: &dyn Fn(&(u64, usize, u64)) -> u64| mean(mine.iter().map(f).sum(), n);
            Class {
                user_ns: sum(&|j| all[j.1].ran_ns) * share / 1000,
                pages: sum(&|j| all[j.1].minor_faults),
                hot: hot(mine).unwrap_or(overall),
                others: (mine.iter().map(|j| j.2).sum::<u64>() + n as u64 / 2)
                    .checked_div(n as u64)
                    .unwrap_or(0),
            }
        };
        let others: Vec<&Job> = (0..all.len())
            .filter(|&i| root[i].is_some() && !heaviest.contains(&i))
            .map(|i| &all[i])
            .collect();
        let makes = || (0..all.len()).filter(|&i| root[i].is_none()).map(|i| &all[i]);
        let ran = |jobs: &mut dyn Iterator<Item = &Job>| jobs.map(|j| j.ran_ns).sum::<u64>();
        Self {
            jobs: jobs.len(),
            classes: if jobs.is_empty() { vec![] } else { (0..classes).map(class).collect() },
            other: (
                mean(ran(&mut others.iter().copied()), others.len())
                    * user_share(others.iter().copied())
                    / 1000,
                mean(others.iter().map(|j| j.minor_faults).sum(), others.len()),
            ),
            starts_ns: mean(ran(&mut makes()), jobs.len()) * user_share(makes()) / 1000,
            windows: all.iter().map(|j| j.used.len()).sum(),
        }
    }

    /// The same as a scenario.
    ///
    /// User time passes as one access that reaches memory each µs, of which 100 ns are the access: how many
    /// of them there are was not recorded.
    pub fn scenario(&self, form: &Form) -> String {
        let mut text = String::new();
        let rounds = self.jobs.div_ceil(self.classes.len().max(1)).max(1);
        let _ = write!(
            text,
            "name = {:?}\nabout = {:?}\nmachine = {:?}\n",
            form.name, form.about, form.machine
        );
        let names: Vec<String> = (1..=self.classes.len()).map(|k| format!("\"job-{k}\"")).collect();
        process(&mut text, "make", false);
        step(&mut text, &format!("do = \"compute\"\ntime = \"{}ns\"", self.starts_ns.max(1)));
        let spawn = |programs: &str, at_most: u32| {
            format!("do = \"spawn\"\nprograms = [{programs}]\nat_most = {at_most}")
        };
        step(&mut text, &spawn(&names.join(", "), form.at_most));
        let times = rounds * self.classes.len();
        step(&mut text, &format!("do = \"repeat\"\nsteps = 2\ntimes = {times}"));
        step(&mut text, "do = \"wait\"");
        for (k, class) in self.classes.iter().enumerate() {
            process(&mut text, &format!("job-{}", k + 1), true);
            step(&mut text, &spawn(&format!("\"main-{}\"", k + 1), 1));
            step(&mut text, "do = \"wait\"");
            if class.others > 0 {
                step(&mut text, &spawn("\"other\"", 1));
                if class.others > 1 {
                    step(
                        &mut text,
                        &format!("do = \"repeat\"\nsteps = 1\ntimes = {}", class.others),
                    );
                }
                step(&mut text, "do = \"wait\"");
            }
        }
        for (k, class) in self.classes.iter().enumerate() {
            process(&mut text, &format!("main-{}", k + 1), true);
            let pages = class.pages.max(2);
            let hot = (pages * class.hot / 1000).clamp(1, pages - 1);
            map(&mut text, "hot", hot);
            map(&mut text, "cold", pages - hot);
            let accesses = (class.user_ns / 2000).max(1);
            let use_ = format!(
                "do = \"access\"\nmap = \"hot\"\npattern = \"uniform\"\nwrite = 300\ncompute = \"900ns\"\naccesses = {accesses}"
            );
            step(&mut text, "do = \"touch\"\nmap = \"hot\"");
            step(&mut text, &use_);
            step(&mut text, "do = \"touch\"\nmap = \"cold\"");
            step(&mut text, &use_);
        }
        // Who is run by nobody has no place in a scenario.
        if self.classes.iter().any(|c| c.others > 0) {
            process(&mut text, "other", true);
            map(&mut text, "heap", self.other.1.max(1));
            step(&mut text, "do = \"touch\"\nmap = \"heap\"");
            step(&mut text, &format!("do = \"compute\"\ntime = \"{}ns\"", self.other.0.max(1)));
        }
        text
    }
}

fn process(text: &mut String, name: &str, spawned: bool) {
    let start = if spawned { "start = \"spawn\"\n" } else { "" };
    let _ = write!(text, "\n[[process]]\nname = \"{name}\"\nthreads = 1\n{start}");
}

fn step(text: &mut String, keys: &str) {
    let _ = write!(text, "\n[[process.step]]\n{keys}\n");
}

fn map(text: &mut String, name: &str, pages: u64) {
    let _ = write!(text, "\n[[process.map]]\nname = \"{name}\"\nsize = \"{} KiB\"\n", pages * 4);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    fn job(parent: usize, name: &str, ms: u64, faults: u64) -> Job {
        Job {
            parent: Some(parent),
            name: name.into(),
            ran_ns: ms * 1_000_000,
            minor_faults: faults,
            ticks: [ms / 10, 0],
            ..Job::default()
        }
    }

    // make ─▶ sh ─▶ make ─▶ { sh ─▶ cc1 30 ms ─▶ as, rm 1 ms, sh ─▶ cc1 500 ms }
    fn tree() -> Tree {
        let mut heavy = job(6, "cc1", 500, 16_000);
        heavy.used = vec![(20 << 20, 50 << 20), (20 << 20, 50 << 20)];
        heavy.ticks = [40, 10];
        let jobs = vec![
            Job { parent: None, ..job(0, "make", 4, 100) },
            job(0, "sh", 1, 10),
            job(1, "make", 4, 100),
            job(2, "sh", 1, 70),
            job(3, "cc1", 30, 2_000),
            job(4, "as", 3, 300),
            job(2, "sh", 1, 70),
            heavy,
            job(2, "rm", 1, 77),
        ];
        Tree { status: ExitStatus::from_raw(0), jobs }
    }

    #[test]
    fn jobs_are_what_makes_start_and_their_heaviest_makes_the_class() {
        let s = Shape::of(&tree(), 3);
        assert_eq!(s.jobs, 3);
        let of: Vec<_> = s.classes.iter().map(|c| (c.pages, c.hot, c.others)).collect();
        // Where no window was seen it is taken to be as in those that were.
        assert_eq!(of, [(77, 400, 0), (2_000, 400, 2), (16_000, 400, 1)]);
        // 43 of 53 ticks of the heaviest are user time.
        assert_eq!(s.classes[2].user_ns, 500_000_000 / 1000 * 811);
        assert_eq!(s.other, (1_666_666, 146));
        // make, sh, make: 9 ms for three jobs.
        assert_eq!((s.starts_ns, s.windows), (3_000_000, 2));
    }

    #[test]
    fn more_classes_than_jobs_are_as_many_as_jobs_and_nothing_is_nothing() {
        assert_eq!(Shape::of(&tree(), 100).classes.len(), 3);
        let alone = Tree { jobs: tree().jobs[..1].to_vec(), ..tree() };
        assert_eq!(Shape::of(&alone, 4).classes, []);
        let none = Tree { jobs: vec![], ..tree() };
        assert_eq!(Shape::of(&none, 4), Shape::default());
    }

    #[test]
    fn a_scenario_has_each_program_behind_who_runs_it() {
        let form =
            Form { name: "b".into(), about: "c".into(), machine: "m.toml".into(), at_most: 8 };
        let text = Shape::of(&tree(), 2).scenario(&form);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        let order =
            ["name = \"make\"", "name = \"job-1\"", "name = \"main-1\"", "name = \"other\""];
        assert!(order.windows(2).all(|w| at(w[0]) < at(w[1])), "{text}");
        assert!(text.contains("programs = [\"job-1\", \"job-2\"]\nat_most = 8"), "{text}");
        // Three jobs in two classes: two rounds of both.
        assert!(text.contains("steps = 2\ntimes = 4"), "{text}");
        let alone = Shape { jobs: 1, classes: vec![Class::default()], ..Shape::default() };
        let text = alone.scenario(&form);
        assert!(!text.contains("other") && text.contains("name = \"main-1\""), "{text}");
    }
}
