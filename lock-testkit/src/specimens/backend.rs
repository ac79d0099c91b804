//! What all specimens share: a mutex backend that leaves the deciding steps to a recipe.

use std::fmt;

use async_trait::async_trait;
use lock_core::backend::{Attempt, Backend, Cancelled, Grant, MutexBackend, Released, Renewal, Renewed};
use lock_core::{Error, ErrorKind, Guarantees, LockName, LossReason, Phase};

use super::recipes::Steps;
use crate::harness::Broken;
use crate::servers::resp::Resp;
use crate::time::op_timeout;

/// A specimen's client.
#[derive(Debug)]
pub(super) struct SpecimenBackend {
    steps: Box<dyn Steps>,
    redis: Resp,
    namespace: String,
}

/// One lock, as a recipe's step sees it.
pub(super) struct At<'a> {
    pub(super) redis: &'a Resp,
    pub(super) key: String,
    pub(super) attempt: &'a Attempt,
}

impl At<'_> {
    /// The nonce, as it is stored.
    pub(super) fn nonce(&self) -> String {
        self.attempt.id.to_string()
    }
}

impl SpecimenBackend {
    pub(super) fn new(steps: Box<dyn Steps>, redis: Resp, namespace: &str) -> Self {
        Self { steps, redis, namespace: namespace.to_owned() }
    }

    fn at<'a>(&'a self, attempt: &'a Attempt) -> At<'a> {
        At { redis: &self.redis, key: key(&self.namespace, &attempt.name), attempt }
    }
}

#[async_trait]
impl Backend for SpecimenBackend {
    fn name(&self) -> &'static str {
        "specimen"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::none()
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let mut answers = Vec::with_capacity(batch.len());
        for renewal in batch {
            answers.push(match in_time(self.steps.extend(&self.at(renewal.attempt), renewal.ttl)).await {
                Ok(true) => Renewed::For(renewal.ttl),
                Ok(false) => Renewed::Lost(LossReason::Taken),
                Err(broken) => Renewed::Unknown(unknown(renewal.attempt, Phase::Renew, &broken)),
            });
        }
        answers
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        match in_time(self.steps.give_back(&self.at(attempt))).await {
            Ok(true) => Ok(Released::Done),
            Ok(false) => Ok(Released::NotHeld(None)),
            Err(broken) => Err(unknown(attempt, Phase::Release, &broken)),
        }
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        match in_time(self.steps.abandon(&self.at(attempt))).await {
            Ok(()) => Ok(Cancelled::Settled),
            Err(broken) => Err(unknown(attempt, Phase::Cancel, &broken)),
        }
    }
}

#[async_trait]
impl MutexBackend for SpecimenBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let sent_at = self.clock().now();
        match in_time(self.steps.take(&self.at(attempt))).await {
            Ok(true) => {
                let from = if self.steps.counts_from_the_reply() { self.clock().now() } else { sent_at };
                Ok(Some(Grant::new(None, from, attempt.ttl)))
            }
            Ok(false) => Ok(None),
            Err(broken) => Err(unknown(attempt, Phase::Acquire, &broken)),
        }
    }
}

/// What the servers say to one step, if they do so within one operation timeout.
async fn in_time<T>(step: impl Future<Output = Result<T, Broken>>) -> Result<T, Broken> {
    let late = |_| Err(Broken::new("no answer within one operation timeout"));
    tokio::time::timeout(op_timeout(), step).await.unwrap_or_else(late)
}

/// Where a lock has its entry.
pub(super) fn key(namespace: &str, name: &LockName) -> String {
    format!("{namespace}:{name}")
}

fn unknown(attempt: &Attempt, phase: Phase, broken: &Broken) -> Error {
    attempt.error(ErrorKind::Indeterminate, phase, broken.to_string())
}

pub(super) fn unavailable(broken: &Broken) -> Error {
    Error::unavailable(Phase::Connect, broken.to_string())
}

impl fmt::Debug for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At").field("key", &self.key).finish_non_exhaustive()
    }
}
