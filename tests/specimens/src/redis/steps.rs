//! The steps of a recipe. A step that is not overridden is the sound one.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use lock_testkit::HarnessError;
use lock_testkit_servers::resp::Value;

use super::At;
use crate::op_timeout;

/// Sets the key if nobody has; an earlier try under this nonce, whose reply was lost, is recognised.
const SET_OR_RECOGNISE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end \
    if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
/// Deletes the key if it holds this nonce.
pub(super) const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// Extends the key if it holds this nonce; never shortens it.
const COMPARE_AND_EXTEND: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 1";

/// The steps in which recipes differ. The defaults are those of the [`Reference`].
#[async_trait]
pub(super) trait Steps: fmt::Debug + Send + Sync + 'static {
    /// One try; whether it has the lock.
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let ttl = milliseconds(at.attempt.ttl);
        is_one(at.redis.command(&["EVAL", SET_OR_RECOGNISE, "1", &at.key, &at.nonce(), &ttl]).await?)
    }

    /// The release; whether there was something to release.
    async fn release(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["EVAL", COMPARE_AND_DELETE, "1", &at.key, &at.nonce()]).await?)
    }

    /// The renewal; whether the lock is still there.
    async fn extend(&self, at: &At<'_>, ttl: Duration) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["EVAL", COMPARE_AND_EXTEND, "1", &at.key, &at.nonce(), &milliseconds(ttl)]).await?)
    }

    /// Whether its lease counts from the answer instead of from the request.
    fn counts_from_the_reply(&self) -> bool {
        false
    }

    /// The time for which a waiter's look is waited for.
    fn time_for_a_look(&self) -> Duration {
        op_timeout() / 4
    }

    /// The queue of its tries, if only one of them is on its way at a time.
    fn turns(&self) -> Option<&tokio::sync::Mutex<()>> {
        None
    }

    /// Cleans up after an acquisition that was given up.
    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        self.release(at).await.map(drop)
    }
}

/// The sound recipe.
#[derive(Debug)]
pub(super) struct Reference;

impl Steps for Reference {}

pub(super) fn is_one(reply: Value) -> Result<bool, HarnessError> {
    match reply {
        Value::Int(count) => Ok(count == 1),
        other => Err(HarnessError::new(format!("expected a number, got {other}"))),
    }
}

pub(super) fn milliseconds(time: Duration) -> String {
    time.as_millis().to_string()
}
