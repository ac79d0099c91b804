//! The common backend of all specimens: it leaves the deciding steps to a recipe.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, OptionFuture, join_all};
use lock_core::clock::{BootInstant, Deadline};
use lock_core::driver::{Attempt, Backend, Cancelled, Grant, Left, MutexBackend, Operator, Released, Renewal, Renewed};
use lock_core::{Client, ClientOptions, Error, ErrorKind, GrantId, Guarantees, Locks, LossReason, Phase, driver::wait};
use lock_testkit::HarnessError;
use tokio::sync::Mutex;

use crate::op_timeout;

/// The steps in which recipes differ, at whichever server.
#[async_trait]
pub(super) trait Steps: fmt::Debug + Send + Sync + 'static {
    /// One try; whether it has the lock. If not, nothing of it is left.
    async fn take(&self, attempt: &Attempt) -> Result<bool, HarnessError>;

    /// One look of somebody who waits, of whom a place in the queue may stay until the next.
    async fn look(&self, attempt: &Attempt) -> Result<Look, HarnessError> {
        Ok(if self.take(attempt).await? { Look::Granted } else { Look::NotYet(None) })
    }

    /// The release; whether there was something to release.
    async fn release(&self, attempt: &Attempt) -> Result<bool, HarnessError>;

    /// The renewal; whether the lock is still there.
    async fn extend(&self, attempt: &Attempt, ttl: Duration) -> Result<bool, HarnessError>;

    /// Has the lock end after this time, under another id.
    async fn leave(&self, _attempt: &Attempt, _left: GrantId, _time: Duration) -> Result<Left, HarnessError> {
        Err(HarnessError::new("it cannot be left"))
    }

    /// Cleans up after an acquisition that was given up.
    async fn abandon(&self, attempt: &Attempt) -> Result<(), HarnessError>;

    /// Whether its lease counts from the answer instead of from the request.
    fn counts_from_the_reply(&self) -> bool {
        false
    }

    /// The time for which a waiter's look is waited for. A look recognises what an earlier one has left, so it may be short.
    fn time_for_a_look(&self) -> Duration {
        op_timeout() / 4
    }

    /// The queue of its tries, if only one of them is on its way at a time.
    fn turns(&self) -> Option<&Mutex<()>> {
        None
    }

    /// The operator's side, if it can be looked into.
    fn operator(&self) -> Option<&dyn Operator> {
        None
    }

    /// Its promises: as few as possible, because cases come with promises.
    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }
}

/// A waiter's finding at one look.
pub(super) enum Look {
    /// The lock is his.
    Granted,
    /// It is another's. If the server tells, this ends when it is worth another look.
    NotYet(Option<BoxFuture<'static, ()>>),
}

/// The mutexes of a client that takes these steps.
pub(super) fn mutexes(steps: impl Steps) -> Result<Locks, Error> {
    Ok(Locks::new(&client(steps)?))
}

/// A client that takes these steps.
pub(super) fn client<S: Steps>(steps: S) -> Result<Client<SpecimenBackend<S>>, Error> {
    Client::new(SpecimenBackend::of(steps), ClientOptions::default())
}

/// A specimen's client.
#[derive(Debug)]
pub(super) struct SpecimenBackend<S>(S);

#[async_trait]
impl<S: Steps> Backend for SpecimenBackend<S> {
    fn name(&self) -> &'static str {
        "specimen"
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        // All at once: on a busy machine hundreds of round trips, one after the other, take longer than a lease.
        join_all(batch.iter().map(async |renewal| match in_time(self.0.extend(renewal.attempt, renewal.ttl)).await {
            Ok(true) => Renewed::For(renewal.ttl),
            Ok(false) => Renewed::Lost(LossReason::Taken),
            Err(error) => Renewed::Unknown(unknown(renewal.attempt, Phase::Renew, &error)),
        }))
        .await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        match in_time(self.0.release(attempt)).await {
            Ok(true) => Ok(Released::Done),
            Ok(false) => Ok(Released::NotHeld(None)),
            Err(error) => Err(unknown(attempt, Phase::Release, &error)),
        }
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        in_time(self.0.leave(attempt, left, time)).await.map_err(|error| unknown(attempt, Phase::Release, &error))
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        match in_time(self.0.abandon(attempt)).await {
            Ok(()) => Ok(Cancelled::Settled),
            Err(error) => Err(unknown(attempt, Phase::Cancel, &error)),
        }
    }

    fn operator(&self) -> Option<&dyn Operator> {
        self.0.operator()
    }
}

#[async_trait]
impl<S: Steps> MutexBackend for SpecimenBackend<S> {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_once(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }
}

/// Steps that are the same for every kind.
impl<S: Steps> SpecimenBackend<S> {
    pub(super) fn of(steps: S) -> Self {
        Self(steps)
    }

    pub(super) async fn try_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let _turn = OptionFuture::from(self.0.turns().map(Mutex::lock)).await;
        let sent_at = self.clock().now();
        match in_time(self.0.take(attempt)).await {
            Ok(is_granted) => Ok(is_granted.then(|| self.grant(attempt, sent_at))),
            Err(error) => Err(unknown(attempt, Phase::Acquire, &error)),
        }
    }

    /// Looks until the lock is granted: again when it is told to, or else after a pause. A look recognises what an earlier one
    /// has left, so the wait goes on for the attempt's patience while no server answers.
    pub(super) async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let clock = self.clock();
        let mut pauses = wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE);
        let mut silent_since = None;
        loop {
            let sent_at = clock.now();
            let look = within(self.0.time_for_a_look(), self.0.look(attempt)).await;
            let now = clock.now();
            let is_over = deadline.has_passed(now);
            let change = match look {
                Ok(Look::Granted) => return Ok(Some(self.grant(attempt, sent_at))),
                Ok(Look::NotYet(_)) if is_over => return Ok(None),
                Ok(Look::NotYet(change)) => {
                    silent_since = None;
                    change
                }
                Err(error) => {
                    let silence = now.since(*silent_since.get_or_insert(sent_at));
                    if is_over || silence >= attempt.patience {
                        return Err(unknown(attempt, Phase::Acquire, &error));
                    }
                    None
                }
            };
            let pause =
                || clock.sleep_until(now.plus(pauses.next().unwrap_or(wait::LONGEST_PAUSE))) as BoxFuture<'_, ()>;
            tokio::select! {
                () = change.unwrap_or_else(pause) => {}
                () = clock.sleep_until(deadline.instant()) => {}
            }
        }
    }

    fn grant(&self, attempt: &Attempt, sent_at: BootInstant) -> Grant {
        let from = if self.0.counts_from_the_reply() { self.clock().now() } else { sent_at };
        Grant::new(None, from, attempt.ttl)
    }
}

/// Returns the servers' answer to one step, if it comes within one operation timeout.
async fn in_time<T>(step: impl Future<Output = Result<T, HarnessError>>) -> Result<T, HarnessError> {
    within(op_timeout(), step).await
}

/// Returns the servers' answer to one step, if it comes within this time.
async fn within<T>(time: Duration, step: impl Future<Output = Result<T, HarnessError>>) -> Result<T, HarnessError> {
    let late = |_| Err(HarnessError::new(format!("no answer within {time:?}")));
    tokio::time::timeout(time, step).await.unwrap_or_else(late)
}

fn unknown(attempt: &Attempt, phase: Phase, error: &HarnessError) -> Error {
    attempt.error(ErrorKind::Indeterminate, phase, error.to_string())
}

pub(super) fn unavailable(error: &HarnessError) -> Error {
    Error::unavailable(Phase::Connect, error.to_string())
}
