//! What a policy was told, as a file: a stream of calls that can be told again.
//!
//! ```text
//! {"format":"homenode-seen","version":1,"by":"advise",...}      the machine, settings, facts
//! {"waited":[1500000000,[{"task":[289,4120,1500000000000,1,9011]},...]]}
//! {"ordered":[1,"watch 289@4120",null]}
//! {"moved":[7,"move 289@4120 2->0 [140,396)"]}
//! {"end":{"lines":3,"warnings":[]}}
//! ```
//!
//! Lines of JSON in snappy's framing format, whose blocks have checksums (`snzip -dc` shows
//! them). Until it is whole it stands in FILE.partial, written on at each [`Writer::keep`]; one
//! that a crash has cut can be read up to its last whole line. Times are picoseconds.
//!
//! Source: specs/advise.md#seen.

mod word;

use crate::TraceError;
use crate::partial::with_end;
use homenode_core::advice::{Facts, Found, NodeFacts};
use homenode_core::policy::heard::Heard;
use homenode_core::units::NodeId;
use serde::{Deserialize, Serialize};
use snap::read::FrameDecoder;
use snap::write::FrameEncoder;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use word::{End, Line};

/// The version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "homenode-seen";
/// Bytes of a line, at most.
const MOST_LINE: u64 = 256 << 20;

/// What stands above all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The command that recorded it: `advise` moved nothing, `act` did, `observe` has no policy.
    pub by: String,
    /// Which homenode that was.
    pub homenode: String,
    /// The kernel's release, if it was told.
    pub kernel: Option<String>,
    /// Whose rules apply, by name.
    pub rules: String,
    /// When it began, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The source of heat, by name.
    pub source: String,
    /// What stands above the advice: why that source, and what it disturbs.
    pub source_notes: Vec<String>,
    /// Why nothing can move, where that was known.
    pub nothing: Option<String>,
    /// Most pages that an order may name.
    pub most_pages: u64,
    /// The machine's clock before the first wait.
    pub began: u64,
    /// For how long it was to be, where that was said.
    pub length: Option<u64>,
    /// The machine: the text of its file.
    pub machine: String,
    /// The file of limits and budgets, where there was one: its name and text.
    pub config: Option<(String, String)>,
    /// Users that the file names, with their numbers.
    pub users: BTreeMap<String, u32>,
    /// What looking where a page is takes there.
    pub look_page: u64,
    /// The same of counting it.
    pub count_page: u64,
    /// The machine's knobs.
    pub knobs: KnobFacts,
}

/// [`Facts`] without what is found later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobFacts {
    nodes: Vec<NodeLine>,
    balancing: Option<u32>,
    demotion: Option<bool>,
    promote_limit: Option<u32>,
    auto_weights: Option<bool>,
    zone_reclaim: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeLine {
    id: u16,
    cpus: bool,
    memory: bool,
    slow: bool,
    bandwidth: Option<u64>,
    write_bandwidth: Option<u64>,
    weight: Option<u32>,
}

impl From<&Facts> for KnobFacts {
    fn from(facts: &Facts) -> Self {
        // What was found comes of what was told.
        let Facts {
            nodes,
            balancing,
            demotion,
            promote_limit,
            auto_weights,
            zone_reclaim,
            found: _,
        } = facts;
        let node = |n: &NodeFacts| {
            let &NodeFacts { id, cpus, memory, slow, bandwidth, write_bandwidth, weight } = n;
            NodeLine { id: id.0, cpus, memory, slow, bandwidth, write_bandwidth, weight }
        };
        Self {
            nodes: nodes.iter().map(node).collect(),
            balancing: *balancing,
            demotion: *demotion,
            promote_limit: *promote_limit,
            auto_weights: *auto_weights,
            zone_reclaim: *zone_reclaim,
        }
    }
}

impl From<KnobFacts> for Facts {
    fn from(k: KnobFacts) -> Self {
        let node = |n: NodeLine| {
            let NodeLine { id, cpus, memory, slow, bandwidth, write_bandwidth, weight } = n;
            NodeFacts { id: NodeId(id), cpus, memory, slow, bandwidth, write_bandwidth, weight }
        };
        Self {
            nodes: k.nodes.into_iter().map(node).collect(),
            balancing: k.balancing,
            demotion: k.demotion,
            promote_limit: k.promote_limit,
            auto_weights: k.auto_weights,
            zone_reclaim: k.zone_reclaim,
            found: Found::default(),
        }
    }
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct First {
    format: String,
    version: u32,
    #[serde(flatten)]
    about: About,
}

/// Writes what is heard.
pub struct Writer {
    path: PathBuf,
    beside: PathBuf,
    out: FrameEncoder<BufWriter<File>>,
    lines: u64,
}

impl Writer {
    /// Begins a file. Until [`Self::finish`] there is only `path` with `.partial` behind it.
    ///
    /// # Errors
    /// [`TraceError::Create`] where that cannot be made, or `path` is a folder.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let create = |source| TraceError::Create { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(create(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let beside = with_end(path, ".partial");
        let out = FrameEncoder::new(BufWriter::new(File::create(&beside).map_err(create)?));
        Ok(Self { path: path.to_owned(), beside, out, lines: 0 })
    }

    fn failed(&self, reason: impl ToString) -> TraceError {
        TraceError::Write { path: self.path.clone(), reason: reason.to_string() }
    }
    fn line(&mut self, line: &impl Serialize) -> Result<(), TraceError> {
        let mut text = serde_json::to_vec(line).map_err(|e| self.failed(e))?;
        text.push(b'\n');
        self.out.write_all(&text).map_err(|e| self.failed(e))
    }

    /// Writes the first line.
    ///
    /// # Errors
    /// [`TraceError::Write`]
    pub fn begin(&mut self, about: &About) -> Result<(), TraceError> {
        let about = about.clone();
        self.line(&First { format: FORMAT.to_owned(), version: VERSION, about })
    }
    /// Writes what was heard.
    ///
    /// # Errors
    /// [`TraceError::Write`]
    pub fn push(&mut self, heard: &Heard) -> Result<(), TraceError> {
        self.lines += 1;
        self.line(&Line::from(heard))
    }
    /// Hands all of it to the system.
    ///
    /// # Errors
    /// [`TraceError::Write`]
    pub fn keep(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(|e| self.failed(e))
    }
    /// Writes the last line, and puts the file in its place; its lines.
    ///
    /// * `warnings` – sentences on what may mislead, known at the end.
    ///
    /// # Errors
    /// [`TraceError::Write`]; what there is stays beside its place.
    pub fn finish(mut self, warnings: &[String]) -> Result<u64, TraceError> {
        let end = End { lines: self.lines, warnings: warnings.to_vec() };
        self.line(&Line::End(end))?;
        self.keep()?;
        self.out.get_ref().get_ref().sync_all().map_err(|e| self.failed(e))?;
        fs::rename(&self.beside, &self.path).map_err(|e| self.failed(e))?;
        Ok(self.lines)
    }
}

/// How a file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Whole, with sentences on what may mislead.
    Whole(Vec<String>),
    /// Cut off behind so many lines.
    Cut(u64),
}

/// How it ended, once it was read to its end.
#[derive(Clone, Default)]
pub struct Ended(Rc<RefCell<Option<Ending>>>);

impl Ended {
    /// `None` as long as there is more to read.
    pub fn get(&self) -> Option<Ending> {
        self.0.borrow().clone()
    }
}

/// Reads what was heard, line by line.
pub struct Reader {
    path: PathBuf,
    from: BufReader<FrameDecoder<BufReader<File>>>,
    /// Lines read so far, the first one included.
    line: u64,
    ended: Ended,
    over: bool,
}

/// A line as it stands in the file.
enum Text {
    Whole(Vec<u8>),
    End,
}

impl Reader {
    /// Opens a file, and what stands above all of it.
    ///
    /// # Errors
    /// [`TraceError`]: it is not there, no such file, or of another version.
    pub fn open(path: &Path) -> Result<(Self, About), TraceError> {
        let open = |source| TraceError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(open)?;
        if file.metadata().map_err(open)?.is_dir() {
            return Err(open(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let from = BufReader::new(FrameDecoder::new(BufReader::new(file)));
        let path = path.to_owned();
        let mut new = Self { path, from, line: 0, ended: Ended::default(), over: false };
        let foreign = |path: &Path| TraceError::NotARecording {
            path: path.to_owned(),
            reason: "it does not begin as `advise --record` and `observe --record` write it"
                .to_owned(),
        };
        let Ok(Text::Whole(text)) = new.text() else { return Err(foreign(&new.path)) };
        // The version comes first: a later format may have another first line.
        let any: serde_json::Value =
            serde_json::from_slice(&text).map_err(|_| foreign(&new.path))?;
        if any["format"] != FORMAT {
            return Err(foreign(&new.path));
        }
        let found = any["version"].as_u64().unwrap_or(0);
        if found != u64::from(VERSION) {
            let found = u32::try_from(found).unwrap_or(u32::MAX);
            return Err(TraceError::Version { path: new.path, found, known: VERSION });
        }
        let first: First = serde_json::from_value(any).map_err(|e| new.wrong(e))?;
        Ok((new, first.about))
    }
    /// How it will have ended.
    pub fn ended(&self) -> Ended {
        self.ended.clone()
    }

    fn wrong(&self, reason: impl ToString) -> TraceError {
        let (path, line) = (self.path.clone(), self.line);
        TraceError::Line { path, line, reason: reason.to_string() }
    }

    fn text(&mut self) -> Result<Text, TraceError> {
        self.line += 1;
        let mut text = Vec::new();
        match (&mut self.from).take(MOST_LINE).read_until(b'\n', &mut text) {
            Ok(_) if text.last() == Some(&b'\n') => Ok(Text::Whole(text)),
            Ok(n) if n as u64 == MOST_LINE => Err(self.wrong("the line is too long")),
            Ok(_) => Ok(Text::End),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Text::End),
            Err(e) => Err(self.wrong(format!("the file is damaged here or before: {e}"))),
        }
    }

    fn read(&mut self) -> Result<Option<Heard>, TraceError> {
        let Text::Whole(text) = self.text()? else {
            self.ended.0.replace(Some(Ending::Cut(self.line - 1)));
            return Ok(None);
        };
        let line: Line = serde_json::from_slice(&text).map_err(|e| self.wrong(e))?;
        let end = match line.heard().map_err(|e| self.wrong(e))? {
            Ok(heard) => return Ok(Some(heard)),
            Err(end) => end,
        };
        if end.lines + 2 != self.line {
            let there = self.line - 2;
            return Err(self.wrong(format!("{} lines were written, {there} are here", end.lines)));
        }
        match self.text()? {
            Text::End => {}
            Text::Whole(_) => return Err(self.wrong("there is more behind the last line")),
        }
        self.ended.0.replace(Some(Ending::Whole(end.warnings)));
        Ok(None)
    }
}

impl Iterator for Reader {
    type Item = Result<Heard, TraceError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let read = self.read().transpose();
        self.over = !matches!(read, Some(Ok(_)));
        read
    }
}

#[cfg(test)]
mod tests;
