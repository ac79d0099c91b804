//! A client of a sound mutex with a record beside it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Grant, MutexBackend, Record, RecordBackend, RecordWrite, Released, Renewal, Renewed,
};
use lock_core::{Client, ClientOptions, Error, ErrorKind, FencingToken, Guarantees, LockName, Locks, Phase, Support};
use lock_testkit::HarnessError;

use super::Recipe;
use super::write::{LOOK, SIGN, STAMP, STAMP_ANEW, WRITE, Write, hex, stored};
use crate::backend::SpecimenBackend;
use crate::redis::leader::Way;
use crate::redis::steps::Reference;
use crate::redis::{OnRedis, key};

/// A token for whoever has the lock; 0 if it is not this nonce any more.
const TOKEN: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('INCR', KEYS[2])";

/// A recipe's client.
#[derive(Debug)]
pub(super) struct Records {
    recipe: Recipe,
    lock: SpecimenBackend<OnRedis>,
    way: Way,
    namespace: String,
    /// The record that was read last.
    remembered: Mutex<Option<Record>>,
}

impl Records {
    /// A client of this recipe, at the servers to which these ways lead: the record's and the lock's.
    pub(super) fn client(recipe: Recipe, [way, lock]: [Way; 2], namespace: &str) -> Result<Locks, Error> {
        let (namespace, remembered) = (namespace.to_owned(), Mutex::default());
        let lock = OnRedis { steps: Box::new(Reference), way: lock, namespace: namespace.clone() };
        let records = Self { recipe, lock: SpecimenBackend::of(lock), way, namespace, remembered };
        let client = Client::new(records, ClientOptions::default())?;
        Ok(Locks::new(&client).with_record(&client))
    }

    fn record_key(&self, name: &LockName) -> String {
        format!("{}/record", key(&self.namespace, name))
    }

    fn remembered(&self) -> MutexGuard<'_, Option<Record>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn with_token(&self, attempt: &Attempt, grant: Option<Grant>) -> Result<Option<Grant>, Error> {
        let Some(grant) = grant else { return Ok(None) };
        let (lock, fence) = (key(&self.namespace, &attempt.name), format!("{}/fence", self.namespace));
        let drawn = async {
            let redis = self.way.leader().await?;
            redis.command(&["EVAL", TOKEN, "2", &lock, &fence, &attempt.id.to_string()]).await
        };
        let drawn = drawn.await.map_err(|error| unknown(attempt, Phase::Acquire, &error))?;
        let token = drawn.as_int().and_then(|token| FencingToken::new(token.try_into().ok()?));
        let what = "the lock was lost before its token was drawn";
        let token = token.ok_or_else(|| attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what))?;
        Ok(Some(Grant::new(Some(token), grant.sent_at, grant.valid_for)))
    }

    async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
    ) -> Result<Option<Record>, HarnessError> {
        let redis = self.way.leader().await?;
        let kept = |data: &[u8]| match self.recipe {
            Recipe::CutsShort => hex(&data[..data.len().min(1000)]),
            _ => hex(data),
        };
        let write = Write {
            redis: &redis,
            keys: [key(&self.namespace, &attempt.name), self.record_key(&attempt.name)],
            nonce: attempt.id.to_string(),
            token: format!("{:016}", token.as_u64()),
            data: data.map(kept),
        };
        let sound = format!("{LOOK}{STAMP}{WRITE}");
        match self.recipe {
            Recipe::AcceptsAnybody => write.run(&format!("{STAMP}{WRITE}")).await,
            Recipe::Unstamped if data.is_none() => {
                let text = redis.command(&["GET", &write.keys[1]]).await?.as_text();
                let seen = text.map(|text| stored(&text)).transpose()?;
                Ok(Record::next(seen, token, None).ok())
            }
            Recipe::ForgetsData => write.run(&format!("{LOOK}{STAMP_ANEW}{WRITE}")).await,
            Recipe::ByHalves if data.is_some() => {
                write.run(&format!("{LOOK}{STAMP}{SIGN}")).await?;
                write.run(&sound).await
            }
            Recipe::AppendsAgain => write.append(&format!("{LOOK}{STAMP}")).await,
            Recipe::Remembers if data.is_none() => {
                let Some(now) = write.run(&sound).await? else { return Ok(None) };
                let before = self.remembered().clone().filter(|_| now.written.is_none());
                Ok(Record::next(before.or(Some(now)), token, None).ok())
            }
            _ => write.run(&sound).await,
        }
    }
}

#[async_trait]
impl Backend for Records {
    fn name(&self) -> &'static str {
        "specimen"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.fencing = Support::Yes;
        guarantees.record = Support::Yes;
        guarantees.record_across_restart = Support::Yes;
        guarantees
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.lock.renew(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.lock.release(attempt).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.lock.cancel(attempt).await
    }
}

#[async_trait]
impl MutexBackend for Records {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.with_token(attempt, self.lock.try_lock(attempt).await?).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.with_token(attempt, self.lock.lock(attempt, deadline).await?).await
    }
}

#[async_trait]
impl RecordBackend for Records {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        let read = async {
            let text = self.way.leader().await?.command(&["GET", &self.record_key(name)]).await?.as_text();
            text.map(|text| stored(&text)).transpose()
        };
        let read: Result<_, HarnessError> = read.await;
        let record = read.map_err(|error| Error::unavailable(Phase::Inspect, error.to_string()))?;
        self.remembered().clone_from(&record);
        Ok(record)
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        _retention: Duration,
    ) -> Result<RecordWrite, Error> {
        match self.write(attempt, token, data).await {
            Ok(Some(record)) => Ok(RecordWrite::Done(record)),
            Ok(None) => Ok(RecordWrite::NotHeld),
            // That nobody has answered is taken for a refusal: the flaw.
            Err(error) if self.recipe == Recipe::DeniesLostWrites => {
                Err(attempt.error(ErrorKind::Unavailable, Phase::Hold, error.to_string()))
            }
            Err(error) => Err(unknown(attempt, Phase::Hold, &error)),
        }
    }
}

fn unknown(attempt: &Attempt, phase: Phase, error: &HarnessError) -> Error {
    attempt.error(ErrorKind::Indeterminate, phase, error.to_string())
}
