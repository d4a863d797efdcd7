//! A source of heat that is the truth: what the stage's programs access they access
//! all over, and only while they run. It stands in for DAMON where what counts is what
//! is made of heat.
//!
//! ```text
//! processor time grew by a tenth of the time or more ─▶ every check found an access
//! less                                               ─▶ none did
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

use homenode_core::policy::seen::{Seen, Source, Span, Who};
use homenode_core::units::Picos;
use homenode_live::machine::Heat;

/// Where programs have their memory; the stage writes it down.
pub(crate) type Spans = Rc<RefCell<BTreeMap<Who, Span>>>;

/// As DAMON is asked to look, by homenode.
const EVERY: Picos = Picos::from_ms(5);
const CHECKS: u32 = 20;

pub(crate) struct Told {
    spans: Spans,
    watched: BTreeMap<Who, Known>,
}

/// What is known of a program.
struct Known {
    at: Picos,
    ran: Picos,
    busy: bool,
    since: Picos,
}

impl Told {
    pub(crate) fn new(spans: Spans) -> Self {
        Self { spans, watched: BTreeMap::new() }
    }
}

/// Its processor time, if it is still there.
pub(crate) fn ran(who: Who) -> Option<Picos> {
    let text = fs::read_to_string(format!("/proc/{}/schedstat", who.pid)).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Picos::from_ns)
}

impl Heat for Told {
    fn source(&self) -> Source {
        Source::Damon
    }
    fn watch(&mut self, who: Who) {
        let none = Known { at: Picos::ZERO, ran: Picos::ZERO, busy: false, since: Picos::ZERO };
        self.watched.entry(who).or_insert(none);
    }
    fn unwatch(&mut self, who: Who) {
        self.watched.remove(&who);
    }
    fn take(&mut self, now: Picos, out: &mut Vec<Seen>) -> Result<(), String> {
        let aggregation = EVERY * u64::from(CHECKS);
        for (&who, known) in &mut self.watched {
            let (Some(ran), Some(&span)) = (ran(who), self.spans.borrow().get(&who)) else {
                continue;
            };
            let time = now.saturating_sub(known.at);
            if time < aggregation {
                continue;
            }
            let busy = ran.saturating_sub(known.ran).0 >= time.0 / 10;
            // The first look only begins to watch.
            let first = known.at == Picos::ZERO;
            let since = if first || busy != known.busy { now } else { known.since };
            *known = Known { at: now, ran, busy, since };
            if !first {
                let accessed = if busy { CHECKS } else { 0 };
                let age = now.saturating_sub(since);
                out.push(Seen::Region { who, span, accessed, checks: CHECKS, every: EVERY, age });
            }
        }
        Ok(())
    }
}
