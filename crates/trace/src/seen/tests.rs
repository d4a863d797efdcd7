use super::*;
use expect_test::expect;
use homenode_core::limits::Whose;
use homenode_core::offcore::Offcore;
use homenode_core::policy::order::{Fails, OrderId};
use homenode_core::policy::seen::{Seen, Span, Who, ZoneSeen};
use homenode_core::tiering::watermarks::ZoneMarks;
use homenode_core::topology::ZoneKind;
use homenode_core::units::{Pages, Picos};
use homenode_fixtures::Folder;
use proptest::prelude::*;

fn about() -> About {
    About {
        by: "advise".into(),
        homenode: "0.1.0".into(),
        kernel: Some("6.12.1".into()),
        rules: "6.12".into(),
        unix_ms: 5,
        source: "damon".into(),
        source_notes: vec!["why".into()],
        nothing: None,
        most_pages: 512,
        began: 7,
        length: Some(9),
        machine: "name = \"two\"\n".into(),
        config: Some(("a.toml".into(), "[budget]\n".into())),
        users: BTreeMap::from([("web".to_owned(), 33)]),
        look_page: 39_000,
        count_page: 47_000,
        knobs: KnobFacts::from(&Facts {
            nodes: vec![NodeFacts {
                id: NodeId(2),
                cpus: false,
                memory: true,
                slow: true,
                bandwidth: Some(3),
                write_bandwidth: None,
                weight: Some(1),
            }],
            balancing: Some(2),
            demotion: Some(true),
            ..Facts::default()
        }),
    }
}

const WHO: Who = Who { pid: 289, start: 4120 };

/// One of each.
fn all() -> Vec<Heard> {
    let span = Span { start: 16, end: 20 };
    let [no_room, busy, absent, forbidden, gone] = [1, 2, 3, 4, 5].map(Pages);
    let marks = ZoneMarks {
        kind: ZoneKind::Movable,
        managed: Pages(9),
        min: Pages(1),
        low: Pages(2),
        high: Pages(3),
        promo: Pages(4),
        reserve: Pages(5),
    };
    let seen = vec![
        Seen::Task { who: WHO, ran: Picos(8), node: Some(NodeId(1)), resident: Pages(6) },
        Seen::Gone { who: WHO },
        Seen::Region {
            who: WHO,
            span,
            accessed: 3,
            checks: 20,
            every: Picos(5),
            age: Picos(u64::MAX),
        },
        Seen::Fault { who: WHO, vpn: 17, from: NodeId(0), on: NodeId(2), after: None },
        Seen::Sample { who: WHO, vpn: 18, from: NodeId(0), period: 10_007 },
        Seen::Loads {
            who: WHO,
            counted: Offcore { reads: 4, busy: Picos(200), under_way: Picos(800) },
        },
        Seen::Resident { who: WHO, span, on: NodeId(2), pages: Pages(4) },
        Seen::Huge { who: WHO, span: Span { start: 512, end: 1536 } },
        Seen::Node {
            node: NodeId(0),
            zones: vec![ZoneSeen { free: Pages(7), marks }],
            load: Some(1200),
            idle: None,
        },
        Seen::Node { node: NodeId(1), zones: vec![], load: None, idle: Some(1750) },
        Seen::Done {
            order: OrderId(3),
            tried: Pages(16),
            moved: Pages(1),
            fails: Fails { no_room, busy, absent, forbidden, gone },
            took: Picos(11),
        },
        Seen::Lost { events: 2 },
        Seen::Stale { since: Picos(1) },
    ];
    let whose = Whose { command: "web".into(), cgroup: "/w".into(), user: 33 };
    vec![
        Heard::Named { who: WHO, name: "web \"1\"".into() },
        Heard::Waited { now: Picos(10), seen },
        Heard::Ordered { order: OrderId(1), act: "watch 289@4120".into(), refused: None },
        Heard::Ordered { order: OrderId(2), act: "x".into(), refused: Some("no such node".into()) },
        Heard::Moved { order: OrderId(7), act: "move".into() },
        Heard::Whose { who: WHO, whose: Some(whose) },
        Heard::Has { cgroup: "/w".into(), pages: Some(Pages(5)) },
    ]
}

fn write(path: &Path, lines: &[Heard]) {
    let mut w = Writer::create(path).unwrap();
    w.begin(&about()).unwrap();
    lines.iter().for_each(|h| w.push(h).unwrap());
    assert!(!path.exists(), "it is not whole yet");
    assert_eq!(w.finish(&["careful".to_owned()]).unwrap(), lines.len() as u64);
}

/// All that is in it, how it ends, and what is wrong with it.
fn read(path: &Path) -> (Vec<Heard>, Option<Ending>, Option<String>) {
    let (reader, _) = match Reader::open(path) {
        Ok(all) => all,
        Err(e) => return (Vec::new(), None, Some(e.to_string())),
    };
    let (ended, mut lines, mut wrong) = (reader.ended(), Vec::new(), None);
    for line in reader {
        match line {
            Ok(heard) => lines.push(heard),
            Err(e) => wrong = Some(e.to_string()),
        }
    }
    (lines, ended.get(), wrong)
}

/// A file of these lines, as text.
fn file(path: &Path, text: &str) {
    let mut out = FrameEncoder::new(File::create(path).unwrap());
    out.write_all(text.as_bytes()).unwrap();
    out.flush().unwrap();
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    FrameDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_was_written_is_read() {
    let at = Folder::new();
    let path = at.join("a.seen");
    write(&path, &all());
    let (_, above) = Reader::open(&path).unwrap();
    assert_eq!(above, about());
    let facts = Facts::from(above.knobs);
    assert_eq!((facts.balancing, facts.nodes[0].id), (Some(2), NodeId(2)));
    let (lines, ended, wrong) = read(&path);
    assert_eq!((lines, wrong), (all(), None));
    assert_eq!(ended, Some(Ending::Whole(vec!["careful".to_owned()])));
    let shown = text(&path);
    let shown: Vec<&str> = shown.lines().skip(1).collect();
    expect![[r#"
        {"named":[289,4120,"web \"1\""]}
        {"waited":[10,[{"task":[289,4120,8,1,6]},{"gone":[289,4120]},{"region":[289,4120,16,20,3,20,5,18446744073709551615]},{"fault":[289,4120,17,0,2,null]},{"sample":[289,4120,18,0,10007]},{"loads":[289,4120,4,200,800]},{"resident":[289,4120,16,20,2,4]},{"huge":[289,4120,512,1536]},{"node":[0,[["movable",7,9,[1,2,3,4,5]]],1200]},{"nodecpus":[1,[],null,1750]},{"done":[3,16,1,[1,2,3,4,5],11]},{"lost":2},{"stale":1}]]}
        {"ordered":[1,"watch 289@4120",null]}
        {"ordered":[2,"x","no such node"]}
        {"moved":[7,"move"]}
        {"whose":[289,4120,["web","/w",33]]}
        {"has":["/w",5]}
        {"end":{"lines":7,"warnings":["careful"]}}"#]]
    .assert_eq(&shown.join("\n"));
}

#[test]
fn a_file_that_was_cut_is_read_up_to_its_last_whole_line() {
    let at = Folder::new();
    let path = at.join("a.seen");
    write(&path, &all());
    // Of blocks: the last one is missing, or ends too early.
    let mut w = Writer::create(&at.join("b.seen")).unwrap();
    w.begin(&about()).unwrap();
    for heard in all() {
        w.push(&heard).unwrap();
        w.keep().unwrap();
    }
    drop(w);
    let beside = at.join("b.seen.partial");
    assert_eq!(read(&beside), (all(), Some(Ending::Cut(8)), None));
    let bytes = fs::read(&beside).unwrap();
    fs::write(&beside, &bytes[..bytes.len() - 3]).unwrap();
    let (lines, ended, wrong) = read(&beside);
    assert_eq!((lines.len(), ended, wrong), (6, Some(Ending::Cut(7)), None));
    // Of lines.
    let whole = text(&path);
    file(&path, whole.rsplit_once("{\"has").unwrap().0);
    assert_eq!(read(&path).1, Some(Ending::Cut(7)));
    file(&path, whole.rsplit_once("\"end").unwrap().0);
    assert_eq!(read(&path).1, Some(Ending::Cut(8)));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let at = Folder::new();
    let path = at.join("a.seen");
    write(&path, &all());
    let whole = text(&path);
    let name = path.display().to_string();
    let told = |text: &str| {
        file(&path, text);
        read(&path).2.expect("something is wrong").replace(&name, "a.seen")
    };
    let begins = "it does not begin as `advise --record` and `observe --record` write it";
    for (text, part) in [
        (String::new(), begins.to_owned()),
        ("hello\n".to_owned(), begins.to_owned()),
        ("{}\n".to_owned(), begins.to_owned()),
        (whole.replace("\"version\":1", "\"version\":2"), "version 2; this homenode reads".into()),
        (whole.replace("\"rules\":", "\"rule\":"), "a.seen, line 1: missing field `rules`".into()),
        (whole.replace("\"gone\":[289", "\"gone\":[\"x\""), "a.seen, line 3: invalid type".into()),
        (
            whole.replace("[289,4120,16,20,2,4]", "[289,4120,20,16,2,4]"),
            "pages that are in no".into(),
        ),
        (
            whole.replace("[289,4120,18,", "[289,4120,18446744073709551615,"),
            "pages that are in".into(),
        ),
        (
            whole.replace("{\"waited\":[10", "{\"waited\":[9999999999999999999"),
            "a time after".into(),
        ),
        (whole.replace("{\"has", "{\"haz"), "a.seen, line 8: unknown variant `haz`".into()),
        (whole.replace("\"lines\":7", "\"lines\":9"), "line 9: 9 lines were written, 7".into()),
        (format!("{whole}\n"), "line 10: there is more behind the last line".into()),
    ] {
        let told = told(&text);
        assert!(told.contains(&part), "{told}: {part}");
    }
    fs::write(&path, b"PAR1 and so on").unwrap();
    assert!(read(&path).2.unwrap().contains(begins));
    let none = Reader::open(&at.join("none")).err().unwrap().to_string();
    assert!(none.contains("cannot open"), "{none}");
    let folder = Reader::open(&at).err().unwrap().to_string();
    assert!(folder.contains("directory"), "{folder}");
}

proptest! {
    // A flipped bit is found, or (in a length that makes it end early) it counts as cut.
    #[test]
    fn damage_never_passes_for_the_whole(at_bit in 0usize..4096) {
        let folder = Folder::new();
        let path = folder.join("a.seen");
        write(&path, &all());
        let mut bytes = fs::read(&path).unwrap();
        let bit = at_bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, bytes).unwrap();
        let (lines, ended, wrong) = read(&path);
        let whole = wrong.is_none() && matches!(ended, Some(Ending::Whole(_)));
        // A block of an unknown but skippable kind is none of ours.
        prop_assert!(!whole || lines == all(), "bit {bit}: {lines:?}");
    }
}
