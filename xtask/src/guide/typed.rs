//! Commands that pages tell to type: their options are those that `--help` lists.

use anyhow::Result;

use super::page::Page;
use crate::markdown::At;

/// Blocks that are to be typed.
const SHELL: &str = "sh";

/// The arguments of a page's `homenode` commands, with their line: those of its shell
/// blocks, and those that stand in a line of its text.
fn of(page: &Page) -> Vec<At<Vec<String>>> {
    let lines: Vec<&str> = page.text.lines().collect();
    let mut found: Vec<At<Vec<String>>> = Vec::new();
    let mut take = |line, text: &str| {
        found.extend(arguments(text).map(|words| At { line, what: words }));
    };
    for At { what: block, .. } in page.parts.fenced.iter().filter(|f| f.what.kind == SHELL) {
        // A line that ends in a backslash goes on with the next.
        let mut begun: Option<(usize, String)> = None;
        for at in block.body.clone() {
            let (line, text) = begun.take().unwrap_or((at + 1, String::new()));
            match lines[at].strip_suffix('\\') {
                Some(part) => begun = Some((line, text + part)),
                None => take(line, &(text + lines[at])),
            }
        }
    }
    page.parts.code.iter().for_each(|code| take(code.line, &code.what));
    found
}

/// The arguments, if this is a homenode command, up to a `--` and what follows.
fn arguments(text: &str) -> Option<Vec<String>> {
    let text = text.split(" #").next().unwrap_or_default();
    let mut words = text.split_whitespace().skip_while(|word| matches!(*word, "sudo" | "$"));
    (words.next() == Some("homenode")).then(|| {
        words.take_while(|word| !matches!(*word, "--" | "|" | ">")).map(str::to_owned).collect()
    })
}

/// What no command takes. `help` gives what `homenode WORDS --help` prints.
pub(super) fn check(
    pages: &[Page],
    help: &mut dyn FnMut(&[String]) -> Result<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        for typed in of(page) {
            if let Err(what) = fits(&typed.what, help) {
                wrong.push(format!("{}:{}: {what}", page.name, typed.line));
            }
        }
    }
    wrong
}

fn fits(words: &[String], help: &mut dyn FnMut(&[String]) -> Result<String>) -> Result<(), String> {
    let mut command: Vec<String> = Vec::new();
    let mut text = help(&command).map_err(|e| format!("{e:#}"))?;
    let mut rest = words;
    while let Some(listed) = subcommands(&text) {
        let Some((next, after)) = rest.split_first() else { break };
        if next.starts_with('-') {
            break;
        }
        if !listed.contains(&next.as_str()) {
            // Some commands take a file themselves and have others below them.
            if text.lines().any(|line| line == "Arguments:") {
                break;
            }
            let so_far: String = command.iter().map(|word| format!(" {word}")).collect();
            return Err(format!("`homenode{so_far}` has no command `{next}`"));
        }
        command.push(next.clone());
        rest = after;
        text = help(&command).map_err(|e| format!("{e:#}"))?;
    }
    for word in rest.iter().filter(|word| word.starts_with('-')) {
        let name = word.split('=').next().unwrap_or(word);
        if !options(&text).contains(&name) {
            return Err(format!("`homenode {}` has no option `{name}`", command.join(" ")));
        }
    }
    Ok(())
}

/// The commands that a help text lists, if it is one of several commands.
fn subcommands(help: &str) -> Option<Vec<&str>> {
    let listed = help.split("\nCommands:\n").nth(1)?;
    let names = listed.lines().take_while(|line| line.starts_with("  "));
    Some(names.filter_map(|line| line.split_whitespace().next()).collect())
}

/// The options that it lists: `-o` and `--output` of `  -o, --output <FILE>`.
fn options(help: &str) -> Vec<&str> {
    let listed = help.lines().filter(|line| line.trim_start().starts_with('-'));
    listed
        .flat_map(|line| line.split_whitespace().take_while(|word| word.starts_with('-')))
        .map(|word| word.trim_end_matches(','))
        .collect()
}
