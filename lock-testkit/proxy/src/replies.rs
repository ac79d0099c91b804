//! The matching of replies to requests of one connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::active::Active;
use super::frames::Ticket;

/// The replies that the requests of one connection still get.
#[derive(Debug, Default)]
pub(super) struct Replies(Mutex<VecDeque<Expected>>);

#[derive(Debug)]
pub(super) struct Expected {
    pub(super) ticket: Ticket,
    pub(super) fate: ReplyFate,
}

/// The fate of a reply.
#[derive(Debug)]
pub(super) enum ReplyFate {
    /// The reply passes, but for the faults that its request has triggered.
    Passes(Vec<Arc<Active>>),
    /// The reply is the second one to a duplicate.
    Swallowed,
    /// The reply is none of the server's: this is said in its turn.
    Said(Vec<u8>),
}

impl Replies {
    pub(super) fn expect(&self, ticket: Ticket, fate: ReplyFate) {
        self.queue().push_back(Expected { ticket, fate });
    }

    /// Returns the fate of the server's reply with this ticket; one that nobody expects passes.
    pub(super) fn take(&self, ticket: Ticket) -> ReplyFate {
        let mut queue = self.queue();
        let place = queue.iter().position(|expected| expected.ticket == ticket && !expected.is_said());
        let taken = place.and_then(|place| queue.remove(place));
        taken.map_or_else(|| ReplyFate::Passes(Vec::new()), |expected| expected.fate)
    }

    /// Returns what is to be said now, because no reply of the server comes before it.
    pub(super) fn due(&self) -> Vec<Vec<u8>> {
        let mut queue = self.queue();
        let ready = queue.iter().take_while(|expected| expected.is_said()).count();
        let said = queue.drain(..ready).filter_map(|expected| match expected.fate {
            ReplyFate::Said(text) => Some(text),
            ReplyFate::Passes(_) | ReplyFate::Swallowed => None,
        });
        said.collect()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Expected>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expected {
    fn is_said(&self) -> bool {
        matches!(self.fate, ReplyFate::Said(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_passed(fate: &ReplyFate) -> bool {
        matches!(fate, ReplyFate::Passes(_))
    }

    #[test]
    fn what_is_said_waits_for_its_turn() {
        let replies = Replies::default();
        replies.expect(Ticket::InTurn, ReplyFate::Passes(Vec::new()));
        replies.expect(Ticket::InTurn, ReplyFate::Said(b"no".to_vec()));
        assert!(replies.due().is_empty());
        assert!(is_passed(&replies.take(Ticket::InTurn)));
        assert_eq!(replies.due(), [b"no".to_vec()]);
        assert!(is_passed(&replies.take(Ticket::InTurn)) && replies.due().is_empty());
    }

    #[test]
    fn numbers_find_their_own_reply_and_of_a_duplicate_the_second_is_swallowed() {
        let replies = Replies::default();
        replies.expect(Ticket::Number(1), ReplyFate::Passes(Vec::new()));
        replies.expect(Ticket::Number(2), ReplyFate::Passes(Vec::new()));
        replies.expect(Ticket::Number(2), ReplyFate::Swallowed);
        assert!(is_passed(&replies.take(Ticket::Number(2))));
        assert!(matches!(replies.take(Ticket::Number(2)), ReplyFate::Swallowed));
        assert!(is_passed(&replies.take(Ticket::Number(1))));
    }
}
