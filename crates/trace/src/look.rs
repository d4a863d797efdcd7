//! A look at the scheduler as columns: what `homenode stats` counted, one row for each task, cgroup, CPU,
//! last-level cache and node.
//!
//! ```text
//! Row, Row, … ─▶ group ─▶ FILE.partial ─▶ FILE, whole or not at all
//! ```
//!
//! A counter has the column of its own name, null where a row of this kind has none. Latencies and what is told
//! by node are lists. Times are nanoseconds.
//!
//! Source: specs/schedstats.md#parquet.

use crate::TraceError;
use crate::partial::{Group, Partial, properties};
use homenode_core::sched::look::{
    BUCKETS, CpuCounts, CpuLook, Histogram, Reason, Reasons, TaskCounts, TaskLook,
};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Key of the metadata that say how long the look was and where buckets begin, as JSON.
pub const KEY: &str = "homenode.look";
/// Version of the columns.
const VERSION: u32 = 1;
/// Rows that are made columns of at a time.
const GROUP_ROWS: usize = 4096;

homenode_core::named! {
    /// What a row is of.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Of {
        /// A task, or those of one process and name that are over.
        Task => "task",
        /// A cgroup's tasks.
        Cgroup => "cgroup",
        /// A CPU.
        Cpu => "cpu",
        /// A last-level cache, whose number is that of its first CPU.
        Llc => "llc",
        /// A node.
        Node => "node",
    }
}

/// What stands in a row.
pub enum Row<'a> {
    /// A task, with its cgroup's name and its memory by node in pages of 4 KiB.
    Task(&'a TaskLook, &'a str, Option<&'a BTreeMap<u16, u64>>),
    /// A cgroup's tasks, with its name.
    Cgroup(&'a TaskLook, &'a str),
    /// CPUs that are one thing, with its number.
    Cpus(Of, u32, &'a CpuLook),
}

/// What is said of all rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// How long it was looked.
    pub ns: u64,
    /// Tasks for which there was no place, and their events that went uncounted.
    pub lost: [u64; 2],
    /// When it ended, in milliseconds since 1970.
    pub ended_unix_ms: u64,
}

/// A value of a row.
enum Value {
    Number(Option<u64>),
    Text(Option<String>),
    List(Option<Vec<u64>>),
}

/// Writes rows into a file, which is put in its place when all of it is there. Returns its size in bytes.
///
/// # Errors
/// [`TraceError::Create`] where it cannot be made, [`TraceError::Write`]; what was there before stays.
pub fn write<'a>(
    path: &Path,
    about: &About,
    rows: impl Iterator<Item = Row<'a>>,
) -> Result<u64, TraceError> {
    let none = TaskLook {
        pid: 0,
        tgid: 0,
        parent: 1,
        start_ns: 0,
        comm: String::new(),
        cgroup: 0,
        tasks: 0,
        doing: homenode_core::sched::look::Doing::Ended,
        doing_ns: 0,
        counts: TaskCounts::default(),
        latency: Histogram::default(),
        why: None,
    };
    let columns: Vec<String> = values(&Row::Task(&none, "", None))
        .into_iter()
        .map(|(name, value)| match value {
            Value::Number(_) => format!("optional int64 {name} (integer(64,false));"),
            Value::Text(_) => format!("optional binary {name} (string);"),
            Value::List(_) => format!(
                "optional group {name} (list) {{ repeated group list {{ required int64 element \
                 (integer(64,false)); }} }}"
            ),
        })
        .collect();
    let schema = format!("message look {{ {} }}", columns.join(" "));
    let schema = Arc::new(parse_message_type(&schema).expect("made of fixed words"));
    let properties = properties().set_offset_index_disabled(true);
    let mut out = Partial::create(path, schema, properties)?;
    let mut held: Vec<Vec<Value>> = Vec::new();
    let mut rows = rows.peekable();
    while let Some(row) = rows.next() {
        held.push(values(&row).into_iter().map(|(_, value)| value).collect());
        if held.len() >= GROUP_ROWS || rows.peek().is_none() {
            let group = std::mem::take(&mut held);
            out.group(|to| (0..columns.len()).try_for_each(|at| column(to, &group, at)))?;
        }
    }
    let [lost_tasks, lost_events] = about.lost;
    let text = json!({
        "version": VERSION,
        "ns": about.ns,
        "lost_tasks": lost_tasks,
        "lost_events": lost_events,
        "ended_unix_ms": about.ended_unix_ms,
        "wakeup_latency_from_ns": (0..BUCKETS).map(Histogram::least).collect::<Vec<_>>(),
    });
    out.finish([KeyValue::new(KEY.to_owned(), text.to_string())])
}

/// The columns of a row, in order: the one list of them.
fn values(row: &Row<'_>) -> Vec<(String, Value)> {
    let (task, cgroup, memory, of, number, cpus) = match row {
        Row::Task(task, cgroup, memory) => {
            (Some(task), Some(cgroup), *memory, Of::Task, Some(task.pid), None)
        }
        Row::Cgroup(tasks, name) => (Some(tasks), Some(name), None, Of::Cgroup, None, None),
        Row::Cpus(of, number, cpus) => (None, None, None, *of, Some(*number), Some(cpus)),
    };
    let one = task.filter(|_| of == Of::Task);
    let why = task.and_then(|t| t.why.as_ref());
    let number_of = |n: Option<u32>| Value::Number(n.map(u64::from));
    let mut out: Vec<(String, Value)> = Vec::with_capacity(96);
    let mut add = |name: &str, value| out.push((name.to_owned(), value));
    add("of", Value::Text(Some(of.name().to_owned())));
    add("number", number_of(number));
    add("tgid", number_of(one.map(|t| t.tgid)));
    add("parent", number_of(one.map(|t| t.parent)));
    add("start_ns", Value::Number(one.map(|t| t.start_ns)));
    add("name", Value::Text(one.map(|t| t.comm.clone())));
    add("cgroup", Value::Text(cgroup.map(|name| (*name).to_owned())));
    add("tasks", Value::Number(task.map(|t| t.tasks)));
    let cpu = cpus.filter(|_| of == Of::Cpu);
    add("llc", number_of(cpu.map(|c| c.llc)));
    add("node", number_of(cpu.map(|c| c.node)));
    let counts = counts(task.map(|t| &t.counts), cpus.map(|c| &c.counts));
    for (name, n) in counts {
        add(name, Value::Number(n));
    }
    add("moved_in", Value::Number(cpus.map(|c| c.moved_in)));
    add("moved_in_llc", Value::Number(cpus.map(|c| c.moved_in_llc)));
    add("moved_in_node", Value::Number(cpus.map(|c| c.moved_in_node)));
    let latency = task
        .map(|t| (&t.latency, t.counts.latency_ns_max))
        .or_else(|| cpus.map(|c| (&c.latency, c.counts.latency_ns_max)));
    for (name, permille) in [("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999)] {
        let at = latency.and_then(|(h, max)| h.percentile(permille, max));
        add(&format!("wakeup_latency_{name}_ns"), Value::Number(at));
    }
    add("wakeup_latency", Value::List(latency.map(|(h, _)| h.0.to_vec())));
    for reason in Reason::ALL {
        let n = why.map(|w| w.by[reason as usize]);
        add(&format!("put_{}", column_of(reason)), Value::Number(n));
    }
    let far = |of: fn(&Reasons) -> u64| Value::Number(why.map(of));
    add("woken_from_last_llc", far(|w| w.from_last_llc));
    add("woken_from_last_node", far(|w| w.from_last_node));
    add("woken_from_waker_llc", far(|w| w.from_waker_llc));
    add("woken_from_waker_node", far(|w| w.from_waker_node));
    add("woken_on_node", Value::List(why.map(|w| w.node.to_vec())));
    let pages = memory.map(|by| {
        let nodes = by.keys().next_back().map_or(0, |last| last + 1);
        (0..nodes).map(|node| by.get(&node).copied().unwrap_or(0)).collect()
    });
    add("memory_pages_on_node", Value::List(pages));
    out
}

/// The counters of tasks and of CPUs, each name once.
fn counts(task: Option<&TaskCounts>, cpu: Option<&CpuCounts>) -> Vec<(&'static str, Option<u64>)> {
    let tasks = TaskCounts::FIELDS.iter().map(|(name, _)| *name);
    let mut all: Vec<(&str, Option<u64>)> = tasks.map(|name| (name, None)).collect();
    for (name, _) in CpuCounts::FIELDS {
        if !all.iter().any(|(there, _)| there == name) {
            all.push((name, None));
        }
    }
    let mut put = |name: &str, n| {
        if let Some(found) = all.iter_mut().find(|(there, _)| *there == name) {
            found.1 = Some(n);
        }
    };
    if let Some(task) = task {
        TaskCounts::FIELDS.iter().zip(task.numbers()).for_each(|((name, _), n)| put(name, n));
    }
    if let Some(cpu) = cpu {
        CpuCounts::FIELDS.iter().zip(cpu.numbers()).for_each(|((name, _), n)| put(name, n));
    }
    all
}

/// A reason as part of a column's name.
fn column_of(reason: Reason) -> &'static str {
    match reason {
        Reason::StillQueued => "still_queued",
        Reason::OnlyCpu => "only_cpu",
        Reason::PreviousAndWaker => "previous_and_waker",
        Reason::PreviousIdle => "previous_idle",
        Reason::PreviousBusy => "previous_busy",
        Reason::Waker => "waker",
        Reason::Recent => "recent",
        Reason::IdleCore => "idle_core",
        Reason::IdleCpu => "idle_cpu",
        Reason::IdleElsewhere => "idle_elsewhere",
        Reason::Busy => "busy",
    }
}

fn column(to: &mut Group<'_>, rows: &[Vec<Value>], at: usize) -> Result<(), ParquetError> {
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    let (mut there, mut again) = (Vec::new(), Vec::new());
    let mut is_list = false;
    for row in rows {
        match &row[at] {
            Value::Number(n) => {
                there.push(i16::from(n.is_some()));
                // Columns without a sign: the same bits.
                numbers.extend(n.map(|n| n as i64));
            }
            Value::Text(text) => {
                there.push(i16::from(text.is_some()));
                texts.extend(text.as_ref().map(|t| ByteArray::from(t.as_bytes().to_vec())));
            }
            Value::List(list) => {
                is_list = true;
                let all = list.as_deref().unwrap_or_default();
                // None at all, an empty one, or its elements, of which the first begins a list.
                if all.is_empty() {
                    there.push(i16::from(list.is_some()));
                    again.push(0);
                }
                there.extend(all.iter().map(|_| 2));
                again.extend((0..all.len()).map(|i| i16::from(i > 0)));
                numbers.extend(all.iter().map(|n| *n as i64));
            }
        }
    }
    let again = is_list.then_some(&again[..]);
    let mut column = to.next_column()?.expect("as many columns as the schema has");
    if texts.is_empty() && !matches!(rows[0][at], Value::Text(_)) {
        column.typed::<Int64Type>().write_batch(&numbers, Some(&there), again)?;
    } else {
        column.typed::<ByteArrayType>().write_batch(&texts, Some(&there), again)?;
    }
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::sched::look::Doing;
    use homenode_fixtures::Folder;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use std::fs::{self, File};

    fn task(pid: u32) -> TaskLook {
        // Each counter has another value.
        let counts = TaskCounts::from_numbers((1..).map(|n| n * 1000 + u64::from(pid)));
        let mut latency = Histogram::default();
        latency.0[7] = 3;
        latency.0[BUCKETS - 1] = 1 << 40;
        let mut by = [0; Reason::ALL.len()];
        by[Reason::Recent as usize] = 9;
        let mut node = Reasons::default().node;
        node[1] = 8;
        let why = Reasons { by, node, from_waker_node: 4, ..Reasons::default() };
        TaskLook {
            pid,
            tgid: 2,
            parent: 1,
            start_ns: u64::MAX,
            comm: "a \"b\"\u{e9}".to_owned(),
            cgroup: 5,
            tasks: 1,
            doing: Doing::Sleeps,
            doing_ns: 0,
            counts,
            latency,
            why: (pid != 8).then_some(why),
        }
    }
    fn cpu(cpu: u32) -> CpuLook {
        let counts = CpuCounts::from_numbers((1..).map(|n| n * 100 + u64::from(cpu)));
        let latency = Histogram::default();
        CpuLook {
            cpu,
            llc: 2,
            node: 1,
            came: false,
            moved_in: 70,
            moved_in_llc: 71,
            moved_in_node: 72,
            counts,
            latency,
        }
    }
    type Read = Vec<BTreeMap<String, Field>>;
    fn read(path: &Path) -> (Read, String) {
        let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let kv = file.metadata().file_metadata().key_value_metadata().unwrap().clone();
        let about = kv.into_iter().find(|kv| kv.key == KEY).unwrap().value.unwrap();
        let columns = |row: parquet::record::Row| {
            row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
        };
        (file.get_row_iter(None).unwrap().map(|row| columns(row.unwrap())).collect(), about)
    }
    fn list(field: &Field) -> Option<Vec<u64>> {
        match field {
            Field::Null => None,
            Field::ListInternal(list) => Some(
                list.elements()
                    .iter()
                    .map(|e| match e {
                        Field::ULong(n) => *n,
                        other => panic!("{other}"),
                    })
                    .collect(),
            ),
            other => panic!("{other}"),
        }
    }

    // specs/schedstats.md#parquet
    #[test]
    fn every_counter_is_read_back_and_what_a_row_does_not_have_is_null() {
        let folder = Folder::new();
        let path = folder.join("l.parquet");
        let memory = BTreeMap::from([(0, 11), (3, 12)]);
        let (tasks, cpus) = ([task(7), task(8)], cpu(3));
        let rows = [
            Row::Task(&tasks[0], "/a", Some(&memory)),
            Row::Task(&tasks[1], "/a", None),
            Row::Cgroup(&tasks[0], "/a"),
            Row::Cpus(Of::Cpu, 3, &cpus),
            Row::Cpus(Of::Node, 1, &cpus),
        ];
        let about = About { ns: 5, lost: [6, 7], ended_unix_ms: 8 };
        assert!(write(&path, &about, rows.into_iter()).unwrap() > 0);
        let (rows, about) = read(&path);
        let of: Vec<String> = rows.iter().map(|r| r["of"].to_string()).collect();
        assert_eq!(of, ["\"task\"", "\"task\"", "\"cgroup\"", "\"cpu\"", "\"node\""]);
        let same = |row: usize, fields: &[(&str, _)], numbers: Vec<u64>| {
            for ((name, _), n) in fields.iter().zip(numbers) {
                assert_eq!(rows[row][*name], Field::ULong(n), "{name} of row {row}");
            }
        };
        same(0, TaskCounts::FIELDS, tasks[0].counts.numbers());
        same(1, TaskCounts::FIELDS, tasks[1].counts.numbers());
        same(3, CpuCounts::FIELDS, cpus.counts.numbers());
        assert_eq!(rows[0]["nr_idle"], Field::Null, "what CPUs have only");
        assert_eq!(rows[3]["nr_voluntary"], Field::Null, "what tasks have only");
        assert_eq!(rows[0]["start_ns"], Field::ULong(u64::MAX));
        assert_eq!(rows[0]["name"], Field::Str("a \"b\"\u{e9}".to_owned()));
        let numbers = |name: &str| rows.iter().map(|r| r[name].to_string()).collect::<Vec<_>>();
        assert_eq!(numbers("number"), ["7", "8", "null", "3", "1"]);
        assert_eq!(numbers("llc"), ["null", "null", "null", "2", "null"]);
        assert_eq!(numbers("moved_in_node"), ["null", "null", "null", "72", "72"]);
        assert_eq!(numbers("put_recent"), ["9", "null", "9", "null", "null"]);
        assert_eq!(numbers("woken_from_waker_node"), ["4", "null", "4", "null", "null"]);
        let lists = |name: &str| rows.iter().map(|r| list(&r[name])).collect::<Vec<_>>();
        assert_eq!(lists("wakeup_latency")[0], Some(tasks[0].latency.0.to_vec()));
        assert_eq!(lists("wakeup_latency")[3], Some(vec![0; BUCKETS]));
        let memory = lists("memory_pages_on_node");
        assert_eq!(memory, [Some(vec![11, 0, 0, 12]), None, None, None, None]);
        let mut node = Reasons::default().node.to_vec();
        node[1] = 8;
        assert_eq!(lists("woken_on_node")[..2], [Some(node), None]);
        let about: serde_json::Value = serde_json::from_str(&about).unwrap();
        assert_eq!((&about["ns"], &about["lost_events"]), (&json!(5), &json!(7)));
        assert_eq!(about["wakeup_latency_from_ns"][7], json!(Histogram::least(7)));
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = Folder::new();
        let path = folder.join("l.parquet");
        fs::write(&path, "what was there before").unwrap();
        // More rows than a group has, of which one ends it.
        let one = task(1);
        let many = (0..GROUP_ROWS + 5).map(|n| {
            assert_eq!(fs::read(&path).unwrap(), b"what was there before", "at row {n}");
            Row::Task(&one, "/", None)
        });
        write(&path, &About::default(), many).unwrap();
        assert_eq!(read(&path).0.len(), GROUP_ROWS + 5);
        // A look that found nobody.
        write(&path, &About::default(), std::iter::empty()).unwrap();
        assert_eq!(read(&path).0.len(), 0);
        let ended = std::panic::catch_unwind(|| {
            write(&path, &About::default(), std::iter::once_with(|| panic!("a crash")))
        });
        assert!(ended.is_err());
        assert_eq!(read(&path).0.len(), 0, "what was there stays");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        let e = write(&folder, &About::default(), std::iter::empty()).err().unwrap().to_string();
        assert!(e.contains("cannot create"), "{e}");
    }
}
