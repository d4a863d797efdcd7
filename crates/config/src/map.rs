//! `[[process.map]]`: a mapping, and what its pages hold.

use crate::ConfigError;
use crate::policy::policy_of;
use crate::tree::{Cur, Fields, Kind};
use homenode_core::scenario::{Content, Map};
use homenode_core::units::Pages;

pub(crate) fn map(c: &Cur<'_>) -> Result<Map, ConfigError> {
    let t = c.table(&[
        "name",
        "size",
        "file",
        "shared",
        "read_only",
        "huge",
        "content",
        "mergeable",
        "policy",
    ])?;
    let flag = |key| t.opt(key).map_or(Ok(false), |c| c.bool());
    Ok(Map {
        name: t.get("name")?.text()?.to_owned(),
        size: t.get("size")?.size()?,
        file: flag("file")?,
        shared: flag("shared")?,
        read_only: flag("read_only")?,
        huge: t.opt("huge").map(|c| c.bool()).transpose()?,
        content: t.opt("content").map_or(Ok(Content::Own), |c| content(&c))?,
        mergeable: flag("mergeable")?,
        policy: policy_of(&t)?,
    })
}

/// `"own"`, `"zero"`, or a table that names an image.
pub(crate) fn content(c: &Cur<'_>) -> Result<Content, ConfigError> {
    if let Kind::Text(_) = c.val.kind {
        return c.word(&[("own", Content::Own), ("zero", Content::Zero)]);
    }
    let t = c.table(&["image", "distinct"])?;
    Ok(Content::Image { name: t.get("image")?.text()?.to_owned(), distinct: distinct(&t)? })
}

/// How many different pages an image has.
pub(crate) fn distinct(t: &Fields<'_>) -> Result<Option<Pages>, ConfigError> {
    t.opt("distinct").map(|d| d.int(1, u32::MAX.into()).map(Pages)).transpose()
}
