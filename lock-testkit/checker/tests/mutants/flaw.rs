//! The flaws of locks.

/// One flaw each: M1 to M20 of the conformance plan, and S1 and S2 of `docs/specimens.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    BlindDelete,
    DeadlineFromReply,
    NoDeadline,
    BlindRenewal,
    ExpiryInSecondStep,
    ForgetsBeforeRelease,
    LateWatch,
    FirstPredecessorOnly,
    OrderByName,
    GhostPermits,
    ClientClockToken,
    ExpiringCounter,
    CancelledStays,
    DropKeeps,
    AnonymousRetry,
    WallClockDeadline,
    ReaderPassesWriter,
    UpgradeWaits,
    InnerReleaseFrees,
    RenewsAfterRelease,
    WakesEverybody,
    CountsLaterWriters,
}

/// The kinds of locks in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore,
}

impl Flaw {
    pub(crate) fn scenario(self) -> Scenario {
        match self {
            Self::GhostPermits => Scenario::Semaphore,
            Self::ReaderPassesWriter | Self::UpgradeWaits | Self::CountsLaterWriters => Scenario::ReadWrite,
            Self::InnerReleaseFrees => Scenario::Reentrant,
            _ => Scenario::Mutex,
        }
    }
}
