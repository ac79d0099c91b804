//! What all specimens share: a mutex backend that leaves the deciding steps to a recipe.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Attempt, Backend, Cancelled, Grant, MutexBackend, Released, Renewal, Renewed};
use lock_core::clock::Deadline;
use lock_core::{Client, ClientOptions, Error, ErrorKind, Guarantees, Locks, LossReason, Phase, wait};

use crate::harness::Broken;
use crate::time::op_timeout;

/// The steps in which recipes differ, at whichever server.
#[async_trait]
pub(super) trait Steps: fmt::Debug + Send + Sync + 'static {
    /// One try; whether it has the lock. Of one that `waits` a place in line may stay until the next.
    async fn take(&self, attempt: &Attempt, waits: bool) -> Result<bool, Broken>;

    /// The release; whether there was something to release.
    async fn give_back(&self, attempt: &Attempt) -> Result<bool, Broken>;

    /// The renewal; whether the lock is still there.
    async fn extend(&self, attempt: &Attempt, ttl: Duration) -> Result<bool, Broken>;

    /// What is done about an acquisition that was given up.
    async fn abandon(&self, attempt: &Attempt) -> Result<(), Broken>;

    /// Whether its lease counts from the answer instead of from the request.
    fn counts_from_the_reply(&self) -> bool {
        false
    }

    /// What it promises: as little as possible, because cases come with promises.
    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }
}

/// The locks of a client that takes these steps.
pub(super) fn client(steps: impl Steps) -> Result<Locks, Error> {
    Ok(Locks::of(&Client::over(SpecimenBackend(steps), ClientOptions::default())?))
}

/// A specimen's client.
#[derive(Debug)]
struct SpecimenBackend<S>(S);

#[async_trait]
impl<S: Steps> Backend for SpecimenBackend<S> {
    fn name(&self) -> &'static str {
        "specimen"
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let mut answers = Vec::with_capacity(batch.len());
        for renewal in batch {
            answers.push(match in_time(self.0.extend(renewal.attempt, renewal.ttl)).await {
                Ok(true) => Renewed::For(renewal.ttl),
                Ok(false) => Renewed::Lost(LossReason::Taken),
                Err(broken) => Renewed::Unknown(unknown(renewal.attempt, Phase::Renew, &broken)),
            });
        }
        answers
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        match in_time(self.0.give_back(attempt)).await {
            Ok(true) => Ok(Released::Done),
            Ok(false) => Ok(Released::NotHeld(None)),
            Err(broken) => Err(unknown(attempt, Phase::Release, &broken)),
        }
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        match in_time(self.0.abandon(attempt)).await {
            Ok(()) => Ok(Cancelled::Settled),
            Err(broken) => Err(unknown(attempt, Phase::Cancel, &broken)),
        }
    }
}

#[async_trait]
impl<S: Steps> MutexBackend for SpecimenBackend<S> {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take(attempt, false).await.map_err(|broken| unknown(attempt, Phase::Acquire, &broken))
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        // It recognises what an earlier try has left, so the wait goes on while no server answers.
        let again = |broken: Broken| attempt.error(ErrorKind::Unavailable, Phase::Acquire, broken.to_string());
        let tries = || async { self.take(attempt, true).await.map_err(again) };
        let waited = wait::poll(&*self.clock(), attempt, deadline, tries).await;
        waited.map_err(|error| attempt.error(ErrorKind::Indeterminate, Phase::Acquire, error.to_string()))
    }
}

impl<S: Steps> SpecimenBackend<S> {
    async fn take(&self, attempt: &Attempt, waits: bool) -> Result<Option<Grant>, Broken> {
        let sent_at = self.clock().now();
        let is_granted = in_time(self.0.take(attempt, waits)).await?;
        let from = if self.0.counts_from_the_reply() { self.clock().now() } else { sent_at };
        Ok(is_granted.then(|| Grant::new(None, from, attempt.ttl)))
    }
}

/// What the servers say to one step, if they do so within one operation timeout.
async fn in_time<T>(step: impl Future<Output = Result<T, Broken>>) -> Result<T, Broken> {
    let late = |_| Err(Broken::new("no answer within one operation timeout"));
    tokio::time::timeout(op_timeout(), step).await.unwrap_or_else(late)
}

fn unknown(attempt: &Attempt, phase: Phase, broken: &Broken) -> Error {
    attempt.error(ErrorKind::Indeterminate, phase, broken.to_string())
}

pub(super) fn unavailable(broken: &Broken) -> Error {
    Error::unavailable(Phase::Connect, broken.to_string())
}
