//! The machine that was asked for, as the host wrote it down.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

/// Where the host puts it.
const PATH: &str = "/topology.json";

pub(crate) struct Asked {
    pub(crate) nodes: Vec<Node>,
    pub(crate) distances: Vec<Vec<u32>>,
    /// Nodes by tier, fastest first; empty if the file doesn't say.
    pub(crate) tiers: Vec<Vec<u32>>,
    /// What HMAT says, rows for nodes with CPUs in their order; empty without HMAT.
    pub(crate) latency_ns: Vec<Vec<u32>>,
    pub(crate) bandwidth_mbps: Vec<Vec<u32>>,
    /// Threads of a core.
    pub(crate) threads: u32,
    /// Whether it is one of the machines on which the script of scheduling runs.
    pub(crate) script: bool,
}

pub(crate) struct Node {
    pub(crate) cpus: Vec<u32>,
    pub(crate) memory_mib: u64,
}

impl Asked {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read_to_string(PATH)
            .with_context(|| format!("{PATH}: a guest of `cargo xtask vm` has it"))?;
        Self::parse(&text).context(PATH)
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let nodes = value["nodes"].as_array().context("nodes")?;
        Ok(Self {
            nodes: nodes
                .iter()
                .map(|node| {
                    Some(Node {
                        cpus: numbers(&node["cpus"])?,
                        memory_mib: node["memory_mib"].as_u64()?,
                    })
                })
                .collect::<Option<_>>()
                .context("nodes: cpus and memory_mib")?,
            distances: rows(&value["distances"]).context("distances")?,
            tiers: rows(&value["tiers"]).context("tiers")?,
            latency_ns: rows_if_any(&value["latency_ns"]).context("latency_ns")?,
            bandwidth_mbps: rows_if_any(&value["bandwidth_mbps"]).context("bandwidth_mbps")?,
            threads: value["threads"].as_u64().unwrap_or(1).clamp(1, 64) as u32,
            script: value["script"] == true,
        })
    }
}

fn rows(value: &Value) -> Option<Vec<Vec<u32>>> {
    value.as_array()?.iter().map(numbers).collect()
}

fn rows_if_any(value: &Value) -> Option<Vec<Vec<u32>>> {
    if value.is_null() { Some(Vec::new()) } else { rows(value) }
}

fn numbers(value: &Value) -> Option<Vec<u32>> {
    value.as_array()?.iter().map(|n| u32::try_from(n.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_writes_is_read() {
        let text = r#"{"name":"x","nodes":[{"cpus":[0,1],"memory_mib":512},{"cpus":[],"memory_mib":64}],
            "distances":[[10,40],[40,10]],"tiers":[[0],[1]],"latency_ns":[[80,400]],"bandwidth_mbps":null,
            "threads":2,"script":true}"#;
        let asked = Asked::parse(text).unwrap();
        assert_eq!(asked.nodes[0].cpus, [0, 1]);
        assert_eq!(asked.nodes[1].memory_mib, 64);
        assert_eq!(asked.distances, [[10, 40], [40, 10]]);
        assert_eq!(asked.tiers, [[0], [1]]);
        assert_eq!(asked.latency_ns, [[80, 400]]);
        assert!(asked.bandwidth_mbps.is_empty());
        assert!(asked.script && asked.threads == 2);
        let error = Asked::parse(r#"{"nodes":[],"distances":[["x"]],"tiers":[]}"#);
        assert_eq!(error.err().unwrap().to_string(), "distances");
    }
}
