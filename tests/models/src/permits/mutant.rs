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
    /// An attempt that gives up while it takes permits without a place removes nothing.
    NoUndo,
    /// The attempt that has left the queue tells whoever waits behind it then that it is first, and that one may have come since.
    TellsLatecomers,
    /// A holder hands its permits over to the first in the queue, which has not counted the others'.
    HandsOverUncounted,
    /// A holder hands its permits over to one that wants more.
    HandsOverTooFew,
    /// Permits are handed over whether the successor has its place or not.
    HandsOverBesideQueue,
    /// A successor takes permits by itself while others are being handed over to it.
    TakesBoth,
    /// A successor takes a lost answer for a refusal.
    LostIsRefused,
}
