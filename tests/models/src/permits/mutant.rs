//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Permits are taken without a place although somebody is in the queue.
    ClaimsBesideQueue,
    /// Permits that were taken without a place are not counted behind.
    NoCount,
    /// The permits are listed before they are taken without a place.
    CountsBefore,
    /// Permits that are found after a lost answer are not counted.
    FoundIsTaken,
    /// After a lost answer the attempt goes into the queue without a look for the permits that it may have.
    NotLookedFor,
    /// Permits that are too many are kept while the attempt goes into the queue.
    KeepsTooMany,
    /// What is given up is not removed while it is taken without a place.
    NoUndo,
    /// Whoever has left the queue tells the one that waits behind it then, which may have come since.
    TellsLatecomers,
}
