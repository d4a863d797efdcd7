use super::*;

fn shown(text: &str) -> String {
    match Contenders::with(&[]).parse(&[text.to_owned()]) {
        Ok(all) => {
            let c = &all[0];
            let version = c.version.map_or(String::new(), |v| format!(" of {v}"));
            let source = c.drives.map_or(String::new(), |d| format!(" sees {}", d.source.name()));
            format!("{}{version}: {}{source}", c.name, c.settings())
        }
        Err(e) => format!("{e:#}").lines().next().unwrap_or_default().to_owned(),
    }
}

#[test]
fn a_text_becomes_a_column() {
    for (text, column) in [
        ("off", "off: numa_balancing=0"),
        ("2", "mode-2: numa_balancing=2 demotion_enabled=true"),
        ("mode2@6.1", "mode-2@6.1 of 6.1: numa_balancing=2 demotion_enabled=true"),
        ("scenario", "scenario: "),
        ("tpp@6.1", "tpp@6.1 of 6.1: numa_balancing=2 demotion_enabled=true"),
        ("alto", "alto: numa_balancing=2 demotion_enabled=true"),
        ("homenode", "homenode-damon: numa_balancing=0 sees damon"),
        ("damos", "damos-damon: numa_balancing=0 sees damon"),
        (
            "homenode@6.1:hint-fault",
            "homenode-hint-fault@6.1 of 6.1: numa_balancing=3 \
             numa_balancing_promote_rate_limit_MBps=0 sees hint-fault",
        ),
        (
            "homenode:pmu+horizon=20s+moved_mbps=50",
            "homenode-pmu+horizon=20s+moved_mbps=50: numa_balancing=0 sees pmu",
        ),
        (
            "mode1@5.18+admission=a+scan_size_mb=8",
            "mode-1@5.18+admission=a+scan_size_mb=8 of 5.18: numa_balancing=1 scan_size_mb=8 \
             admission=a",
        ),
    ] {
        assert_eq!(shown(text), column);
    }
}

#[test]
fn a_text_that_is_no_column_is_told_why() {
    for (text, why) in [
        (
            "mode5",
            "--columns mode5: there is no contender \"mode5\"; did you mean \"mode1\"?; there are",
        ),
        (
            "mode2@9",
            "--columns mode2@9: the rules of Linux \"9\" are not known; those of 3.8, 4.5, 4.15, 5.18, 6.1, 6.12, 7.3 are",
        ),
        ("homenode:eyes", "--columns homenode:eyes: sources of heat are damon, hint-fault, pmu"),
        (
            "off:damon",
            "--columns off:damon: off is the kernel's own, which sees by itself: leave :damon out",
        ),
        (
            "homenode+horizn=20s",
            "--columns homenode+horizn=20s: +horizn=20s: homenode's engine has no setting \"horizn\"; did you mean \"horizon\"?",
        ),
        (
            "homenode+horizon=20",
            "--columns homenode+horizon=20: +horizon=20: \"20\" is no time; write it with ps, ns, us, ms or s, such as \"10us\"",
        ),
        (
            "homenode+horizon=1ms",
            "--columns homenode+horizon=1ms: +horizon=1ms: 1ms is not allowed; it is 10ms to 3600s",
        ),
        (
            "homenode+most_open=many",
            "--columns homenode+most_open=many: +most_open=many: \"many\" is no whole number; write one such as 100",
        ),
        (
            "off+admission=c",
            "--columns off+admission=c: +admission=c: \"c\" is not known; allowed are a, b",
        ),
        (
            "off+busy=2",
            "--columns off+busy=2: +busy=2: off is the kernel's own, and no policy has threads there; leave +busy out",
        ),
        (
            "hemem+busy=-1",
            "--columns hemem+busy=-1: +busy=-1: busy is y (as many threads as the policy's published code keeps busy), n, or a number from 0 to 64",
        ),
        (
            "hemem+busy=1000",
            "--columns hemem+busy=1000: +busy=1000: busy is y (as many threads as the policy's published code keeps busy), n, or a number from 0 to 64",
        ),
        (
            "off+spare=few",
            "--columns off+spare=few: +spare=few: spare is the number of CPUs beside those that programs may use, from 0 to 8191",
        ),
    ] {
        assert_eq!(shown(text), why);
    }
    let twice = ["1".to_owned(), "mode1".to_owned()];
    let error = Contenders::with(&[]).parse(&twice).expect_err("twice");
    assert_eq!(error.to_string(), "--columns names mode 1 twice");
}

// specs/compare.md#busy
#[test]
fn a_column_says_which_threads_are_busy_and_how_many_cpus_are_left_for_them() {
    let note = |text: &str| {
        let column = Contenders::with(&[]).one(text).expect("a column");
        let setup = column.setup(&Setup::default(), &[]).expect("a setting");
        (column.notes().pop().filter(|note| note.starts_with(&column.title())), setup.spare)
    };
    assert_eq!(note("hemem"), (None, None));
    let told = "hemem pmu+busy=y: it keeps as many threads busy as its published code";
    assert_eq!(note("hemem+busy=y"), (Some(told.to_owned()), None));
    let told = "hemem pmu+busy=1+spare=0: it keeps 1 thread busy, and the machine has no CPU beside \
                those that programs may use";
    assert_eq!(note("hemem+busy=1+spare=0"), (Some(told.to_owned()), Some(0)));
    let told = "mode 2+spare=2: the machine has 2 CPUs beside those that programs may use";
    assert_eq!(note("mode2+spare=2"), (Some(told.to_owned()), Some(2)));
    // As many as each one's code has; who sleeps between two looks has none.
    let machine = include_str!("../../../../machines/small-cxl.toml");
    let machine = homenode_config::parse_machine("small-cxl.toml", machine).expect("a machine");
    let caps = Caps {
        source: Source::Pmu,
        lacks: Vec::new(),
        moves: true,
        affinity: false,
        knobs: false,
        splits: false,
        most_pages: 512,
    };
    let threads = |name: &str| {
        let made =
            Contenders::with(&[]).one(name).expect("a column").drives.expect("it drives").make;
        made.make(&machine, KernelVersion::default(), &caps).busy_threads()
    };
    let all = ["hemem", "colloid", "arms", "memtis", "hybridtier", "damos", "homenode"];
    assert_eq!(all.map(threads), [2, 1, 1, 0, 0, 0, 0]);
}

/// What is set comes in the order in which the last one counts.
#[test]
fn the_command_line_goes_over_a_columns_knobs_but_not_over_a_policys() {
    let set = [("demotion_enabled".to_owned(), "false".to_owned())];
    let knobs = |text: &str, set: &[Setting]| {
        let column = Contenders::with(&[]).parse(&[text.to_owned()]).expect("a column").remove(0);
        let shared = Setup { knobs: vec![("scan_size_mb".into(), "4".into())], ..Setup::default() };
        let all = column.setup(&shared, set).expect("a setting").knobs;
        all.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        knobs("mode2", &set),
        "scan_size_mb=4 numa_balancing=2 demotion_enabled=true demotion_enabled=false"
    );
    let set = [("numa_balancing".to_owned(), "2".to_owned())];
    assert_eq!(knobs("homenode", &set), "scan_size_mb=4 numa_balancing=2 numa_balancing=0");
}

#[test]
fn a_program_may_bring_a_contender_of_its_own() {
    let own = Candidate { name: "own", column: "own", ..BUILT_IN[1] };
    let all = Contenders::with(&[own]);
    let column = all.parse(&["own@6.1".to_owned()]).expect("its name is known").remove(0);
    assert_eq!(column.name, "own@6.1");
    let error = all.parse(&["onw".to_owned()]).expect_err("another name");
    assert!(format!("{error:#}").contains("did you mean \"own\"?"), "{error:#}");
}

#[test]
fn rules_inside_the_kernel_come_with_a_column_and_stand_alone() {
    let column = |text: &str| Contenders::with(&[]).one(text).expect("a column");
    let setup = |text: &str| column(text).setup(&Setup::default(), &[]);
    assert!(setup("tpp").expect("a setting").hooks.is_some());
    assert!(setup("alto").expect("a setting").hooks.is_some());
    assert!(setup("mode2").expect("a setting").hooks.is_none());
    assert!(column("tpp").notes()[0].starts_with("tpp, inside the simulated kernel: TPP as"));
    assert!(column("alto").notes()[0].starts_with("alto, inside the simulated kernel: TPP behind"));
    let error = setup("tpp+admission=a").expect_err("two admissions");
    assert_eq!(
        error.to_string(),
        "column tpp+admission=a: it has an admission of its own inside the kernel; leave \
         admission=a out"
    );
}

#[test]
fn the_help_names_every_contender() {
    for candidate in BUILT_IN {
        assert!(HELP.contains(candidate.name), "{}", candidate.name);
    }
}
