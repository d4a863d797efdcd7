//! Scheduling as a trace that Perfetto opens: Chrome's JSON of trace events.
//!
//! ```text
//!  CPUs                 CPU 0   ▓▓make▓▓░░▓cc1▓▓▓▓▓▓    who ran there
//!                       CPU 1   ░░░▓▓cc1▓▓▓▓▓▓▓▓▓░░░
//!  make 811             make    ▓running▓ child  ▓ready▓…   what each task was at
//!                                   └──▶ arrows: who woke whom
//! ```
//!
//! Source: specs/record-sched.md#perfetto.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The process under which CPUs stand: no process has such a number.
const CPUS: u64 = 1 << 30;

/// A task of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceTask {
    /// Its thread number; several tasks may have had it.
    pub tid: u32,
    /// Its process's.
    pub tgid: u32,
    /// Its name.
    pub name: String,
}

/// What a task was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStage {
    /// It ran on that CPU.
    Runs(u32),
    /// It waited for a CPU.
    Ready,
    /// It waited for that.
    Waits(&'static str),
}

/// A stretch of a task's time: its place among the tasks, from when to when in nanoseconds, and what it was
/// at.
pub type TraceSpan = (u32, u64, u64, TraceStage);

/// What a trace shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedTrace {
    /// Tasks by place.
    pub tasks: Vec<TraceTask>,
    /// Their time.
    pub spans: Vec<TraceSpan>,
    /// Wake-ups: who woke, who was woken, when.
    pub wakes: Vec<(u32, u32, u64)>,
}

impl SchedTrace {
    /// Writes it, event by event.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut first = true;
        let mut put = |event: Value| {
            let before = if std::mem::take(&mut first) { "" } else { ",\n" };
            write!(out, "{before}{event}")
        };
        put(json!({"ph": "M", "name": "process_name", "pid": CPUS, "args": {"name": "CPUs"}}))?;
        let mut cpus: Vec<u32> = self
            .spans
            .iter()
            .filter_map(|s| if let TraceStage::Runs(cpu) = s.3 { Some(cpu) } else { None })
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        let on_cpu = |cpu: u32| CPUS + 1 + u64::from(cpu);
        for cpu in cpus {
            let name = format!("CPU {cpu}");
            put(json!({"ph": "M", "name": "thread_name", "pid": CPUS, "tid": on_cpu(cpu),
                "args": {"name": name}}))?;
        }
        // A number that is used again is another task's: it gets one that no task has.
        let mut used = BTreeMap::new();
        let number = |(place, t): (usize, &TraceTask)| match used.insert(t.tid, place) {
            None => u64::from(t.tid),
            Some(_) => CPUS + (1 << 20) + place as u64,
        };
        let tids: Vec<u64> = self.tasks.iter().enumerate().map(number).collect();
        for (t, tid) in self.tasks.iter().zip(&tids) {
            if t.tid == t.tgid {
                put(json!({"ph": "M", "name": "process_name", "pid": t.tgid,
                    "args": {"name": t.name}}))?;
            }
            put(json!({"ph": "M", "name": "thread_name", "pid": t.tgid, "tid": tid,
                "args": {"name": t.name}}))?;
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        for &(task, from, to, stage) in &self.spans {
            let (Some(t), Some(&tid)) = (self.tasks.get(task as usize), tids.get(task as usize))
            else {
                continue;
            };
            let (ts, dur) = (us(from), us(to - from));
            let name = match stage {
                TraceStage::Runs(cpu) => {
                    put(json!({"ph": "X", "cat": "cpu", "name": format!("{} {}", t.name, t.tid),
                        "pid": CPUS, "tid": on_cpu(cpu), "ts": ts, "dur": dur}))?;
                    "running"
                }
                TraceStage::Ready => "ready",
                TraceStage::Waits(what) => what,
            };
            let args = match stage {
                TraceStage::Runs(cpu) => json!({"cpu": cpu}),
                TraceStage::Ready | TraceStage::Waits(_) => json!({}),
            };
            put(
                json!({"ph": "X", "cat": "task", "name": name, "pid": t.tgid, "tid": tid, "ts": ts,
                "dur": dur, "args": args}),
            )?;
        }
        for (id, &(by, task, at)) in self.wakes.iter().enumerate() {
            let end = |task: u32| Some((self.tasks.get(task as usize)?.tgid, tids[task as usize]));
            let (Some((from, by)), Some((to, task))) = (end(by), end(task)) else { continue };
            put(
                json!({"ph": "s", "cat": "wake", "name": "wakes", "id": id, "pid": from, "tid": by,
                "ts": us(at)}),
            )?;
            put(
                json!({"ph": "f", "cat": "wake", "name": "wakes", "id": id, "pid": to, "tid": task,
                "ts": us(at), "bp": "e"}),
            )?;
        }
        Ok(())
    }
    /// Writes it as a file's whole content.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write_file(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        self.write(out)?;
        out.write_all(b"\n]}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_json_with_a_track_for_each_cpu_and_task() {
        let task = |tid, tgid, name: &str| TraceTask { tid, tgid, name: name.into() };
        let trace = SchedTrace {
            // The second has the number of the first again.
            tasks: vec![task(7, 7, "a \"b\""), task(8, 7, "t"), task(7, 7, "later")],
            spans: vec![
                (0, 0, 1500, TraceStage::Runs(1)),
                (0, 1500, 2000, TraceStage::Waits("futex")),
                (1, 100, 1900, TraceStage::Ready),
                (2, 5000, 5001, TraceStage::Runs(0)),
                (9, 0, 1, TraceStage::Ready),
            ],
            wakes: vec![(1, 0, 2000), (1, 9, 2000)],
        };
        let mut out = Vec::new();
        trace.write_file(&mut out).unwrap();
        let all: Value = serde_json::from_slice(&out).expect("JSON");
        let events = all["traceEvents"].as_array().unwrap();
        let of = |ph: &str| events.iter().filter(|e| e["ph"] == *ph).collect::<Vec<_>>();
        let names: Vec<&str> =
            of("M").iter().map(|e| e["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["CPUs", "CPU 0", "CPU 1", "a \"b\"", "a \"b\"", "t", "later", "later"]);
        let spans: Vec<String> = of("X")
            .iter()
            .map(|e| format!("{} {} {}+{}", e["cat"], e["name"], e["ts"], e["dur"]))
            .collect();
        assert_eq!(
            spans,
            [
                r#""cpu" "a \"b\" 7" 0.0+1.5"#,
                r#""task" "running" 0.0+1.5"#,
                r#""task" "futex" 1.5+0.5"#,
                r#""task" "ready" 0.1+1.8"#,
                r#""cpu" "later 7" 5.0+0.001"#,
                r#""task" "running" 5.0+0.001"#,
            ]
        );
        let (s, f) = (of("s"), of("f"));
        assert_eq!((s.len(), f.len(), &s[0]["tid"], &f[0]["tid"]), (1, 1, &json!(8), &json!(7)));
        // Tracks of one process differ, also where a number came twice.
        let x: Vec<&Value> =
            of("X").iter().filter(|e| e["cat"] == "task").map(|e| &e["tid"]).collect();
        assert_ne!(x[0], x[3]);
        let mut none = Vec::new();
        SchedTrace::default().write_file(&mut none).unwrap();
        assert!(serde_json::from_slice::<Value>(&none).is_ok());
    }
}
