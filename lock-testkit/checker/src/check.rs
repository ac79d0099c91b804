//! The checks.

use std::fmt;

use serde::Serialize;

/// The checks, as `docs/histories.md` defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub enum Check {
    /// Two holders of an exclusive lock.
    ME,
    /// A writer beside somebody else.
    RW,
    /// More permits in use than there are.
    SEM,
    /// A reentrant lock that miscounts.
    RE,
    /// Several locks at once that were not all or nothing.
    MULTI,
    /// Tokens that do not grow.
    F1,
    /// A fenced resource that admitted an old token.
    F2,
    /// A fenced resource that refused the newest token of a holder.
    F3,
    /// A lost update.
    F4,
    /// A token that is not good at every resource.
    F5,
    /// A grant that was released twice.
    R1,
    /// A release that took the lock from another holder.
    R2,
    /// A release that said what was not so.
    R3,
    /// A holder that believed in its lease for too long.
    L1,
    /// A holder that was told of its loss too late.
    L2,
    /// A holder that did not notice that its entry was gone.
    L3,
    /// A loss without a cause.
    E1,
    /// A lock that was free while somebody waited.
    P1,
    /// A waiter that was forgotten.
    P2,
    /// A call that came back too late.
    P3,
    /// A refusal although nobody held.
    P4,
    /// A waiter that was overtaken.
    P5,
    /// A release that woke up too many.
    P6,
    /// Something that was left behind.
    LEAK,
    /// A slot of a job that was done again.
    O1,
    /// A slot of a job that was passed over.
    O2,
    /// Two terms of leaders that both act.
    TERM,
    /// A record that went back.
    REC,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
