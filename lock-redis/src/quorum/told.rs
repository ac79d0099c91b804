//! When the first waiter of a client asks the servers again: no I/O, no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_core::clock::BootInstant;

/// How long after the first server's word the lock is asked for without a majority's: the others may be down.
const GRACE: Duration = Duration::from_millis(3);

/// News of a release, since the lock was asked for last.
#[derive(Debug, Default)]
pub(super) struct Told {
    servers: BTreeSet<usize>,
    first_at: Option<BootInstant>,
    handed_over: bool,
}

impl Told {
    /// A server says that the lock is free, and reserved for this client.
    pub(super) fn by_server(&mut self, server: usize, now: BootInstant) {
        self.servers.insert(server);
        self.first_at.get_or_insert(now);
    }

    /// A holder in this client has sent its release.
    pub(super) fn by_holder(&mut self) {
        self.handed_over = true;
    }

    /// Whether there is news after which nobody has asked yet.
    pub(super) fn is_any(&self) -> bool {
        self.handed_over || self.first_at.is_some()
    }

    /// The instant to ask at; the far future without news. A request that is too early finds the lock free on some servers
    /// only, and has to be undone.
    pub(super) fn ask_at(&self, majority: usize) -> BootInstant {
        match self.first_at {
            _ if self.handed_over => BootInstant::from_origin(Duration::ZERO),
            Some(first) if self.servers.len() >= majority => first,
            Some(first) => first.plus(GRACE),
            None => BootInstant::FAR_FUTURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_majority_s_word_counts_at_once_and_a_single_one_a_moment_later() {
        let mut told = Told::default();
        assert!(!told.is_any());
        assert_eq!(told.ask_at(2), BootInstant::FAR_FUTURE);
        told.by_server(1, at(10));
        told.by_server(1, at(11));
        assert_eq!(told.ask_at(2), at(13), "one server is no majority, however often it says so");
        told.by_server(0, at(12));
        assert_eq!(told.ask_at(2), at(10));
    }

    #[test]
    fn a_hand_over_within_the_client_counts_at_once() {
        let mut told = Told::default();
        told.by_holder();
        assert!(told.is_any());
        assert_eq!(told.ask_at(2), at(0));
    }
}
