//! The main job on real input: this machine measured, sqlite3 recorded while it
//! builds an index, and replayed on this machine with a CXL node beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::Ending;
use crate::workspace::{Profile, Workspace, must_run, not_run, typed};

/// Rows of the demo's table: about 240 MB on disk and 320 MB in memory with the
/// index; about 2 s natively, so well under a minute under the recorder.
const ROWS: u64 = 3_000_000;

/// The table. Keys are spread by Knuth's multiplicative hash, so every machine
/// makes the same ones.
fn table_sql() -> String {
    format!(
        "PRAGMA journal_mode = OFF;\n\
         PRAGMA synchronous = OFF;\n\
         CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT);\n\
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})\n\
         INSERT INTO orders SELECT i, (i * 2654435761) % 4294967296,\n\
           substr('the quick brown fox jumps over the lazy dog and runs home again', 1 + i % 40) || hex(i * 7919)\n\
         FROM n;\n"
    )
}

/// The recorded job: everything happens in memory, so it can run twice (natively
/// and recorded) from the same start and leaves nothing behind. The look-ups at
/// the end fall on one row in a thousand, which gives the replay something hot.
fn index_sql(database: &Path) -> String {
    format!(
        "ATTACH '{}' AS disk;\n\
         CREATE TABLE orders AS SELECT * FROM disk.orders;\n\
         CREATE INDEX by_customer ON orders (customer);\n\
         WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 400000)\n\
         SELECT count(*), sum(length(note)) FROM n CROSS JOIN orders\n\
         ON customer = (((i * i) % 3000) * 2654435761) % 4294967296;\n",
        database.display()
    )
}

pub(crate) fn run(ws: &Workspace) -> Result<Ending> {
    let homenode = shown(ws, ws.homenode(Profile::Release)?);
    let begun = Instant::now();
    // Commands are shown with short paths and run as shown.
    std::env::set_current_dir(&ws.root)
        .with_context(|| format!("can't work in {}", ws.root.display()))?;
    let folder = shown(ws, ws.folder("demo")?);
    let machine = folder.join("this.toml");
    let database = folder.join("orders.db");
    let script = folder.join("index.sql");
    let recording = folder.join("sqlite.parquet");

    step(
        "1. This machine, measured",
        Command::new(&homenode).arg("measure").arg("-o").arg(&machine),
    )?;

    make_database(&database)?;
    fs::write(&script, index_sql(&database))
        .with_context(|| format!("can't write {}", script.display()))?;
    step(
        "2. sqlite3 building an index, its memory accesses recorded",
        Command::new(&homenode)
            .args(["record", "mem", "-o"])
            .arg(&recording)
            .arg("--machine")
            .arg(&machine)
            .args(["--", "sqlite3", "-batch", ":memory:"])
            .arg(format!(".read {}", script.display())),
    )?;

    step(
        "3. The same program with half of its memory on a CXL node",
        Command::new(&homenode)
            .arg("replay")
            .arg(&recording)
            .arg("--machine")
            .arg(&machine)
            .args(["--add-node", "cxl:half", "--for", "120s"]),
    )?;
    println!(
        "\nThe demo took {:.0} s. Its files are in {}.",
        begun.elapsed().as_secs_f64(),
        folder.display()
    );
    Ok(Ending::Done)
}

fn shown(ws: &Workspace, path: PathBuf) -> PathBuf {
    path.strip_prefix(&ws.root).map(Path::to_path_buf).unwrap_or(path)
}

fn step(title: &str, command: &mut Command) -> Result<()> {
    println!("\n== {title}\n$ {}", typed(command));
    must_run(command)
}

/// Makes the database beside its place and renames it, so that an interrupted
/// demo leaves no half of one.
fn make_database(database: &Path) -> Result<()> {
    if database.exists() {
        return Ok(());
    }
    println!("\n== A table of {ROWS} rows for the next step, made once: {}", database.display());
    let partial = database.with_extension("db.partial");
    if partial.exists() {
        fs::remove_file(&partial).with_context(|| format!("can't remove {}", partial.display()))?;
    }
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(&partial).arg(table_sql());
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
