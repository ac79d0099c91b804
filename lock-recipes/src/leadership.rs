//! One term of a leader, to be ended.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, RecordedGuard};

use crate::announcement::Announcement;
use crate::standing::Standing;
use crate::term::Term;

/// A term as leader: from [`Election::campaign`](crate::Election::campaign) until it [steps down](Leadership::step_down), is dropped, or
/// loses its lock. Dereferences to [`Term`], which answers questions about it.
///
/// A term that is over stays over, and its lock goes on being renewed: no other process can lead until this steps down or is dropped.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let leadership = lock_recipes::Election::new(locks.recorded("scheduler")?).campaign().await?;
/// tokio::select! {
///     () = leadership.ended() => {} // it leads no more: stop
///     () = std::future::ready(()) => {} // the work of a leader
/// }
/// leadership.step_down().await
/// # }
/// ```
#[must_use = "a leadership that is dropped has stepped down"]
#[derive(Debug)]
pub struct Leadership {
    term: Term,
    cool_down: Duration,
    standing: Arc<Standing>,
}

impl Leadership {
    pub(crate) fn new(guard: RecordedGuard, margin: Duration, cool_down: Duration, standing: Arc<Standing>) -> Self {
        let term = Term::begin(guard, margin, standing.changes());
        standing.begin(&term);
        Self { term, cool_down, standing }
    }

    /// The term, to be asked by others too.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let leadership = lock_recipes::Election::new(locks.recorded("scheduler")?).campaign().await?;
    /// let term = leadership.term().clone(); // for another task
    /// leadership.step_down().await?;
    /// assert!(!term.is_leading());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Advertises this address from now on, or the present one anew: its record is kept for its
    /// [retention](lock_core::RecordedMutex::with_retention) from then on. [`Election::run`](crate::Election::run) does so by itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let election = lock_recipes::Election::new(locks.recorded("scheduler")?);
    /// let leadership = election.campaign().await?;
    /// leadership.announce("http://10.0.0.8:8080").await?;
    /// let leader = election.leader().await?.expect("this process leads");
    /// assert_eq!(leader.address, "http://10.0.0.8:8080");
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RecordedGuard::write`]; [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) for an address that does
    /// not fit into a record.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn announce(&self, address: impl Into<String>) -> Result<(), Error> {
        // Only this leadership takes it away, at its end.
        let Some(guard) = self.term.lock() else { return Ok(()) };
        let announcement = Announcement { address: address.into() }.to_bytes(guard.name())?;
        guard.write(&announcement).await
    }

    /// Ends the term, and releases the lock, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let election = lock_recipes::Election::new(locks.recorded("scheduler")?);
    /// let leadership = election.campaign().await?;
    /// leadership.step_down().await?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`](lock_core::ErrorKind::NotHeld) if the lock had been lost;
    /// [`ErrorKind::Indeterminate`](lock_core::ErrorKind::Indeterminate) if no confirmation came: the lock is released in the
    /// background.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn step_down(self) -> Result<(), Error> {
        match self.end() {
            Some(guard) => guard.release().await,
            // Only this and the drop end a term.
            None => Ok(()),
        }
    }

    /// Takes the lock away from the term, whose process does not campaign again for a while.
    fn end(&self) -> Option<RecordedGuard> {
        let guard = self.term.take()?;
        self.standing.cool_down(self.cool_down);
        // An announcement borrows the leadership, so none is under way.
        Arc::into_inner(guard)
    }
}

impl Deref for Leadership {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        drop(self.end());
    }
}
