//! Mistakes that can be made on purpose, one line each.

/// One thing that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A session's lease counts from the arrival of the answer.
    DeadlineFromReply,
    /// A holder believes to hold until it is told otherwise.
    EndlessBelief,
    /// After a lost answer a node is created without a look for the one that may be there.
    CreatedTwice,
    /// A node that is found counts, whichever session it is of.
    FormerSession,
    /// The news that a node has gone make a grant.
    NewsGrant,
    /// A watch on a node that has gone already is waited for.
    WatchOnNothing,
    /// A place that is given up is not removed.
    NoUndo,
    /// A place whose creation was not answered is taken for not created when it is given up.
    UndoByMemory,
    /// The token is the number in the node's name, which starts anew with its directory.
    TokenFromName,
}
