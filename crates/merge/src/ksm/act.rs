//! Driving: launch, set, watch, adjust, put back.

use super::hold::{Hold, Restored, Set, allowed};
use super::launch;
use super::{Files, Folder, KsmError, Seen, Watch, check_files, reading, scan};
use homenode_core::ksm::files::File;
use homenode_core::ksm::pace::{ADVISOR_CPU_LEAST, Goal, Pace, Reading};
use homenode_core::ksm::plan::{self, Unmerging, text_of};
use homenode_live::place::Place;
use homenode_live::registered::Scan;
use homenode_live::signals::{Signals, forward};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How often a program's end and signals are looked for.
const BEAT: Duration = Duration::from_millis(20);

/// What to drive.
#[derive(Clone, Debug)]
pub struct Act {
    /// What to launch; empty: what is registered already.
    pub command: Vec<OsString>,
    /// Budget and benefit.
    pub goal: Goal,
    /// What to switch `merge_across_nodes` to.
    pub across: Option<bool>,
    /// Merge although several users' pages meet.
    pub across_users: bool,
    /// Time between looks.
    pub interval: Duration,
    /// How long, where nothing is launched; `None`: until a signal.
    pub length: Option<Duration>,
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// `merge_across_nodes` is about to be switched, which costs this.
    Switching {
        /// To what.
        across: bool,
        /// What comes back.
        cost: Unmerging,
    },
    /// A look.
    Seen(&'a Seen, &'a Pace),
    /// Something that has to be said.
    Note(&'a str),
}

/// How the driving ended.
#[derive(Debug)]
pub struct DriveEnd {
    /// How the program ended; `None` where none was launched, or it lives on.
    pub ended: Option<ExitStatus>,
    /// The signal that ended the driving before the program.
    pub signal: Option<i32>,
    /// How the knobs were put back.
    pub restored: Restored,
    /// Processes of the program that live on.
    pub left: usize,
}

/// Looks only: tells each look until `length` has passed, a signal comes, or `tell`
/// has seen enough.
///
/// # Errors
/// [`KsmError`] if files have gone.
pub fn look(
    place: &Place,
    watch: &mut Watch,
    interval: Duration,
    length: Option<Duration>,
    tell: &mut dyn FnMut(&Seen) -> bool,
) -> Result<(), KsmError> {
    let files = Folder::of(place);
    let mut signals = Signals::catch();
    let began = Instant::now();
    let mut more = tell(&watch.look(&files)?);
    let mut at = interval;
    while more {
        if rest(began, at, length, || signals.arrived().is_some()) {
            return Ok(());
        }
        more = tell(&watch.look(&files)?) && length.is_none_or(|l| began.elapsed() < l);
        at += interval;
    }
    Ok(())
}

/// Sleeps until the next look, or until it `ends`; whether it did.
fn rest(
    began: Instant,
    next: Duration,
    length: Option<Duration>,
    mut ends: impl FnMut() -> bool,
) -> bool {
    let until = next.min(length.unwrap_or(Duration::MAX));
    while began.elapsed() < until {
        if ends() {
            return true;
        }
        std::thread::sleep(BEAT.min(until.saturating_sub(began.elapsed())));
    }
    false
}

/// Who would meet whom.
fn check_users(scan: &Scan, options: &Act) -> Result<(), KsmError> {
    if options.across_users {
        return Ok(());
    }
    // SAFETY: no arguments.
    let launched = (!options.command.is_empty()).then(|| unsafe { libc::geteuid() });
    let users = plan::crossing(&scan.users(), launched);
    if !users.is_empty() {
        return Err(KsmError::Users { users, launched });
    }
    if scan.unseen > 0 {
        return Err(KsmError::Unseen { count: scan.unseen });
    }
    Ok(())
}

/// Everything that can be told before anything is changed.
fn check<F: Files>(place: &Place, files: &F, options: &Act) -> Result<Scan, KsmError> {
    check_files(place, files)?;
    if let Some(program) = options.command.first() {
        if !launch::can_merge_whole() {
            return Err(KsmError::NoPrctl { release: launch::release() });
        }
        launch::resolve(program)?;
    }
    if options.goal.advisor {
        if files.read(File::AdvisorMode).is_err() {
            return Err(KsmError::NoAdvisor);
        }
        let asked = options.goal.cpu_percent;
        if asked < ADVISOR_CPU_LEAST {
            return Err(KsmError::SmallBudget { asked, least: ADVISOR_CPU_LEAST });
        }
    }
    if reading::find_ksmd(place).is_none() {
        return Err(KsmError::NoKsmd { proc: place.path("/proc") });
    }
    let scan = scan(place, true)?;
    if options.command.is_empty() && scan.processes.is_empty() {
        return Err(KsmError::Nobody);
    }
    check_users(&scan, options)?;
    Ok(scan)
}

/// Whether the kernel's rules allow all of what is set at the start.
fn check_rules<F: Files>(hold: &Hold<F>, options: &Act, now: &Reading) -> Result<(), KsmError> {
    let mut shown = hold.files().shown();
    let first = Pace::new(options.goal, now).start(now);
    if !options.goal.advisor {
        // An administrator's advisor forbids `pages_to_scan`.
        shown.entry(File::AdvisorMode).and_modify(|mode| *mode = 0);
    }
    for order in first {
        allowed(&shown, order.file, order.value)?;
        shown.insert(order.file, order.value);
    }
    Ok(())
}

/// Drives the kernel's merging until the program ends, the time is over, or a
/// signal comes; then puts everything back.
///
/// # Errors
/// [`KsmError`]: with everything as it was, but for what its sentence names. Once
/// the program runs, nothing is an error any longer but what [`DriveEnd`] tells.
pub fn act<F: Files>(
    place: &Place,
    files: F,
    options: &Act,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<DriveEnd, KsmError> {
    let before = check(place, &files, options)?;
    let mut signals = Signals::catch();
    let (mut hold, notes) = Hold::take(place, files)?;
    notes.iter().for_each(|n| tell(Event::Note(n)));
    let mut watch = Watch::new(place, Vec::new())?;
    let first = watch.look(hold.files())?;
    check_rules(&hold, options, &first.reading)?;
    if let Some(across) = options.across {
        if first.shown.get(&File::MergeAcrossNodes) != Some(&u64::from(across)) {
            let cost = hold.unmerging()?;
            if !cost.fits() {
                return Err(KsmError::NoRoom(cost));
            }
            tell(Event::Switching { across, cost });
            hold.switch(across)?;
        }
    }
    if !options.goal.advisor && first.shown.get(&File::AdvisorMode) == Some(&1) {
        tell(Event::Note(
            "the kernel's advisor was on: it is switched off meanwhile, and begins anew at advisor_min_pages_to_scan after",
        ));
        hold.set(File::AdvisorMode, 0)?;
    }
    let mut pace = Pace::new(options.goal, &first.reading);
    for order in pace.start(&first.reading) {
        hold.set(order.file, order.value)?;
    }
    let command = Some(&options.command).filter(|c| !c.is_empty());
    let child = command.map(|c| launch::launch(c)).transpose()?;
    let mut driving =
        Driving { options, signals: &mut signals, child, ended: None, hands_off: BTreeSet::new() };
    let signal = driving.follow(&mut hold, &mut watch, &mut pace, tell);
    let restored = hold.restore();
    // A program whose driving has ended before it runs on as it is.
    if signal.is_none() {
        driving.wait();
    }
    let old: BTreeSet<(u32, u64)> = before.processes.iter().map(|p| (p.pid, p.start)).collect();
    let after = scan(place, false).unwrap_or_default().processes;
    let left = after.iter().filter(|p| !old.contains(&(p.pid, p.start))).count();
    let left = if options.command.is_empty() { 0 } else { left };
    Ok(DriveEnd { ended: driving.ended, signal, restored, left })
}

struct Driving<'a> {
    options: &'a Act,
    signals: &'a mut Signals,
    child: Option<Child>,
    ended: Option<ExitStatus>,
    /// Knobs that somebody else has taken over.
    hands_off: BTreeSet<File>,
}

impl Driving<'_> {
    /// Whether the program has ended.
    fn is_over(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
        }
        self.ended.is_some()
    }

    /// A signal that ends the driving at once, if one has come: any where nothing was
    /// launched, the second one where something was, which gets the first.
    fn signal(&mut self, heard: &mut u32) -> Option<i32> {
        let (signal, terminal) = self.signals.arrived()?;
        let Some(child) = &self.child else { return Some(signal) };
        *heard += 1;
        // Everybody in the foreground has got it from the terminal.
        if !terminal && self.ended.is_none() {
            forward(child, signal);
        }
        (*heard > 1).then_some(signal)
    }

    /// Looks and adjusts until the end; the signal where one has ended it.
    fn follow<F: Files>(
        &mut self,
        hold: &mut Hold<F>,
        watch: &mut Watch,
        pace: &mut Pace,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Option<i32> {
        let began = Instant::now();
        let mut heard = 0;
        let mut at = self.options.interval;
        loop {
            let mut signal = None;
            let mut over = rest(began, at, self.options.length, || {
                signal = self.signal(&mut heard);
                signal.is_some() || self.is_over()
            });
            if signal.is_some() && self.child.is_some() {
                return signal;
            }
            over |= self.options.length.is_some_and(|l| began.elapsed() >= l);
            at += self.options.interval;
            let mut seen = match watch.look(hold.files()) {
                Ok(seen) => seen,
                Err(e) => {
                    tell(Event::Note(&format!("driving ends: {e}")));
                    return None;
                }
            };
            if !over {
                if let Err(e) = check_users(&seen.scan, self.options) {
                    tell(Event::Note(&format!(
                        "driving ends, everything is put back, and what was launched runs on: {}",
                        e.to_string().replace(" Nothing was changed.", "")
                    )));
                    return None;
                }
                self.adjust(hold, pace, &mut seen, tell);
            }
            tell(Event::Seen(&seen, pace));
            if over {
                return None;
            }
        }
    }

    fn adjust<F: Files>(
        &mut self,
        hold: &mut Hold<F>,
        pace: &mut Pace,
        seen: &mut Seen,
        tell: &mut dyn FnMut(Event<'_>),
    ) {
        let Some(order) = pace.poll(&seen.reading) else { return };
        if self.hands_off.contains(&order.file) {
            seen.order = Some((order, false));
            return;
        }
        let name = order.file.name();
        let trouble = match hold.set(order.file, order.value) {
            Ok(Set::Done) => None,
            Ok(Set::Theirs { now }) => {
                let now = text_of(order.file, now);
                Some(format!("{name} is {now} now, which we did not write: left alone from now on"))
            }
            Err(e) => {
                Some(format!("{name} is left alone from now on: {}", homenode_live::sentence(&e)))
            }
        };
        seen.order = Some((order, trouble.is_none()));
        if let Some(trouble) = trouble {
            self.hands_off.insert(order.file);
            tell(Event::Note(&trouble));
        }
    }

    /// Waits for the program's end, handing signals on.
    fn wait(&mut self) {
        let mut heard = 0;
        while self.child.is_some() && !self.is_over() {
            let _ = self.signal(&mut heard);
            std::thread::sleep(BEAT);
        }
    }
}
