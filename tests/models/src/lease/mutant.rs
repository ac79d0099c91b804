//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A lease counts from the arrival of the answer.
    DeadlineFromReply,
    /// A pushed grant counts from its arrival.
    PushFromArrival,
    /// A pushed grant counts for longer than the claim time.
    PushWithoutBound,
    /// A question counts from its answer.
    QuestionFromReply,
    /// A push is believed whichever stay in the queue it is from.
    PushWithoutFloor,
    /// The answer to a renewal counts although the holder has seen its deadline pass.
    RevivedByRenewal,
    /// A release deletes whatever it finds.
    BlindRelease,
    /// A renewal extends whatever it finds.
    BlindRenewal,
    /// An acquisition does not look whether its nonce holds the lock already.
    ForgottenNonce,
    /// A hand-over keeps the token.
    TokenKept,
    /// Nobody asks for a lock on which it waits.
    NoHeartbeats,
    /// A waiter that learns that its place is gone does not ask again.
    PlaceNotRetaken,
    /// An acquisition that is given up is not undone.
    NoUndo,
    /// A cancellation leaves the place in the queue.
    UndoLeavesPlace,
    /// A new connection does not kill its predecessor, and is taken for clean.
    NoKill,
}
