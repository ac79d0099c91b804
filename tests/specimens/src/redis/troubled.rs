//! Recipes whose flaw shows only when replies are lost, late, or do not come, or when something happens to the server.

use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::{HarnessError, ms};
use tokio::sync::{Mutex, OnceCell};

use crate::op_timeout;

use super::At;
use super::steps::{COMPARE_AND_DELETE, Reference, Steps, is_one, milliseconds};

/// The time for which these wait for an answer to a renewal.
fn patience() -> Duration {
    ms(300)
}

#[derive(Debug)]
pub(super) struct DeadlineFromReply;

#[async_trait]
impl Steps for DeadlineFromReply {
    fn counts_from_the_reply(&self) -> bool {
        true // the server has counted since the request came: the flaw
    }
}

#[derive(Debug)]
pub(super) struct CancelsNothing;

#[async_trait]
impl Steps for CancelsNothing {
    async fn abandon(&self, _at: &At<'_>) -> Result<(), HarnessError> {
        Ok(()) // what the server may have is left to itself: the flaw
    }
}

#[derive(Debug)]
pub(super) struct SilenceIsConsent;

#[async_trait]
impl Steps for SilenceIsConsent {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        let answer = tokio::time::timeout(patience(), Reference.extend(at, ttl)).await;
        // No answer, or an error, is taken for a renewal: the flaw.
        Ok(matches!(answer, Err(_) | Ok(Err(_) | Ok(true))))
    }
}

#[derive(Debug)]
pub(super) struct LostAtOnce;

#[async_trait]
impl Steps for LostAtOnce {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        let answer = tokio::time::timeout(patience(), Reference.extend(at, ttl)).await;
        // No answer, or an error, is taken for a loss: the flaw.
        Ok(matches!(answer, Ok(Ok(true))))
    }
}

#[derive(Debug)]
pub(super) struct Unrecognised;

#[async_trait]
impl Steps for Unrecognised {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let ttl = milliseconds(at.attempt.ttl);
        // A second try after a lost reply does not look whose nonce it meets: the flaw.
        Ok(at.redis.command(&["SET", &at.key, &at.nonce(), "NX", "PX", &ttl]).await?.is_ok())
    }
}

#[derive(Debug, Default)]
pub(super) struct OneAtATime {
    turns: Mutex<()>,
}

impl Steps for OneAtATime {
    fn turns(&self) -> Option<&Mutex<()>> {
        Some(&self.turns) // the time of each begins with its turn: the flaw
    }
}

#[derive(Debug)]
pub(super) struct WaitsForEachReply;

impl Steps for WaitsForEachReply {
    fn time_for_a_look(&self) -> Duration {
        op_timeout() // a reply that is lost costs all of it, although the lock is free: the flaw
    }
}

/// Its flaw is in the way to its server.
#[derive(Debug)]
pub(super) struct Pinned;

impl Steps for Pinned {}

#[derive(Debug)]
pub(super) struct BlindRenewal;

#[async_trait]
impl Steps for BlindRenewal {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        // Whoever's it is by now: the flaw.
        Ok(at.redis.command(&["SET", &at.key, &at.nonce(), "PX", &milliseconds(ttl)]).await?.is_ok())
    }
}

#[derive(Debug, Default)]
pub(super) struct LoadedOnce {
    digest: OnceCell<String>,
}

#[async_trait]
impl Steps for LoadedOnce {
    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        // A server that was started again does not know it: the flaw.
        let load = async || at.redis.command(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]).await;
        let digest = self.digest.get_or_try_init(async || Ok::<_, HarnessError>(load().await?.to_string())).await?;
        is_one(at.redis.command(&["EVALSHA", digest, "1", &at.key, &at.nonce()]).await?)
    }
}

#[derive(Debug)]
pub(super) struct Impatient;

#[async_trait]
impl Steps for Impatient {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        loop {
            // Without a pause: the flaw.
            if let Ok(renewed) = Reference.extend(at, ttl).await {
                return Ok(renewed);
            }
        }
    }
}
