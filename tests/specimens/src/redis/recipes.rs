//! The recipes, step by step. A step that is not overridden is the sound one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::GrantId;
use lock_testkit::{HarnessError, ms};
use lock_testkit_servers::resp::Value;
use tracing::Instrument;

use super::troubled::{
    BlindRenewal, CancelsNothing, DeadlineFromReply, Impatient, LoadedOnce, LostAtOnce, OneAtATime, Pinned,
    SilenceIsConsent, Unrecognised,
};
use super::{At, Recipe};
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

/// The steps in which recipes differ. The defaults are the [`Recipe::Reference`].
#[async_trait]
pub(super) trait Steps: fmt::Debug + Send + Sync + 'static {
    /// One try; whether it has the lock.
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let ttl = milliseconds(at.attempt.ttl);
        is_one(at.redis.command(&["EVAL", SET_OR_RECOGNISE, "1", &at.key, &at.nonce(), &ttl]).await?)
    }

    /// The release; whether there was something to release.
    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
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

    /// The line in which its tries stand, if only one of them is on its way at a time.
    fn line(&self) -> Option<&tokio::sync::Mutex<()>> {
        None
    }

    /// Cleans up after an acquisition that was given up.
    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        self.give_back(at).await.map(drop)
    }
}

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "the sound reference",
            Self::Incr => "INCR as a lock",
            Self::SetnxThenExpire => "SETNX, then EXPIRE",
            Self::GetSetTimestamp => "SETNX with GETSET of a client's timestamp",
            Self::PlainDelete => "SET NX PX with a plain DEL",
            Self::GetThenDelete => "GET, compare, then DEL",
            Self::WatchWithoutLook => "WATCH and MULTI without the look",
            Self::OrphanedTask => "a task that tries on",
            Self::DeadlineFromReply => "a deadline that counts from the reply",
            Self::SilenceIsConsent => "silence taken for a renewal",
            Self::LostAtOnce => "silence taken for a loss",
            Self::Unrecognised => "SET NX that does not recognise its own nonce",
            Self::Pinned => "a server that is asked for once",
            Self::BlindRenewal => "a renewal by SET",
            Self::LoadedOnce => "scripts that are loaded once",
            Self::Impatient => "a renewal that is repeated at once",
            Self::CancelsNothing => "a cancellation that does nothing",
            Self::OneAtATime => "one request at a time",
        }
    }

    /// The recipe's steps, on a machine whose wall clock is this far ahead.
    pub(super) fn steps(self, ahead: Duration) -> Box<dyn Steps> {
        match self {
            Self::Reference => Box::new(Reference),
            Self::Incr => Box::new(Incr),
            Self::SetnxThenExpire => Box::new(SetnxThenExpire),
            Self::GetSetTimestamp => Box::new(GetSetTimestamp { ahead, ends: Mutex::default() }),
            Self::PlainDelete => Box::new(PlainDelete),
            Self::GetThenDelete => Box::new(GetThenDelete),
            Self::WatchWithoutLook => Box::new(WatchWithoutLook),
            Self::OrphanedTask => Box::new(OrphanedTask),
            Self::DeadlineFromReply => Box::new(DeadlineFromReply),
            Self::SilenceIsConsent => Box::new(SilenceIsConsent),
            Self::LostAtOnce => Box::new(LostAtOnce),
            Self::Unrecognised => Box::new(Unrecognised),
            Self::Pinned => Box::new(Pinned),
            Self::BlindRenewal => Box::new(BlindRenewal),
            Self::LoadedOnce => Box::new(LoadedOnce::default()),
            Self::Impatient => Box::new(Impatient),
            Self::CancelsNothing => Box::new(CancelsNothing),
            Self::OneAtATime => Box::new(OneAtATime::default()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Reference;

impl Steps for Reference {}

#[derive(Debug)]
struct Incr;

#[async_trait]
impl Steps for Incr {
    async fn take(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        let count = at.redis.command(&["INCR", &at.key]).await?;
        // By everybody: the flaw.
        at.redis.command(&["PEXPIRE", &at.key, &milliseconds(at.attempt.ttl)]).await?;
        is_one(count)
    }

    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
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
struct SetnxThenExpire;

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
struct GetSetTimestamp {
    ahead: Duration,
    /// The timestamp that each attempt has written last.
    ends: Mutex<HashMap<GrantId, u64>>,
}

impl GetSetTimestamp {
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

    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
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
struct PlainDelete;

#[async_trait]
impl Steps for PlainDelete {
    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
        is_one(at.redis.command(&["DEL", &at.key]).await?)
    }

    async fn abandon(&self, at: &At<'_>) -> Result<(), HarnessError> {
        Reference.abandon(at).await
    }
}

#[derive(Debug)]
struct GetThenDelete;

#[async_trait]
impl Steps for GetThenDelete {
    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
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
struct WatchWithoutLook;

#[async_trait]
impl Steps for WatchWithoutLook {
    async fn give_back(&self, at: &At<'_>) -> Result<bool, HarnessError> {
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
struct OrphanedTask;

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

pub(super) fn is_one(reply: Value) -> Result<bool, HarnessError> {
    match reply {
        Value::Int(count) => Ok(count == 1),
        other => Err(HarnessError::new(format!("expected a number, got {other}"))),
    }
}

pub(super) fn milliseconds(time: Duration) -> String {
    time.as_millis().to_string()
}
