//! Findings as one JSON object.

use super::Findings;
use homenode_core::policy::choice::{Because, cell};
use homenode_core::policy::facts::{Known, Lack};
use homenode_core::policy::matrix::Decision;
use homenode_core::policy::seen::Source;
use homenode_live::probe::CAPABILITIES;
use homenode_live::sched_ext::SchedExt;
use serde_json::{Map, Value, json};

/// True, false, or null for what could not be seen.
fn known(is: Known) -> Value {
    match is {
        Known::Yes => true.into(),
        Known::No => false.into(),
        Known::Unseen => Value::Null,
    }
}

/// `"ok"`, an error number, or null for what wasn't tried.
fn tried(done: Option<Result<(), i32>>) -> Value {
    match done {
        Some(Ok(())) => "ok".into(),
        Some(Err(errno)) => errno.into(),
        None => Value::Null,
    }
}

fn lack(lack: &Lack) -> Value {
    json!({"name": lack.name(), "what": lack.to_string(), "how": lack.remedy()})
}

fn source(found: &Findings, source: Source) -> Value {
    let lacks = found.lacks(source);
    let row: Map<String, Value> = Decision::ALL
        .into_iter()
        .map(|d| {
            let cell = cell(d, source, &found.facts);
            (d.name().to_owned(), json!({"quality": cell.quality.name(), "note": cell.note}))
        })
        .collect();
    json!({
        "source": source.name(),
        "offered": lacks.is_empty(),
        "lacks": lacks.iter().map(lack).collect::<Vec<_>>(),
        "disturbs": source.sheet().disturbs,
        "decides": row,
    })
}

fn nodes(found: &Findings) -> Value {
    let p = &found.probe;
    match &p.topology {
        Err(why) => json!({"error": why}),
        Ok(t) => {
            let list = t.nodes.iter().map(|n| {
                let id = u32::from(n.id.0);
                let cpus = t.cpus.iter().filter(|c| c.node == n.id).map(|c| c.id.0);
                let tier = p.tiers.iter().find(|(_, nodes)| nodes.contains(&id));
                json!({
                    "id": id,
                    "bytes": n.size().0,
                    "cpus": cpus.collect::<Vec<_>>(),
                    "tier": tier.map(|(t, _)| t),
                })
            });
            json!({"list": list.collect::<Vec<_>>(), "distances": t.distances, "notes": t.notes})
        }
    }
}

fn choice(found: &Findings) -> Value {
    let why = match found.choice.why {
        Because::NoHeat => json!({"name": "no_heat"}),
        Because::OnlyOne => json!({"name": "only_one"}),
        Because::Best { points, next, cold, accessor } => json!({
            "name": "best", "points": points, "next": next, "cold": cold, "accessor": accessor,
        }),
    };
    json!({"source": found.choice.source.name(), "why": why, "text": found.choice.to_string()})
}

pub(super) fn json(found: &Findings) -> String {
    let p = &found.probe;
    let (d, h, r) = (&p.damon, &p.hints, &p.rights);
    let slots = d
        .slots
        .iter()
        .map(|s| json!({"slot": s.index, "on": s.on, "pid": s.pid, "operations": s.operations}));
    let events = p.pmu.tried.iter().map(|t| json!({"event": t.name, "errno": t.error}));
    let registered = p.ksm.registered.iter().map(|(pid, name, s)| {
        json!({"pid": pid, "name": name, "merge_any": s.merge_any, "merging_pages": s.merging_pages})
    });
    let caps: Map<String, Value> = CAPABILITIES
        .into_iter()
        .map(|(name, bit)| (name.to_owned(), r.capabilities.map(|_| r.has(bit)).into()))
        .collect();
    let bytes = |b: u64| if b == u64::MAX { Value::Null } else { b.into() };
    json!({
        "kernel": p.kernel,
        "config": p.config.from,
        "nodes": nodes(found),
        "slow_nodes": found.facts.slow_nodes,
        "lower_tier_nodes": found.facts.lower_nodes,
        "tiers": p.tiers.iter().map(|(t, n)| (t.to_string(), json!(n))).collect::<Map<_, _>>(),
        "choice": choice(found),
        "sources": Source::ALL.map(|s| source(found, s)),
        "damon": {
            "sysfs": known(d.sysfs), "vaddr": known(d.vaddr), "paddr": known(d.paddr),
            "slots": slots.collect::<Vec<_>>(), "threads": d.threads, "modules": d.modules,
        },
        "hint_faults": {
            "built": known(h.built), "numa_balancing": h.mode,
            "promote_rate_limit_mbps": h.promote_rate_limit_mbps, "btf_bytes": h.btf_bytes,
            "bpf": known(h.bpf), "functions": h.functions,
            "tracefs": h.tracefs, "tracepoints": h.tracepoints,
        },
        "pmu": {
            "devices": p.pmu.devices, "cycles": tried(p.pmu.cycles),
            "events": events.collect::<Vec<_>>(), "loads": p.pmu.loads.to_string(),
        },
        "pages": {
            "pagemap_scan": tried(p.pages.pagemap_scan), "page_query": tried(p.pages.page_query),
            "soft_dirty": known(p.pages.soft_dirty), "numa_maps": p.pages.numa_maps,
            "clear_refs": p.pages.clear_refs, "page_idle": p.pages.page_idle,
            "lru_gen": p.pages.lru_gen,
        },
        "ksm": p.ksm.run.map(|run| json!({
            "run": run, "merge_across_nodes": p.ksm.merge_across_nodes,
            "pages_sharing": p.ksm.pages_sharing,
            "registered": registered.collect::<Vec<_>>(), "unseen": p.ksm.unseen,
        })),
        "demotion_enabled": p.demotion_enabled,
        "weighted_interleave": p.interleave.as_ref().map(|i| json!({
            "auto": i.auto,
            "weights": i.weights.iter().map(|(n, w)| (n.to_string(), json!(w))).collect::<Map<_, _>>(),
        })),
        "scheduler_statistics": {
            "lacks": found.stats_lack().iter().map(|(what, how)| json!({"what": what, "how": how})).collect::<Vec<_>>(),
            "schedstats": known(p.config.has("CONFIG_SCHEDSTATS")),
        },
        "sched_ext": match &p.sched_ext {
            SchedExt::None => json!({"built": false, "loaded": null}),
            SchedExt::Free => json!({"built": true, "loaded": null}),
            SchedExt::Taken(name) => json!({"built": true, "loaded": name}),
        },
        "rights": {
            "euid": r.euid, "capabilities": caps, "first_userns": r.first_userns,
            "sees_kthreads": r.sees_kthreads, "container": r.container,
            "sys_read_only": r.sys_read_only, "damon_read_only": r.damon_read_only, "seccomp": r.seccomp,
            "perf_event_paranoid": r.perf_event_paranoid, "kptr_restrict": r.kptr_restrict,
            "unprivileged_bpf_disabled": r.unprivileged_bpf_disabled,
            "ptrace_scope": r.ptrace_scope, "lockdown": r.lockdown,
            "memlock_bytes": r.memlock.map(|(soft, hard)| [bytes(soft), bytes(hard)]),
        },
        "advice": found.advice().iter().map(|(what, how)| json!({"what": what, "how": how})).collect::<Vec<_>>(),
        "unseen": p.unseen,
    })
    .to_string()
}
