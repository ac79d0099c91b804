//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A grant counts from the arrival of the answer.
    ClaimFromAnswer,
    /// A lock that was handed over counts from the arrival of the answer.
    HandOverFromAnswer,
    /// A lock is handed over whosever it is by now.
    BlindHandOver,
    /// A CAS number of an earlier life of the server is believed.
    NumberOfAnotherLife,
    /// A claim counts whatever the epoch is.
    EpochNotRead,
    /// A closed epoch is opened at once.
    OpenedAtOnce,
    /// A claim that does not count is not released.
    ClaimLeft,
    /// A waiter that goes does not wake the next one.
    TurnNotPassedOn,
    /// Waiters are handed the lock although others have their turn.
    HandedPastOthers,
    /// A waiter is not woken while others have their turn.
    NotWokenForOthers,
    /// A waiter that was woken looks although others have their turn by now.
    WokenPastOthers,
    /// A waiter that was handed a lock when it had given up keeps it.
    NoUndo,
    /// A hand-over that was not answered is taken for one that was refused.
    SilenceIsRefusal,
    /// Waiters do not look again.
    NoLooks,
    /// Nobody takes the place of a first one that is not polled.
    PlaceNeverTaken,
    /// Nobody watches the first one in the stead of a watcher that has gone.
    NobodyWatchesAnew,
}
