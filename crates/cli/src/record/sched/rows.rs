//! Events of the kernel's side as rows of a recording.

use homenode_bpf::able::FIRST_PID_NAMESPACE;
use homenode_bpf::record::{About, Event, Left, NOBODY as NOT_RECORDED, Terms, What};
use homenode_trace::sched::{Header, Kind, NOBODY, Row, Stop, Task};
use std::collections::BTreeMap;

/// What is known of the tasks so far.
#[derive(Default)]
pub(super) struct Rows {
    tasks: Vec<Task>,
    /// How each is treated, as far as a row says it.
    terms: Vec<Option<Terms>>,
    began: Option<u64>,
    span_ns: u64,
    /// Pipes and sockets by address.
    objects: BTreeMap<u64, u32>,
    /// By PID namespace and thread number there: who had it last.
    tids: BTreeMap<(u32, u32), u32>,
}

/// How long a call lasted, where rows have it.
fn lasted(ends: u64, begins: u64) -> u64 {
    ends.saturating_sub(begins).min(u32::MAX.into()) << 32
}

impl Rows {
    /// Adds the rows of an event.
    pub(super) fn take(&mut self, event: Event, out: &mut Vec<Row>) {
        let began = *self.began.get_or_insert(event.time_ns);
        let time_ns = event.time_ns.saturating_sub(began);
        self.span_ns = self.span_ns.max(time_ns);
        let cpu = event.cpu;
        let row = |kind, task, other, arg| Row { kind, time_ns, cpu, task, other, arg };
        match event.what {
            What::Switch { from, to, idle_ns } => {
                if let Some((task, left, terms)) = from {
                    self.know(task);
                    self.treat(task, terms, (time_ns, cpu), out);
                    let stop = match left {
                        Left::Preempted => Stop::Preempted,
                        Left::Dead => Stop::Dead,
                        Left::Waits(on) => Stop::Waits(on),
                    };
                    out.push(row(Kind::Stop, task, NOBODY, stop.to_arg()));
                }
                if let Some(task) = to {
                    self.know(task);
                    out.push(row(Kind::Run, task, NOBODY, idle_ns));
                }
            }
            What::Waking { task, by, context } => {
                self.know(task);
                let by = if by == NOT_RECORDED { NOBODY } else { by };
                if by != NOBODY {
                    self.know(by);
                }
                out.push(row(Kind::Wake, task, by, context.into()));
            }
            What::Fork { task, child } => {
                self.know(task);
                self.know(child);
                out.push(row(Kind::Fork, task, child, 0));
            }
            What::Moved { task, takes, object, bytes, entered_ns } => {
                self.know(task);
                let new = self.objects.len() as u32;
                let object = *self.objects.entry(object).or_insert(new);
                let arg = u64::from(bytes) | lasted(event.time_ns, entered_ns);
                out.push(row(if takes { Kind::Get } else { Kind::Put }, task, object, arg));
            }
            What::Reaped { task, tid, space, entered_ns } => {
                self.know(task);
                // Of a child it is the number in its own namespace or in the machine's; any other is not found.
                if let Some(&child) = self.tids.get(&(space, tid)) {
                    out.push(row(Kind::Join, task, child, lasted(event.time_ns, entered_ns)));
                }
            }
            What::Born(task, about) => self.describes(task, about, (time_ns, cpu), out),
            What::Exec(task, about) => {
                self.describes(task, about, (time_ns, cpu), out);
                out.push(row(Kind::Exec, task, NOBODY, 0));
            }
            What::Exit(task, about) => {
                self.describes(task, about, (time_ns, cpu), out);
                out.push(row(Kind::Exit, task, NOBODY, 0));
            }
        }
    }
    /// So many events were lost since the last time.
    pub(super) fn lost(&mut self, events: u64, out: &mut Vec<Row>) {
        if events > 0 {
            let (kind, time_ns) = (Kind::Lost, self.span_ns);
            out.push(Row { kind, time_ns, cpu: 0, task: NOBODY, other: NOBODY, arg: events });
        }
    }
    /// What the header says of tasks and of time.
    pub(super) fn describe(&self, header: &mut Header) {
        header.tasks.clone_from(&self.tasks);
        header.span_ns = self.span_ns;
    }
    /// There is such a task, whether or not it was told what it is.
    fn know(&mut self, task: u32) {
        let n = task as usize + 1;
        if self.tasks.len() < n {
            self.tasks.resize_with(n, Task::default);
            self.terms.resize(n, None);
        }
    }
    fn describes(&mut self, task: u32, about: About, at: (u64, u32), out: &mut Vec<Row>) {
        self.know(task);
        let About { tid, tgid, name, kernel, space, tid_there, terms } = about;
        self.tids.insert((FIRST_PID_NAMESPACE as u32, tid), task);
        self.tids.insert((space, tid_there), task);
        self.tasks[task as usize] = Task { tid, tgid, name, kernel };
        self.treat(task, terms, at, out);
    }
    /// Rows for what is other than it was, or than what every task begins with.
    fn treat(&mut self, task: u32, terms: Terms, at: (u64, u32), out: &mut Vec<Row>) {
        let before = self.terms[task as usize].replace(terms);
        let mut differs = |kind, was: Option<u64>, default: Option<u64>, is: u64| {
            if was.map_or(default != Some(is), |was| was != is) {
                let (time_ns, cpu) = at;
                out.push(Row { kind, time_ns, cpu, task, other: NOBODY, arg: is });
            }
        };
        let nice = |t: Terms| i64::from(t.nice) as u64;
        differs(Kind::Nice, before.map(nice), Some(0), nice(terms));
        let policy = |t: Terms| u64::from(t.policy);
        differs(Kind::Policy, before.map(policy), Some(0), policy(terms));
        differs(Kind::Allow, before.map(|t| t.allowed), None, terms.allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::sched::course::{Blocked, Wait};

    fn event(time_ns: u64, what: What) -> Event {
        Event { time_ns, cpu: 1, what }
    }

    #[test]
    fn a_switch_is_two_rows_and_what_has_changed_is_told_once() {
        let terms = Terms { nice: 0, policy: 0, allowed: 3 };
        let about = |name: &str| About {
            tid: 7,
            tgid: 7,
            name: name.into(),
            kernel: false,
            space: 1,
            tid_there: 7,
            terms,
        };
        let (mut rows, mut out) = (Rows::default(), Vec::new());
        let on = Wait { what: Blocked::Pipe, uninterruptible: false, iowait: false };
        let nicer = Terms { nice: -3, ..terms };
        for e in [
            event(100, What::Born(0, about("sh"))),
            event(110, What::Switch { from: None, to: Some(0), idle_ns: 9 }),
            event(120, What::Exec(0, about("make"))),
            event(
                130,
                What::Switch { from: Some((0, Left::Waits(on), nicer)), to: None, idle_ns: 0 },
            ),
            // The birth of this one was lost.
            event(125, What::Waking { task: 2, by: NOT_RECORDED, context: 2 }),
            event(90, What::Waking { task: 0, by: 2, context: 0 }),
        ] {
            rows.take(e, &mut out);
        }
        rows.lost(0, &mut out);
        rows.lost(4, &mut out);
        let told: Vec<String> = out
            .iter()
            .map(|r| format!("{} {} {} {}", r.time_ns, r.kind.name(), r.task as i32, r.arg as i64))
            .collect();
        let wait = Stop::Waits(on).to_arg();
        assert_eq!(
            told,
            [
                "0 allow 0 3".to_owned(),
                "10 run 0 9".into(),
                "20 exec 0 0".into(),
                "30 nice 0 -3".into(),
                format!("30 stop 0 {wait}"),
                "25 wake 2 2".into(),
                "0 wake 0 0".into(),
                "30 lost -1 4".into(),
            ]
        );
        let mut header = Header::default();
        rows.describe(&mut header);
        assert_eq!((header.tasks.len(), header.tasks[0].name.as_str()), (3, "make"));
    }

    #[test]
    fn a_number_is_one_of_the_namespace_in_which_it_was_told() {
        const MACHINE: u32 = FIRST_PID_NAMESPACE as u32;
        let about =
            |tid, space, tid_there| About { tid, tgid: tid, space, tid_there, ..About::default() };
        let reaped = |task, tid, space| What::Reaped { task, tid, space, entered_ns: 0 };
        let (mut rows, mut out) = (Rows::default(), Vec::new());
        for e in [
            // A shell, its child, which is the first one of a namespace, and that one's child,
            // whose number there is the shell's on the machine.
            What::Born(0, about(300, MACHINE, 300)),
            What::Born(1, about(301, 7, 1)),
            What::Born(2, about(302, 7, 300)),
            reaped(1, 300, 7),
            reaped(0, 301, MACHINE),
            // Nobody knows these.
            reaped(0, 300, 8),
            reaped(1, 301, 7),
        ] {
            rows.take(event(1, e), &mut out);
        }
        let joins = out.iter().filter(|r| r.kind == Kind::Join);
        assert_eq!(joins.map(|r| (r.task, r.other)).collect::<Vec<_>>(), [(1, 2), (0, 1)]);
    }
}
