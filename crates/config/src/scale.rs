//! What a scenario's machine and workload stand for: `stands_for = "1:64 of 96 GiB"`.
//!
//! The factor is the workload's: it holds on any machine. The size is there to be read, and is held
//! against the machine that the file names.

use crate::ConfigError;
use crate::quantity::{parse_size, write_size};
use crate::tree::Cur;
use homenode_core::scale::Scale;
use homenode_core::topology::Hardware;
use homenode_core::units::Bytes;

/// The key.
pub(crate) const KEY: &str = "stands_for";
/// What stands for itself.
const AS_IS: &str = "as_is";
const FORM: &str = "write \"1:64 of 16 GiB\", where 16 GiB is the memory of the nodes with CPUs of \
                    what it stands for, or \"as_is\"";

/// The factor, and the memory of nodes with CPUs of the machine that is stood for.
pub(crate) fn scale(c: &Cur<'_>) -> Result<(Scale, Option<Bytes>), ConfigError> {
    let text = c.text()?;
    if text == AS_IS {
        return Ok((Scale::AS_IS, None));
    }
    if text.contains(AS_IS) {
        return Err(c.error(format!("\"{text}\": {AS_IS} stands alone; {FORM}")));
    }
    let parts = text.split_once(" of ").and_then(|(ratio, size)| {
        let (one, factor) = ratio.split_once(':')?;
        Some((one.trim(), factor.trim(), size.trim()))
    });
    let Some((one, factor, size)) = parts else {
        return Err(c.error(format!("\"{text}\" is no scale; {FORM}")));
    };
    if one != "1" {
        return Err(c.error(format!(
            "\"{text}\" does not begin with 1: a machine stands for a larger one; {FORM}"
        )));
    }
    let range = || {
        c.error(format!(
            "1:{factor} is out of range; a whole number from 2 to {} is allowed, and \"{AS_IS}\"",
            Scale::MOST
        ))
    };
    let scale = factor.parse().ok().and_then(Scale::new).filter(|s| !s.is_as_is());
    let scale = scale.ok_or_else(range)?;
    let size = parse_size(size).map_err(|e| c.error(e))?;
    Ok((scale, Some(size)))
}

/// What is wrong with the size, on the machine that the file names.
pub(crate) fn size_wrong(size: Bytes, factor: u64, machine: &Hardware) -> Option<String> {
    let near = machine.nodes.iter().filter(|n| machine.cpus.iter().any(|c| c.node == n.id));
    let has = Bytes(near.map(|n| n.size().0).sum());
    let whole = Bytes(has.0.saturating_mul(factor));
    let name = &machine.name;
    let has_text = write_size(has);
    if whole == size {
        None
    } else if has > size {
        Some(format!(
            "the nodes with CPUs of the machine \"{name}\" have {has_text}, more than the {} that \
             they stand for",
            write_size(size)
        ))
    } else {
        Some(format!(
            "the nodes with CPUs of the machine \"{name}\" have {has_text}: {factor} times that are \
             {}, not {}",
            write_size(whole),
            write_size(size)
        ))
    }
}
