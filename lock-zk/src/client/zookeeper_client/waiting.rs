//! A request that waits for its turn.

use std::future::Future;
use std::pin::Pin;

use super::asks::{Append, Ask, Delete, List};
use super::batch::{Part, RequestKind};

/// A request on its way, which tells its answers by itself.
pub(super) type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request that waits.
pub(super) enum Waiting {
    Append(Append),
    Delete(Delete),
    List(List),
    /// Asks the crate when it is polled first, if it is still to be sent then.
    Other(RequestFuture),
}

impl Waiting {
    pub(super) fn part(&self) -> Part<'_> {
        match self {
            Self::Append(append) => append.part(),
            Self::Delete(delete) => delete.part(),
            Self::List(list) => list.part(),
            Self::Other(_) => Part { kind: RequestKind::Other, path: "", bytes: 0 },
        }
    }

    /// Whether it is still to be sent.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Append(append) => append.is_wanted(),
            Self::Delete(delete) => delete.is_wanted(),
            Self::List(list) => list.is_wanted(),
            Self::Other(_) => true,
        }
    }

    /// The number of requests of which it is one, or two. A batch is as many as its parts: it takes as long on a slow link.
    pub(super) fn turns(&self) -> usize {
        match self {
            Self::Append(append) => append.turns(),
            Self::Delete(delete) => delete.turns(),
            Self::List(list) => list.turns(),
            Self::Other(_) => 1,
        }
    }
}
