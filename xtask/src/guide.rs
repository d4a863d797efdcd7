//! README.md and docs/guide: what commands print there is made by the commands.
//!
//! A block of output has a comment before it that says which command makes it and
//! which of its lines are shown:
//!
//! ````text
//! <!--
//! run: homenode sim scenarios/zipf.toml --columns off,mode2
//! keep: first 2
//! keep: rows accesses; pages promoted
//! -->
//! ```text
//! ...
//! ```
//! ````
//!
//! `docs/guide/index.md` tells contributors all of it; `page` reads a
//! page, `keep` chooses lines, `links` and `typed` look at what pages say elsewhere.

mod keep;
mod links;
mod page;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace::{Profile, Workspace, files, not_run};
use crate::{Ending, Misused, abreast};
use page::{Block, Page, Provenance};

/// Where the pages are; the README is one of them.
const FOLDER: &str = "docs/guide";
const README: &str = "README.md";
/// Leads to every other page.
const INDEX: &str = "docs/guide/index.md";

/// A README is read before anybody knows whether it is worth it.
const README_LINES_MAX: usize = 200;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Change nothing: say what differs, and which links and options are wrong
    #[arg(long, conflicts_with_all = ["all", "pages"])]
    check: bool,
    /// The blocks too that take long or need what was made before
    #[arg(long)]
    all: bool,
    /// Pages by the name of their file, without its end; all unless named
    #[arg(value_name = "PAGE")]
    pages: Vec<String>,
}

impl Options {
    /// All pages held against what is quick.
    pub(crate) fn check() -> Self {
        Self { check: true, ..Self::default() }
    }

    /// Whether a block is made anew. One that takes long is only if it was asked for.
    fn wants(&self, block: &Block) -> bool {
        match block.source() {
            Provenance::Run(_) | Provenance::File(_) => true,
            Provenance::OnRequest(_) => self.all || !self.pages.is_empty(),
            Provenance::ByHand => false,
        }
    }
}

/// `cargo xtask guide`: writes pages anew or, with `--check`, holds them against the
/// commands. Each thing that is wrong is printed.
pub(crate) fn run(ws: &Workspace, options: &Options) -> Result<Ending> {
    // Both profiles print the same. What takes long is worth a build of its own.
    let long = options.all || !options.pages.is_empty();
    let begun = Instant::now();
    let pages = read_all(&ws.root)?;
    if let Some(name) = options.pages.iter().find(|name| !pages.iter().any(|p| p.is_called(name))) {
        let known: Vec<&str> = pages.iter().map(Page::called).collect();
        let known = known.join(", ");
        return Err(Misused(format!("there is no page `{name}`; there are {known}")).into());
    }
    let asked =
        |page: &&Page| options.pages.is_empty() || options.pages.iter().any(|p| page.is_called(p));
    let mut maker = Maker::new(ws, if long { Profile::Release } else { Profile::Ci })?;
    let wanted = pages.iter().filter(asked).flat_map(|page| &page.blocks);
    maker.ahead(wanted.filter(|block| options.wants(block)).map(Block::source));
    let mut wrong = Vec::new();
    let mut held = 0;
    for page in pages.iter().filter(asked) {
        wrong.extend(page.wrong.iter().cloned());
        let (made, errors) = anew(page, options, &mut |source| maker.make(source));
        wrong.extend(errors);
        held += page.blocks.iter().filter(|block| options.wants(block)).count();
        if made != page.text && options.check {
            wrong.push(difference(ws, page, &made)?);
        } else if made != page.text {
            let path = ws.root.join(&page.name);
            fs::write(&path, &made).with_context(|| format!("can't write {}", page.name))?;
            println!("{}: written anew", page.name);
        }
    }
    if options.check {
        wrong.extend(links::check(&ws.root, &pages));
        wrong.extend(typed::check(&pages, &mut |words| maker.help(words)));
        wrong.extend(shape(&pages));
    }
    for text in &wrong {
        println!("{text}");
    }
    if wrong.is_empty() {
        let (took, pages) = (begun.elapsed().as_secs_f64(), pages.len());
        println!(
            "guide: {pages} pages, {held} blocks are what commands and files say ({took:.0} s)"
        );
        return Ok(Ending::Done);
    }
    println!("guide: {} found; `cargo xtask guide` writes blocks anew", wrong.len());
    Ok(Ending::Failed)
}

/// The README and the guide's pages, in the order of their names.
fn read_all(root: &Path) -> Result<Vec<Page>> {
    let pages = files(&root.join(FOLDER), "md")?;
    let names = pages.iter().filter_map(|path| path.file_name());
    let names = names.map(|name| format!("{FOLDER}/{}", name.to_string_lossy()));
    let read = |name: String| {
        let text = fs::read_to_string(root.join(&name));
        Ok(Page::parse(&name, text.with_context(|| format!("can't read {name}"))?))
    };
    std::iter::once(README.to_owned()).chain(names).map(read).collect()
}

/// A page with its blocks made anew, and what went wrong; such a block stays.
fn anew(
    page: &Page,
    options: &Options,
    make: &mut dyn FnMut(&Provenance) -> Result<String>,
) -> (String, Vec<String>) {
    let mut wrong = Vec::new();
    let mut out = String::new();
    let lines: Vec<&str> = page.text.lines().collect();
    let mut next = 0;
    for block in &page.blocks {
        out.extend(lines[next..block.body.start].iter().flat_map(|line| [*line, "\n"]));
        next = block.body.start;
        if !options.wants(block) {
            continue;
        }
        let at = format!("{}:{}", page.name, block.line);
        match make(block.source()).and_then(|text| block.shown(&text)) {
            Ok(text) => {
                out.push_str(&text);
                next = block.body.end;
            }
            Err(error) => wrong.push(match block.needs() {
                Some(needs) => format!("{at}: {error:#}\n  it needs: {needs}"),
                None => format!("{at}: {error:#}"),
            }),
        }
    }
    out.extend(lines[next..].iter().flat_map(|line| [*line, "\n"]));
    (out, wrong)
}

/// Which lines differ, and how, in the words of git.
fn difference(ws: &Workspace, page: &Page, made: &str) -> Result<String> {
    let file = ws.folder("guide")?.join(page.name.replace('/', "-"));
    fs::write(&file, made).with_context(|| format!("can't write {}", file.display()))?;
    let mut command = Command::new("git");
    command
        .current_dir(&ws.root)
        .args(["diff", "--no-index", "--no-color", "--unified=0", "--", &page.name])
        .arg(&file)
        .stdin(Stdio::null());
    let output = command.output().map_err(|e| not_run(&command, e))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let hunks: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("@@")).collect();
    Ok(format!(
        "{} differs from what its commands print (-: the page, +: the commands)\n{}",
        page.name,
        hunks.join("\n")
    ))
}

/// What holds for the pages as a whole.
fn shape(pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    let readme = pages.iter().find(|page| page.name == README);
    let lines = readme.map_or(0, |page| page.text.lines().count());
    if lines > README_LINES_MAX {
        wrong.push(format!(
            "{README}: {lines} lines, more than {README_LINES_MAX}: the rest belongs in {FOLDER}"
        ));
    }
    let Some(index) = pages.iter().find(|page| page.name == INDEX) else {
        wrong.push(format!("there is no {INDEX}, which leads to every page"));
        return wrong;
    };
    let led_to: Vec<&str> =
        links::of(index).filter_map(|link| link.what.split('#').next()).collect();
    for page in pages.iter().filter(|page| page.name != README && page.name != INDEX) {
        let file = page.name.rsplit('/').next().unwrap_or_default();
        if !led_to.contains(&file) {
            wrong.push(format!("{INDEX}: no link leads to {}", page.name));
        }
    }
    wrong
}

/// Runs commands in the workspace's root, each once.
struct Maker {
    root: PathBuf,
    homenode: PathBuf,
    made: BTreeMap<Vec<String>, String>,
}

impl Maker {
    fn new(ws: &Workspace, profile: Profile) -> Result<Self> {
        Ok(Self { root: ws.root.clone(), homenode: ws.homenode(profile)?, made: BTreeMap::new() })
    }

    fn make(&mut self, source: &Provenance) -> Result<String> {
        match source {
            Provenance::Run(words) | Provenance::OnRequest(words) => self.printed(words),
            Provenance::File(name) => fs::read_to_string(self.root.join(name))
                .with_context(|| format!("can't read {}", name.display())),
            Provenance::ByHand => bail!("nothing makes a block by hand"),
        }
    }

    /// Runs what is quick of these, as many at once as there are CPUs. What fails is run again
    /// where its block is made, and says there why.
    fn ahead<'a>(&mut self, sources: impl Iterator<Item = &'a Provenance>) {
        let quick = sources.filter_map(|source| match source {
            Provenance::Run(words) => Some(words),
            // Some of these measure, so that nothing else should run.
            Provenance::OnRequest(_) | Provenance::File(_) | Provenance::ByHand => None,
        });
        let all: Vec<_> = quick.collect::<BTreeSet<_>>().into_iter().collect();
        let printed = abreast::each(abreast::cpus(), &all, |words| self.run(words));
        let well =
            all.into_iter().zip(printed).filter_map(|(w, text)| Some((w.clone(), text.ok()?)));
        self.made.extend(well);
    }

    fn help(&mut self, words: &[String]) -> Result<String> {
        let mut all = words.to_vec();
        all.push("--help".to_owned());
        self.printed(&all)
    }

    /// What `homenode` prints with these arguments; it is run once.
    fn printed(&mut self, words: &[String]) -> Result<String> {
        if let Some(text) = self.made.get(words) {
            return Ok(text.clone());
        }
        let text = self.run(words)?;
        self.made.insert(words.to_vec(), text.clone());
        Ok(text)
    }

    fn run(&self, words: &[String]) -> Result<String> {
        let mut command = Command::new(&self.homenode);
        command.current_dir(&self.root).args(words);
        // Pictures in tables are made of block elements where the locale has them.
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        let output = command.output().map_err(|e| not_run(&command, e))?;
        // A conclusion that fails is an answer too, and the page shows it.
        let answered =
            words.first().is_some_and(|w| *w == "reproduce") && output.status.code() == Some(1);
        if !output.status.success() && !answered {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`homenode {}` failed: {}\n{}", words.join(" "), output.status, said.trim_end());
        }
        String::from_utf8(output.stdout).context("it printed no UTF-8")
    }
}

#[cfg(test)]
mod tests;
