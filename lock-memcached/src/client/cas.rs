//! A CAS number, and where it was learned.
//!
//! Numbers begin anew with each process of the server. After a restart the number of a former item may be that of somebody
//! else's, and a command that names it alone would change that one: a release that the network delivers late, the renewal of
//! a client that was suspended. A connection ends with the server's process. So a number is valid over any connection that was open before
//! it was asked for; over any other one the item is read first ([`link::connection`](super::link)).

use lock_core::clock::BootInstant;

use crate::store::keys::number;

/// A CAS number, and where it was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CasNumber {
    pub(crate) cas: u64,
    /// Over which connection.
    pub(super) over: u64,
    /// The instant at which it was asked for.
    pub(super) asked: BootInstant,
}

/// An item that is to be changed only as long as it is unchanged and holds this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnItem {
    pub(crate) value: u64,
    pub(crate) seen: CasNumber,
}

impl CasNumber {
    /// Whether the number means the same over a connection with this number, that was answered first at `answered`.
    pub(super) fn counts_over(self, connection: u64, answered: Option<BootInstant>) -> bool {
        self.over == connection || answered.is_some_and(|answered| answered <= self.asked)
    }

    #[cfg(test)]
    pub(crate) fn of_a_test(cas: u64) -> Self {
        Self { cas, over: 0, asked: BootInstant::from_origin(std::time::Duration::ZERO) }
    }
}

impl OwnItem {
    /// Whether an item with this value is the one that is meant.
    pub(super) fn is(&self, value: &[u8]) -> bool {
        number(value) == Some(self.value)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_number_counts_over_its_own_connection_and_older_ones() {
        let at = |ms| BootInstant::from_origin(Duration::from_millis(ms));
        let seen = CasNumber { cas: 7, over: 1, asked: at(100) };
        assert!(seen.counts_over(1, None));
        assert!(seen.counts_over(2, Some(at(100))));
        assert!(!seen.counts_over(2, Some(at(101))), "it was answered first after the number was asked for");
        assert!(!seen.counts_over(2, None), "it was never answered");
    }
}
