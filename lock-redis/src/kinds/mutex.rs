//! The mutex.
//!
//! Acquiring a free one is one script call, releasing it another; everything else is as with the other kinds. One that is
//! shared with Redisson has no short ways.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, MutexBackend};
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use crate::acquire;
use crate::backend::{RedisBackend, Shared, milliseconds};
use crate::store::dialect::Form;
use crate::store::keys::Keys;
use crate::store::scripts;

#[async_trait]
impl MutexBackend for RedisBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let until = self.shared.until();
        let granted = self.try_now(attempt).await?;
        self.confirmed(attempt, granted, until).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let granted = self.wait(attempt, deadline).await?;
        self.confirmed(attempt, granted, self.shared.until()).await
    }
}

impl RedisBackend {
    async fn try_now(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let keys = self.shared.checked_keys(&attempt.name, Kind::Mutex)?;
        let until = self.shared.until();
        if keys.form != Form::Text {
            return acquire::once(&self.shared, &keys, attempt, until).await;
        }
        match acquire_short(&self.shared, &keys, attempt, until).await? {
            ShortAcquire::Granted(grant) => Ok(Some(grant)),
            ShortAcquire::Held => Ok(None),
            ShortAcquire::AskTheQueue => acquire::once(&self.shared, &keys, attempt, until).await,
        }
    }

    async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let keys = Arc::new(self.shared.checked_keys(&attempt.name, Kind::Mutex)?);
        let (mut silent_since, mut unknown) = (SystemClock.now(), None);
        if keys.form == Form::Text && !self.shared.waiters.is_busy(&keys.lock) {
            match acquire_short(&self.shared, &keys, attempt, self.shared.until()).await {
                Ok(ShortAcquire::Granted(grant)) => return Ok(Some(grant)),
                Ok(ShortAcquire::Held | ShortAcquire::AskTheQueue) => silent_since = SystemClock.now(),
                Err(error) if deadline.has_passed(SystemClock.now()) => return Err(error),
                // Whatever is refused here, is refused below too, where it is waited for.
                Err(error) => unknown = (!error.is_definite()).then_some(error),
            }
            self.shared.waiters.found_held(&keys.lock);
        }
        acquire::in_turn(&self.shared, &keys, attempt, deadline, silent_since, unknown).await
    }
}

/// What the short way found.
enum ShortAcquire {
    Granted(Grant),
    Held,
    AskTheQueue,
}

/// The short way: a lock that is free, and for which nobody waits.
async fn acquire_short(
    shared: &Shared,
    keys: &Keys,
    attempt: &Attempt,
    until: BootInstant,
) -> Result<ShortAcquire, Error> {
    let nonce = attempt.id.to_string();
    let card = shared.card(&attempt.owner)?;
    let me = [&*nonce, ":", &*shared.client, ":", &*card, ":"].concat();
    let ttl = milliseconds(attempt.ttl);
    let args = [me.as_bytes(), ttl.as_bytes()];
    let (reply, _) =
        shared.run(&scripts::ACQUIRE_SHORT, &keys.to_take(), &args, attempt, Phase::Acquire, until).await?;
    let (sign, token) = shared.short(reply.value, &nonce, Phase::Acquire)?;
    match (sign, token.parse().ok().and_then(FencingToken::new)) {
        (b'+', Some(token)) => Ok(ShortAcquire::Granted(Grant::new(Some(token), reply.sent_at, attempt.ttl))),
        (b'-', _) => Ok(ShortAcquire::Held),
        (b'?', _) => Ok(ShortAcquire::AskTheQueue),
        _ => Err(attempt.error(ErrorKind::Protocol, Phase::Acquire, "the server granted the lock without a token")),
    }
}
