use super::*;

/// A page of the guide from lines in which `'''` stands for a fence.
fn page(text: &str) -> Page {
    Page::parse("docs/guide/a.md", text.replace("'''", "```"))
}

/// What is wrong with a page by itself.
fn wrong(text: &str) -> String {
    page(text).wrong.join("\n")
}

/// A homenode that prints its arguments, a line each.
fn echo(source: &Provenance) -> Result<String> {
    match source {
        Provenance::Run(words) | Provenance::OnRequest(words) => {
            match words.first().map(String::as_str) {
                Some("fail") => bail!("`homenode fail` failed"),
                _ => Ok(words.iter().map(|word| format!("{word}\n")).collect()),
            }
        }
        Provenance::File(name) => Ok(format!("in {}\n", name.display())),
        Provenance::ByHand => bail!("nothing makes a block by hand"),
    }
}

fn options(args: &[&str]) -> Options {
    Options {
        all: args.contains(&"--all"),
        pages: args.iter().filter(|a| !a.starts_with('-')).map(|a| (*a).to_owned()).collect(),
        ..Options::default()
    }
}

#[test]
fn a_block_is_what_its_command_prints() {
    let before = page(
        "One.\n\n<!-- run: homenode sim zipf -->\n'''text\nold\n'''\n\nTwo.\n<!--\nfile: a.toml\n-->\n'''toml\n'''\nEnd.\n",
    );
    assert_eq!(before.wrong, [] as [&str; 0]);
    let (made, errors) = anew(&before, &Options::default(), &mut echo);
    assert_eq!(errors, [] as [&str; 0]);
    let expected = "One.\n\n<!-- run: homenode sim zipf -->\n'''text\nsim\nzipf\n'''\n\nTwo.\n<!--\nfile: a.toml\n-->\n'''toml\nin a.toml\n'''\nEnd.\n";
    assert_eq!(made, expected.replace("'''", "```"));

    let again = Page::parse(&before.name, made.clone());
    assert_eq!(
        anew(&again, &Options::default(), &mut echo).0,
        made,
        "a second time changes nothing"
    );
}

#[test]
fn what_takes_long_is_made_only_when_asked() {
    let page = page(
        "<!-- on request: homenode reproduce -->\n'''text\nold\n'''\n<!-- by hand: make run | a laptop | 2026-11-22 -->\n'''text\nmine\n'''\n",
    );
    let made = |args: &[&str]| anew(&page, &options(args), &mut echo).0;
    assert_eq!(made(&[]), page.text);
    for asked in [made(&["--all"]), made(&["a"])] {
        assert!(asked.contains("\nreproduce\n") && asked.contains("\nmine\n"), "{asked}");
    }
}

#[test]
fn a_command_that_fails_leaves_its_block_and_says_where() {
    let page = page("<!--\nrun: homenode fail\nneeds: make run, before\n-->\n'''text\nold\n'''\n");
    let (made, errors) = anew(&page, &Options::default(), &mut echo);
    assert_eq!(made, page.text);
    assert_eq!(errors, ["docs/guide/a.md:1: `homenode fail` failed\n  it needs: make run, before"]);
}

#[test]
fn each_mistake_in_a_page_is_found_where_it_is() {
    for (text, expected) in [
        ("<!-- run: -->\n'''text\n'''\n", "a.md:1: no command: it begins with homenode"),
        ("<!-- keep: first 2 -->\n'''text\n'''\n", "a.md:1: no command: write run"),
        ("\n<!-- run: ls -->\n'''text\n'''\n", "a.md:2: only homenode is run, not `ls`"),
        ("<!-- rum: homenode -->\n'''text\n'''\n", "a.md:1: `rum` means nothing here"),
        ("<!--\nrun: homenode\nfile: a\n-->\n'''text\n'''\n", "a.md:1: two lines say"),
        (
            "<!--\nrun: homenode\nkeep: columns 3\n-->\n'''text\n'''\n",
            "a.md:1: keep: `columns` is no filter",
        ),
        (
            "<!--\nrun: homenode\nkeep: first x\n-->\n'''text\n'''\n",
            "a.md:1: keep: first: `x` is no number",
        ),
        ("<!-- by hand: make run | here -->\n'''text\n'''\n", "a.md:1: write by hand: COMMAND |"),
        ("<!-- by hand: make run | here | yesterday -->\n'''text\n'''\n", "a.md:1: write by hand"),
        (
            "<!-- run: homenode -->\n\n'''text\n'''\n",
            "a.md:1: the comment has to stand right above",
        ),
        ("<!-- run: homenode -->\n", "a.md:1: the comment has to stand right above a block"),
        (
            "<!-- run: homenode\n'''text\n'''\n",
            "a.md:1: the comment has to stand right above a block, and to be closed",
        ),
        ("a\n'''text\nb\n'''\n", "a.md:2: no comment above says where this output is from"),
        ("- a\n  '''text\n", "a.md:2: a block begins at the line's first place"),
        ("'''sh\nb\n", "a.md:1: this block is never closed"),
        ("'''sh\n'''text\n'''\n", "a.md:2: a block begins inside of the one above"),
    ] {
        let found = wrong(text);
        assert!(found.contains(expected), "of {text:?}: {found:?}");
    }
    assert_eq!(wrong("'''sh\nls\n'''\n'''toml\na = 1\n'''\n"), "");
}

#[test]
fn output_that_would_end_its_block_is_refused() {
    let page = page("<!-- run: homenode ```text -->\n'''text\nold\n'''\n");
    let (made, errors) = anew(&page, &Options::default(), &mut echo);
    assert_eq!(made, page.text);
    assert!(errors[0].contains("a.md:1: the line ````text` would end the block"), "{errors:?}");
}

const OUTPUT: &str = "          off   mode 2
time        1        1
  spread    0        0
accesses    5        9
vmstat
pgfault     7        7

at 3s: read a
x

at 9s: read b
y

hash: 12
";

/// What `keep` lines leave of the output above.
fn kept(lines: &[&str]) -> String {
    let keep: Vec<keep::Keep> =
        lines.iter().map(|line| keep::Keep::parse(line).expect("a filter")).collect();
    match keep::apply(&keep, OUTPUT) {
        Ok(lines) => lines.join("|"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn lines_are_kept_by_name_and_by_place() {
    assert_eq!(kept(&["rows time; accesses"]), "time        1        1|accesses    5        9");
    assert_eq!(
        kept(&["rows accesses", "first 1"]),
        "          off   mode 2|accesses    5        9"
    );
    assert_eq!(kept(&["rows access"]), "keep: no line begins with `access`", "no whole word");
    assert_eq!(kept(&["rows spread"]), "  spread    0        0");
    assert_eq!(kept(&["rows y; x after at"]), "x||y");
    assert_eq!(kept(&["entry time"]), "time        1        1|  spread    0        0");
    assert_eq!(kept(&["from vmstat up to pgfault"]), "vmstat|pgfault     7        7");
    assert_eq!(kept(&["from at 3s"]), "at 3s: read a|x");
    assert_eq!(kept(&["rows time", "from at 9s"]), "time        1        1||at 9s: read b|y");
    assert_eq!(kept(&[]).lines().count(), 1);
    assert_eq!(kept(&[]), OUTPUT.trim_end().replace('\n', "|"), "all of it");
}

#[test]
fn a_long_line_is_broken_at_a_blank() {
    assert_eq!(keep::wrap("holds  1. as it should be", 12), "holds  1. as\n  it should\n  be\n");
    assert_eq!(keep::wrap("incomprehensibilities a", 5), "incomprehensibilities\n  a\n");
    assert_eq!(keep::wrap("", 5), "\n");
}

#[test]
fn a_row_that_is_no_longer_there_is_noticed() {
    assert_eq!(kept(&["rows time; memory"]), "keep: no line begins with `memory`");
    assert_eq!(kept(&["from at 4s"]), "keep: no line begins with `at 4s`");
    assert_eq!(kept(&["entry space"]), "keep: no line begins with `space`");
    assert_eq!(kept(&["rows x after at 9s"]), "keep: no line begins with `x`");
    assert_eq!(
        kept(&["from at 3s up to pgfault"]),
        "keep: after `at 3s` no line begins with `pgfault`"
    );
}

#[test]
fn links_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let check = |text: &str| links::check(root, &[page(text)]).join("\n");
    assert_eq!(
        check("# A `b` c?\n[x](#a-b-c) [y](../../README.md)[z](https://example.org/)\n"),
        ""
    );
    assert_eq!(check("[x](../../specs/tiering.md#bits)\n"), "");
    assert_eq!(check("'''text\n[x](nowhere.md)\n'''\n"), "", "output is no prose");
    assert_eq!(
        check("\n[x](nowhere.md)\n"),
        "docs/guide/a.md:2: the link `nowhere.md` leads nowhere"
    );
    assert_eq!(
        check("[x](../../specs/tiering.md#frob)\n"),
        "docs/guide/a.md:1: specs/tiering.md has no heading `#frob`"
    );
}

/// A homenode with three commands: one has commands of its own, one a file or such commands.
fn help(words: &[String]) -> Result<String> {
    Ok(match words.join(" ").as_str() {
        "" => {
            "Usage\n\nCommands:\n  sim    Run\n  merge  Merge\n  replay  Play\n\nOptions:\n  -h, --help  Help\n"
        }
        "replay" => {
            "Usage\n\nCommands:\n  sched  Play\n\nArguments:\n  <FILE>\n\nOptions:\n      --machine <FILE>\n"
        }
        "replay sched" => "Options:\n      --cpus <LIST>\n",
        "merge" => "Usage\n\nCommands:\n  drive  Drive\n\nOptions:\n",
        "sim" => {
            "Options:\n      --seeds <N>\n          Runs, --not-this one\n  -o, --output <FILE>\n"
        }
        "merge drive" => "Options:\n      --act\n          Act\n",
        other => bail!("no help of {other}"),
    }
    .to_owned())
}

#[test]
fn commands_to_be_typed_have_the_options_that_they_name() {
    let check = |text: &str| typed::check(&[page(text)], &mut help).join("\n");
    assert_eq!(
        check(
            "'''sh\nsudo homenode sim a.toml --seeds=3 -o b  # --comment\nls --frob\nhomenode merge drive --act -- ./job --its arguments\n'''\n"
        ),
        ""
    );
    assert_eq!(check("Type `homenode sim --seeds 2` or `homenode`.\n"), "");
    let both =
        "'''sh\nhomenode replay a.parquet --machine b\nhomenode replay sched c --cpus 0\n'''\n";
    assert_eq!(check(both), "");
    assert_eq!(check("'''text\nhomenode frob\n'''\n"), "", "nobody types output");
    for (text, expected) in [
        (
            "'''sh\nhomenode sim \\\n    --sees 3\n'''\n",
            "docs/guide/a.md:2: `homenode sim` has no option `--sees`",
        ),
        ("'''sh\n\nhomenode frob\n'''\n", "docs/guide/a.md:3: `homenode` has no command `frob`"),
        (
            "'''sh\nhomenode merge act\n'''\n",
            "docs/guide/a.md:2: `homenode merge` has no command `act`",
        ),
        (
            "'''sh\nhomenode sim --not-this\n'''\n",
            "docs/guide/a.md:2: `homenode sim` has no option `--not-this`",
        ),
        (
            "\nOr `homenode merge drive --all`.\n",
            "docs/guide/a.md:2: `homenode merge drive` has no option `--all`",
        ),
    ] {
        assert_eq!(check(text), expected);
    }
}

#[test]
fn the_readme_is_short_and_the_index_leads_everywhere() {
    let named = |name: &str, text: &str| Page::parse(name, text.to_owned());
    let long = "x\n".repeat(README_LINES_MAX + 1);
    assert_eq!(
        shape(&[
            named(README, &long),
            named(INDEX, "[b](b.md#c)\n"),
            named("docs/guide/b.md", ""),
            named("docs/guide/d.md", "")
        ]),
        [
            "README.md: 201 lines, more than 200: the rest belongs in docs/guide",
            "docs/guide/index.md: no link leads to docs/guide/d.md"
        ]
    );
    assert!(shape(&[named(README, "")])[0].contains("there is no docs/guide/index.md"));
}
