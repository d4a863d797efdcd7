//! The course of a recording.

use super::child::{LINGER, end_group, reap};
use super::drain::Drain;
use super::error::failed;
use super::native;
use super::outside::Natively;
use super::program::{self, Resolved};
use super::shares;
use super::{Mark, Options, Progress, RecordError, Summary};
use crate::child::Done;
use homenode_live::signals::{self, Signals};
use homenode_trace::{Ended, Header, Native, Slice, Totals, Writer, wire};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What the pipe holds, if the system allows: time for the writer to write.
const PIPE_BYTES: i32 = 1 << 20;

/// Signals belong to the process: one recording at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A private folder with the pipe and the shared count.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, RecordError> {
        let fail = failed("make a temporary folder for the recorder's pipe");
        let base = fs::canonicalize(std::env::temp_dir()).map_err(fail)?;
        for n in 0..1000 {
            let path = base.join(format!("homenode-{}-{n}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let folder = Self(path);
                    folder.fill().map_err(fail)?;
                    return Ok(folder);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fail(e)),
            }
        }
        Err(fail(io::Error::from(io::ErrorKind::AlreadyExists)))
    }
    fn fill(&self) -> io::Result<()> {
        File::create(self.0.join(wire::SHARED_NAME))?.set_len(wire::SHARED_BYTES as u64)?;
        let pipe = CString::new(self.0.join(wire::PIPE_NAME).as_os_str().as_bytes())?;
        // SAFETY: a valid path.
        if unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn find_plugin(options: &Options) -> Result<PathBuf, RecordError> {
    let path = match (&options.plugin, std::env::var_os("HOMENODE_RECORDER")) {
        (Some(p), _) => p.clone(),
        (None, Some(p)) => PathBuf::from(p),
        (None, None) => {
            let own = std::env::current_exe().map_err(failed("find this executable"))?;
            own.with_file_name("libhomenode_recorder.so")
        }
    };
    fs::canonicalize(&path).map_err(|_| RecordError::NoPlugin { path })
}

fn stdin(options: &Options) -> Result<Stdio, RecordError> {
    let Some(path) = &options.stdin else { return Ok(Stdio::null()) };
    let file =
        File::open(path).map_err(|source| RecordError::Read { path: path.clone(), source })?;
    Ok(file.into())
}

struct Started {
    child: Child,
    pipe: File,
    /// Kept until the last row has come.
    folder: Folder,
    start: Instant,
}

/// What all runs of a recording have in common.
struct Setup<'a> {
    options: &'a Options,
    resolved: Resolved,
    qemu: PathBuf,
    plugin: PathBuf,
    geometry: String,
}

impl Setup<'_> {
    /// A command in a group of its own, so that a terminal's Ctrl-C comes to us alone,
    /// which ends with this process.
    fn prepare(&self, command: &mut Command) -> Result<(), RecordError> {
        let stdin = stdin(self.options)?;
        command.args(self.resolved.args.iter().skip(1)).stdin(stdin).process_group(0);
        Ok(())
    }

    /// The program by itself.
    fn alone(&self) -> Result<Command, RecordError> {
        let mut command = Command::new(&self.resolved.path);
        command.arg0(&self.resolved.args[0]).stdout(Stdio::null()).stderr(Stdio::null());
        self.prepare(&mut command)?;
        Ok(command)
    }

    fn native_times(
        &self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Option<Native>, RecordError> {
        let mut runs = Vec::new();
        for run in 1..=self.options.native_runs.min(3) {
            progress(Progress::Native { run });
            let n = native::once(&mut self.alone()?)?;
            let long = n.wall_ns >= 1_000_000_000;
            runs.push(n);
            if long {
                break;
            }
        }
        Ok(native::median(runs))
    }

    /// What the program waits for natively, of which it may be that nobody in it does it. A
    /// program that never gave up its CPU has waited for nothing.
    fn native_waits(
        &self,
        native: Option<&Native>,
        progress: &mut dyn FnMut(Progress),
    ) -> Natively {
        if native.is_none_or(|native| native.voluntary_switches == 0) {
            return Natively::default();
        }
        progress(Progress::Waits);
        Natively::new(shares::trace_waits(|| self.alone().ok()).unwrap_or_default())
    }

    fn start(&self, extra: &str, quiet: bool) -> Result<Started, RecordError> {
        let folder = Folder::new()?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(folder.0.join(wire::PIPE_NAME))
            .map_err(failed("open the recorder's pipe"))?;
        // SAFETY: a valid descriptor. Where the system allows no larger pipe, it stays small.
        unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        let mut argument = doubled(&self.plugin);
        for (key, value) in [("folder", &folder.0), ("qemu", &self.qemu), ("plugin", &self.plugin)]
        {
            argument.push(format!(",{key}="));
            argument.push(doubled(value));
        }
        argument.push(&self.geometry);
        argument.push(extra);
        let Resolved { path, args } = &self.resolved;
        let mut command = Command::new(&self.qemu);
        command.arg("-plugin").arg(argument).arg("-0").arg(&args[0]).arg(path);
        if quiet {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        self.prepare(&mut command)?;
        let start = Instant::now();
        let child = command.spawn().map_err(failed("start QEMU"))?;
        Ok(Started { child, pipe, folder, start })
    }

    /// A run to its end; one that goes wrong is ended.
    fn run(
        &self,
        extra: &str,
        quiet: bool,
        (out, natively): (Writer, Natively),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Followed, Drain), RecordError> {
        let mut run = self.start(extra, quiet)?;
        let mut drain = Drain::new(out);
        drain.knows(natively);
        drain.look_in(&run.folder.0);
        let followed = follow(&mut run, &mut drain, progress);
        if followed.is_err() {
            end_all(&run, &drain);
            let _ = reap(&run.child, true);
        }
        let followed = followed?;
        drain.all_unsent()?;
        Ok((followed, drain))
    }

    /// Turns marks into instructions; counts the program's where one is a time.
    fn plan_slice(
        &self,
        native: Option<&Native>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Slice, RecordError> {
        let options = self.options;
        let marks = [options.skip, options.length];
        let mut rate = None;
        if marks.iter().any(|m| matches!(m, Some(Mark::NativeNs(_)))) {
            let native = native.ok_or(RecordError::SliceNeedsNative)?;
            progress(Progress::Counting);
            // The rows of this run are of no use; they go to a file that is never finished.
            let mut name = options.output.clone().into_os_string();
            name.push(OsString::from(".count"));
            let nowhere = Writer::create(PathBuf::from(name))?;
            let to = (nowhere, Natively::default());
            let (followed, drain) = self.run(",count=1", true, to, &mut |_| {})?;
            if followed.ended == Ended::Interrupted {
                return Err(RecordError::Interrupted);
            }
            rate = Some((drain.insns(), (native.user_ns + native.sys_ns).max(1)));
        }
        let insns = |m: Mark| match (m, rate) {
            (Mark::Insns(n), _) => n,
            (Mark::NativeNs(ns), Some((all, time))) => {
                u64::try_from(u128::from(ns) * u128::from(all) / u128::from(time))
                    .unwrap_or(u64::MAX)
            }
            (Mark::NativeNs(_), None) => 0,
        };
        let for_insns = options.length.map(insns);
        if for_insns == Some(0) {
            return Err(RecordError::EmptySlice);
        }
        Ok(Slice { skip_insns: options.skip.map_or(0, insns), for_insns })
    }
}

/// A path in an argument of QEMU, which reads a doubled comma as one.
fn doubled(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes().iter();
    let bytes: Vec<u8> =
        bytes.flat_map(|&b| std::iter::repeat_n(b, 1 + usize::from(b == b','))).collect();
    OsString::from_vec(bytes)
}

/// How a recorded run went.
struct Followed {
    done: Done,
    ended: Ended,
    wall_ns: u64,
    /// Whether all of the program's processes ended by themselves.
    alone: bool,
}

fn follow(
    run: &mut Started,
    drain: &mut Drain,
    progress: &mut dyn FnMut(Progress),
) -> Result<Followed, RecordError> {
    let mut buffer = vec![0; 256 << 10];
    let mut done: Option<Done> = None;
    let mut why = None;
    let mut alone = true;
    let mut heard = Instant::now();
    let mut told = Instant::now();
    loop {
        let mut poll = libc::pollfd { fd: run.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry.
        unsafe { libc::poll(&mut poll, 1, 20) };
        let read = match run.pipe.read(&mut buffer) {
            Ok(n) => Some(n),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                None
            }
            Err(e) => return Err(failed("read the recorder's pipe")(e)),
        };
        let wall_ns = u64::try_from(run.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(n) = read.filter(|&n| n > 0) {
            heard = Instant::now();
            drain.take(&buffer[..n])?;
        }
        if told.elapsed() >= Duration::from_millis(200) {
            told = Instant::now();
            let ((rows, bytes), insns) = (drain.written(), drain.insns());
            progress(Progress::Recording { elapsed_ns: wall_ns, rows, insns, bytes });
        }
        if why.is_none() && (drain.slice_full || signals::any()) {
            why = Some(if drain.slice_full { Ended::SliceFull } else { Ended::Interrupted });
            end_all(run, drain);
        }
        if done.is_none() {
            done = reap(&run.child, false)?;
            heard = Instant::now();
            if read == Some(0) && done.is_none() {
                // Nobody has the pipe open yet, or its owner is between two images.
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        }
        // No writer is left, and nothing is in the pipe. A process that is between two
        // images, or has closed our descriptor with all others, opens it again.
        let silent = read.is_none_or(|n| n == 0);
        let over = read == Some(0) && !drain.living().any(|pid| is_recorded(pid as i32));
        if silent && !over {
            if heard.elapsed() > LINGER {
                alone = false;
                end_all(run, drain);
                heard = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if over {
            let Some(done) = done.take() else { continue };
            let ended = why.unwrap_or(if libc::WIFSIGNALED(done.status) {
                Ended::Signal(libc::WTERMSIG(done.status))
            } else {
                Ended::Exit(libc::WEXITSTATUS(done.status))
            });
            return Ok(Followed { done, ended, wall_ns, alone });
        }
    }
}

/// Ends the program's group, and those of its processes that left it.
fn end_all(run: &Started, drain: &Drain) {
    end_group(run.child.id());
    let own = run.child.id() as i32;
    for pid in drain.living() {
        // SAFETY: plain calls; a process that has ended is no error.
        unsafe {
            let pid = pid as i32;
            if pid > 1 && pid != own && libc::getpgid(pid) != own && is_recorded(pid) {
                libc::kill(pid, libc::SIGKILL);
            }
        }
    }
}

/// Whether a process is still one that runs under our plugin, and not another
/// that was given its number.
fn is_recorded(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|c| c.windows(b"homenode_recorder".len()).any(|w| w == b"homenode_recorder"))
}

/// Runs a program natively and under the recorder, and writes what its memory
/// accesses were.
///
/// While it runs, SIGINT and SIGTERM end the program and not this process; what was
/// recorded until then is kept, and [`Header::ended`] says so.
///
/// # Errors
/// [`RecordError`]; then nothing stands at the output that was not there before.
pub fn record(
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary, RecordError> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(RecordError::WrongHost(std::env::consts::ARCH));
    }
    let resolved = program::resolve(&options.command)?;
    let [l1, l2, llc] = super::model(&options.machine)?;
    let tlb = super::tlb_entries(&options.machine);
    let in_time =
        [options.skip, options.length].iter().any(|m| matches!(m, Some(Mark::NativeNs(_))));
    if matches!(options.length, Some(Mark::Insns(0) | Mark::NativeNs(0))) {
        return Err(RecordError::EmptySlice);
    }
    if in_time && options.native_runs == 0 {
        return Err(RecordError::SliceNeedsNative);
    }
    let qemu = program::in_path(OsStr::new("qemu-x86_64")).ok_or(RecordError::NoQemu)?;
    let qemu = fs::canonicalize(&qemu).map_err(|_| RecordError::NoQemu)?;
    let plugin = find_plugin(options)?;
    stdin(options)?;
    let out = Writer::create(&options.output)?;
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let _signals = Signals::catch_these(&[libc::SIGINT, libc::SIGTERM]);

    let geometry = format!(
        ",l1={}:{},l2={}:{},llc={}:{},tlb={tlb}",
        l1.size, l1.ways, l2.size, l2.ways, llc.size, llc.ways
    );
    let setup = Setup { options, resolved, qemu, plugin, geometry };
    let native = setup.native_times(progress)?;
    let slice = setup.plan_slice(native.as_ref(), progress)?;
    let until = slice.for_insns.map_or(u64::MAX, |n| n.saturating_add(slice.skip_insns));
    let extra = format!(",skip={},until={until}", slice.skip_insns);

    let natively = setup.native_waits(native.as_ref(), progress);
    let (followed, drain) = setup.run(&extra, options.quiet, (out, natively), progress)?;
    if !drain.begun() {
        if followed.ended == Ended::Interrupted {
            return Err(RecordError::Interrupted);
        }
        let program = setup.resolved.path.display().to_string();
        return Err(RecordError::NotStarted { program, status: describe(&followed.ended) });
    }
    let (lost_frames, unrecorded_execs) = (drain.lost, drain.unrecorded);
    let by_itself = matches!(followed.ended, Ended::Exit(_) | Ended::SliceFull);
    let complete = by_itself && lost_frames == 0 && followed.alone && unrecorded_execs == 0;
    let status =
        matches!(followed.ended, Ended::Exit(_) | Ended::Signal(_)).then_some(followed.done.status);
    let (mut tasks, pages_touched, out) = drain.finish(status)?;
    // Of a single task all is known.
    if let Some(native) = native.as_ref().filter(|_| by_itself && tasks.len() > 1) {
        progress(Progress::Shares);
        // As often as it ran for its times.
        let runs: Vec<_> =
            (0..native.runs).map_while(|_| shares::trace(|| setup.alone().ok())).collect();
        if let Some(traced) = shares::median(&runs) {
            shares::share_out(&mut tasks, &traced);
        }
    }
    let mut totals = Totals::default();
    for t in &tasks {
        totals.add(&t.totals);
    }
    if totals.insns < slice.skip_insns && by_itself {
        return Err(RecordError::BeforeSlice { insns: totals.insns, skip: slice.skip_insns });
    }
    let header = Header {
        command: options.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        complete,
        ended: followed.ended,
        native,
        recorded_wall_ns: followed.wall_ns,
        machine: options.machine.name.clone(),
        caches: [l1, l2, llc].into_iter().filter(|c| c.size > 0).collect(),
        tlb_entries: tlb,
        epoch_insns: wire::EPOCH_INSNS,
        slice,
        totals,
        pages_touched,
        lost_frames,
        unrecorded_execs,
        tasks,
        ..Header::default()
    };
    let rows = out.rows();
    let bytes = out.finish(&header)?;
    Ok(Summary { output: options.output.clone(), bytes, rows, header })
}

fn describe(e: &Ended) -> String {
    match e {
        Ended::Exit(n) => format!("status {n}"),
        Ended::Signal(n) => format!("signal {n}"),
        other => format!("{other:?}"),
    }
}
