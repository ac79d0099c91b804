//! The locks and guards of each kind with their tokens.

use std::time::Duration;

use super::{Fenced, FencedGuard};
use crate::error::Error;
use crate::lease::{LeaveError, WorkError, scoped};
use crate::locks::{DowngradeError, ReadGuard, RwLock, WriteGuard};
use crate::locks::{Mutex, MutexGuard};
use crate::locks::{ReentrantGuard, ReentrantMutex};
use crate::owner::Owner;

/// A [`Mutex`] whose grants all carry a fencing token.
pub type FencedMutex = Fenced<Mutex>;
/// A [`RwLock`] whose grants all carry a fencing token.
pub type FencedRwLock = Fenced<RwLock>;
/// A [`ReentrantMutex`] whose grants all carry a fencing token.
pub type FencedReentrantMutex = Fenced<ReentrantMutex>;

/// Holds a [`FencedMutex`].
pub type FencedMutexGuard = FencedGuard<MutexGuard>;
/// A shared grant of a [`FencedRwLock`].
pub type FencedReadGuard = FencedGuard<ReadGuard>;
/// The exclusive grant of a [`FencedRwLock`].
pub type FencedWriteGuard = FencedGuard<WriteGuard>;
/// One level of a [`FencedReentrantMutex`].
pub type FencedReentrantGuard = FencedGuard<ReentrantGuard>;

/// The three ways to take a lock, each as the plain lock has it. The first text makes such a lock in the examples.
macro_rules! ways_to_take {
    ($make:literal, $lock:ident => $guard:ident: $wait:ident, $try:ident, $try_for:ident $(, $owner:ident as $own:literal)?) => {
        impl Fenced<$lock> {
            ways_to_take!(#[doc = concat!("Waits for the lock and its token, through ",
                "[`", stringify!($lock), "::", stringify!($wait), "`].")]
                #[doc = concat!("let guard = locks.", $make, ".fenced()?.", stringify!($wait), "(" $(, $own)?, ").await?;")]
                $lock $wait($($owner: &Owner)?) -> FencedGuard<$guard>, FencedGuard::of);
            ways_to_take!(#[doc = concat!("Takes the lock and its token if they can be had now, through ",
                "[`", stringify!($lock), "::", stringify!($try), "`].")]
                #[doc = concat!("let taken = locks.", $make, ".fenced()?.", stringify!($try), "(" $(, $own)?, ").await?;\n",
                    "let Some(guard) = taken else { return Ok(()) }; // somebody holds it")]
                $lock $try($($owner: &Owner)?) -> Option<FencedGuard<$guard>>, FencedGuard::of_some);
            ways_to_take!(#[doc = concat!("Waits for the lock and its token for at most this long, through ",
                "[`", stringify!($lock), "::", stringify!($try_for), "`].")]
                #[doc = concat!("let second = std::time::Duration::from_secs(1);\n",
                    "let taken = locks.", $make, ".fenced()?.", stringify!($try_for), "(" $(, $own, ", ")?, "second).await?;\n",
                    "let Some(guard) = taken else { return Ok(()) }; // somebody holds it yet")]
                $lock $try_for($($owner: &Owner,)? wait: Duration) -> Option<FencedGuard<$guard>>, FencedGuard::of_some);
        }
    };
    (#[$doc:meta] #[$call:meta] $lock:ident $name:ident($($arg:ident: $type:ty),*) -> $output:ty, $fence:path) => {
        #[$doc]
        ///
        /// # Examples
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
        /// # let locks = lock_core::MemoryLocks::new();
        #[$call]
        /// assert!(guard.fencing_token().as_u64() > 0); // not an `Option`
        /// guard.release().await?;
        /// # Ok(()) }
        /// ```
        ///
        /// # Errors
        /// Those of the plain lock; [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) if a grant came without its token, which is then released.
        ///
        /// # Cancel safety
        /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
        pub async fn $name(&self, $($arg: $type),*) -> Result<$output, Error> {
            $fence(self.0.$name($($arg),*).await?)
        }
    };
}

ways_to_take!("mutex(\"orders/42\")", Mutex => MutexGuard: lock, try_lock, try_lock_for);
ways_to_take!("rwlock(\"config\")", RwLock => ReadGuard: read, try_read, try_read_for);
ways_to_take!("rwlock(\"config\")", RwLock => WriteGuard: write, try_write, try_write_for);
ways_to_take!("reentrant(\"tree\")", ReentrantMutex => ReentrantGuard: lock, try_lock, try_lock_for,
    owner as "&lock_core::Owner::new()");

impl FencedMutex {
    /// Waits for the lock and its token, runs `body` while it is held, and releases it.
    ///
    /// `Ok` means that the lock was held when `body` ended, and that it is released. `body` is dropped at its next await point when the lock is
    /// lost; tasks and threads that it has started are not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::fence::FenceGate;
    ///
    /// let gate = FenceGate::new(); // beside the resource
    /// let orders = locks.mutex("orders/42").fenced()?;
    /// orders.run(async |guard| gate.admit_exclusive(guard.fencing_token())).await?.unwrap();
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Mutex::lock`]: then `body` was not called. [`Lost`](crate::ErrorKind::Lost) if the lock was lost, and what
    /// releasing it may tell: then the value is in the error, if `body` had ended.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the lock is released in the background. One that is kept without being polled (in a `select!` loop,
    /// say) keeps the lock for as long as it is kept.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&FencedMutexGuard) -> T) -> Result<T, WorkError<T>> {
        scoped(self.lock().await, body, FencedMutexGuard::release).await
    }
}

/// The methods that the guards have in common. The text takes such a guard in the examples.
macro_rules! guards {
    ($($guard:ident $take:literal)+) => {
        $(
            impl FencedGuard<$guard> {
                /// Releases the grant, or exits one level of a reentrant lock, and reports the outcome within one
                /// operation timeout.
                ///
                /// # Examples
                /// ```
                /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
                /// # let locks = lock_core::MemoryLocks::new();
                #[doc = concat!("let guard = locks.", $take, ".await?;")]
                /// guard.release().await?; // it was held to the end
                /// # Ok(()) }
                /// ```
                ///
                /// # Errors
                /// [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) if the lock had been lost; [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no confirmation came:
                /// the client goes on in the background until it is confirmed or the lease is over.
                ///
                /// # Cancel safety
                /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
                /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
                pub async fn release(self) -> Result<(), Error> {
                    self.guard.release().await
                }
            }

            impl From<FencedGuard<$guard>> for $guard {
                fn from(fenced: FencedGuard<$guard>) -> Self {
                    fenced.guard
                }
            }
        )+
    };
}

guards! {
    MutexGuard "mutex(\"orders/42\").fenced()?.lock()"
    ReadGuard "rwlock(\"config\").fenced()?.read()"
    WriteGuard "rwlock(\"config\").fenced()?.write()"
    ReentrantGuard "reentrant(\"tree\").fenced()?.lock(&lock_core::Owner::new())"
}

/// For a lock that was [adopted](crate::Client::adopt). A guard without a token comes back.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::FencedMutexGuard;
///
/// let detached = locks.mutex("orders/42").lock().await?.detach().await?;
/// let adopted = FencedMutexGuard::try_from(locks.adopt(&detached).await?).expect("its token came along");
/// assert!(adopted.fencing_token().as_u64() > 0);
/// adopted.release().await?;
/// # Ok(()) }
/// ```
impl TryFrom<MutexGuard> for FencedGuard<MutexGuard> {
    type Error = MutexGuard;

    fn try_from(guard: MutexGuard) -> Result<Self, MutexGuard> {
        match guard.fencing_token() {
            Some(token) => Ok(Self { guard, token }),
            None => Err(guard),
        }
    }
}

impl FencedGuard<MutexGuard> {
    /// Leaves the lock behind: it stays taken for `time` from now by the server's clock, and is free then. See [`MutexGuard::leave`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.mutex("report").fenced()?;
    /// report.lock().await?.leave(Duration::from_secs(60)).await?;
    /// assert!(report.try_lock().await?.is_none()); // for a minute
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`MutexGuard::leave`]. The guard comes back in the error if nothing was asked of the servers.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that was never polled has asked nothing: its drop releases the lock.
    pub async fn leave(self, time: Duration) -> Result<(), LeaveError<Self>> {
        let token = self.token;
        self.guard.leave(time).await.map_err(|failed| failed.map(|guard| Self { guard, token }))
    }
}

impl FencedGuard<WriteGuard> {
    /// Turns the exclusive grant into a shared one, without a gap in which a waiting writer could enter. The token stays.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let write = locks.rwlock("config").fenced()?.write().await?;
    /// let token = write.fencing_token();
    /// let read = write.downgrade().await?;
    /// assert_eq!(read.fencing_token(), token);
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The write guard comes back in the error: [`ErrorKind::Lost`](crate::ErrorKind::Lost) or [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) if it is gone,
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no answer came. Calling again is safe; see [`WriteGuard::downgrade`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the guard: the lock is released in the background.
    pub async fn downgrade(self) -> Result<FencedGuard<ReadGuard>, DowngradeError<Self>> {
        let token = self.token;
        match self.guard.downgrade().await {
            Ok(guard) => Ok(FencedGuard { guard, token }),
            Err(DowngradeError { guard, error }) => Err(DowngradeError { guard: Self { guard, token }, error }),
        }
    }
}

impl FencedGuard<ReentrantGuard> {
    /// Returns the number of levels that the owner is inside, through this client.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.guard.depth()
    }
}
