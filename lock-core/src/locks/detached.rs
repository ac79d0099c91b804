//! A mutex that is held by nobody's guard: taken here, to be released elsewhere.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::acquire::{AcquireRequest, Core, Wait};
use crate::driver::{AdoptBackend, Attempt, Guarantee, Kind, Support};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Attended;
use crate::locks::MutexGuard;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::GrantId;
use crate::token::FencingToken;

/// A mutex that was taken by one client and goes on in another: from [`MutexGuard::detach`], for
/// [`Client::adopt`](crate::Client::adopt). It can be sent as JSON or in any other format of serde.
///
/// It is not renewed on its way: unless it is adopted, it ends with its lease. It can be adopted once; a second delivery of the message
/// gets [`ErrorKind::NotHeld`]. On a quorum, two adoptions at one moment may both fail, and so may one that reaches no majority: the
/// lock is then still detached, or free. Adoption needs only the name and the grant's id, which [`inspect`](crate::Mutex::inspect) and
/// traces show too: anybody who knows both, and may write to the server, can take over the lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use lock_core::{DetachedMutex, ErrorKind, memory::MemoryStore};
///
/// let store = MemoryStore::new();
/// let (web, worker) = (store.connect(), store.connect()); // two processes
/// let guard = web.mutex("import/7").with_ttl(Duration::from_secs(60)).lock().await?;
/// let message = serde_json::to_string(&guard.detach().await?)?; // into a queue
///
/// let detached: DetachedMutex = serde_json::from_str(&message)?;
/// let guard = worker.adopt(&detached).await?; // renewed from now on
/// assert!(web.mutex("import/7").try_lock().await?.is_none());
/// assert_eq!(worker.adopt(&detached).await.unwrap_err().kind(), ErrorKind::NotHeld); // delivered twice
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DetachedMutex {
    /// The lock.
    pub name: LockName,
    /// The grant, as the servers have it until it is adopted.
    pub grant: GrantId,
    /// The lock's token, which it keeps, where the configuration has them. A server that stores no tokens (memcached) knows it from here only.
    pub token: Option<FencingToken>,
    /// The rest of the lease, in ms, when the lock was detached. For display only: how long the message has travelled is not known.
    pub left_ms: u64,
}

impl DetachedMutex {
    /// Ends the guard without releasing the lock, with its whole TTL from now on.
    pub(crate) async fn of(guard: MutexGuard) -> Result<Self, DetachError> {
        if !guard.is_adoptable() {
            let what = "grants of this lock cannot be passed on";
            let error = guard.named(Error::new(ErrorKind::Unsupported, Phase::Release, what));
            return Err(DetachError { guard, error });
        }
        let extended = async {
            // It may have been handed over for a short time, and has waited for its next renewal.
            guard.extend(guard.attempt_ttl()).await?;
            if !guard.is_answered() {
                guard.answered_soon().await;
                // Its answer also tells of a server whose connection broke that nothing of before is left there.
                guard.extend(guard.attempt_ttl()).await?;
                guard.answered_soon().await;
            }
            Ok(())
        };
        if let Err(error) = Attended::of(&guard).during(extended).await {
            return Err(DetachError { guard, error });
        }
        if !guard.is_answered() {
            let what =
                "an earlier request for this lock was not answered and may still be carried out: detach it later";
            let error = guard.named(Error::new(ErrorKind::Unavailable, Phase::Release, what));
            return Err(DetachError { guard, error });
        }
        let left_ms = u64::try_from(guard.remaining().as_millis()).unwrap_or(u64::MAX);
        let detached =
            Self { name: guard.name().clone(), grant: guard.grant_id(), token: guard.fencing_token(), left_ms };
        match guard.into_lease().detach() {
            Ok(()) => Ok(detached),
            Err((lease, error)) => Err(DetachError { guard: MutexGuard::of(lease), error }),
        }
    }
}

/// Goes on with a mutex that was detached.
pub(crate) async fn adopt(
    core: &Arc<Core>,
    backend: &Arc<dyn AdoptBackend>,
    detached: &DetachedMutex,
    lease: LeaseOptions,
) -> Result<MutexGuard, Error> {
    let request = AcquireRequest {
        name: &detached.name,
        kind: Kind::Mutex,
        owner: &core.owner,
        lease: &lease,
        patience: Duration::ZERO,
    };
    if backend.guarantees().of(Guarantee::Adoption) == Support::No {
        let what = "this backend's grants cannot be passed on";
        return Err(core.refuses(Error::new(ErrorKind::Unsupported, Phase::Acquire, what), &detached.name));
    }
    let ask = async |attempt: Arc<Attempt>, _| {
        let grant = backend.adopt(&attempt, detached.grant, detached.token).await?;
        // Nobody else holds it: no refusal.
        let what = "the servers have no such grant (any more): it has ended, or was adopted before";
        grant.map(Some).ok_or_else(|| Error::new(ErrorKind::NotHeld, Phase::Acquire, what))
    };
    core.acquire(request, Wait::Once, ask).await?.map(MutexGuard::of).ok_or_else(|| {
        let what = "the backend gave neither a grant nor an error";
        core.named(Error::new(ErrorKind::Protocol, Phase::Acquire, what), &detached.name)
    })
}

/// A guard that could not be detached.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let orders = locks.mutex("orders/42");
/// let guard = orders.lock().await?;
/// orders.force_release(guard.grant_id(), "its machine hangs").await?;
/// # while guard.is_held() { tokio::task::yield_now().await; }
/// let failed = guard.detach().await.unwrap_err();
/// assert!(!failed.guard.is_held());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct DetachError {
    /// The guard, as it was.
    pub guard: MutexGuard,
    /// The reason of the failure.
    pub error: Error,
}

impl fmt::Display for DetachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for DetachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// For callers that have no use for the guard: it is dropped, and the lock released in the background.
impl From<DetachError> for Error {
    fn from(failed: DetachError) -> Self {
        failed.error
    }
}
