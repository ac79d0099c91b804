//! Downgrades: a reader's node in the place of a writer's, by one transaction, repeated until it is known what came of it.

use std::sync::Arc;

use lock_core::clock::SystemClock;
use lock_core::driver::{Attempt, wait};
use lock_core::{Error, ErrorKind, Phase};

use crate::client::{Created, Fate, NewNode};
use crate::error;
use crate::registry::{Registration, Registry};
use crate::store::node::HolderRecord;

/// Makes readers of writers.
#[derive(Debug)]
pub(crate) struct Downgrader {
    registry: Arc<Registry>,
}

impl Downgrader {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Downgrades a write lock, within the operation timeout.
    pub(crate) async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Err(gone(attempt)) };
        let changed = async {
            tokio::select! {
                biased;
                changed = self.exchange(attempt, &registration) => changed,
                // By our clock: nobody has said that it is gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Downgrade)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Downgrade, changed).await
    }

    /// Puts a reader's node into the writer's place in the queue, by one transaction.
    async fn exchange(&self, attempt: &Attempt, registration: &Registration) -> Result<(), Error> {
        let Some(write) = registration.node() else { return Err(gone(attempt)) };
        let path = registration.lock.downgraded(&write.path);
        if path == write.path {
            return Ok(());
        }
        let wanted = [NewNode::Named(path.clone())];
        let record =
            HolderRecord::new(attempt, registration.session.connection.timeout()).with_token(write.czxid).to_bytes();
        let mut downgrade = Downgrade::new(registration.is_changing());
        self.registry.node_may_go(registration);
        for pause in error::pauses() {
            let changed = registration.exchange(std::slice::from_ref(&write.path), &wanted, &record).await;
            let outcome = downgrade.answered(changed.as_ref().map(drop).map_err(|failure| failure.fate));
            match (outcome, changed) {
                (Downgraded::Again, _) => tokio::time::sleep(pause).await,
                (Downgraded::Gone, _) => return Err(gone(attempt)),
                (Downgraded::Unsettled, Err(failure)) => return Err(error::unsettled(failure, Phase::Downgrade)),
                (Downgraded::Refused, Err(failure)) => return Err(error::of_request(failure, Phase::Downgrade)),
                _ => break,
            }
        }
        self.registry.set_node(registration, Created { path, czxid: write.czxid });
        Ok(())
    }
}

fn gone(attempt: &Attempt) -> Error {
    attempt.error(ErrorKind::NotHeld, Phase::Downgrade, "the servers have no such write lock (any more)")
}

/// The downgrade of one writer, decided without I/O.
#[derive(Debug)]
struct Downgrade {
    /// Whether an earlier request was not answered, and may have been carried out.
    may_be_done: bool,
}

/// The outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Downgraded {
    /// The reader's node is there.
    Done,
    /// The outcome is not known: the request is to be repeated.
    Again,
    /// The writer's node was gone.
    Gone,
    /// Refused, and nothing has changed.
    Refused,
    /// Refused after a request that may have been carried out.
    Unsettled,
}

impl Downgrade {
    /// A downgrade that begins. An earlier one of the same grant may not have been answered, and may have been carried out.
    const fn new(may_be_done: bool) -> Self {
        Self { may_be_done }
    }

    /// Takes the answer to a request.
    const fn answered(&mut self, answer: Result<(), Fate>) -> Downgraded {
        match answer {
            // It is there by an earlier request, whose answer was lost: only this grant makes a node of this name.
            Ok(()) | Err(Fate::Exists) => Downgraded::Done,
            Err(Fate::Unknown) => {
                self.may_be_done = true;
                Downgraded::Again
            }
            Err(Fate::Missing) => Downgraded::Gone,
            Err(_) if self.may_be_done => Downgraded::Unsettled,
            Err(_) => Downgraded::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_that_nothing_has_changed_unless_an_answer_was_lost() {
        let mut downgrade = Downgrade::new(false);
        assert_eq!(downgrade.answered(Err(Fate::Denied)), Downgraded::Refused);
        assert_eq!(downgrade.answered(Err(Fate::Missing)), Downgraded::Gone);
        assert_eq!(downgrade.answered(Err(Fate::Unknown)), Downgraded::Again);
        assert_eq!(downgrade.answered(Err(Fate::Denied)), Downgraded::Unsettled);
        assert_eq!(downgrade.answered(Err(Fate::Exists)), Downgraded::Done);
        assert_eq!(Downgrade::new(false).answered(Ok(())), Downgraded::Done);
    }

    #[test]
    fn a_refusal_says_nothing_of_an_earlier_downgrade_that_was_not_answered() {
        assert_eq!(Downgrade::new(true).answered(Err(Fate::Denied)), Downgraded::Unsettled);
        assert_eq!(Downgrade::new(true).answered(Err(Fate::Exists)), Downgraded::Done);
    }
}
