//! What a failure is told as, and which exit code it has.

use homenode_live::acting::ActError;
use homenode_live::heat::damon::DamonError;
use homenode_live::ledger::LedgerError;
use homenode_live::people::PeopleError;
use homenode_live::stats::LookError;
use homenode_live::sysfs::TopologyError;
use homenode_measure::constants::MeasureError;
use homenode_measure::jobs::JobsError;
use homenode_measure::record::RecordError;
use homenode_measure::truth::perf::PerfError;
use homenode_merge::estimate::MergeError;
use homenode_merge::ksm::KsmError;

/// Something that the system lacks: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lacks(pub(crate) String);

/// What was checked is not so: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotSo(pub(crate) String);

/// A program was over before there was anything to see of it: its own exit code.
#[derive(Debug, thiserror::Error)]
#[error("the program ended before it could be looked at")]
pub(crate) struct Unseen(pub(crate) u8);

/// 3 where the system lacks something, 1 where a check failed, a program's own where only that is to be told, else 2.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if let Some(Unseen(code)) = error.downcast_ref() {
        return *code;
    }
    if error.is::<NotSo>() {
        return 1;
    }
    let lacks = error.chain().any(|e| {
        e.is::<Lacks>()
            || e.is::<MeasureError>()
            || e.is::<TopologyError>()
            || e.is::<DamonError>()
            || e.is::<ActError>()
            || e.is::<LedgerError>()
            || e.downcast_ref::<JobsError>().is_some_and(JobsError::is_lack)
            || e.downcast_ref::<RecordError>().is_some_and(RecordError::is_lack)
            || e.downcast_ref::<PerfError>().is_some_and(PerfError::is_lack)
            || e.downcast_ref::<KsmError>().is_some_and(KsmError::is_lack)
            || e.downcast_ref::<MergeError>().is_some_and(MergeError::is_lack)
            || e.downcast_ref::<LookError>().is_some_and(LookError::is_lack)
            || e.downcast_ref::<PeopleError>().is_some_and(PeopleError::is_lack)
    });
    if lacks { 3 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homenode_live::sentence;

    #[test]
    fn causes_are_said_once_and_lacks_have_their_own_code() {
        let e = anyhow::Error::new(Lacks("no qemu".into())).context("can't record: no qemu");
        assert_eq!((sentence(&*e).as_str(), code(&e)), ("can't record: no qemu", 3));
        let e = anyhow::Error::new(Unseen(7));
        assert_eq!(code(&e), 7);
        let e = anyhow::Error::new(NotSo("50 % off".into()));
        assert_eq!((sentence(&*e).as_str(), code(&e)), ("50 % off", 1));
        let e = anyhow::anyhow!("inner").context("outer");
        assert_eq!((sentence(&*e).as_str(), code(&e)), ("outer: inner", 2));
    }
}
