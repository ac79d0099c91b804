//! The name and the promises of this backend.

use lock_core::{Guarantees, Support};

/// The name of this backend in errors and metrics.
pub(crate) const NAME: &str = "zookeeper";

/// Promises on one server and on an ensemble, where mutexes have a queue.
pub(crate) fn of_queues() -> Guarantees {
    let mut guarantees = Guarantees::none();
    guarantees.exclusion_across_restart = Support::Unless(
        "the servers lose data they had acknowledged (forceSync=no and power loss, a wiped data directory)",
    );
    guarantees.exclusion_across_failover = Support::Yes;
    guarantees.fencing = Support::Yes;
    guarantees.fencing_across_restart = Support::Unless("the servers lose data they had acknowledged");
    guarantees.fencing_across_failover = Support::Yes;
    guarantees.fifo = Support::Unless(
        "a waiter's session ends, or it asks for several permits beside Curator's clients: it takes a new place at the end",
    );
    guarantees.push = Support::Unless(
        "one client waits for more locks than it may watch (about 1,500), or the push is lost: its waiters look within 1 s, or \
         n / 1,000 s where there are n > 1,000 of them",
    );
    guarantees.limit_check = Support::Yes;
    guarantees.inspect = Support::Yes;
    guarantees.force_release =
        Support::Unless("the operator's client is gone before the holder's next renewal: it is told, but not by whom");
    guarantees.foreign_clients = Support::Yes;
    guarantees.leave = Support::Unless(
        "the client that left it is closed, or its session ends, before the time is over: the lock ends with the session",
    );
    guarantees.record = Support::Yes;
    guarantees.record_across_restart = Support::Unless("the servers lose data they had acknowledged");
    guarantees.record_across_failover = Support::Yes;
    guarantees
}

/// Promises where the client crate has no transactions: a record is changed by one.
#[cfg(feature = "zookeeper-async")]
pub(crate) fn without_transactions(mut guarantees: Guarantees) -> Guarantees {
    guarantees.record = Support::No;
    guarantees.record_across_restart = Support::No;
    guarantees.record_across_failover = Support::No;
    guarantees
}

/// Promises where mutexes have no queue.
pub(crate) fn unfair(mut guarantees: Guarantees) -> Guarantees {
    guarantees.fifo = Support::No;
    guarantees.push = Support::No;
    guarantees.inspect = Support::Unless("the lock is a mutex: its waiters are not shown");
    guarantees
}
