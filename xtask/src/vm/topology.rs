//! A guest's machine as data: `tests/vm/topologies/NAME.toml`, and what QEMU has
//! to be told to show it.
//!
//! ```text
//! [[node]] cpus = 2, memory_mib = 768      -object memory-backend-ram,id=m0,size=768M
//!                                          -numa node,nodeid=0,memdev=m0,cpus=0-1
//! distances = [[10, 21], [21, 10]]         -numa dist,src=0,dst=1,val=21
//! [hmat] latency_ns = [[80, 140]]          -numa hmat-lb,initiator=0,target=1,...,latency=140
//! ```
//!
//! CPUs are numbered through the nodes in their order. Everything is checked
//! here, since QEMU's own messages name its options and not our file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// QEMU's numbers of nodes end here; ours could be fewer.
const NODES_MAX: usize = 128;

/// A machine to be emulated.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topology {
    /// Name of the file without its ending.
    #[serde(skip)]
    pub(crate) name: String,
    /// One line for people.
    pub(crate) about: String,
    /// Whether it is booted with every kernel.
    #[serde(default)]
    pub(crate) smoke: bool,
    /// The only kernel that it is booted with, by its name; unless told: as `smoke` says.
    pub(crate) kernel: Option<String>,
    #[serde(rename = "node")]
    pub(crate) nodes: Vec<Node>,
    /// `distances[i][j]` as the kernel shows them: 10 to itself, more to others.
    pub(crate) distances: Vec<Vec<u64>>,
    pub(crate) hmat: Option<Hmat>,
    /// Nodes by memory tier, fastest first.
    #[serde(default)]
    pub(crate) tiers: Vec<Vec<u64>>,
    /// Threads of a core.
    #[serde(default = "one")]
    pub(crate) threads: u64,
    /// What the guest's time is.
    #[serde(default)]
    pub(crate) clock: Clock,
    /// The only tests that run here; they run nowhere else. Empty for all others.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    /// Tests that other machines do as well as this one: here they run only where the test or
    /// the machine is named.
    #[serde(default)]
    pub(crate) on_request: Vec<String>,
    /// Whether memory is counted by cgroup.
    #[serde(default)]
    pub(crate) memory_cgroups: bool,
    /// More words for the kernel's command line.
    #[serde(default)]
    pub(crate) append: String,
}

/// What a guest's time is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Clock {
    /// This machine's: a busy one makes the guest slow.
    #[default]
    Host,
    /// The instructions that its CPUs have carried out: what it does is the same each time,
    /// whatever else this machine does, and idle times are skipped.
    Instructions,
}

const fn one() -> u64 {
    1
}

/// With a clock of instructions: 2^1 ns each.
const SHIFT: u32 = 1;
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Node {
    #[serde(default)]
    pub(crate) cpus: u64,
    pub(crate) memory_mib: u64,
    /// The node with CPUs from which HMAT says this memory is reached.
    pub(crate) initiator: Option<u64>,
    /// Whether the memory is a DIMM that is plugged, and can go.
    #[serde(default)]
    pub(crate) plugged: bool,
}

/// The firmware's table of latencies and bandwidths; rows are nodes with CPUs in
/// their order, columns all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hmat {
    pub(crate) latency_ns: Vec<Vec<u64>>,
    pub(crate) bandwidth_mbps: Vec<Vec<u64>>,
}

impl Topology {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("can't read {}", path.display()))?;
        Self::parse(&name, &text).with_context(|| path.display().to_string())
    }

    /// From a file's text; errors name the line and the key.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let topology = Self { name: name.to_owned(), ..toml_edit::de::from_str(text)? };
        topology.check()?;
        Ok(topology)
    }

    fn check(&self) -> Result<()> {
        let n = self.nodes.len();
        ensure!((1..=NODES_MAX).contains(&n), "node: 1 to {NODES_MAX} nodes are possible, not {n}");
        ensure!(self.nodes[0].cpus > 0, "[[node]] 0: cpus: the kernel boots on a CPU of node 0");
        for (i, Node { cpus, memory_mib, plugged, .. }) in self.nodes.iter().enumerate() {
            let fits = (64..=1 << 20).contains(memory_mib);
            ensure!(fits, "[[node]] {i}: memory_mib: 64 to 1048576, not {memory_mib}");
            ensure!(*cpus <= 64, "[[node]] {i}: cpus: 0 to 64, not {cpus}");
            // HMAT tells of memory that is there at the boot.
            let fits = !plugged || (*cpus == 0 && self.hmat.is_none());
            ensure!(fits, "[[node]] {i}: plugged: without CPUs and without [hmat] only");
            // A kernel takes memory in blocks of that size.
            let fits = !plugged || memory_mib % 128 == 0;
            ensure!(fits, "[[node]] {i}: memory_mib: DIMMs of 128 MiB each: {memory_mib}");
        }
        let whole = self.nodes.iter().all(|node| node.cpus % self.threads.max(1) == 0);
        let fits = (1..=8).contains(&self.threads) && whole;
        ensure!(fits, "threads: {}; 1 to 8, and nodes of whole cores", self.threads);
        let alike = self.nodes.iter().map(|node| node.cpus).filter(|n| *n > 0);
        let alike = alike.collect::<BTreeSet<u64>>().len() == 1;
        ensure!(self.threads == 1 || alike, "threads: nodes with equally many CPUs only");
        square(&self.distances, n, n).context("distances")?;
        for (i, row) in self.distances.iter().enumerate() {
            for (j, &d) in row.iter().enumerate() {
                let fits = if i == j { d == 10 } else { (11..=254).contains(&d) };
                ensure!(fits, "distances[{i}][{j}]: {d}; 10 to itself, 11 to 254 to others");
            }
        }
        let initiators = self.initiators();
        for (i, node) in self.nodes.iter().enumerate() {
            let at = || format!("[[node]] {i}: initiator");
            match node.initiator {
                Some(of) => {
                    ensure!(self.hmat.is_some(), "{}: it belongs to HMAT: [hmat] is missing", at());
                    ensure!(node.cpus == 0, "{}: a node with CPUs is its own", at());
                    ensure!(initiators.contains(&(of as usize)), "{}: node {of} has no CPU", at());
                }
                None => ensure!(
                    node.cpus > 0 || self.hmat.is_none(),
                    "{}: a node without CPUs needs one where there is HMAT",
                    at()
                ),
            }
        }
        if let Some(hmat) = &self.hmat {
            square(&hmat.latency_ns, initiators.len(), n).context("hmat.latency_ns")?;
            square(&hmat.bandwidth_mbps, initiators.len(), n).context("hmat.bandwidth_mbps")?;
        }
        if !self.tiers.is_empty() {
            let named: Vec<u64> = self.tiers.iter().flatten().copied().collect();
            let all: BTreeSet<u64> = named.iter().copied().collect();
            ensure!(
                named.len() == n && all == (0..n as u64).collect(),
                "tiers: every node has to be in exactly one"
            );
        }
        Ok(())
    }

    /// Places of the nodes that have CPUs.
    fn initiators(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&i| self.nodes[i].cpus > 0).collect()
    }

    fn cpus(&self) -> u64 {
        self.nodes.iter().map(|node| node.cpus).sum()
    }

    pub(crate) fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }

    /// Each node's CPUs: numbered through.
    fn cpu_numbers(&self) -> Vec<Vec<u64>> {
        let mut next = 0;
        self.nodes
            .iter()
            .map(|node| {
                let first = next;
                next += node.cpus;
                (first..next).collect()
            })
            .collect()
    }

    /// What QEMU is told of time, from `-accel` on. `seed` is what its random numbers begin
    /// with, where nothing else is random.
    pub(crate) fn clock_args(&self, seed: usize) -> Vec<String> {
        let mut args = vec!["-accel".to_owned(), "tcg,thread=single".to_owned()];
        match self.clock {
            Clock::Host => {}
            Clock::Instructions => {
                let mut add = |option: &str, value: String| {
                    args.extend([option.to_owned(), value]);
                };
                add("-icount", format!("shift={SHIFT},sleep=off"));
                add("-rtc", "clock=vm,base=2024-01-01".to_owned());
                add("-seed", seed.to_string());
            }
        }
        args
    }

    /// What the kernel is told beside what all are: where time is counted, nothing of it is
    /// to be random, CPUs' clocks agree, as they do there, and nobody sums up pressure every two
    /// seconds.
    pub(crate) fn kernel_words(&self) -> String {
        let counted = match self.clock {
            Clock::Host => "",
            Clock::Instructions => "nokaslr tsc=reliable psi=0",
        };
        [counted, &self.append].join(" ").trim().to_owned()
    }

    /// What QEMU is told, from `-machine` on: CPUs, memory, nodes, distances, HMAT.
    ///
    /// `mem-merge=off`: else QEMU registers the guest's memory with the host's own
    /// same-page merging. CPUs of one node share a socket where all nodes have
    /// equally many, so that no last-level cache spans two nodes. `cx16=off`: QEMU 7.2
    /// leaves rubbish in the flags after `cmpxchg16b`, and an interrupt right behind
    /// it makes the kernel crash, about one boot in three; without it kernels do the
    /// same by other means.
    pub(crate) fn qemu_args(&self) -> Vec<String> {
        let mut args: Vec<String> = Vec::new();
        let mut add = |option: &str, value: String| args.extend([option.to_owned(), value]);
        let hmat = if self.hmat.is_some() { "on" } else { "off" };
        add("-machine", format!("q35,hmat={hmat},mem-merge=off"));
        // Linux 6.1 sees no threads where an AMD lacks the leaf that only some of them have.
        let vendor = if self.threads > 1 { ",vendor=GenuineIntel" } else { "" };
        add("-cpu", format!("max,cx16=off{vendor}"));
        let with_cpus: Vec<u64> =
            self.nodes.iter().map(|node| node.cpus).filter(|&n| n > 0).collect();
        let cpus = self.cpus();
        let (sockets, cores) = if with_cpus.iter().all(|&n| n == with_cpus[0]) {
            (with_cpus.len() as u64, with_cpus[0] / self.threads)
        } else {
            (cpus, 1)
        };
        add(
            "-smp",
            format!("cpus={cpus},sockets={sockets},cores={cores},threads={}", self.threads),
        );
        let plugged = self.nodes.iter().filter(|node| node.plugged);
        let (dimms, later) = plugged.fold((0, 0), |(n, mib), node| (n + 1, mib + node.memory_mib));
        if dimms == 0 {
            add("-m", format!("{}M", self.memory_mib()));
        } else {
            let at_boot = self.memory_mib() - later;
            add("-m", format!("{at_boot}M,slots={dimms},maxmem={}M", self.memory_mib()));
        }
        for (i, (node, numbers)) in self.nodes.iter().zip(self.cpu_numbers()).enumerate() {
            add("-object", format!("memory-backend-ram,id=m{i},size={}M", node.memory_mib));
            let mut value = format!("node,nodeid={i}");
            if !node.plugged {
                let _ = write!(value, ",memdev=m{i}");
            }
            if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
                let _ = write!(value, ",cpus={first}-{last}");
            }
            if self.hmat.is_some() {
                let _ = write!(value, ",initiator={}", node.initiator.unwrap_or(i as u64));
            }
            add("-numa", value);
            if node.plugged {
                add("-device", format!("pc-dimm,id=d{i},memdev=m{i},node={i}"));
            }
        }
        for (i, row) in self.distances.iter().enumerate() {
            for (j, d) in row.iter().enumerate().filter(|&(j, _)| j != i) {
                add("-numa", format!("dist,src={i},dst={j},val={d}"));
            }
        }
        if let Some(hmat) = &self.hmat {
            for (row, &from) in self.initiators().iter().enumerate() {
                for to in 0..self.nodes.len() {
                    let pair =
                        format!("hmat-lb,initiator={from},target={to},hierarchy=memory,data-type=");
                    let latency = hmat.latency_ns[row][to];
                    let bandwidth = hmat.bandwidth_mbps[row][to];
                    add("-numa", format!("{pair}access-latency,latency={latency}"));
                    add("-numa", format!("{pair}access-bandwidth,bandwidth={bandwidth}M"));
                }
            }
        }
        args
    }

    /// What the guest is told, to hold it against what its kernel shows.
    pub(crate) fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().zip(self.cpu_numbers());
        let nodes = nodes.map(|(n, cpus)| json!({"cpus": cpus, "memory_mib": n.memory_mib}));
        let nodes: Vec<Value> = nodes.collect();
        json!({
            "name": self.name,
            "nodes": nodes,
            "distances": self.distances,
            "tiers": self.tiers,
            "latency_ns": self.hmat.as_ref().map(|hmat| &hmat.latency_ns),
            "bandwidth_mbps": self.hmat.as_ref().map(|hmat| &hmat.bandwidth_mbps),
            "threads": self.threads,
            "script": self.clock == Clock::Instructions,
        })
    }
}

fn square(rows: &[Vec<u64>], height: usize, width: usize) -> Result<()> {
    ensure!(
        rows.len() == height && rows.iter().all(|row| row.len() == width),
        "{height} rows of {width} numbers are needed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: &str = "\
about = \"slow\"
distances = [[10, 40], [40, 10]]
tiers = [[0], [1]]
[[node]]
cpus = 2
memory_mib = 512
[[node]]
memory_mib = 1536
initiator = 0
[hmat]
latency_ns = [[80, 400]]
bandwidth_mbps = [[102400, 20480]]
";

    #[test]
    fn memory_that_is_plugged_comes_beside_what_is_there_at_the_boot() {
        let text = r#"about = "x"
            distances = [[10, 20], [20, 10]]
            [[node]]
            cpus = 1
            memory_mib = 512
            [[node]]
            memory_mib = 256
            plugged = true"#;
        let args = Topology::parse("x", text).unwrap().qemu_args().join(" ");
        for want in [
            "-m 512M,slots=1,maxmem=768M",
            "-numa node,nodeid=0,memdev=m0,cpus=0-0",
            "-numa node,nodeid=1 -device pc-dimm,id=d1,memdev=m1,node=1",
        ] {
            assert!(args.contains(want), "{want}: {args}");
        }
        for (wrong, key) in [("256", "memory_mib"), ("true", "plugged")] {
            let with = if wrong == "256" { "100" } else { "7" };
            let error = Topology::parse("x", &text.replace(wrong, with)).unwrap_err();
            assert!(format!("{error:#}").contains(key), "{error:#}");
        }
        let busy = text.replace("plugged = true", "plugged = true\ncpus = 1");
        let error = format!("{:#}", Topology::parse("x", &busy).unwrap_err());
        assert!(error.contains("plugged: without CPUs"), "{error}");
    }

    #[test]
    fn a_slow_node_becomes_qemus_arguments() {
        let topology = Topology::parse("slow", SLOW).unwrap();
        let text = topology.qemu_args().join(" ");
        let want = "-machine q35,hmat=on,mem-merge=off -cpu max,cx16=off \
            -smp cpus=2,sockets=1,cores=2,threads=1 -m 2048M \
            -object memory-backend-ram,id=m0,size=512M \
            -numa node,nodeid=0,memdev=m0,cpus=0-1,initiator=0 \
            -object memory-backend-ram,id=m1,size=1536M \
            -numa node,nodeid=1,memdev=m1,initiator=0 \
            -numa dist,src=0,dst=1,val=40 -numa dist,src=1,dst=0,val=40 \
            -numa hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-latency,latency=80 \
            -numa hmat-lb,initiator=0,target=0,hierarchy=memory,data-type=access-bandwidth,bandwidth=102400M \
            -numa hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=400 \
            -numa hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=20480M";
        assert_eq!(text, want);
        assert_eq!(
            topology.to_json().to_string(),
            r#"{"bandwidth_mbps":[[102400,20480]],"distances":[[10,40],[40,10]],"latency_ns":[[80,400]],"name":"slow","nodes":[{"cpus":[0,1],"memory_mib":512},{"cpus":[],"memory_mib":1536}],"script":false,"threads":1,"tiers":[[0],[1]]}"#
        );
    }

    #[test]
    fn threads_and_a_clock_of_instructions_become_qemus_arguments() {
        let text = "about = \"smt\"\ndistances = [[10, 21], [21, 10]]\nthreads = 2\n\
            clock = \"instructions\"\ntests = [\"sched-script\"]\nappend = \"schedstats=enable\"\n\
            [[node]]\ncpus = 4\nmemory_mib = 256\n[[node]]\ncpus = 4\nmemory_mib = 256\n";
        let topology = Topology::parse("smt", text).unwrap();
        let args = topology.qemu_args().join(" ");
        assert!(args.contains("-cpu max,cx16=off,vendor=GenuineIntel "), "{args}");
        assert!(args.contains("-smp cpus=8,sockets=2,cores=2,threads=2"), "{args}");
        assert_eq!(
            topology.clock_args(3).join(" "),
            "-accel tcg,thread=single -icount shift=1,sleep=off -rtc clock=vm,base=2024-01-01 \
             -seed 3"
        );
        assert_eq!(topology.kernel_words(), "nokaslr tsc=reliable psi=0 schedstats=enable");
        assert_eq!(topology.to_json()["script"], true);
        let plain = Topology::parse("slow", SLOW).unwrap();
        assert_eq!(plain.clock_args(3).join(" "), "-accel tcg,thread=single");
        assert_eq!(plain.kernel_words(), "");
        for (from, to) in [("threads = 2", "threads = 3"), ("cpus = 4", "cpus = 2")] {
            let error = Topology::parse("smt", &text.replacen(from, to, 1)).unwrap_err();
            assert!(format!("{error:#}").contains("threads"), "{error:#}");
        }
    }

    #[test]
    fn nodes_with_unequal_cpus_get_a_socket_for_each_cpu() {
        let text = "about = \"odd\"\ndistances = [[10, 21], [21, 10]]\n\
            [[node]]\ncpus = 1\nmemory_mib = 256\n[[node]]\ncpus = 3\nmemory_mib = 256\n";
        let text = Topology::parse("odd", text).unwrap().qemu_args().join(" ");
        assert!(text.contains("-smp cpus=4,sockets=4,cores=1,threads=1"), "{text}");
        assert!(text.contains("nodeid=1,memdev=m1,cpus=1-3 "), "{text}");
        assert!(text.contains("hmat=off") && !text.contains("initiator"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        let says = |from: &str, to: &str| {
            let text = SLOW.replacen(from, to, 1);
            assert_ne!(text, SLOW, "`{from}` stands nowhere");
            format!("{:#}", Topology::parse("slow", &text).unwrap_err())
        };
        let cases = [
            ("[[10, 40], [40, 10]]", "[[10, 40]]", "distances: 2 rows of 2 numbers"),
            ("[[10, 40], [40, 10]]", "[[10, 10], [40, 10]]", "distances[0][1]: 10; 10 to itself"),
            ("[[10, 40], [40, 10]]", "3", "invalid type: integer `3`, expected a sequence"),
            ("tiers = [[0], [1]]", "tiers = [[0], [0]]", "tiers: every node"),
            ("cpus = 2", "cpus = 0", "[[node]] 0: cpus: the kernel boots"),
            ("cpus = 2", "cpu = 2", "unknown field `cpu`, expected one of `cpus`"),
            ("memory_mib = 512", "", "missing field `memory_mib`"),
            ("memory_mib = 512", "memory_mib = 3", "[[node]] 0: memory_mib: 64 to"),
            ("initiator = 0", "initiator = 1", "[[node]] 1: initiator: node 1 has no CPU"),
            ("initiator = 0", "", "[[node]] 1: initiator: a node without CPUs needs one"),
            ("[[80, 400]]", "[[80]]", "hmat.latency_ns: 1 rows of 2 numbers"),
            ("bandwidth_mbps", "bandwidth", "unknown field `bandwidth`, expected"),
            ("about = \"slow\"", "", "missing field `about`"),
        ];
        for (from, to, want) in cases {
            let got = says(from, to);
            assert!(got.contains(want), "`{from}` -> `{to}`: {got}");
        }
    }

    #[test]
    fn every_file_in_the_tree_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vm/topologies");
        let mut smoke = 0;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let topology = Topology::read(&entry.unwrap().path()).unwrap();
            smoke += usize::from(topology.smoke);
            names.push(topology.name);
        }
        names.sort();
        assert_eq!(
            names,
            [
                "acting",
                "acting-full",
                "acting-killed",
                "acting-service",
                "four-nodes",
                "huge-nodes",
                "plugged-node",
                "pressure",
                "sched-ext",
                "script-flat",
                "script-nodes",
                "script-smt",
                "script-smt-nodes",
                "slow-node",
                "small-fast-node",
                "two-nodes",
            ]
        );
        assert_eq!(smoke, 1, "one topology runs on every kernel");
    }
}
