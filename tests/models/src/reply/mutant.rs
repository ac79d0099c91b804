//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A grant in a reply counts from the arrival of that.
    GrantFromReply,
    /// Nobody asks again when the connection breaks that may have carried a grant.
    LossTellsNobody,
    /// Nobody asks again when a release is dropped whose reply may carry a grant.
    DropTellsNobody,
    /// A client that is told of a grant to a waiter that has given up keeps it.
    UnwantedKept,
    /// A release that finds its grant gone hands the lock over all the same.
    HandsOverTwice,
    /// A release that is sent again names the next holder once more, with a whole lease from its own sending.
    TellsTwice,
    /// The caller's waiter is told by push too, and the server keeps the lock for the claim time that the push says.
    TwoEnds,
    /// The reply names the next holder whichever client it is of, and nobody pushes.
    NamesOthers,
    /// A waiter that has given up is not undone.
    NoUndo,
    /// A hand-over in the reply keeps the token.
    TokenKept,
    /// A waiter that is to ask again does not.
    NoAskAgain,
    /// Clients send no heartbeats.
    NoHeartbeats,
}
