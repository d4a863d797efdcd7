//! The main job on real input: this machine measured; sqlite3 recorded while it answers questions
//! about a table of which a part is asked for most, and while it reads another one evenly; both
//! replayed on this machine with half of their memory on a CXL node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Ending;
use crate::workspace::{Profile, Workspace, must_run, not_run, text_of, typed};

/// What the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// All that the commands print: every figure of this machine, all rows and columns
    #[arg(long)]
    full: bool,
}

/// Orders in the table: about 240 MB in memory.
const ORDERS: u64 = 1_000_000;
/// Questions about one order each: seconds natively, so about a minute under the recorder.
const QUESTIONS: u64 = 1_000_000;
/// The last ones, which nine of ten questions are about: more than last-level caches hold, and
/// less than half of the table.
const RECENT: u64 = 300_000;
/// Rows of the table that is read evenly.
const ROWS: u64 = 600_000;

/// The table of orders. Keys are spread by Knuth's multiplicative hash, so every machine makes the
/// same ones.
fn orders_sql() -> String {
    let note = "the quick brown fox jumps over the lazy dog and runs home again; ".repeat(4);
    format!(
        "PRAGMA journal_mode = OFF;\n\
         PRAGMA synchronous = OFF;\n\
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT);\n\
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {ORDERS})\n\
         INSERT INTO orders SELECT i, (i * 2654435761) % 4294967296, substr('{note}', 1 + i % 60, 200)\n\
         FROM n;\n"
    )
}

/// Both jobs happen in memory, so that they can run several times from the same start and leave
/// nothing behind. Nine of ten questions are about recent orders, which lie where memory was
/// touched last; the others about any.
fn questions_sql(database: &Path) -> String {
    format!(
        "ATTACH '{}' AS disk;\n\
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT);\n\
         INSERT INTO orders SELECT * FROM disk.orders;\n\
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {QUESTIONS})\n\
         SELECT count(*), sum(length(note)) FROM n CROSS JOIN orders ON id = CASE\n\
           WHEN i % 10 > 0 THEN {ORDERS} - ((i * i * 40503 + i * 2654435761) >> 8) % {RECENT}\n\
           ELSE 1 + ((i * 2654435761) >> 8) % {ORDERS} END;\n",
        database.display()
    )
}

/// An index over all rows: each is read as often as any other.
fn index_sql(database: &Path) -> String {
    format!(
        "ATTACH '{}' AS disk;\n\
         CREATE TABLE orders AS SELECT * FROM disk.orders WHERE id <= {ROWS};\n\
         CREATE INDEX by_customer ON orders (customer);\n",
        database.display()
    )
}

pub(crate) fn run(ws: &Workspace, options: &Options) -> Result<Ending> {
    let homenode = shown(ws, ws.homenode(Profile::Release)?);
    let begun = Instant::now();
    // Commands are shown with short paths and run as shown.
    std::env::set_current_dir(&ws.root)
        .with_context(|| format!("can't work in {}", ws.root.display()))?;
    let folder = shown(ws, ws.folder("demo")?);
    let machine = folder.join("this.toml");
    let database = folder.join("orders.db");

    let mut measure = Command::new(&homenode);
    measure.arg("measure").arg("-o").arg(&machine);
    title("This machine, measured", &measure);
    if options.full {
        must_run(&mut measure)?;
    } else {
        let text = text_of(measure.stderr(Stdio::inherit()))?;
        println!("{} figures, in {}", text.lines().count(), machine.display());
    }
    make_database(&database)?;

    let demo = Demo { homenode, machine, folder: folder.clone(), full: options.full };
    demo.record(
        "questions",
        &questions_sql(&database),
        "sqlite3 answering questions, nine of ten about recent orders: its memory accesses recorded",
    )?;
    demo.replay("questions", "120s", "The same program with half of its memory on a CXL node")?;
    demo.record(
        "index",
        &index_sql(&database),
        "sqlite3 building an index, which reads everything alike",
    )?;
    demo.replay("index", "60s", "That program, which has no hot memory, with half of it there")?;
    println!(
        "\nThe demo took {:.0} s. Its files are in {}.{}",
        begun.elapsed().as_secs_f64(),
        folder.display(),
        if options.full { "" } else { " All figures: cargo xtask demo --full" }
    );
    Ok(Ending::Done)
}

/// Where the demo's files are, and how much it shows.
struct Demo {
    homenode: PathBuf,
    machine: PathBuf,
    folder: PathBuf,
    full: bool,
}

impl Demo {
    fn recording(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.parquet"))
    }

    fn record(&self, name: &str, sql: &str, about: &str) -> Result<()> {
        let script = self.folder.join(format!("{name}.sql"));
        fs::write(&script, sql).with_context(|| format!("can't write {}", script.display()))?;
        let mut command = Command::new(&self.homenode);
        command.args(["record", "mem", "-o"]).arg(self.recording(name)).arg("--machine");
        command.arg(&self.machine).args(["--", "sqlite3", "-batch", ":memory:"]);
        command.arg(format!(".read {}", script.display()));
        title(about, &command);
        must_run(&mut command)
    }

    fn replay(&self, name: &str, span: &str, about: &str) -> Result<()> {
        let mut command = Command::new(&self.homenode);
        command.arg("replay").arg(self.recording(name)).arg("--machine").arg(&self.machine);
        command.args(["--add-node", "cxl:half", "--for", span, "--columns"]);
        if self.full {
            command.arg("off,mode1,mode2,mode3,interleave,homenode:pmu,all-dram");
            title(about, &command);
            return must_run(&mut command);
        }
        command.args(["off,mode2,homenode:pmu,all-dram", "--brief", "--figures", FIGURES]);
        title(about, &command);
        must_run(&mut command)
    }
}

/// A dozen rows at most: nodes have one each where a figure is by node.
const FIGURES: &str = "time-of-a-round-mean,time-of-the-last-round,accesses,accesses-in,\
                       pages-promoted,pages-demoted,spent-on-moving";

fn title(about: &str, command: &Command) {
    println!("\n== {about}\n$ {}", typed(command));
}

fn shown(ws: &Workspace, path: PathBuf) -> PathBuf {
    path.strip_prefix(&ws.root).map(Path::to_path_buf).unwrap_or(path)
}

/// Makes the database beside its place and renames it, so that an interrupted
/// demo leaves no half of one.
fn make_database(database: &Path) -> Result<()> {
    if database.exists() {
        return Ok(());
    }
    println!(
        "\n== A table of {ORDERS} orders for the next step, made once: {}",
        database.display()
    );
    let partial = database.with_extension("db.partial");
    if partial.exists() {
        fs::remove_file(&partial).with_context(|| format!("can't remove {}", partial.display()))?;
    }
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(&partial).arg(orders_sql());
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| not_run(&command, e))?;
    if !status.success() {
        bail!("sqlite3 could not make {}: {status}", partial.display());
    }
    fs::rename(&partial, database).with_context(|| format!("can't rename {}", partial.display()))
}
