//! Hand-over of a lock from a holder of this client to the first of its waiters, as far as the server has answered.

/// Answer to the command that turns a holder's item into a waiter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandOverAnswer {
    /// The item is the waiter's.
    Done {
        /// Whether it lives as long as it was told to.
        lasts: bool,
        /// Whether the epoch was there and open, and the server's clock ran.
        counts: bool,
    },
    /// Nothing was changed.
    NotDone,
    /// The command may have been carried out, or not.
    Unknown,
}

/// Outcome of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandedOver {
    /// The waiter is told that the lock is its own.
    Granted,
    /// The item is not the holder's any more, and no grant either: it is released in the waiter's name, which looks for itself.
    Void,
    /// The holder's item has to be released as usual.
    No,
    /// The holder's item has to be released as usual. If it is not there any more, it may be the waiter's, which finds what it has, or
    /// have been lost before.
    Perhaps,
}

impl HandedOver {
    /// Outcome by the answer of the server.
    #[must_use]
    pub fn by(answer: HandOverAnswer) -> Self {
        match answer {
            HandOverAnswer::Done { lasts: true, counts: true } => Self::Granted,
            HandOverAnswer::Done { .. } => Self::Void,
            HandOverAnswer::NotDone => Self::No,
            HandOverAnswer::Unknown => Self::Perhaps,
        }
    }

    /// Whether the holder's item is another's now, so that the release is done.
    #[must_use]
    pub fn ends_release(self) -> bool {
        matches!(self, Self::Granted | Self::Void)
    }

    /// Whether the lock was the holder's until now, by how many of its items were released, and how many were gone before; `None` if
    /// that cannot be known by these.
    #[must_use]
    pub fn was_held(self, released: usize, gone: usize) -> Option<bool> {
        match self {
            Self::Perhaps if released == 0 => None,
            _ => Some(gone == 0 && released > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_is_told_of_what_lasts_and_counts_only() {
        for (lasts, counts) in [(true, false), (false, true), (false, false)] {
            assert_eq!(HandedOver::by(HandOverAnswer::Done { lasts, counts }), HandedOver::Void);
        }
        assert_eq!(HandedOver::by(HandOverAnswer::Done { lasts: true, counts: true }), HandedOver::Granted);
    }

    #[test]
    fn what_was_not_handed_over_for_certain_is_released_as_usual() {
        let ends = |answer| HandedOver::by(answer).ends_release();
        assert!(ends(HandOverAnswer::Done { lasts: true, counts: true }));
        assert!(ends(HandOverAnswer::Done { lasts: false, counts: true }));
        assert!(!ends(HandOverAnswer::NotDone) && !ends(HandOverAnswer::Unknown));
    }

    #[test]
    fn a_release_that_finds_something_gone_is_a_loss_unless_it_may_have_been_handed_over() {
        let was_held = |released, gone| HandedOver::No.was_held(released, gone);
        assert_eq!([was_held(1, 0), was_held(0, 1), was_held(1, 1)], [Some(true), Some(false), Some(false)]);
        assert_eq!(was_held(0, 0), Some(false), "it had nothing");
        assert_eq!(HandedOver::Perhaps.was_held(0, 1), None);
        assert_eq!(HandedOver::Perhaps.was_held(1, 0), Some(true));
    }
}
