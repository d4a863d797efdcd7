//! A TOML file as a tree in which every value knows its place.
//!
//! `toml_edit` keeps spans, but tables, inline tables and arrays of tables are
//! different types there. Here they are one, and a decimal stays the text that
//! the file has.

use crate::ConfigError;
use crate::quantity::{self, Decimal};
use homenode_core::units::{Bytes, Picos};
use std::fmt::Write as _;
use std::io::Read as _;
use std::ops::Range;
use toml_edit::{ImDocument, Item, Value};

/// Bytes of a file, at most. A scenario of 32,768 processes has a few MB.
const MOST_BYTES: u64 = 64 << 20;

/// A value with its place in the text.
#[derive(Clone, Debug)]
pub(crate) struct Val {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Text(String),
    /// An integer or a decimal, as written.
    Number(String),
    Bool(bool),
    Date,
    List(Vec<Val>),
    Table(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) val: Val,
}

impl Val {
    fn what(&self) -> &'static str {
        match self.kind {
            Kind::Text(_) => "a text",
            Kind::Number(_) => "a number",
            Kind::Bool(_) => "true or false",
            Kind::Date => "a date",
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
        }
    }
}

/// A step of a key's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seg {
    Key(&'static str),
    At(usize),
}

/// A file's text and tree.
#[derive(Clone, Debug)]
pub(crate) struct Doc {
    pub(crate) file: String,
    pub(crate) text: String,
    root: Val,
}

impl Doc {
    /// Parses TOML; `file` is the name in errors.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let parsed = ImDocument::parse(text).map_err(|e| {
            let span = e.span().unwrap_or(0..0);
            let what = e.message().trim().replace('\n', "; ");
            ConfigError::new(file, Some(position(text, span.start)), format!("not TOML: {what}"))
        })?;
        let root = Val { span: 0..0, kind: Kind::Table(table(text, parsed.as_table())) };
        Ok(Self { file: file.to_owned(), text: text.to_owned(), root })
    }

    /// Reads and parses a file.
    pub(crate) fn read(path: &std::path::Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        // One byte more than allowed, so that what is too long shows: a device may have no end.
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|f| f.take(MOST_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|e| ConfigError::file(&file, "cannot be read", e))?;
        if bytes.len() as u64 > MOST_BYTES {
            let what = format!(
                "longer than {} MiB; machines and scenarios are TOML files of a few KiB",
                MOST_BYTES >> 20
            );
            return Err(ConfigError::new(&file, None, what));
        }
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&file, &text),
            Err(e) => {
                let good = e.utf8_error().valid_up_to();
                let head = String::from_utf8_lossy(&e.as_bytes()[..good]).into_owned();
                let what = "not UTF-8 text; machines and scenarios are TOML files";
                Err(ConfigError::new(&file, Some(position(&head, head.len())), what))
            }
        }
    }

    pub(crate) fn root(&self) -> Cur<'_> {
        Cur { doc: self, val: &self.root, path: String::new() }
    }

    pub(crate) fn error(&self, at: usize, key: &str, what: impl Into<String>) -> ConfigError {
        let at = Some(position(&self.text, at));
        ConfigError { key: key.to_owned(), ..ConfigError::new(&self.file, at, what) }
    }

    /// An error at a path, or at the nearest thing above it that the file has.
    pub(crate) fn error_at(&self, path: &[Seg], what: impl Into<String>) -> ConfigError {
        let mut val = &self.root;
        let mut at = 0;
        let mut key = String::new();
        for seg in path {
            let next = match (seg, &val.kind) {
                (Seg::Key(k), Kind::Table(entries)) => {
                    entries.iter().find(|e| e.key == *k).map(|e| &e.val)
                }
                (Seg::At(i), Kind::List(list)) => list.get(*i),
                _ => None,
            };
            let Some(next) = next else { break };
            val = next;
            at = val.span.start;
            match seg {
                Seg::Key(k) if key.is_empty() => key.push_str(k),
                Seg::Key(k) => write!(key, ".{k}").expect("a String takes all"),
                Seg::At(i) => write!(key, "[{i}]").expect("a String takes all"),
            }
        }
        self.error(at, &key, what)
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let head = &text[..at];
    let line_start = head.rfind('\n').map_or(0, |i| i + 1);
    (head.matches('\n').count() + 1, head[line_start..].chars().count() + 1)
}

fn table(text: &str, t: &dyn toml_edit::TableLike) -> Vec<Entry> {
    t.iter()
        .filter_map(|(key, item)| {
            let key_span = t.key(key).and_then(|k| k.span()).unwrap_or(0..0);
            let val = item_val(text, item, &key_span)?;
            Some(Entry { key: key.to_owned(), key_span, val })
        })
        .collect()
}

fn item_val(text: &str, item: &Item, above: &Range<usize>) -> Option<Val> {
    let span = item.span().unwrap_or_else(|| above.clone());
    Some(match item {
        Item::None => return None,
        Item::Value(v) => value_val(text, v, above),
        Item::Table(t) => Val { kind: Kind::Table(table(text, t)), span },
        Item::ArrayOfTables(a) => {
            let list = a
                .iter()
                .map(|t| Val {
                    span: t.span().unwrap_or_else(|| span.clone()),
                    kind: Kind::Table(table(text, t)),
                })
                .collect();
            Val { kind: Kind::List(list), span }
        }
    })
}

fn value_val(text: &str, v: &Value, above: &Range<usize>) -> Val {
    let span = v.span().unwrap_or_else(|| above.clone());
    let kind = match v {
        Value::String(s) => Kind::Text(s.value().clone()),
        Value::Integer(i) => Kind::Number(i.value().to_string()),
        // The text, since a binary fraction no longer has the file's digits.
        Value::Float(_) => Kind::Number(text.get(span.clone()).unwrap_or("nan").to_owned()),
        Value::Boolean(b) => Kind::Bool(*b.value()),
        Value::Datetime(_) => Kind::Date,
        Value::Array(a) => Kind::List(a.iter().map(|v| value_val(text, v, &span)).collect()),
        Value::InlineTable(t) => Kind::Table(table(text, t)),
    };
    Val { span, kind }
}

/// A value with the path that leads to it.
#[derive(Clone)]
pub(crate) struct Cur<'a> {
    doc: &'a Doc,
    pub(crate) val: &'a Val,
    path: String,
}

impl<'a> Cur<'a> {
    pub(crate) fn error(&self, what: impl Into<String>) -> ConfigError {
        self.doc.error(self.val.span.start, &self.path, what)
    }

    /// An error at the key of a field that this is the value of.
    pub(crate) fn key_error(&self, e: &Entry, what: impl Into<String>) -> ConfigError {
        self.doc.error(e.key_span.start, &self.path, what)
    }

    fn expected(&self, what: &str) -> ConfigError {
        self.error(format!("expected {what}, found {}", self.val.what()))
    }

    /// The table's fields; keys outside `allowed` are errors.
    pub(crate) fn table(&self, allowed: &[&str]) -> Result<Fields<'a>, ConfigError> {
        let fields = self.any_table()?;
        for e in fields.entries {
            if !allowed.contains(&e.key.as_str()) {
                return Err(self.doc.error(
                    e.key_span.start,
                    &fields.child_path(&e.key),
                    format!("unknown key{}", suggestion(&e.key, allowed)),
                ));
            }
        }
        Ok(fields)
    }

    /// The table's fields, with any keys.
    pub(crate) fn any_table(&self) -> Result<Fields<'a>, ConfigError> {
        match &self.val.kind {
            Kind::Table(entries) => Ok(Fields { cur: self.clone(), entries }),
            _ => Err(self.expected("a table")),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<Cur<'a>>, ConfigError> {
        let Kind::List(list) = &self.val.kind else { return Err(self.expected("a list")) };
        let cur = |(i, val)| Cur { doc: self.doc, val, path: format!("{}[{i}]", self.path) };
        Ok(list.iter().enumerate().map(cur).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, ConfigError> {
        match &self.val.kind {
            Kind::Text(s) => Ok(s),
            _ => Err(self.expected("a text in quotes")),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, ConfigError> {
        match self.val.kind {
            Kind::Bool(b) => Ok(b),
            _ => Err(self.expected("true or false")),
        }
    }

    /// A whole number from `low` to `high`.
    pub(crate) fn int(&self, low: u64, high: u64) -> Result<u64, ConfigError> {
        let Kind::Number(raw) = &self.val.kind else {
            return Err(self.expected("a whole number"));
        };
        let range = || format!("a whole number from {low} to {high} is allowed");
        match quantity::stored(raw, 1) {
            Ok(v) if (low..=high).contains(&v) => Ok(v),
            Ok(v) => Err(self.error(format!("{v} is out of range; {}", range()))),
            Err(Decimal::Negative) => Err(self.error(format!("{raw} is negative; {}", range()))),
            Err(_) => Err(self.error(format!("{raw} is no whole number; {}", range()))),
        }
    }

    /// A whole number from `low` to `high`, of which the lower may be negative.
    pub(crate) fn signed(&self, low: i64, high: i64) -> Result<i64, ConfigError> {
        let Kind::Number(raw) = &self.val.kind else {
            return Err(self.expected("a whole number"));
        };
        let range = format!("a whole number from {low} to {high} is allowed");
        match raw.parse::<i64>() {
            Ok(v) if (low..=high).contains(&v) => Ok(v),
            Ok(v) => Err(self.error(format!("{v} is out of range; {range}"))),
            Err(_) => Err(self.error(format!("{raw} is no whole number; {range}"))),
        }
    }

    pub(crate) fn thousandths(&self, low: u64, high: u64) -> Result<u32, ConfigError> {
        let v = self.int(low, high).map_err(|mut e| {
            e.what.push_str(", in thousandths");
            e
        })?;
        Ok(v as u32)
    }

    /// One of several words.
    pub(crate) fn word<T: Clone>(&self, words: &[(&'static str, T)]) -> Result<T, ConfigError> {
        let s = self.text()?;
        words.iter().find(|(w, _)| *w == s).map(|(_, t)| t.clone()).ok_or_else(|| {
            let names: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
            self.error(format!("\"{s}\" is not known{}", suggestion(s, &names)))
        })
    }

    pub(crate) fn size(&self) -> Result<Bytes, ConfigError> {
        match &self.val.kind {
            Kind::Text(s) => quantity::parse_size(s).map_err(|e| self.error(e)),
            Kind::Number(raw) => quantity::parse_size(raw).map_err(|e| self.error(e)),
            _ => Err(self.expected("a size such as \"512 MiB\" or a number of bytes")),
        }
    }

    pub(crate) fn time(&self) -> Result<Picos, ConfigError> {
        match &self.val.kind {
            Kind::Text(s) => quantity::parse_time(s).map_err(|e| self.error(e)),
            _ => Err(self.expected("a time with its unit, such as \"10us\" or \"1s\"")),
        }
    }

    /// Megabytes a second.
    pub(crate) fn rate(&self) -> Result<u64, ConfigError> {
        match &self.val.kind {
            Kind::Text(s) => quantity::parse_rate(s).map_err(|e| self.error(e)),
            _ => Err(self.expected("bytes a second with their unit, such as \"12 GB/s\"")),
        }
    }

    /// A span of time: one above 0.
    pub(crate) fn positive_time(&self) -> Result<Picos, ConfigError> {
        match self.time()? {
            Picos(0) => Err(self.error("0 is no span of time; write one such as \"1s\"")),
            t => Ok(t),
        }
    }

    pub(crate) fn numbers(&self, high: u32) -> Result<Vec<u32>, ConfigError> {
        crate::list::parse_list(self.text()?, high).map_err(|e| self.error(e))
    }
}

/// The fields of a table.
pub(crate) struct Fields<'a> {
    cur: Cur<'a>,
    pub(crate) entries: &'a [Entry],
}

impl<'a> Fields<'a> {
    fn child_path(&self, key: &str) -> String {
        if self.cur.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.cur.path) }
    }

    pub(crate) fn cur(&self, e: &'a Entry) -> Cur<'a> {
        Cur { doc: self.cur.doc, val: &e.val, path: self.child_path(&e.key) }
    }

    pub(crate) fn opt(&self, key: &str) -> Option<Cur<'a>> {
        self.entries.iter().find(|e| e.key == key).map(|e| self.cur(e))
    }

    pub(crate) fn get(&self, key: &str) -> Result<Cur<'a>, ConfigError> {
        self.opt(key).ok_or_else(|| self.cur.error(format!("the key \"{key}\" is missing")))
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> ConfigError {
        self.cur.error(what)
    }
}

/// The end of an error about a name that is none of `allowed`: `; did you mean "x"?`
/// where one is near, and all of them otherwise.
pub fn suggestion(found: &str, allowed: &[&str]) -> String {
    let nearest = allowed.iter().map(|a| (distance(found, a), *a)).min();
    match nearest.filter(|(d, a)| *d <= a.chars().count() / 3) {
        Some((_, name)) => format!("; did you mean \"{name}\"?"),
        None => format!("; allowed are {}", allowed.join(", ")),
    }
}

/// Edits (insert, delete, replace, swap neighbours) from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
