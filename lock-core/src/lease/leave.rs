//! A lock that its holder leaves: taken for a while yet, and nobody's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::keeper::{Keeper, KeeperHandle};
use super::state::Event;
use super::{Lease, LiveGrant};
use crate::clock::BootInstant;
use crate::driver::bound::bounded;
use crate::driver::{Guarantee, Left, Support};
use crate::error::{Error, ErrorKind, Phase};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::trace::Operation;

/// The error of a lock that was to be left.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use std::time::Duration;
///
/// let guard = locks.mutex("report").lock().await?;
/// let failed = guard.leave(Duration::ZERO).await.unwrap_err();
/// let guard = failed.guard.expect("nothing was asked of the server");
/// assert!(guard.is_held());
/// guard.release().await
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct LeaveError<G> {
    /// The guard, as it was, if nothing was asked of the servers.
    pub guard: Option<G>,
    /// The reason of the failure.
    pub error: Error,
}

impl<G> LeaveError<G> {
    /// The failure with another guard around the lease.
    pub(crate) fn map<H>(self, guard: impl FnOnce(G) -> H) -> LeaveError<H> {
        LeaveError { guard: self.guard.map(guard), error: self.error }
    }
}

impl<G> fmt::Display for LeaveError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<G: fmt::Debug> std::error::Error for LeaveError<G> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// For callers that have no use for the guard: it is dropped, and the lock released in the background.
impl<G> From<LeaveError<G>> for Error {
    fn from(failed: LeaveError<G>) -> Self {
        failed.error
    }
}

/// Refuses a time for which this client's mutexes cannot be left.
pub(crate) fn check_leave(keeper: &Keeper, name: &LockName, time: Duration) -> Result<(), Error> {
    let error = if keeper.backend.guarantees().of(Guarantee::Leave) == Support::No {
        Error::new(ErrorKind::Unsupported, Phase::Configure, "this backend's grants cannot be left")
    } else if time.is_zero() || time > keeper.backend.longest_leave() {
        let longest = keeper.backend.longest_leave();
        let what = format!("a lock cannot be left for {time:?}: the time must be above zero and at most {longest:?}");
        Error::invalid(Phase::Configure, what)
    } else {
        return Ok(());
    };
    Err(keeper.named(error, name))
}

/// Ends a lease, and has the lock end after this time.
///
/// Dropping this future, or an unknown outcome, hands the rest to the reaper.
pub(crate) async fn leave(mut lease: Lease, time: Duration) -> Result<(), LeaveError<Lease>> {
    let keeper = lease.keeper.clone();
    let random = || GrantId::random().map_err(|error| lease.named(error));
    let left = match check_leave(&keeper, lease.name(), time).and_then(|()| random()) {
        Ok(left) => left,
        Err(error) => return Err(LeaveError { guard: Some(lease), error }),
    };
    // From here on nothing is renewed: a renewal that came later would be told that the grant is gone.
    keeper.end(&lease.live, || ());
    if let Some(reason) = lease.live.loss() {
        let error = lease.named(Error::lost(Phase::Release, reason));
        return Err(LeaveError { guard: Some(lease), error });
    }
    // Declared before what hands the rest to the reaper, so dropped after it.
    let _under_way = keeper.shutdown.track();
    lease.disarm();
    let mut operation = Operation::leave(keeper.backend_name, &lease.live.attempt);
    let leaving = Leaving::new(&lease, left, time);
    drop(lease);
    let outcome = operation.run(leaving.ask(time)).await;
    match &outcome {
        Ok(()) => operation.ends("left"),
        Err(error) => operation.fails(error),
    }
    outcome.map_err(|error| LeaveError { guard: None, error })
}

/// A lock that is being left. Dropped before that is known, it is handed to the reaper.
struct Leaving {
    keeper: Arc<KeeperHandle>,
    live: Arc<LiveGrant>,
    left: GrantId,
    ends_at: BootInstant,
    is_known: bool,
}

impl Leaving {
    fn new(lease: &Lease, left: GrantId, time: Duration) -> Self {
        let (keeper, live) = (lease.keeper.clone(), lease.live.clone());
        Self { ends_at: keeper.clock.now().plus(time), keeper, live, left, is_known: false }
    }

    async fn ask(mut self, time: Duration) -> Result<(), Error> {
        let (keeper, attempt) = (self.keeper.clone(), self.live.attempt.clone());
        let asked = keeper.backend.leave(&attempt, self.left, time);
        let answer = bounded(&*keeper.clock, attempt.op_timeout, Phase::Release, asked).await;
        self.is_known = answer.is_ok();
        let outcome = match answer {
            Ok(Left::Done) => {
                keeper.reaper.ended(&attempt);
                Ok(())
            }
            Ok(Left::UntilReleased) => {
                keeper.reaper.release_at(attempt, self.ends_at);
                Ok(())
            }
            Ok(Left::NotHeld(reason)) => {
                let loss = reason.unwrap_or(LossReason::Taken);
                keeper.settle(&self.live, Event::NotHeld(loss.clone()));
                Err(Error::lost(Phase::Release, loss))
            }
            Err(cause) => {
                let what = "no confirmation from the server; the client goes on leaving the lock in the background";
                Err(Error::indeterminate(Phase::Release, what).with_source(cause))
            }
        };
        outcome.map_err(|error| keeper.named(error, &self.live.attempt.name))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if !self.is_known {
            let Self { live, left, ends_at, .. } = self;
            self.keeper.reaper.leave(live.attempt.clone(), *left, *ends_at, live.may_last_until());
        }
    }
}
