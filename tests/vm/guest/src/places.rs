//! What `homenode-live` says about where pages are, against this program's own calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use homenode_core::policy::seen::{Span, Who};
use homenode_core::units::{NodeId, Pages};
use homenode_live::machine::{Places, WHOLE};
use homenode_live::places::ThisKernel;
use serde_json::json;

use crate::TestResult;
use crate::asked::Asked;
use crate::memory::{Memory, nodes_of};
use crate::process::started;

type ByNode = BTreeMap<NodeId, Pages>;

/// What else of this program may come and go between two looks.
const NOISE: u64 = 300;

pub(crate) fn me() -> Result<Who> {
    let pid = std::process::id();
    Ok(Who { pid, start: started(pid)? })
}

pub(crate) fn span(of: &Memory, pages: std::ops::Range<u64>) -> Span {
    Span { start: of.first() + pages.start, end: of.first() + pages.end }
}

/// Our own count.
pub(crate) fn counted(span: Span) -> Result<ByNode> {
    let mut found = ByNode::new();
    for status in nodes_of(0, span.start..span.end)? {
        if let Ok(node) = u16::try_from(status) {
            *found.entry(NodeId(node)).or_default() += Pages(1);
        }
    }
    Ok(found)
}

pub(crate) fn as_counted(asked: &Asked) -> TestResult {
    let me = me()?;
    let mut kernel = ThisKernel::new("/");
    let before = kernel.census(me).context("no census of our own")?;
    let mut all = Vec::new();
    for node in 0..asked.nodes.len() {
        let small = Memory::on(node, 3000 + node, |page| page as u64)?;
        let huge = Memory::advised(node, 2048, libc::MADV_HUGEPAGE, |page| page as u64)?;
        for (what, memory, pages) in [("small", &small, 3000), ("huge", &huge, 2048)] {
            for part in [0..pages, 700..1500] {
                let span = span(memory, part);
                let (told, want) = (kernel.within(me, span), counted(span)?);
                ensure!(
                    told.as_ref() == Some(&want),
                    "{what} pages on node {node}: homenode tells {told:?}, it is {want:?}"
                );
            }
        }
        // Beside it nothing is mapped.
        let behind = span(&small, 3100..4000);
        ensure!(kernel.within(me, behind) == Some(ByNode::new()), "pages where nothing is mapped");
        all.push((small, huge));
    }
    let after = kernel.census(me).context("no census of our own")?;
    let on = |found: &ByNode, node: u16| found.get(&NodeId(node)).map_or(0, |p| p.0);
    for node in 0..asked.nodes.len() as u16 {
        let (want, got) = (5048 + u64::from(node), on(&after, node) - on(&before, node));
        ensure!(
            got.abs_diff(want) <= NOISE,
            "node {node}: {got} pages more than before, {want} were touched"
        );
    }
    let whole = kernel.within(me, WHOLE).context("no look at all of it")?;
    let sum = |found: &ByNode| found.values().map(|p| p.0).sum::<u64>();
    ensure!(
        sum(&whole).abs_diff(sum(&after)) <= NOISE,
        "a census says {after:?}, looking at all of it {whole:?}"
    );
    Ok(json!({"census": sum(&after), "whole": sum(&whole)}))
}

/// A mapping of 1 TiB with a hundred pages in it.
pub(crate) fn sparse(asked: &Asked) -> TestResult {
    const TIB: usize = 1 << 28;
    let me = me()?;
    let memory = Memory::reserve(TIB).context("1 TiB")?;
    memory.advise(libc::MADV_NOHUGEPAGE)?;
    let mut kernel = ThisKernel::new("/");
    (0..100).for_each(|i| memory.touch(i * (TIB / 100)));
    let mut took = Vec::new();
    let mut timed = |what: &str, look: &mut dyn FnMut() -> Option<ByNode>| -> Result<u64> {
        let begun = Instant::now();
        let found = look().with_context(|| format!("{what}: nothing"))?;
        took.push(json!([what, begun.elapsed().as_millis() as u64]));
        Ok(found.values().map(|p| p.0).sum())
    };
    let all = timed("all", &mut || kernel.within(me, span(&memory, 0..TIB as u64)))?;
    let most = timed("most", &mut || kernel.within(me, span(&memory, 100..TIB as u64)))?;
    ensure!((all, most) == (100, 99), "{all} and {most} pages told, 100 and 99 touched");
    timed("whole", &mut || kernel.within(me, WHOLE))?;
    let census = timed("census", &mut || kernel.census(me))?;
    ensure!(census >= 100, "a census of {census}");
    Ok(json!({"ms": took, "nodes": asked.nodes.len()}))
}

/// Another user's process: nothing is told, nothing fails, and it is counted.
pub(crate) fn unprivileged(asked: &Asked) -> TestResult {
    let init = Who { pid: 1, start: started(1)? };
    let told = std::thread::spawn(move || -> Result<_> {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: the bare call changes this thread alone, which ends here.
        let r = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        ensure!(r == 0, "setresuid: {}", std::io::Error::last_os_error());
        let mut kernel = ThisKernel::new("/");
        let found = (kernel.census(init), kernel.within(init, WHOLE));
        Ok((found, kernel.refused().load(Ordering::Relaxed)))
    });
    let (found, refused) = told.join().ok().context("the thread ended early")??;
    // With one node all may read what is told.
    let want = if asked.nodes.len() > 1 { 2 } else { 1 };
    ensure!(found.1.is_none() && refused == want, "told {found:?}, {refused} were refused");
    Ok(json!({"refused": refused}))
}

/// Whether the kernel has nodes with memory beside those.
pub(crate) fn with_memory() -> Result<Vec<u32>> {
    let path = Path::new("/sys/devices/system/node/has_memory");
    let text = std::fs::read_to_string(path).context("has_memory")?;
    homenode_live::sysfs::parse_list(&text).with_context(|| format!("has_memory: {text:?}"))
}
