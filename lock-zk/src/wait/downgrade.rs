//! A downgrade, decided without I/O: one transaction, repeated until it is known what came of it.

use crate::client::Fate;

/// The downgrade of one writer.
#[derive(Debug)]
pub(crate) struct Downgrade {
    /// Whether an earlier request was not answered, and may have been carried out.
    may_be_done: bool,
}

/// The outcome of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Downgraded {
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
    pub(crate) const fn new(may_be_done: bool) -> Self {
        Self { may_be_done }
    }

    /// Takes the answer to a request.
    pub(crate) const fn answered(&mut self, answer: Result<(), Fate>) -> Downgraded {
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
