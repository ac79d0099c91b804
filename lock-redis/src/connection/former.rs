//! Order across connections: their numbers, and those that came before.
//!
//! Commands are ordered on one connection only. An acquisition whose connection broke may still sit in the server's
//! receive buffer, and would be carried out after a release that was sent on a new connection. So a new connection's
//! first command kills its predecessor (`CLIENT KILL` by id **and** both addresses, so that the ids of a restarted server
//! cannot hit a stranger). Once that is answered, whatever the old connection carried has been carried out or never
//! will be: the new connection is *clean*, requests may be repeated on it, and one look settles a cancellation. Where
//! the user lacks the right to `CLIENT`, it is not clean, and cancellations are repeated until the lease is over.
//!
//! A connection to another server than the one that is master now needs no such care: what a server carries out after it
//! was replaced does not count, as its data are thrown away. It is remembered for the case that it becomes master again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::sync::watch;

use super::address::Address;

/// How many former connections that were never confirmed to be dead are remembered; the oldest are forgotten first.
const MOST: usize = 1024;

/// What all links of one client share.
#[derive(Debug)]
pub(crate) struct Ledger {
    last: AtomicU64,
    made: watch::Sender<u64>,
    changes: watch::Sender<u64>,
    /// Earlier connections that are not known to be dead at their servers too, the oldest first.
    formers: Mutex<Vec<Former>>,
}

/// A connection, and by what its server knows it; `None` where the server does not tell: an old one, or a user without
/// the right.
#[derive(Debug, Clone)]
pub(super) struct Former {
    pub(super) generation: u64,
    pub(super) server: Address,
    pub(super) identity: Option<Identity>,
    /// When it was given up, once it was.
    pub(super) ended_at: BootInstant,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            made: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            formers: Mutex::default(),
        }
    }
}

impl Ledger {
    /// A number for a new connection, above all earlier ones.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Changes with every new connection.
    pub(super) fn made(&self) -> watch::Receiver<u64> {
        self.made.subscribe()
    }

    pub(super) fn was_made(&self, generation: u64) {
        self.made.send_modify(|newest| *newest = generation.max(*newest));
    }

    /// Changes whenever something may have been lost: a connection was replaced, or another server took over.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Remembers a connection that is given up.
    pub(super) fn retire(&self, former: Former) {
        let mut formers = self.formers();
        if formers.len() >= MOST {
            formers.remove(0);
        }
        formers.push(Former { ended_at: SystemClock.now(), ..former });
    }

    /// Kills the former connections to this server, over a new one.
    pub(super) async fn bury(&self, server: &Address, connection: &mut MultiplexedConnection) {
        let there: Vec<_> = self.formers().iter().filter(|former| former.server == *server).cloned().collect();
        for former in there {
            if former.kill(connection).await {
                self.formers().retain(|other| other.generation != former.generation);
            }
        }
    }

    /// Whether no former connection to this server since this one can still carry something out.
    pub(super) fn is_quiet(&self, server: &Address, first: u64) -> bool {
        !self.formers().iter().any(|former| former.generation >= first && former.server == *server)
    }

    /// Whether no connection to this server that was given up since then can still carry something out.
    pub(super) fn is_quiet_since(&self, server: &Address, at: BootInstant) -> bool {
        !self.formers().iter().any(|former| former.ended_at >= at && former.server == *server)
    }

    fn formers(&self) -> MutexGuard<'_, Vec<Former>> {
        // Every critical section leaves the list valid after each statement.
        self.formers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Former {
    /// Whether the server says that this connection is dead now.
    async fn kill(&self, connection: &mut MultiplexedConnection) -> bool {
        match &self.identity {
            Some(identity) => identity.kill(connection).await.is_ok(),
            None => false,
        }
    }
}

/// By what the server knows a connection.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    id: String,
    addr: String,
    laddr: String,
}

impl Identity {
    pub(super) async fn ask(connection: &mut MultiplexedConnection) -> Option<Self> {
        let info: String = cmd("CLIENT").arg("INFO").query_async(connection).await.ok()?;
        let field = |name: &str| {
            info.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Self { id: field("id")?, addr: field("addr")?, laddr: field("laddr")? })
    }

    async fn kill(&self, connection: &mut MultiplexedConnection) -> RedisResult<u64> {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.addr).arg("LADDR").arg(&self.laddr);
        kill.query_async(connection).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_connection_disturbs_what_was_sent_before_its_end_to_its_own_server() {
        let ledger = Ledger::default();
        let address = |host: &str| Address::Tcp { host: host.to_owned(), port: 1 };
        let (before, first) = (SystemClock.now(), ledger.number());
        let former =
            Former { generation: first, server: address("a"), identity: None, ended_at: BootInstant::FAR_FUTURE };
        assert!(ledger.is_quiet(&address("a"), first) && ledger.is_quiet_since(&address("a"), before));
        ledger.retire(former);
        assert!(!ledger.is_quiet(&address("a"), first) && !ledger.is_quiet_since(&address("a"), before));
        assert!(ledger.is_quiet(&address("b"), first) && ledger.is_quiet_since(&address("b"), before));
        let after = SystemClock.now().plus(std::time::Duration::from_nanos(1));
        assert!(ledger.is_quiet(&address("a"), ledger.number()) && ledger.is_quiet_since(&address("a"), after));
    }
}
