//! Observations as columns: what `homenode observe` saw, one row per process and period.
//!
//! ```text
//! rows ─▶ group ─▶ FILE.partial   groups only, grows
//!                     │ keep: copied, with a footer, and renamed
//!                     ▼
//!                   FILE          always whole: the groups that were kept
//! ```
//!
//! A Parquet file is readable only with its footer behind it. So that a crash at any moment
//! leaves what was kept before, FILE is never written to: each [`Writer::keep`] puts a new
//! one in its place. [`Writer::finish`] does so a last time, without a copy.
//!
//! All columns may be null: what nobody told. Sizes are bytes, shares thousandths.
//!
//! Source: specs/observe.md#parquet.

use crate::TraceError;
use crate::partial::{Group, Partial, properties};
use homenode_core::policy::seen::Source;
use homenode_core::units::{NodeId, Pages, Picos};
use homenode_core::view::Usage;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Key of the metadata that say what was observed, as JSON.
pub const KEY: &str = "homenode.observation";
/// Version of the columns.
const VERSION: u32 = 3;
/// Rows that are held in memory at most.
const GROUP_ROWS: usize = 16 * 1024;

/// What a file says of all its rows.
#[derive(Clone, Debug)]
pub struct About {
    /// Where heat comes from.
    pub source: Source,
    /// Why that source; a sentence.
    pub why: String,
    /// Length of a period.
    pub period: Picos,
    /// Nodes with memory, with their tiers: a column each.
    pub tiers: BTreeMap<NodeId, u64>,
    /// When it began, in milliseconds since 1970.
    pub began_unix_ms: u64,
}

/// A row's place in time.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Number of the period, from 1 on.
    pub period: u64,
    /// End of the period since observing began.
    pub since: Picos,
    /// The same on the wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// The values of one column.
enum Values {
    Flag(Vec<Option<bool>>),
    Small(Vec<Option<i32>>),
    Large(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Text(Vec<Option<ByteArray>>),
}

/// A value of a row.
enum Value {
    Flag(Option<bool>),
    Small(Option<u64>),
    Large(Option<u64>),
    Real(Option<f64>),
    Text(String),
}

/// Writes observations.
pub struct Writer {
    out: Partial,
    tiers: BTreeMap<NodeId, u64>,
    about: KeyValue,
    columns: Vec<Values>,
    held: usize,
    rows: u64,
}

impl Writer {
    /// Begins a file. Until something is kept there is only `path` with `.partial` behind
    /// it, and a file that is there stays as it is.
    ///
    /// # Errors
    /// [`TraceError::Create`] where that cannot be made, or `path` is a directory.
    pub fn create(path: impl AsRef<Path>, about: &About) -> Result<Self, TraceError> {
        let text = schema(&about.tiers);
        let schema = Arc::new(parse_message_type(&text).expect("made of fixed words and numbers"));
        let properties = properties().set_offset_index_disabled(true);
        let out = Partial::create(path.as_ref(), schema, properties)?;
        let about_text = json!({
            "version": VERSION,
            "source": about.source.name(),
            "why": about.why,
            "period_ms": about.period.as_ms(),
            "tiers": about.tiers.iter().map(|(n, t)| (n.to_string(), *t)).collect::<BTreeMap<_, _>>(),
            "began_unix_ms": about.began_unix_ms,
        });
        Ok(Self {
            out,
            tiers: about.tiers.clone(),
            about: KeyValue::new(KEY.to_owned(), about_text.to_string()),
            columns: Vec::new(),
            held: 0,
            rows: 0,
        })
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn push(&mut self, at: At, row: &Usage) -> Result<(), TraceError> {
        for (i, (_, value)) in values(&self.tiers, at, row).into_iter().enumerate() {
            if i == self.columns.len() {
                self.columns.push(value.column());
            }
            self.columns[i].push(value);
        }
        self.held += 1;
        self.rows += 1;
        if self.held >= GROUP_ROWS { self.group() } else { Ok(()) }
    }

    /// Ends a row group and puts a whole file with all groups so far in its place.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn keep(&mut self) -> Result<(), TraceError> {
        self.group()?;
        self.out.keep([self.about.clone()])
    }

    /// Ends the file and puts it in its place. Returns its size in bytes.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what was kept before stays.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        self.group()?;
        self.out.finish([self.about])
    }

    fn group(&mut self) -> Result<(), TraceError> {
        let columns = std::mem::take(&mut self.columns);
        let held = std::mem::take(&mut self.held);
        if held == 0 {
            return Ok(());
        }
        self.out.group(|group| columns.iter().try_for_each(|column| column.write(group)))
    }
}

/// The columns of a row, in order: the one list of them.
fn values(tiers: &BTreeMap<NodeId, u64>, at: At, row: &Usage) -> Vec<(String, Value)> {
    let small = |v: Option<u32>| Value::Small(v.map(u64::from));
    let bytes = |p: Option<Pages>| Value::Large(p.map(|p| p.0.saturating_mul(4096)));
    let heat = row.heat.as_ref();
    // Where it was told by node, a node that was not named has none.
    let of = |by: Option<&BTreeMap<NodeId, Pages>>, n| {
        bytes(by.map(|by| by.get(&n).copied().unwrap_or(Pages::ZERO)))
    };
    let mut out: Vec<(String, Value)> = Vec::with_capacity(20 + 4 * tiers.len());
    let mut add = |name: &str, value| out.push((name.to_owned(), value));
    add("period", Value::Large(Some(at.period)));
    add("since_ms", Value::Large(Some(at.since.as_ms())));
    add("unix_ms", Value::Large(Some(at.unix_ms)));
    add("pid", Value::Large(Some(row.who.pid.into())));
    add("start_ticks", Value::Large(Some(row.who.start)));
    add("name", Value::Text(row.name.clone()));
    add("gone", Value::Flag(Some(row.gone)));
    add("cpu_permille", small(row.cpu));
    add("cpu_node", small(row.node.map(|n| n.0.into())));
    add("resident_bytes", bytes(Some(row.resident)));
    add("local_permille", small(row.local));
    let known = (!row.by_node.is_empty()).then_some(&row.by_node);
    for node in tiers.keys() {
        add(&format!("node{node}_bytes"), of(known, *node));
    }
    for tier in tiers.values().collect::<BTreeSet<_>>() {
        let pages = known.map(|_| row.by_tier.get(tier).copied().unwrap_or(Pages::ZERO));
        add(&format!("tier{tier}_bytes"), bytes(pages));
    }
    add("accesses_per_second", Value::Real(heat.map(|h| h.rate as f64 / 1000.0)));
    add("accesses_at_least", Value::Flag(heat.map(|h| h.at_least)));
    add("touched_bytes", bytes(heat.map(|h| h.touched)));
    for node in tiers.keys() {
        let by = heat.and_then(|h| h.touched_by_node.as_ref());
        add(&format!("touched_node{node}_bytes"), of(by, *node));
    }
    add("touched_error_bytes", bytes(heat.and_then(|h| h.touched_error)));
    add("hot_bytes", bytes(heat.and_then(|h| h.hot)));
    for node in tiers.keys() {
        let by = heat.and_then(|h| h.hot_by_node.as_ref());
        add(&format!("hot_node{node}_bytes"), of(by, *node));
    }
    add("hot_error_bytes", bytes(heat.and_then(|h| h.hot_error)));
    add("local_accesses_permille", small(heat.and_then(|h| h.local)));
    add("age_ms", Value::Large(Some(row.age.as_ms())));
    out
}

fn schema(tiers: &BTreeMap<NodeId, u64>) -> String {
    let at = At { period: 0, since: Picos::ZERO, unix_ms: 0 };
    let columns: Vec<String> = values(tiers, at, &Usage::default())
        .into_iter()
        .map(|(name, value)| match value {
            Value::Flag(_) => format!("optional boolean {name};"),
            Value::Small(_) => format!("optional int32 {name} (integer(32,false));"),
            Value::Large(_) if name == "unix_ms" => {
                format!("optional int64 {name} (timestamp(millis,true));")
            }
            Value::Large(_) => format!("optional int64 {name} (integer(64,false));"),
            Value::Real(_) => format!("optional double {name};"),
            Value::Text(_) => format!("optional binary {name} (string);"),
        })
        .collect();
    format!("message observation {{ {} }}", columns.join(" "))
}

impl Value {
    fn column(&self) -> Values {
        match self {
            Self::Flag(_) => Values::Flag(Vec::new()),
            Self::Small(_) => Values::Small(Vec::new()),
            Self::Large(_) => Values::Large(Vec::new()),
            Self::Real(_) => Values::Real(Vec::new()),
            Self::Text(_) => Values::Text(Vec::new()),
        }
    }
}

impl Values {
    fn push(&mut self, value: Value) {
        match (self, value) {
            (Self::Flag(all), Value::Flag(v)) => all.push(v),
            // Columns without a sign: the same bits.
            (Self::Small(all), Value::Small(v)) => all.push(v.map(|v| v as u32 as i32)),
            (Self::Large(all), Value::Large(v)) => all.push(v.map(|v| v as i64)),
            (Self::Real(all), Value::Real(v)) => all.push(v),
            (Self::Text(all), Value::Text(v)) => all.push(Some(ByteArray::from(v.into_bytes()))),
            _ => unreachable!("the list of columns has fixed kinds"),
        }
    }
    fn write(&self, group: &mut Group<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Flag(all) => write::<BoolType>(group, all),
            Self::Small(all) => write::<Int32Type>(group, all),
            Self::Large(all) => write::<Int64Type>(group, all),
            Self::Real(all) => write::<DoubleType>(group, all),
            Self::Text(all) => write::<ByteArrayType>(group, all),
        }
    }
}

fn write<T: DataType>(group: &mut Group<'_>, all: &[Option<T::T>]) -> Result<(), ParquetError> {
    let there: Vec<T::T> = all.iter().flatten().cloned().collect();
    let levels: Vec<i16> = all.iter().map(|v| i16::from(v.is_some())).collect();
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_core::policy::seen::Who;
    use homenode_core::view::Heat;
    use homenode_fixtures::Folder;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use std::fs::{self, File};

    fn about() -> About {
        About {
            source: Source::Damon,
            why: "damon: the only one".into(),
            period: Picos::from_secs(5),
            tiers: BTreeMap::from([(NodeId(0), 4), (NodeId(2), 22)]),
            began_unix_ms: 1_700_000_000_000,
        }
    }
    fn row(pid: u32, heat: bool) -> Usage {
        let pages = |n, m| BTreeMap::from([(NodeId(0), Pages(n)), (NodeId(2), Pages(m))]);
        Usage {
            who: Who { pid, start: u64::MAX },
            name: "a \"b\"\u{e9}".into(),
            cpu: heat.then_some(2500),
            node: Some(NodeId(0)),
            resident: Pages(30),
            by_node: if heat { pages(10, 20) } else { BTreeMap::new() },
            by_tier: if heat {
                BTreeMap::from([(4, Pages(10)), (22, Pages(20))])
            } else {
                BTreeMap::new()
            },
            local: Some(333),
            heat: heat.then(|| Heat {
                rate: 1500,
                at_least: true,
                touched: Pages(3),
                touched_by_node: Some(BTreeMap::from([(NodeId(2), Pages(3))])),
                touched_error: Some(Pages(1)),
                hot: Some(Pages(2)),
                hot_by_node: Some(BTreeMap::from([(NodeId(2), Pages(2))])),
                hot_error: Some(Pages::ZERO),
                local: Some(0),
            }),
            age: Picos::from_ms(7),
            gone: !heat,
        }
    }
    fn at(period: u64) -> At {
        At { period, since: Picos::from_secs(5 * period), unix_ms: 1_700_000_000_000 }
    }
    /// Rows as text, with the number of groups.
    fn read(path: &Path) -> (usize, Vec<String>) {
        let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let meta = file.metadata();
        let kv = meta.file_metadata().key_value_metadata().unwrap();
        assert!(kv.iter().any(|kv| kv.key == KEY), "it says what it is");
        let rows: Vec<String> =
            file.get_row_iter(None).unwrap().map(|r| r.unwrap().to_string()).collect();
        assert_eq!(meta.file_metadata().num_rows(), rows.len() as i64);
        (meta.num_row_groups(), rows)
    }
    fn names(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut all: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    // specs/observe.md#parquet
    #[test]
    fn what_is_written_is_read_back_and_what_nobody_told_is_null() {
        let folder = Folder::new();
        let path = folder.join("o.parquet");
        let mut w = Writer::create(&path, &about()).unwrap();
        w.push(at(1), &row(7, true)).unwrap();
        w.push(at(1), &row(u32::MAX, false)).unwrap();
        assert_eq!(w.rows(), 2);
        assert!(w.finish().unwrap() > 0);
        let (groups, rows) = read(&path);
        assert_eq!(groups, 1);
        expect_test::expect![[r#"
            {period: 1, since_ms: 5000, unix_ms: 2023-11-14 22:13:20.000 +00:00, pid: 7, start_ticks: 18446744073709551615, name: "a "b"é", gone: false, cpu_permille: 2500, cpu_node: 0, resident_bytes: 122880, local_permille: 333, node0_bytes: 40960, node2_bytes: 81920, tier4_bytes: 40960, tier22_bytes: 81920, accesses_per_second: 1.5, accesses_at_least: true, touched_bytes: 12288, touched_node0_bytes: 0, touched_node2_bytes: 12288, touched_error_bytes: 4096, hot_bytes: 8192, hot_node0_bytes: 0, hot_node2_bytes: 8192, hot_error_bytes: 0, local_accesses_permille: 0, age_ms: 7}
            {period: 1, since_ms: 5000, unix_ms: 2023-11-14 22:13:20.000 +00:00, pid: 4294967295, start_ticks: 18446744073709551615, name: "a "b"é", gone: true, cpu_permille: null, cpu_node: 0, resident_bytes: 122880, local_permille: 333, node0_bytes: null, node2_bytes: null, tier4_bytes: null, tier22_bytes: null, accesses_per_second: null, accesses_at_least: null, touched_bytes: null, touched_node0_bytes: null, touched_node2_bytes: null, touched_error_bytes: null, hot_bytes: null, hot_node0_bytes: null, hot_node2_bytes: null, hot_error_bytes: null, local_accesses_permille: null, age_ms: 7}
        "#]]
        .assert_eq(&(rows.join("\n") + "\n"));
        assert_eq!(names(&folder), ["o.parquet"]);
    }

    // A crash is a writer that never comes to an end, nor to be dropped.
    #[test]
    fn a_crash_leaves_what_was_kept() {
        let folder = Folder::new();
        let path = folder.join("o.parquet");
        fs::write(&path, "what was there before").unwrap();
        let mut w = Writer::create(&path, &about()).unwrap();
        w.push(at(1), &row(1, true)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"what was there before", "nothing kept yet");
        w.keep().unwrap();
        assert_eq!(read(&path).0, 1);
        w.push(at(2), &row(2, false)).unwrap();
        w.keep().unwrap();
        w.keep().unwrap();
        w.push(at(3), &row(3, false)).unwrap();
        let (groups, rows) = read(&path);
        assert_eq!((groups, rows.len()), (2, 2));
        std::mem::forget(w);
        assert_eq!(read(&path).1, rows);
        assert_eq!(names(&folder), ["o.parquet", "o.parquet.partial"]);
        // The next one takes its place.
        let mut w = Writer::create(&path, &about()).unwrap();
        w.push(at(1), &row(9, true)).unwrap();
        drop(w);
        assert_eq!(read(&path).1, rows, "given up: what was kept stays");
        assert_eq!(names(&folder), ["o.parquet"]);
    }

    #[test]
    fn many_rows_are_several_groups() {
        let folder = Folder::new();
        let path = folder.join("o.parquet");
        let mut w = Writer::create(&path, &about()).unwrap();
        for i in 0..GROUP_ROWS as u32 + 5 {
            w.push(at(u64::from(i)), &row(i, i % 3 == 0)).unwrap();
        }
        w.keep().unwrap();
        w.push(at(1), &row(0, true)).unwrap();
        w.finish().unwrap();
        let (groups, rows) = read(&path);
        assert_eq!((groups, rows.len()), (3, GROUP_ROWS + 6));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_with_its_name() {
        let folder = Folder::new();
        let e = Writer::create(&folder, &about()).err().unwrap().to_string();
        assert!(e.contains("cannot create") && e.contains(&*folder.to_string_lossy()), "{e}");
        let e = Writer::create(folder.join("no/o.parquet"), &about()).err().unwrap();
        assert!(e.to_string().contains("no/o.parquet"), "{e}");
    }
}
