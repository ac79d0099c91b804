//! The name of this backend, and its promises by how the servers are arranged.

use lock_core::{Guarantees, Support};

/// The name of this backend in errors and metrics.
pub(crate) const NAME: &str = "redis";

/// Promises on a single server.
fn on_one_server() -> Guarantees {
    let mut guarantees = Guarantees::none();
    guarantees.exclusion_across_restart =
        Support::Unless("the server loses data it had acknowledged (no persistence, or power loss)");
    guarantees.fencing = Support::Yes;
    guarantees.fencing_across_restart =
        Support::Unless("the last token is lost and the server's clock is set back too");
    guarantees.fifo = Support::Unless("the key is shared with foreign clients");
    guarantees.push = Support::Yes;
    guarantees.limit_check = Support::Yes;
    guarantees.inspect = Support::Yes;
    guarantees.force_release = Support::Yes;
    guarantees.shared_owner = Support::Yes;
    guarantees.foreign_clients = Support::Yes;
    guarantees.adoption = Support::Yes;
    guarantees.leave = Support::Yes;
    guarantees.record = Support::Yes;
    guarantees.record_across_restart =
        Support::Unless("the server loses data it had acknowledged (no persistence, or power loss), or evicts it");
    guarantees
}

/// The arrangement of the servers of a client.
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
    /// The promises on such servers.
    #[must_use]
    pub fn guarantees(self) -> Guarantees {
        let mut guarantees = on_one_server();
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
        guarantees.record_across_failover = Support::Unless("the new master had not received it yet");
        guarantees.exclusion_across_restart = Support::Unless(
            "the server loses data it had acknowledged, or a replica takes over that had not received them",
        );
        guarantees
    }
}
