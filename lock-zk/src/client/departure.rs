//! The departure of a request from the client: whether any byte of it was ever sent.

use std::sync::{Arc, OnceLock};

/// A request that may wait before it is sent. Whoever is about to send it and whoever gives it up agree on one outcome: that of the first
/// of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departure(Arc<OnceLock<bool>>);

impl Departure {
    /// Notes that the request is about to be sent; false if it was given up, and then it must not be.
    pub(crate) fn leave(&self) -> bool {
        *self.0.get_or_init(|| true)
    }

    /// Gives the request up, and returns whether it was never sent: then it never will be.
    pub(crate) fn give_up(&self) -> bool {
        !*self.0.get_or_init(|| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_or_given_up_whoever_comes_first() {
        let (sent, given_up) = (Departure::default(), Departure::default());
        assert!(sent.leave() && !sent.give_up() && sent.clone().leave());
        assert!(given_up.give_up() && !given_up.clone().leave() && given_up.give_up());
    }
}
