//! What a caption says of costs that a machine's file leaves out.

use homenode_core::costs::Cost;
use homenode_core::loaded::Path;
use homenode_core::topology::{Hardware, LeftOut};
use homenode_core::units::count;

/// How many costs are named.
const NAMED: usize = 3;

/// Which costs and loaded latencies are defaults, in one line; `None` where the file has them all, or says
/// why it has not.
pub(crate) fn defaults(machine: &Hardware) -> Option<String> {
    let LeftOut { costs, loaded } = machine.left_out();
    let mut parts = Vec::new();
    let names: Vec<&str> = costs.iter().map(|c: &Cost| c.name()).collect();
    match names.len() {
        0 => {}
        n if n == Cost::ALL.len() => parts.push("all costs".to_owned()),
        n if n <= NAMED => parts.push(names.join(", ")),
        n => {
            parts.push(format!("{} ({}, ...)", count(n as u64, "cost", "costs"), names[0]));
        }
    }
    let paths: Vec<&str> = loaded.iter().map(|p: &Path| p.name()).collect();
    if !paths.is_empty() {
        parts.push(format!("latencies of {} under load", paths.join(", ")));
    }
    (!parts.is_empty()).then(|| format!("defaults, not this machine's: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use homenode_config::parse_machine;
    use homenode_core::costs::Constant;
    use homenode_core::loaded::Loaded;

    fn machine(name: &str) -> Hardware {
        let path = format!("{}/../../machines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("it is shipped");
        Hardware { defaults: None, ..parse_machine(name, &text).expect("it is good") }
    }
    fn given(machine: &mut Hardware, but: &[Cost]) {
        for &cost in Cost::ALL.iter().filter(|c| !but.contains(c)) {
            machine.costs.0.insert(cost, Constant::assumed(cost.default_value(), "a test"));
        }
    }

    #[test]
    fn what_is_left_out_is_named_and_of_much_the_number() {
        let mut told = Vec::new();
        let mut small = machine("small-cxl");
        told.push(defaults(&small));
        told.push(defaults(&machine("small-pmem")));
        given(&mut small, &[Cost::Tick, Cost::Fork]);
        told.push(defaults(&small));
        small.loaded.push(Loaded::published(Path::Cxl));
        given(&mut small, &[]);
        told.push(defaults(&small));
        let mut sockets = machine("small-two-sockets");
        given(&mut sockets, &[]);
        told.push(defaults(&sockets));
        let told: Vec<String> = told.into_iter().flatten().collect();
        expect![[r#"
            defaults, not this machine's: all costs; latencies of dram, cxl under load
            defaults, not this machine's: 88 costs (minor_fault, ...); latencies of dram, pmem under load
            defaults, not this machine's: tick, fork; latencies of dram, cxl under load
            defaults, not this machine's: latencies of dram under load
            defaults, not this machine's: latencies of dram, socket under load"#]].assert_eq(&told.join("\n"));
        assert!(told.iter().all(|t| t.len() < 100), "a line");
    }

    #[test]
    fn a_file_that_has_all_or_says_why_not_is_not_told_of() {
        let mut small = machine("small");
        assert!(defaults(&small).is_some());
        small.defaults = Some("a test".into());
        assert_eq!(defaults(&small), None);
        let mut whole = machine("small");
        given(&mut whole, &[]);
        whole.loaded.push(Loaded::published(Path::Dram));
        assert_eq!(defaults(&whole), None);
    }
}
