//! The interface that a backend's author implements: a [`Harness`], and nothing else.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, LockName, Locks};

use crate::error::{HarnessError, Missing};
use crate::faults::{Data, Proof};
use crate::proxy::Protocol;

/// A backend under test: how to start what it needs, and how to make clients of it.
///
/// Only [`name`](Harness::name), [`start`](Harness::start) and [`connect`](Harness::connect) are required. Everything
/// else lets more cases run; a case that needs what is not there is shown as ignored, with the reason. What the backend
/// *promises* is not declared here: it is read from its [`Guarantees`](lock_core::Guarantees) and from the kinds that
/// its [`Locks`] offer.
///
/// Each case runs in a tokio runtime of its own, which is gone afterwards; the harness itself lives in another one,
/// which stays. So a harness opens the connections that it needs for ground truth per call.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The backend's name in trials, such as `"redis"`.
    fn name(&self) -> &'static str;

    /// Starts or finds the servers.
    ///
    /// # Errors
    /// [`Missing`], with the reason that is shown with every ignored trial (or, with `LOCK_TESTKIT_REQUIRE=1`, fails
    /// the run).
    async fn start() -> Result<Self, Missing>
    where
        Self: Sized;

    /// A **new, independent** client: its own connection and its own background work. Clients of one namespace share
    /// locks, clients of two do not.
    ///
    /// # Errors
    /// An error of the backend.
    async fn connect(&self, namespace: &str) -> Result<Locks, Error>;

    /// The address at which another process reaches these servers, for the cases that kill a holder; `None` if it cannot
    /// (a backend that lives in one process).
    fn endpoint(&self) -> Option<String> {
        None
    }

    /// Makes the same harness in another process, from the [`endpoint`](Harness::endpoint) of the first one. It owns no
    /// servers.
    ///
    /// # Errors
    /// [`Missing`] if the servers cannot be reached.
    async fn attach(endpoint: &str) -> Result<Self, Missing>
    where
        Self: Sized,
    {
        Err(Missing::new(format!("this harness cannot attach to {endpoint}")))
    }

    /// The servers' own state, beside what the backend says.
    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        None
    }

    /// An operator that changes a lock behind the backend's back.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// A client of another library that shares keys with this backend.
    fn foreign(&self) -> Option<&dyn Foreign> {
        None
    }

    /// The longest time after its last renewal for which the servers keep the entry of a holder that died: its TTL,
    /// unless they end a session instead, or their clock is coarse.
    ///
    /// The holder itself gives its lock up at its TTL everywhere.
    fn kept_for(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// The largest number of permits that a semaphore may have.
    fn most_permits(&self) -> u32 {
        u32::MAX
    }

    /// The servers behind links that the suite can trouble; for cases about lost replies, silence and cut connections.
    fn linked(&self) -> Option<&dyn Linked> {
        None
    }

    /// Servers that keep what a client has for as long as its session lasts; for cases in which one ends behind its
    /// client's back.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }

    /// Servers that a case can have for itself, to hurt them; for cases about failovers and about a server's clock.
    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        None
    }

    /// Cases that this backend does not pass, each with the reason: `("C-W07", "the queue is not ordered")`.
    ///
    /// For what [`Guarantees`](lock_core::Guarantees) cannot say. Each line is a departure to be justified.
    fn exclusions(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Panics of a client crate that may come when its runtime ends, and at no other time: a text of each message or place, with
    /// the reason. Each line is a departure to be justified.
    fn panics_at_the_end(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The file with the cases that are ignored here in all of their forms, one a line with its reason. A run fails if they
    /// are not those, so that none ceases to be tried unnoticed; `UPDATE_DOCS=1` writes it anew.
    fn expected_ignored(&self) -> Option<PathBuf> {
        None
    }
}

/// The servers' own state, read on a connection of the harness.
#[async_trait]
pub trait GroundTruth: Send + Sync {
    /// Every entry that the servers have under this namespace (holders, queues, subscriptions), one readable text for
    /// each. What a backend keeps on purpose (a compact fence counter) is left out.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError>;
}

/// An operator with a command line.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Deletes the entry of this lock, whatever its kind and whoever holds it; its queue may stay.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError>;

    /// Whether there is something that no backend would write, to be [put](Admin::put_garbage) at the place of a lock's entry:
    /// a value of the wrong type, say. Not so where whatever fits there is somebody's lock.
    fn takes_garbage(&self) -> bool {
        false
    }

    /// Puts such a thing at the place where the mutex of this name has its entry; [`delete_entry`](Admin::delete_entry)
    /// removes it again. Asked for only where [`takes_garbage`](Admin::takes_garbage) says so.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn put_garbage(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        Err(HarnessError::new(format!("there is no garbage for the place of {name} in {namespace}")))
    }
}

/// A client of another library, which uses a raw key in that library's own way.
#[async_trait]
pub trait Foreign: Send + Sync {
    /// Tries once for the key; returns whether it was taken.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn try_hold(&self, key: &str, ttl: Duration) -> Result<bool, HarnessError>;

    /// Releases the key, if this client still has it; whether it had.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn release(&self, key: &str) -> Result<bool, HarnessError>;
}

/// Servers that are reached over TCP at addresses that a client is told, so that a [`Proxy`](crate::proxy::Proxy) can
/// stand between.
#[async_trait]
pub trait Linked: Send + Sync {
    /// The protocol that is spoken with the servers. Of one that the proxy does not know ([`Protocol::Opaque`]) it cannot tell
    /// which reply belongs to which request: cases in which one of them is hit do not apply then.
    fn protocol(&self) -> Protocol;

    /// Whether each request that is about a lock has the namespace of its client in it, byte by byte, and so has whatever the
    /// servers send of that lock without being asked: by this the cases find the request that is to be hit. Not so where names
    /// are hashed, compressed or encrypted on their way; such cases do not apply then.
    fn shows_names(&self) -> bool {
        true
    }

    /// `host:port` of every server.
    fn servers(&self) -> Vec<String>;

    /// A new, independent client as [`Harness::connect`] makes it, but that finds each of the
    /// [`servers`](Linked::servers) at the address in its place.
    ///
    /// # Errors
    /// An error of the backend.
    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error>;

    /// Whether each lock is at one of the servers, and not at all of them: a fault of the links shows where the lock is.
    fn are_shards(&self) -> bool {
        false
    }

    /// Replies of these servers that refuse a request, as [`Toxic::Answer`](crate::proxy::Toxic::Answer) says them: that
    /// they have no memory, or no rights for the client. Nothing that is about a lock.
    fn refusals(&self) -> &'static [&'static str] {
        &[]
    }
}

/// Servers that know their clients by sessions.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// The ids of the sessions that have anything under this namespace. Each client has a session of its own.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn present(&self, namespace: &str) -> Result<Vec<String>, HarnessError>;

    /// Ends one of them, as if it had expired, and says by what that was seen: what it had at the servers is gone then. A
    /// case without this proof has shown nothing, and fails as unknown.
    ///
    /// # Errors
    /// An error of the server or the connection.
    async fn end(&self, session: &str) -> Result<Proof, HarnessError>;
}

/// A source of servers that one case has for itself.
#[async_trait]
pub trait DisposableServers: Send + Sync {
    /// The faults that can be done to them.
    fn faults(&self) -> &'static [ServerFault];

    /// Starts servers to which this can be done; `lock-testkit-servers` has some.
    ///
    /// # Errors
    /// [`Missing`], naming what to install, or what went wrong. The case is unknown then.
    async fn start(&self, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing>;

    /// A new, independent client of them, as [`Harness::connect`] makes it of the other ones.
    ///
    /// # Errors
    /// An error of the backend.
    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error>;
}

/// A fault that can be done to servers that a case has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerFault {
    /// The server that leads dies, and another one takes over.
    FailOver,
    /// The servers' wall clock is stepped.
    ClockStep,
    /// The servers are killed, and started again with what they had written, or with nothing.
    Restart,
    /// The servers forget everything while they run.
    Flush,
}

/// Servers that a case has for itself. They end when this is dropped.
///
/// A fault has to be proven: a case without proof has shown nothing, and fails as unknown.
#[async_trait]
pub trait DisposableServer: Send + Sync {
    /// The URL that clients connect to.
    fn url(&self) -> &str;

    /// Kills the server that leads (SIGKILL), of several the one that has the lock of this name, waits until another one
    /// does, starts the dead one again, and waits until all of them serve ([`ServerFault::FailOver`]).
    ///
    /// # Errors
    /// If that does not come about.
    async fn fail_over(&self, name: &LockName) -> Result<Proof, HarnessError> {
        Err(HarnessError::new(format!("nobody could take over the lock {name} here")))
    }

    /// Puts the servers' wall clock this many milliseconds ahead of the machine's, or behind it, and waits until they go by
    /// it ([`ServerFault::ClockStep`]).
    ///
    /// # Errors
    /// If they do not.
    async fn step_clock(&self, ahead_ms: i64) -> Result<Proof, HarnessError> {
        Err(HarnessError::new(format!("no clock here can be put {ahead_ms} ms ahead")))
    }

    /// Kills the servers (SIGKILL), starts them again with this, and waits until they serve ([`ServerFault::Restart`]).
    ///
    /// # Errors
    /// If they do not.
    async fn restart(&self, data: Data) -> Result<Proof, HarnessError> {
        Err(HarnessError::new(format!("nothing here can be started again with its data {data:?}")))
    }

    /// Makes the servers forget everything that they store, while they run ([`ServerFault::Flush`]).
    ///
    /// # Errors
    /// If they do not.
    async fn flush(&self) -> Result<Proof, HarnessError> {
        Err(HarnessError::new("nothing here forgets while it runs"))
    }
}
