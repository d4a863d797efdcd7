//! What a policy is told, written into a file while it looks: what `advise`, `act` and `observe`
//! record alike.
//!
//! ```text
//! LiveMachine ─▶ machine::Recorded ─▶ Notes ─▶ trace::seen::Writer ─▶ FILE
//! ```
//!
//! Source: specs/advise.md#seen.

use crate::here::{Config, Here, priced};
use crate::output;
use anyhow::{Result, anyhow, bail};
use homenode_core::advice::Facts;
use homenode_core::engine::Settings;
use homenode_core::kernel::KernelVersion;
use homenode_core::policy::heard::Heard;
use homenode_core::policy::order::Order;
use homenode_core::policy::seen::Source;
use homenode_core::topology::Hardware;
use homenode_core::units::{Picos, count};
use homenode_live::machine::LiveMachine;
use homenode_machine::{Deed, Machine, Notes};
use homenode_trace::TraceError;
use homenode_trace::seen::{About, KnobFacts, Writer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the commands say of it.
pub(crate) const BY_ADVISE: &str = "advise";
/// The same: what was moved was moved.
pub(crate) const BY_ACT: &str = "act";
/// The same.
pub(crate) const BY_OBSERVE: &str = "observe";

/// A file that is being written; whoever writes into it has a share. What fails is told at the end: what is looked at goes on.
#[derive(Clone)]
pub(crate) struct Recording {
    path: PathBuf,
    out: Rc<RefCell<Out>>,
}

struct Out {
    writer: Option<Writer>,
    failed: Option<TraceError>,
}

impl Out {
    fn write(&mut self, write: impl FnOnce(&mut Writer) -> Result<(), TraceError>) {
        let Some(writer) = self.writer.as_mut().filter(|_| self.failed.is_none()) else { return };
        self.failed = write(writer).err();
    }
}

impl Recording {
    /// Begins a file, before anything is set up.
    ///
    /// # Errors
    /// It can't be put there.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        output::check_output(path)?;
        let out = Out { writer: Some(Writer::create(path)?), failed: None };
        Ok(Self { path: path.to_owned(), out: Rc::new(RefCell::new(out)) })
    }
    /// Writes what stands above all; where to tell what is heard from now on, and since when.
    pub(crate) fn begin(&self, about: &About) -> (Notes, Picos) {
        self.out.borrow_mut().write(|w| w.begin(about));
        let out = self.out.clone();
        let notes = Notes::new(move |heard: Heard| out.borrow_mut().write(|w| w.push(&heard)));
        (notes, Picos(about.began))
    }
    /// Begins to write down what passes between an engine and a machine that was set up for it;
    /// since when, and where to tell it.
    ///
    /// # Errors
    /// The machine can't be told in words.
    pub(crate) fn of(
        &self,
        by: &'static str,
        here: &Here,
        config: &Config,
        length: Option<Picos>,
        machine: &LiveMachine,
        facts: &Facts,
    ) -> Result<(Notes, Picos)> {
        let above = Above {
            by,
            kernel: here.found.probe.kernel.as_deref(),
            version: here.found.version,
            source: here.source,
            source_notes: &here.source_notes,
            nothing: here.nothing.as_deref(),
            length,
            config: config.text.clone(),
            users: config.users.clone(),
            settings: priced(config.file.settings, &here.found),
            facts,
        };
        Ok(self.begin(&about(above, machine)?))
    }
    /// What there is can be read from now on, whatever comes.
    pub(crate) fn keep(&self) {
        self.out.borrow_mut().write(Writer::keep);
    }
    /// Ends it; a sentence on what there is now.
    ///
    /// # Errors
    /// What could not be written.
    pub(crate) fn finish(&self, warnings: &[String]) -> Result<String> {
        let mut out = self.out.borrow_mut();
        if let Some(e) = out.failed.take() {
            bail!(e);
        }
        let Some(writer) = out.writer.take() else { return Ok(String::new()) };
        let lines = writer.finish(warnings)?;
        Ok(format!("{}: {}", self.path.display(), count(lines, "line", "lines")))
    }
}

/// Of what the first line is made.
pub(crate) struct Above<'a> {
    pub(crate) by: &'static str,
    /// The kernel's release, where there is one.
    pub(crate) kernel: Option<&'a str>,
    /// Whose rules apply.
    pub(crate) version: KernelVersion,
    pub(crate) source: Source,
    pub(crate) source_notes: &'a [String],
    pub(crate) nothing: Option<&'a str>,
    pub(crate) length: Option<Picos>,
    /// The file of limits: name and text, and the users that it names.
    pub(crate) config: Option<(String, String)>,
    pub(crate) users: BTreeMap<String, u32>,
    /// With what looks take here.
    pub(crate) settings: Settings,
    pub(crate) facts: &'a Facts,
}

/// The first line.
///
/// # Errors
/// The machine can't be told in words.
pub(crate) fn about(above: Above<'_>, machine: &impl Machine) -> Result<About> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(About {
        by: above.by.to_owned(),
        homenode: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: above.kernel.map(str::to_owned),
        rules: above.version.name().to_owned(),
        unix_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        source: above.source.name().to_owned(),
        source_notes: above.source_notes.to_vec(),
        nothing: above.nothing.map(str::to_owned),
        most_pages: machine.caps().most_pages,
        began: machine.now().0,
        length: above.length.map(|l| l.0),
        machine: in_words(machine.topology())?,
        config: above.config,
        users: above.users,
        look_page: above.settings.look_page.0,
        count_page: above.settings.count_page.0,
        knobs: KnobFacts::from(above.facts),
    })
}

/// A machine as the text of its file, which gives the same machine again.
fn in_words(machine: &Hardware) -> Result<String> {
    let text = homenode_config::write_machine(machine);
    let why = match homenode_config::parse_machine("this machine", &text) {
        Ok(again) if again == *machine => return Ok(text),
        Ok(_) => "its file says something else".to_owned(),
        Err(e) => e.to_string(),
    };
    Err(anyhow!("what this machine tells can't be recorded: {why}"))
}

/// Notes moves that count as made, if anything is noted.
pub(crate) fn noting(notes: Option<Notes>) -> impl Fn(&Deed) {
    move |deed| {
        if let Some(notes) = &notes {
            let Order { id, act, .. } = &deed.order;
            notes.tell(Heard::Moved { order: *id, act: act.to_string() });
        }
    }
}

/// A move with what it is expected to bring: a line of `--orders`.
pub(crate) fn line(at: Picos, order: &Order, pages: u64) -> String {
    format!(
        "{:.3} s {order}: {}, saves {} ns, costs {} ns",
        at.as_secs_f64(),
        count(pages, "page", "pages"),
        order.expect.saves.as_ns(),
        order.expect.costs.as_ns()
    )
}
