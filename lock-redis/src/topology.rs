//! What is promised, by how the servers are arranged.

use lock_core::{Guarantees, Support};

/// How the servers of a client are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    Single,
    /// A master whose replicas can take over, found by sentinels.
    Sentinel,
    /// Several masters that share the locks, each with replicas that can take over.
    Cluster,
}

impl Topology {
    /// What is promised there.
    #[must_use]
    pub fn guarantees(self) -> Guarantees {
        let mut guarantees = crate::guarantees();
        guarantees.exclusion_across_failover = match self {
            Self::Single => return guarantees,
            Self::Sentinel => Support::Unless(
                "the new master had not received the lock yet, or the old one, which takes writes for about 10 s more, \
                 grants it to a client that has not heard of the switch",
            ),
            Self::Cluster => Support::Unless(
                "the new master had not received the lock yet, or the old one is cut off and takes writes until its node \
                 timeout",
            ),
        };
        guarantees.exclusion_across_restart = Support::Unless(
            "the server loses data it had acknowledged, or a replica takes over that had not received them",
        );
        guarantees
    }
}
