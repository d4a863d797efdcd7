//! What `homenode observe` shows of a period: a table that fits, and JSON lines.
//!
//! ```text
//! rows ─▶ most important first ─▶ columns that fit ─▶ text
//!     └─────────────────────────────────────────────▶ one JSON object each
//! ```
//!
//! Columns that say the same of every process on this machine are not there (the node on a
//! machine with one, heat without a source); then those that matter least go, until the rest
//! fits.
//!
//! Source: specs/observe.md#table.

use homenode_core::units::{NodeId, Pages, count};
use homenode_core::view::{self, Usage, by_tier};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Columns of a name, at least and at most.
const NAME: (usize, usize) = (8, 28);

/// Which processes come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObserveOrder {
    /// Those with most memory.
    Resident,
    /// Those with most accesses a second; where none were told, with most memory.
    Heat,
    /// Those with most processor time.
    Cpu,
}

/// What can be told apart on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserveTable {
    /// Nodes with memory, with their tiers.
    pub tiers: BTreeMap<NodeId, u64>,
    /// Nodes with CPUs.
    pub cpu_nodes: usize,
    /// Whether there is a source of heat.
    pub heat: bool,
    /// Which processes come first.
    pub order: ObserveOrder,
}

/// A column: title, how much it matters, and its text for a row.
struct Field<'a> {
    title: String,
    weight: u32,
    cell: Box<dyn Fn(&Usage) -> String + 'a>,
}

impl ObserveTable {
    /// The table of a period.
    ///
    /// * `width` – columns of the terminal; what is dropped first is said in the
    ///   specification. PID, name and memory are always there.
    /// * `most` – processes shown; the others are one line.
    pub fn to_text(&self, rows: &[Usage], width: usize, most: usize) -> String {
        let mut sorted: Vec<&Usage> = rows.iter().collect();
        sorted.sort_by_key(|r| (Reverse(self.rank(r)), r.who));
        let others = sorted.split_off(most.min(sorted.len()));
        let longest = sorted.iter().map(|r| name(r).chars().count()).max().unwrap_or(0);
        let mut columns = self.columns();
        let width_of = |c: &Field<'_>| {
            let cells = sorted.iter().map(|r| (c.cell)(r).chars().count());
            cells.chain([c.title.chars().count()]).max().unwrap_or(0)
        };
        let (widths, room) = loop {
            let widths: Vec<usize> = columns.iter().map(width_of).collect();
            let taken: usize = widths.iter().map(|w| w + 2).sum();
            let least = columns.iter().map(|c| c.weight).min().unwrap_or(u32::MAX);
            if taken + NAME.0 <= width || least == u32::MAX {
                break (widths, width.saturating_sub(taken));
            }
            columns.retain(|c| c.weight > least);
        };
        let room = room.clamp(NAME.0, NAME.1).min(longest.max(NAME.0));
        let mut out = String::new();
        let mut line = |first: &str, name: &str, cells: &dyn Fn(&Field<'_>) -> String| {
            let mut text = format!("{first:>w$}  {:<room$}", cut(name, room), w = widths[0]);
            for (c, w) in columns.iter().zip(&widths).skip(1) {
                let _ = write!(text, "  {:>w$}", cells(c));
            }
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(&columns[0].title, "NAME", &|c| c.title.clone());
        for r in &sorted {
            line(&(columns[0].cell)(r), &name(r), &|c| (c.cell)(r));
        }
        if !others.is_empty() {
            let pages = others.iter().fold(0u64, |sum, r| sum.saturating_add(r.resident.0));
            let cpu = others.iter().fold(0u64, |sum, r| sum + u64::from(r.cpu.unwrap_or(0)));
            let _ = writeln!(
                out,
                "and {}: {} % CPU, {} resident",
                count(others.len() as u64, "more process", "more processes"),
                tenths(cpu),
                size(Pages(pages))
            );
        }
        out
    }

    fn rank(&self, r: &Usage) -> (u64, u64) {
        match self.order {
            ObserveOrder::Resident => (r.resident.0, 0),
            ObserveOrder::Heat => (r.heat.as_ref().map_or(0, |h| h.rate), r.resident.0),
            ObserveOrder::Cpu => (r.cpu.unwrap_or(0).into(), r.resident.0),
        }
    }

    /// The first one is the PID; the name comes behind it.
    fn columns<'a>(&'a self) -> Vec<Field<'a>> {
        let mut out: Vec<Field<'a>> = Vec::new();
        let mut add = |title: &str, weight, cell: Box<dyn Fn(&Usage) -> String + 'a>| {
            out.push(Field { title: title.to_owned(), weight, cell });
        };
        let percent = |v: Option<u32>| v.map_or("-".to_owned(), |v| tenths(v.into()));
        let several = self.tiers.len() > 1;
        let tiers: BTreeSet<u64> = self.tiers.values().copied().collect();
        add("PID", u32::MAX, Box::new(|r| r.who.pid.to_string()));
        add("CPU%", 90, Box::new(move |r| percent(r.cpu)));
        if self.cpu_nodes > 1 {
            let node = |r: &Usage| r.node.map_or("-".to_owned(), |n| n.to_string());
            add("ON", 65, Box::new(node));
        }
        add("RESIDENT", u32::MAX, Box::new(|r| size(r.resident)));
        if several {
            add("LOCAL%", 80, Box::new(move |r| percent(r.local)));
        }
        if tiers.len() > 1 {
            for &tier in &tiers {
                let of = move |r: &Usage| part(&r.by_tier, &tier);
                add(&format!("TIER{tier}"), 75, Box::new(of));
            }
        }
        if several && self.tiers.len() != tiers.len() {
            for &node in self.tiers.keys() {
                add(&format!("NODE{node}"), 50, Box::new(move |r| part(&r.by_node, &node)));
            }
        }
        if self.heat {
            let rate = |r: &Usage| {
                r.heat.as_ref().map_or("-".to_owned(), |h| {
                    format!("{}{}", if h.at_least { ">=" } else { "" }, rate(h.rate))
                })
            };
            let touched = |r: &Usage| r.heat.as_ref().map_or("-".to_owned(), |h| size(h.touched));
            let hot = |r: &Usage| r.heat.as_ref().and_then(|h| h.hot).map_or("-".to_owned(), size);
            add("ACC/S", 85, Box::new(rate));
            add("TOUCHED", 71, Box::new(touched));
            add("HOT", 70, Box::new(hot));
            if tiers.len() > 1 {
                for &tier in &tiers {
                    let of = move |r: &Usage| {
                        let heat = r.heat.as_ref();
                        let by_node = heat.and_then(|h| h.hot_by_node.as_ref());
                        by_node.map_or("-".to_owned(), |by| {
                            let pages = by_tier(by, &self.tiers).get(&tier).copied();
                            let about = if heat.is_some_and(is_rough) { "~" } else { "" };
                            format!("{about}{}", size(pages.unwrap_or_default()))
                        })
                    };
                    add(&format!("HOT{tier}"), 72, Box::new(of));
                }
            }
            if several {
                let local = move |r: &Usage| percent(r.heat.as_ref().and_then(|h| h.local));
                add("ACC.LOCAL%", 60, Box::new(local));
            }
        }
        add("AGE", 40, Box::new(age));
        out
    }

    /// One row as a JSON object on one line.
    ///
    /// * `period` – number of the period, from 1 on.
    /// * `since_ms` – its end since observing began; `unix_ms` the same on the wall clock.
    /// * `source` – where heat comes from.
    pub fn to_json(
        &self,
        row: &Usage,
        period: u64,
        since_ms: u64,
        unix_ms: u64,
        source: &str,
    ) -> String {
        let percent = |v: Option<u32>| v.map(|v| f64::from(v) / 10.0);
        let by_node = |by: &BTreeMap<NodeId, Pages>| object(by.iter().map(|(k, v)| (k, *v)));
        let known = !row.by_node.is_empty();
        let heat = row.heat.as_ref().map(|h| {
            json!({
                "accesses_per_second": h.rate as f64 / 1000.0,
                "at_least": h.at_least,
                "touched_bytes": bytes(h.touched),
                "touched_bytes_by_node": h.touched_by_node.as_ref().map(by_node),
                "touched_error_bytes": h.touched_error.map(bytes),
                "hot_bytes": h.hot.map(bytes),
                "hot_bytes_by_node": h.hot_by_node.as_ref().map(by_node),
                "hot_error_bytes": h.hot_error.map(bytes),
                "local_percent": percent(h.local),
            })
        });
        json!({
            "period": period,
            "since_ms": since_ms,
            "unix_ms": unix_ms,
            "source": source,
            "pid": row.who.pid,
            "start_ticks": row.who.start,
            "name": row.name,
            "gone": row.gone,
            "cpu_percent": percent(row.cpu),
            "cpu_node": row.node.map(|n| n.0),
            "resident_bytes": bytes(row.resident),
            "resident_bytes_by_node": known.then(|| by_node(&row.by_node)),
            "resident_bytes_by_tier":
                known.then(|| object(row.by_tier.iter().map(|(k, v)| (k, *v)))),
            "local_percent": percent(row.local),
            "heat": heat,
            "age_ms": row.age.as_ms(),
        })
        .to_string()
    }
}

/// Whether where its hot memory is may be off by more than a tenth of it.
fn is_rough(heat: &view::Heat) -> bool {
    let tenth = heat.hot.map_or(0, |p| p.0 / 10);
    heat.hot_error.is_some_and(|error| error.0 > tenth)
}

/// For how long nothing was told: seconds, where there are any.
fn age(r: &Usage) -> String {
    match r.age.as_ms() / 1000 {
        0 => String::new(),
        s => format!("{s} s"),
    }
}

fn object<K: ToString>(by: impl Iterator<Item = (K, Pages)>) -> Value {
    let all: Map<String, Value> = by.map(|(k, v)| (k.to_string(), bytes(v).into())).collect();
    Value::Object(all)
}

fn bytes(p: Pages) -> u64 {
    p.0.saturating_mul(4096)
}

fn name(r: &Usage) -> String {
    match r.gone {
        true => format!("{} (ended)", r.name),
        false => r.name.clone(),
    }
}

/// The first characters of a text, with a mark where some are missing.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['~']).collect()
}

fn part<K: Ord>(by: &BTreeMap<K, Pages>, key: &K) -> String {
    match by.is_empty() {
        true => "-".to_owned(),
        false => by.get(key).map_or("0".to_owned(), |p| size(*p)),
    }
}

fn tenths(v: u64) -> String {
    format!("{}.{}", v / 10, v % 10)
}

/// A size in four or five characters: `0`, `640K`, `1.5G`.
fn size(p: Pages) -> String {
    match bytes(p) {
        0 => "0".to_owned(),
        b => scaled(b.into(), 1024, &["K", "M", "G", "T", "P"]),
    }
}

/// Accesses a second of thousandths: `0.5`, `12`, `3.4k`.
fn rate(milli: u64) -> String {
    match milli {
        0..10_000 => tenths(milli / 100),
        10_000..1_000_000 => (milli / 1000).to_string(),
        _ => scaled((milli / 1000).into(), 1000, &["k", "M", "G", "T"]),
    }
}

fn scaled(v: u128, step: u128, units: &[&str]) -> String {
    // In tenths of the unit, rounded down.
    let mut tenth = v * 10 / step;
    let mut unit = 0;
    while tenth >= step * 10 && unit + 1 < units.len() {
        tenth /= step;
        unit += 1;
    }
    match tenth {
        0..100 => format!("{}.{}{}", tenth / 10, tenth % 10, units[unit]),
        _ => format!("{}{}", tenth / 10, units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use homenode_core::policy::seen::Who;
    use homenode_core::units::Picos;
    use homenode_core::view::Heat;

    fn row(pid: u32, name: &str, on: [u64; 2], heat: Option<u64>) -> Usage {
        let by = |a, b| BTreeMap::from([(a, Pages(on[0])), (b, Pages(on[1]))]);
        Usage {
            who: Who { pid, start: 1 },
            name: name.to_owned(),
            cpu: Some(pid),
            node: (pid % 2 == 0).then_some(NodeId(0)),
            resident: Pages(on[0] + on[1]),
            by_node: by(NodeId(0), NodeId(2)),
            by_tier: BTreeMap::from([(4, Pages(on[0])), (22, Pages(on[1]))]),
            local: Some((on[0] * 1000 / (on[0] + on[1]).max(1)) as u32),
            heat: heat.map(|rate| Heat {
                rate,
                at_least: rate > 5000,
                touched: Pages(3),
                touched_by_node: None,
                touched_error: None,
                hot: Some(Pages(on[0].min(9) + on[1].min(700))),
                hot_by_node: (pid != 41).then(|| {
                    BTreeMap::from([
                        (NodeId(0), Pages(on[0].min(9))),
                        (NodeId(2), Pages(on[1].min(700))),
                    ])
                }),
                hot_error: (pid != 41).then_some(Pages(u64::from(pid))),
                local: Some(250),
            }),
            age: Picos::from_ms(u64::from(pid) * 10),
            gone: pid == 41,
        }
    }
    fn rows() -> Vec<Usage> {
        vec![
            row(7, "web", [100, 300_000], Some(1_234_567_890)),
            row(40, "a name that is too long for any column", [0, 0], None),
            row(41, "build", [600, 0], Some(100)),
            row(1234, "db", [1 << 40, 77], Some(99_500)),
        ]
    }
    fn table(order: ObserveOrder) -> ObserveTable {
        let tiers = BTreeMap::from([(NodeId(0), 4), (NodeId(2), 22)]);
        ObserveTable { tiers, cpu_nodes: 2, heat: true, order }
    }

    #[test]
    fn a_wide_table_has_it_all() {
        expect![[r#"
             PID  NAME                           CPU%  ON  RESIDENT  LOCAL%  TIER4  TIER22   ACC/S  TOUCHED   HOT  HOT4  HOT22  ACC.LOCAL%   AGE
               7  web                             0.7   -      1.1G     0.0   400K    1.1G  >=1.2M      12K  2.7M   36K   2.7M        25.0
            1234  db                            123.4   0      4.0P    99.9   4.0P    308K    >=99      12K  344K  ~36K  ~308K        25.0  12 s
              41  build (ended)                   4.1   -      2.3M   100.0   2.3M       0     0.1      12K   36K     -      -        25.0
              40  a name that is too long for~    4.0   0         0     0.0      0       0       -        -     -     -      -           -
        "#]]
        .assert_eq(&table(ObserveOrder::Heat).to_text(&rows(), 160, 10));
    }

    #[test]
    fn a_narrow_one_what_matters_and_the_rest_in_a_line() {
        let t = table(ObserveOrder::Resident);
        expect![[r#"
             PID  NAME       CPU%  RESIDENT   ACC/S
            1234  db        123.4      4.0P    >=99
               7  web         0.7      1.1G  >=1.2M
            and 2 more processes: 8.1 % CPU, 2.3M resident
        "#]]
        .assert_eq(&t.to_text(&rows(), 44, 2));
        expect![[r#"
             PID  NAME      RESIDENT
            1234  db            4.0P
               7  web           1.1G
              41  build (~      2.3M
            and 1 more process: 4.0 % CPU, 0 resident
        "#]]
        .assert_eq(&t.to_text(&rows(), 5, 3));
        expect![[r#"
            PID  NAME      CPU%  RESIDENT  LOCAL%  TIER4  TIER22  ACC/S  HOT4  HOT22
        "#]]
        .assert_eq(&t.to_text(&[], 80, 3));
    }

    #[test]
    fn one_node_without_heat_says_little() {
        let tiers = BTreeMap::from([(NodeId(0), 4)]);
        let order = ObserveOrder::Cpu;
        let t = ObserveTable { tiers, cpu_nodes: 1, heat: false, order };
        expect![[r#"
             PID  NAME                           CPU%  RESIDENT   AGE
            1234  db                            123.4      4.0P  12 s
              41  build (ended)                   4.1      2.3M
              40  a name that is too long for~    4.0         0
            and 1 more process: 0.7 % CPU, 1.1G resident
        "#]]
        .assert_eq(&t.to_text(&rows(), 80, 3));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 45..200 {
            for line in table(ObserveOrder::Heat).to_text(&rows(), width, 4).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn a_json_line_says_all_of_it() {
        let t = table(ObserveOrder::Heat);
        let lines: Vec<String> = rows()[..2]
            .iter()
            .map(|r| t.to_json(r, 3, 15_000, 1_700_000_000_000, "damon"))
            .collect();
        expect![[r#"
            {"age_ms":70,"cpu_node":null,"cpu_percent":0.7,"gone":false,"heat":{"accesses_per_second":1234567.89,"at_least":true,"hot_bytes":2904064,"hot_bytes_by_node":{"0":36864,"2":2867200},"hot_error_bytes":28672,"local_percent":25.0,"touched_bytes":12288,"touched_bytes_by_node":null,"touched_error_bytes":null},"local_percent":0.0,"name":"web","period":3,"pid":7,"resident_bytes":1229209600,"resident_bytes_by_node":{"0":409600,"2":1228800000},"resident_bytes_by_tier":{"22":1228800000,"4":409600},"since_ms":15000,"source":"damon","start_ticks":1,"unix_ms":1700000000000}
            {"age_ms":400,"cpu_node":0,"cpu_percent":4.0,"gone":false,"heat":null,"local_percent":0.0,"name":"a name that is too long for any column","period":3,"pid":40,"resident_bytes":0,"resident_bytes_by_node":{"0":0,"2":0},"resident_bytes_by_tier":{"22":0,"4":0},"since_ms":15000,"source":"damon","start_ticks":1,"unix_ms":1700000000000}
        "#]].assert_eq(&(lines.join("\n") + "\n"));
    }
}
