//! Broken locks on memcached.
//!
//! - [`Recipe::PlainDelete`], `add` with a plain `delete`: a holder that was paused past its lease deletes the item of
//!   whoever holds the lock by then, and a third one gets in.
//! - [`Recipe::GetThenSet`], `get`, and `set` if there was nothing: everybody who looks before the first `set` gets in.
//! - [`Recipe::Incr`], `incr` as a lock: whoever reads 1 has it, everybody else counts down again. A count does not tell
//!   whose it is, so it has no end that could be right: the one of a dead holder stays.
//! - [`Recipe::BlindTouch`], a renewal by `touch`: the item was evicted and is another's by now, and is kept alive for him by
//!   somebody who takes it for his own.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::Attempt;
use lock_core::{Error, LockName, Locks};
use lock_testkit::{Admin, GroundTruth, Harness, HarnessError, Missing};
use lock_testkit_servers::memcached::{Memcached, MemcachedServer};

use super::{Rejection, backend};

/// A way to acquire and release a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recipe {
    /// `add` with a nonce that is recognised; release and renewal compare, and act by `cas`. Sound as far as the cases here
    /// go.
    Reference,
    /// Released by a plain `delete`.
    PlainDelete,
    /// `get`, then `set`.
    GetThenSet,
    /// `incr` as a lock.
    Incr,
    /// Renewed by `touch`.
    BlindTouch,
}

/// Every specimen with the case that rejects it.
pub const REJECTIONS: &[Rejection<Recipe>] = &[
    Rejection { recipe: Recipe::PlainDelete, case: "C-M11", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::GetThenSet, case: "C-M03", symptom: "of 64 racers hold the lock" },
    Rejection { recipe: Recipe::Incr, case: "C-R06", symptom: "still taken although the dead holder" },
    Rejection {
        recipe: Recipe::BlindTouch,
        case: "C-R07",
        symptom: "the holder is told, by its next renewal, that its entry is gone: not within",
    },
];

/// The harness of one specimen on a memcached server.
#[derive(Debug)]
pub struct Specimen {
    recipe: Recipe,
    url: String,
}

impl Specimen {
    /// This recipe on the server at `memcached://host:port/`.
    #[must_use]
    pub fn new(recipe: Recipe, url: impl Into<String>) -> Self {
        Self { recipe, url: url.into() }
    }

    fn items(&self) -> Result<Memcached, HarnessError> {
        Ok(MemcachedServer::existing(self.url.as_str())?.client())
    }
}

#[async_trait]
impl Harness for Specimen {
    fn name(&self) -> &'static str {
        self.recipe.name()
    }

    async fn start() -> Result<Self, Missing> {
        Err(Missing::new("a specimen is made of a recipe and a running server"))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        let items = self.items().map_err(|error| backend::unavailable(&error))?;
        backend::mutexes(OnMemcached { recipe: self.recipe, items, namespace: namespace.to_owned() })
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    /// One second for the rounding to whole ones, and one because the server's clock may tick at once.
    fn kept_for(&self, ttl: Duration) -> Duration {
        ttl + Duration::from_secs(2)
    }
}

#[async_trait]
impl GroundTruth for Specimen {
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let prefix = key(namespace, "");
        let items = self.items()?.items().await?;
        Ok(items.into_iter().map(|item| item.key).filter(|key| key.starts_with(&prefix)).collect())
    }
}

#[async_trait]
impl Admin for Specimen {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        self.items()?.delete(&key(namespace, name.as_str())).await.map(drop)
    }
}

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "the sound reference on memcached",
            Self::PlainDelete => "add with a plain delete",
            Self::GetThenSet => "get, then set",
            Self::Incr => "incr as a lock",
            Self::BlindTouch => "a renewal by touch",
        }
    }
}

/// A recipe's client.
#[derive(Debug)]
struct OnMemcached {
    recipe: Recipe,
    items: Memcached,
    namespace: String,
}

#[async_trait]
impl backend::Steps for OnMemcached {
    async fn take(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        let (key, nonce) = (self.key(attempt), attempt.id.to_string());
        match self.recipe {
            Recipe::Incr => self.count_up(&key).await,
            Recipe::GetThenSet => match self.items.get(&key).await? {
                Some(value) => Ok(value == nonce.as_bytes()),
                // Two commands: the flaw.
                None => self.is(&set(&key, &nonce, attempt.ttl), "STORED").await,
            },
            _ if self.items.add(&key, &nonce, seconds(attempt.ttl)).await? => Ok(true),
            // An earlier try under this nonce, whose reply was lost.
            _ => self.replace(attempt, &nonce, seconds(attempt.ttl).cast_signed()).await,
        }
    }

    async fn release(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        match self.recipe {
            Recipe::Incr => self.count_down(&self.key(attempt)).await.map(|()| true),
            // Whoever's it is by now: the flaw.
            Recipe::PlainDelete => self.items.delete(&self.key(attempt)).await,
            _ => self.replace(attempt, "", ENDED).await,
        }
    }

    async fn extend(&self, attempt: &Attempt, ttl: Duration) -> Result<bool, HarnessError> {
        match self.recipe {
            Recipe::Incr => Ok(self.items.get(&self.key(attempt)).await?.is_some()),
            // Whoever's it is by now: the flaw.
            Recipe::BlindTouch => self.is(&format!("touch {} {}", self.key(attempt), seconds(ttl)), "TOUCHED").await,
            _ => self.replace(attempt, &attempt.id.to_string(), seconds(ttl).cast_signed()).await,
        }
    }

    async fn abandon(&self, attempt: &Attempt) -> Result<(), HarnessError> {
        match self.recipe {
            Recipe::Incr => Ok(()), // a count does not tell whose it is
            _ => self.replace(attempt, "", ENDED).await.map(drop),
        }
    }
}

/// An expiry in the past: the item ends at once.
const ENDED: i64 = -1;

impl OnMemcached {
    fn key(&self, attempt: &Attempt) -> String {
        key(&self.namespace, attempt.name.as_str())
    }

    /// Replaces the item if it has this attempt's nonce; whether it had.
    async fn replace(&self, attempt: &Attempt, value: &str, seconds: i64) -> Result<bool, HarnessError> {
        let key = self.key(attempt);
        match self.items.gets(&key).await? {
            Some((present, unique)) if present == attempt.id.to_string().as_bytes() => {
                self.items.cas(&key, value, seconds, unique).await
            }
            _ => Ok(false),
        }
    }

    async fn count_up(&self, key: &str) -> Result<bool, HarnessError> {
        // Without an end, since nobody could renew it for the holder alone: the flaw.
        self.items.add(key, "0", 0).await?;
        if self.is(&format!("incr {key} 1"), "1").await? {
            return Ok(true);
        }
        self.count_down(key).await?;
        Ok(false)
    }

    async fn count_down(&self, key: &str) -> Result<(), HarnessError> {
        self.items.command(&format!("decr {key} 1")).await.map(drop)
    }

    /// Whether the command is answered so.
    async fn is(&self, command: &str, answer: &str) -> Result<bool, HarnessError> {
        Ok(self.items.command(command).await? == answer)
    }
}

fn set(key: &str, value: &str, ttl: Duration) -> String {
    format!("set {key} 0 {} {}\r\n{value}", seconds(ttl), value.len())
}

/// Returns for how many of the server's seconds to keep an item that is to live at least this long: the first second may
/// be over at once.
fn seconds(ttl: Duration) -> u64 {
    ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0) + 1
}

/// The key of a lock's entry.
fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}:{name}")
}
