//! Recipes whose flaw shows only when replies are lost, late, or do not come, or when something happens to the server.

use std::time::Duration;

use async_trait::async_trait;

use super::At;
use super::recipes::{Reference, Steps, milliseconds};
use crate::harness::Broken;
use crate::time::ms;

/// How long these wait for an answer to a renewal.
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
pub(super) struct SilenceIsConsent;

#[async_trait]
impl Steps for SilenceIsConsent {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, Broken> {
        let answer = tokio::time::timeout(patience(), Reference.extend(at, ttl)).await;
        // No answer, or an error, is taken for a renewal: the flaw.
        Ok(matches!(answer, Err(_) | Ok(Err(_) | Ok(true))))
    }
}

#[derive(Debug)]
pub(super) struct LostAtOnce;

#[async_trait]
impl Steps for LostAtOnce {
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, Broken> {
        let answer = tokio::time::timeout(patience(), Reference.extend(at, ttl)).await;
        // No answer, or an error, is taken for a loss: the flaw.
        Ok(matches!(answer, Ok(Ok(true))))
    }
}

#[derive(Debug)]
pub(super) struct Unrecognised;

#[async_trait]
impl Steps for Unrecognised {
    async fn take(&self, at: &At<'_>) -> Result<bool, Broken> {
        let ttl = milliseconds(at.attempt.ttl);
        // A second try after a lost reply does not look whose nonce it meets: the flaw.
        Ok(at.redis.command(&["SET", &at.key, &at.nonce(), "NX", "PX", &ttl]).await?.is_ok())
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
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, Broken> {
        // Whoever's it is by now: the flaw.
        Ok(at.redis.command(&["SET", &at.key, &at.nonce(), "PX", &milliseconds(ttl)]).await?.is_ok())
    }
}
