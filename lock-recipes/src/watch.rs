//! The watch of a process' own leadership.

use std::sync::Arc;

use lock_core::FencingToken;
use tokio::sync::watch::Receiver;

use crate::standing::Standing;
use crate::term::Term;

/// Tells when this process begins to lead, and when it leads no more. From [`Election::watch`](crate::Election::watch).
///
/// The watch only wakes: the state is computed from the lease and the clock at each look. States that came and went between two
/// looks are not told.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let election = lock_recipes::Election::new(locks.recorded("scheduler")?);
/// let mut watch = election.watch();
/// let leadership = election.campaign().await?;
/// assert_eq!(watch.changed().await, Some(leadership.number()));
/// leadership.step_down().await?;
/// assert_eq!(watch.changed().await, None);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct LeadershipWatch {
    standing: Arc<Standing>,
    changes: Receiver<()>,
    /// The state that was told last.
    told: Option<FencingToken>,
}

impl LeadershipWatch {
    pub(crate) fn new(standing: Arc<Standing>) -> Self {
        Self { changes: standing.subscribe(), standing, told: None }
    }

    /// Resolves when the state is another one than was told last, with the number of the term if this process leads. At first that it
    /// does not lead counts as told.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let election = lock_recipes::Election::new(locks.recorded("scheduler")?);
    /// let mut watch = election.watch();
    /// let watcher = tokio::spawn(async move { watch.changed().await });
    /// let leadership = election.campaign().await?;
    /// assert_eq!(watcher.await.unwrap(), Some(leadership.number()));
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// A dropped call loses nothing: the next one tells the same change.
    pub async fn changed(&mut self) -> Option<FencingToken> {
        loop {
            // Before the look, so that what changes after it wakes.
            self.changes.mark_unchanged();
            let term = self.standing.term();
            let now = term.as_ref().map(Term::number);
            if now != self.told {
                self.told = now;
                return now;
            }
            let ended = async {
                match &term {
                    Some(term) => term.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The standing has the sender.
                _ = self.changes.changed() => {}
                () = ended => {}
            }
        }
    }
}
