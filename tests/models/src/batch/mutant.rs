//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The task that sends ends after a batch without asking whether it may.
    EndsUnasked,
    /// The task that sends goes on although it was told that it has ended.
    SendsOn,
    /// The task that sends dies, and does not give up its batch.
    DeadSenderKeepsBatch,
    /// An attempt that leaves after the taking of its batch counts as never sent.
    LeftIsUnsent,
    /// An attempt that leaves does not wait until its batch is in the connection's queue.
    CancelHurries,
    /// The hole of an attempt that has left counts as a request, and is taken as one.
    HoleCounted,
    /// A batch that is lost is sent again over the next connection.
    SentAgain,
    /// A batch that is refused is sent again, as a whole.
    RefusedSentAgain,
    /// A batch is put into the queue of the connection that its sender had, and noted as sent over the one that is there by then.
    CrossesReconnect,
    /// The answers to a batch are given to those who still wait, in their order.
    WrongOrder,
    /// A batch whose answer is lost is told as one that is refused.
    LostIsRefused,
    /// A batch that is refused is told as granted.
    RefusedIsGranted,
    /// A batch that is refused is told to nobody.
    RefusedIsForgotten,
    /// A single request that is taken is not told to go on by itself.
    SingleIsForgotten,
    /// An outcome that was given up with the task that waits for it is told all the same.
    GivenUpIsTold,
    /// An attempt that fails alone has its neighbours fail, too.
    FailsWithNeighbour,
    /// An attempt that is sent again has another nonce.
    ForgottenNonce,
    /// An attempt is sent again although its batch may still be carried out.
    RepeatsUnsettled,
    /// An attempt that is refused when it is sent again forgets that it may have been carried out before.
    UnknownForgotten,
    /// An attempt that gave up is not cancelled.
    NoUndo,
    /// A cancellation that is answered counts as settled, over whichever connection it came.
    SettledAtOnce,
}
