//! News after which the first waiter of a client asks the servers again: no I/O, no clock.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_core::clock::BootInstant;

/// The time after the first server's word at which the lock is asked for without a majority's: the others may be down.
const GRACE: Duration = Duration::from_millis(3);

/// News of a release, since the lock was asked for last.
#[derive(Debug, Default)]
pub(super) struct ReleaseNews {
    servers: BTreeSet<usize>,
    first_at: Option<BootInstant>,
    /// The instant from which the lock may be asked for after a release of this client.
    handed_over: Option<BootInstant>,
}

impl ReleaseNews {
    /// A server says that the lock is free, and may be asked for from this instant on.
    pub(super) fn by_server(&mut self, server: usize, from: BootInstant) {
        self.servers.insert(server);
        self.first_at.get_or_insert(from);
    }

    /// A holder in this client has sent its release; the lock may be asked for from this instant on.
    pub(super) fn by_holder(&mut self, from: BootInstant) {
        self.handed_over = Some(from);
    }

    /// The instant to ask at; the far future without news. A request that is too early finds the lock free on some servers
    /// only, and has to be undone.
    pub(super) fn ask_at(&self, majority: usize) -> BootInstant {
        if let Some(from) = self.handed_over {
            return from;
        }
        match self.first_at {
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
        let mut told = ReleaseNews::default();
        assert_eq!(told.ask_at(2), BootInstant::FAR_FUTURE);
        told.by_server(1, at(10));
        told.by_server(1, at(11));
        assert_eq!(told.ask_at(2), at(13), "one server is no majority, however often it says so");
        told.by_server(0, at(12));
        assert_eq!(told.ask_at(2), at(10));
    }

    #[test]
    fn a_hand_over_within_the_client_counts_at_once() {
        let mut told = ReleaseNews::default();
        told.by_holder(at(4));
        assert_eq!(told.ask_at(2), at(4));
    }
}
