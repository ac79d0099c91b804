//! Locks and guards that carry a fencing token by their type.

mod kinds;

use std::ops::Deref;

pub use kinds::{
    FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex, FencedRwLock,
    FencedWriteGuard,
};

use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::token::FencingToken;

/// A lock on a configuration whose grants all carry a fencing token: from [`Mutex::fenced`](crate::Mutex::fenced), [`RwLock::fenced`](crate::RwLock::fenced) and
/// [`ReentrantMutex::fenced`](crate::ReentrantMutex::fenced).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let config = locks.rwlock("config").fenced()?;
/// let write = config.write().await?;
/// let token = write.fencing_token(); // not an `Option`
/// let read = write.downgrade().await?;
/// assert_eq!(read.fencing_token(), token);
/// read.release().await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fenced<L>(L);

impl<L> Fenced<L> {
    /// For a lock whose configuration was found to have sound tokens.
    pub(crate) fn new(lock: L) -> Self {
        Self(lock)
    }

    /// The lock without the promise of a token.
    #[must_use]
    pub fn as_unfenced(&self) -> &L {
        &self.0
    }

    /// The lock without the promise of a token, to be given another TTL, say.
    ///
    /// # Examples
    /// ```
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let fenced = locks.mutex("report").fenced()?;
    /// let longer = fenced.into_unfenced().with_ttl(Duration::from_secs(60)).fenced()?;
    /// assert_eq!(longer.as_unfenced().lease().ttl, Duration::from_secs(60));
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    #[must_use]
    pub fn into_unfenced(self) -> L {
        self.0
    }
}

/// A guard with its fencing token. Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::fence::FenceGate;
///
/// let gate = FenceGate::new(); // beside the resource
/// let guard = locks.mutex("orders/42").fenced()?.lock().await?;
/// assert!(gate.admit_exclusive(guard.fencing_token()).is_ok());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct FencedGuard<G> {
    guard: G,
    token: FencingToken,
}

impl<G: Deref<Target = Lease>> FencedGuard<G> {
    pub(crate) fn of(guard: G) -> Result<Self, Error> {
        let token = guard.live.token().ok_or_else(|| {
            let what = "a grant came without the token that the backend promises; it is released";
            guard.keeper.meters.failed(ErrorKind::Protocol);
            guard.named(Error::new(ErrorKind::Protocol, Phase::Acquire, what))
        })?;
        Ok(Self { guard, token })
    }

    fn of_some(guard: Option<G>) -> Result<Option<Self>, Error> {
        guard.map(Self::of).transpose()
    }
}

impl<G> FencedGuard<G> {
    /// The token to present to the resource with every access, reads included.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.token
    }

    /// The guard without the promise of a token.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.mutex("report").fenced()?.lock().await?;
    /// let plain: lock_core::MutexGuard = guard.into_inner(); // the lock is held on
    /// plain.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn into_inner(self) -> G {
        self.guard
    }
}

impl<G: Deref<Target = Lease>> Deref for FencedGuard<G> {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}
