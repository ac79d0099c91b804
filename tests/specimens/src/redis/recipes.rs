//! The recipes of the literature, and what is wrong with each.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::GrantId;
use lock_testkit::{HarnessError, ms};
use lock_testkit_servers::resp::Value;
use tracing::Instrument;

use super::At;
use super::steps::{Reference, Steps, is_one, milliseconds};
use crate::op_timeout;

#[derive(Debug)]
pub(super) struct Incr;

#[async_trait]
impl Steps for Incr {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let count = at.redis.command(&["INCR", &at.key]).await?;
        // By everybody: the flaw.
        at.redis.command(&["PEXPIRE", &at.key, &milliseconds(at.attempt.ttl)]).await?;
        is_one(count)
    }

    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["DEL", &at.key]).await?)
    }

    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["PEXPIRE", &at.key, &milliseconds(ttl)]).await?)
    }

    async fn abandon(&self, _at: &At<'_>) -> Result<(), HarnessError> {
        Ok(()) // a counter does not tell whose count it holds
    }
}

#[derive(Debug)]
pub(super) struct SetnxThenExpire;

#[async_trait]
impl Steps for SetnxThenExpire {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let won = is_one(at.redis.command(&["SETNX", &at.key, &at.nonce()]).await?)?;
        if won {
            // A second request: the flaw. Whatever a busy machine does between the two, made visible as one await.
            tokio::task::yield_now().await;
            at.redis.command(&["PEXPIRE", &at.key, &milliseconds(at.attempt.ttl)]).await?;
        }
        Ok(won)
    }

    async fn abandon(&self, _at: &At<'_>) -> Result<(), HarnessError> {
        Ok(()) // the recipe knows no step for it: the expiry is meant to do that
    }
}

#[derive(Debug)]
pub(super) struct GetSetTimestamp {
    ahead: Duration,
    /// The timestamp that each attempt has written last.
    ends: Mutex<HashMap<GrantId, u64>>,
}

impl GetSetTimestamp {
    /// On a machine whose wall clock is this far ahead.
    pub(super) fn ahead(ahead: Duration) -> Self {
        Self { ahead, ends: Mutex::default() }
    }

    /// Returns the time of this machine's wall clock, in milliseconds.
    fn now(&self) -> Result<u64, HarnessError> {
        Ok(u64::try_from((SystemTime::now().duration_since(UNIX_EPOCH)? + self.ahead).as_millis())?)
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<GrantId, u64>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The timestamp at which a lease that begins now ends; remembered with the attempt.
    fn end(&self, at: &At<'_>, ttl: Duration) -> Result<String, HarnessError> {
        let end = self.now()? + u64::try_from(ttl.as_millis())?;
        self.ends().insert(at.attempt.id, end);
        Ok(end.to_string())
    }
}

#[async_trait]
impl Steps for GetSetTimestamp {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let mine = self.end(at, at.attempt.ttl)?;
        if is_one(at.redis.command(&["SETNX", &at.key, &mine]).await?)? {
            return Ok(true);
        }
        let Some(theirs) = at.redis.command(&["GET", &at.key]).await?.as_text() else { return Ok(false) };
        // Another machine's timestamp against this machine's clock: the flaw.
        if theirs.parse::<u64>()? > self.now()? {
            return Ok(false);
        }
        let before = at.redis.command(&["GETSET", &at.key, &mine]).await?;
        Ok(before.as_text() == Some(theirs))
    }

    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        if self.ends().get(&at.attempt.id).copied().unwrap_or_default() <= self.now()? {
            return Ok(false); // expired: it may be another's by now
        }
        is_one(at.redis.command(&["DEL", &at.key]).await?)
    }

    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        let end = self.end(at, ttl)?;
        Ok(at.redis.command(&["SET", &at.key, &end, "XX"]).await?.is_ok())
    }

    async fn abandon(&self, _at: &At<'_>) -> Result<(), HarnessError> {
        Ok(()) // a timestamp does not tell whose it is
    }
}

#[derive(Debug)]
pub(super) struct PlainDelete;

#[async_trait]
impl Steps for PlainDelete {
    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["DEL", &at.key]).await?)
    }

    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        Reference.abandon(at).await
    }
}

#[derive(Debug)]
pub(super) struct GetThenDelete;

#[async_trait]
impl Steps for GetThenDelete {
    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let present = at.redis.command(&["GET", &at.key]).await?;
        if present.as_text() != Some(at.nonce()) {
            return Ok(false);
        }
        // The pause that a garbage collection or a busy machine makes between two steps, made visible.
        tokio::time::sleep(ms(150)).await;
        is_one(at.redis.command(&["DEL", &at.key]).await?)
    }

    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        Reference.abandon(at).await
    }
}

#[derive(Debug)]
pub(super) struct WatchWithoutLook;

#[async_trait]
impl Steps for WatchWithoutLook {
    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        // A transaction needs a connection to itself.
        let redis = at.redis.another();
        redis.command(&["WATCH", &at.key]).await?;
        // Here the value should be read and compared, and the release be left if it is another's: the flaw.
        redis.command(&["MULTI"]).await?;
        redis.command(&["DEL", &at.key]).await?;
        Ok(redis.command(&["EXEC"]).await?.into_parts() == [Value::Int(1)])
    }

    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        Reference.abandon(at).await
    }
}

#[derive(Debug)]
pub(super) struct OrphanedTask;

#[async_trait]
impl Steps for OrphanedTask {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let (redis, key, nonce) = (at.redis.another(), at.key.clone(), at.nonce());
        let ttl = milliseconds(at.attempt.ttl);
        // A task of its own, which nobody ends when nobody waits any more: the flaw.
        let tries = async move {
            // Always less than one operation timeout, also on a busy machine.
            let until = Instant::now() + op_timeout() * 3 / 4;
            while Instant::now() < until {
                if redis.command(&["SET", &key, &nonce, "NX", "PX", &ttl]).await?.is_ok() {
                    return Ok(true);
                }
                tokio::time::sleep(ms(50)).await;
            }
            Ok(false)
        };
        tokio::spawn(tries.in_current_span()).await?
    }
}
