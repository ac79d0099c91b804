//! Broken locks on Redis.
//!
//! What breaks:
//! - [`Recipe::Incr`], `INCR` as a lock: whoever reads 1 has it. So that a dead holder does not block for ever, everybody
//!   sets the expiry after the `INCR`; with that, every failed try prolongs the dead one's life, and while anybody waits
//!   it never ends. (`EXPIRE` only for the winner is the next recipe's flaw.)
//! - [`Recipe::SetnxThenExpire`], `SETNX` then `EXPIRE` in two steps: who is cancelled or dies between the two leaves a
//!   key without an end, and the lock is taken for ever.
//! - [`Recipe::GetSetTimestamp`], `SETNX` with `GETSET` of a client's timestamp: the end of the lease is judged by the
//!   clocks of clients. One whose clock is a minute ahead takes the lock from a living holder.
//! - [`Recipe::PlainDelete`], `SET NX PX` with a plain `DEL`: a holder that was paused past its lease deletes the entry of
//!   whoever holds the lock by then, and a third one gets in.
//! - [`Recipe::GetThenDelete`], `GET`, compare, then `DEL`: the same in a smaller window. The key expires and is taken
//!   between the two steps; the `DEL` then frees the next holder's lock.
//! - [`Recipe::WatchWithoutLook`], `WATCH`, `MULTI`, `DEL`, `EXEC` without comparing the value after the `WATCH`: the
//!   transaction only notices a change *during* the release, not one before it, and is a plain `DEL` with ceremony.
//! - [`Recipe::OrphanedTask`], a wait in a task of its own: when the waiter is dropped, the task lives on and takes the
//!   lock for nobody.
//! - [`Recipe::DeadlineFromReply`], a lease that counts from the answer: the server has counted since the request came. If
//!   the answer was on its way for a while, somebody else has the lock before the first one stops believing in it.
//! - [`Recipe::SilenceIsConsent`], a renewal that is taken for done unless it was refused: a holder whose network is dead
//!   believes in its lock for ever.
//! - [`Recipe::LostAtOnce`], a renewal that is taken for refused unless it was done: a connection that is cut costs a lock
//!   that nobody else has.
//! - [`Recipe::Pinned`], the address of the server that led when the client was made: when another one has taken over, the
//!   client goes on to ask the old one.
//! - [`Recipe::BlindRenewal`], a renewal by `SET PX`: the key has expired, by a clock that was stepped, and is another's; the
//!   renewal takes it back.
//! - [`Recipe::LoadedOnce`], scripts that are loaded when the client is made and called by their digests from then on: a
//!   server that was started again does not know them, and no release ever succeeds.
//! - [`Recipe::Impatient`], a renewal that is repeated at once until it is answered: while a server takes nobody in, its clients
//!   are what keeps it from recovering.
//! - [`Recipe::Unrecognised`], `SET NX` without a look at the value: who tries again after a lost reply is kept out by its
//!   own entry.
//! - [`Recipe::WaitsForEachReply`], a wait that gives each reply a whole operation timeout: one that is lost costs as much,
//!   although the lock is free.
//! - [`Recipe::CancelsNothing`], an acquisition that was given up and is left to itself: its entry keeps everybody out until it
//!   ends.

mod leader;
mod recipe;
mod recipes;
pub mod records;
mod steps;
mod troubled;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::Attempt;
use lock_core::{Error, LockName, Locks};
use lock_testkit::proxy::Protocol;
use lock_testkit::{
    Admin, DisposableServer, DisposableServers, GroundTruth, Harness, HarnessError, Linked, Missing, ServerFault,
};
use lock_testkit_servers::ClockedRedis;
use lock_testkit_servers::redis::{RedisOptions, RedisServer, SentinelDeployment};
use lock_testkit_servers::resp::Resp;

use self::leader::Way;
pub use self::recipe::Recipe;
use self::steps::Steps;
use super::{Rejection, backend};

/// Every specimen with the case that rejects it.
pub const REJECTIONS: &[Rejection<Recipe>] = &[
    Rejection { recipe: Recipe::Incr, case: "C-R06", symptom: "still taken although the dead holder" },
    // Its `SETNX` is carried out before or after the next one's turn.
    Rejection { recipe: Recipe::SetnxThenExpire, case: "C-W08", symptom: "dropped at poll" },
    Rejection { recipe: Recipe::GetSetTimestamp, case: "C-M02", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::PlainDelete, case: "C-M11", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::GetThenDelete, case: "C-M11b", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::OrphanedTask, case: "C-O04", symptom: "the span of every acquisition is closed" },
    Rejection { recipe: Recipe::WatchWithoutLook, case: "C-M11", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::PlainDelete, case: "C-M12", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::SetnxThenExpire, case: "C-F05", symptom: "not granted again after a grant" },
    Rejection { recipe: Recipe::SetnxThenExpire, case: "C-W09", symptom: "the servers have nothing left" },
    Rejection { recipe: Recipe::DeadlineFromReply, case: "C-M20", symptom: "after its lease is believed in" },
    Rejection { recipe: Recipe::SilenceIsConsent, case: "C-D02", symptom: "the loss is told: not within" },
    Rejection { recipe: Recipe::SilenceIsConsent, case: "C-F04", symptom: "the loss is told: not within" },
    Rejection { recipe: Recipe::SilenceIsConsent, case: "C-F02", symptom: "the holder is told: not within" },
    Rejection { recipe: Recipe::LostAtOnce, case: "C-D05", symptom: "the loss signal in a short outage" },
    Rejection { recipe: Recipe::LostAtOnce, case: "C-R02", symptom: "Taken" },
    Rejection { recipe: Recipe::LostAtOnce, case: "C-R04", symptom: "Taken" },
    Rejection { recipe: Recipe::Unrecognised, case: "C-F19", symptom: "was refused, but nobody else holds it" },
    Rejection { recipe: Recipe::BlindRenewal, case: "C-F15b", symptom: "the holder is told: not within" },
    Rejection { recipe: Recipe::LoadedOnce, case: "C-F13", symptom: "every contender has its turns again: not within" },
    Rejection { recipe: Recipe::BlindRenewal, case: "C-F13b", symptom: "the holder is told: not within" },
    Rejection { recipe: Recipe::BlindRenewal, case: "C-F18", symptom: "the holder is told: not within" },
    Rejection { recipe: Recipe::LostAtOnce, case: "C-F20", symptom: "after a renewal that was refused" },
    Rejection { recipe: Recipe::Impatient, case: "C-F21", symptom: "a storm" },
    Rejection { recipe: Recipe::CancelsNothing, case: "C-F05b", symptom: "taken by an acquisition that was dropped" },
    Rejection { recipe: Recipe::OneAtATime, case: "C-W11", symptom: "of 490 took longer than" },
    Rejection {
        recipe: Recipe::WaitsForEachReply,
        case: "C-W21",
        symptom: "swallowed before the release: true: not within",
    },
    Rejection { recipe: Recipe::Pinned, case: "C-F17", symptom: "every contender has its turns again: not within" },
];

/// The harness of one specimen on a Redis server.
///
/// Each of its clients lives on a machine of its own, whose wall clock is a minute ahead of the one before: what a lock
/// must not care about.
#[derive(Debug)]
pub struct Specimen {
    recipe: Recipe,
    url: String,
    machines: AtomicU32,
}

impl Specimen {
    /// This recipe on the server at `redis://host:port/`.
    #[must_use]
    pub fn new(recipe: Recipe, url: impl Into<String>) -> Self {
        Self { recipe, url: url.into(), machines: AtomicU32::new(0) }
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
        self.client(Way::to(&self.url, self.recipe).await?, namespace)
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
    }

    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        Some(self)
    }
}

#[async_trait]
impl DisposableServers for Specimen {
    fn faults(&self) -> &'static [ServerFault] {
        &[ServerFault::FailOver, ServerFault::ClockStep, ServerFault::Restart, ServerFault::Flush]
    }

    async fn start(&self, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(match fault {
            ServerFault::FailOver => Box::new(SentinelDeployment::start_own().await?),
            ServerFault::ClockStep => Box::new(ClockedRedis::start().await?),
            ServerFault::Restart | ServerFault::Flush => {
                Box::new(RedisServer::start_with(&RedisOptions::new().persistent()).await?)
            }
            _ => return Err(Missing::new(format!("no servers for a {fault:?}"))),
        })
    }

    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        self.client(Way::to(server.url(), self.recipe).await?, namespace)
    }
}

#[async_trait]
impl Linked for Specimen {
    fn protocol(&self) -> Protocol {
        Protocol::Resp
    }

    fn servers(&self) -> Vec<String> {
        let authority = self.url.split('/').nth(2).unwrap_or_default();
        vec![authority.rsplit('@').next().unwrap_or_default().to_owned()]
    }

    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        self.client(Way::Known(Arc::new(Resp::new(addresses.concat()))), namespace)
    }

    fn refusals(&self) -> &'static [&'static str] {
        &["LOADING Redis is loading the dataset in memory", "OOM command not allowed when used memory > 'maxmemory'."]
    }
}

impl Specimen {
    fn client(&self, way: Way, namespace: &str) -> Result<Locks, Error> {
        let ahead = Duration::from_secs(60) * self.machines.fetch_add(1, Ordering::Relaxed);
        backend::mutexes(OnRedis { steps: self.recipe.steps(ahead), way, namespace: namespace.to_owned() })
    }
}

#[async_trait]
impl GroundTruth for Specimen {
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let keys = Resp::from_url(&self.url)?.command(&["KEYS", &format!("{namespace}:*")]).await?;
        Ok(keys.into_parts().iter().map(ToString::to_string).collect())
    }
}

#[async_trait]
impl Admin for Specimen {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        Resp::from_url(&self.url)?.command(&["DEL", &key(namespace, name)]).await.map(drop)
    }
}

/// A recipe's client.
#[derive(Debug)]
struct OnRedis {
    steps: Box<dyn Steps>,
    way: Way,
    namespace: String,
}

impl OnRedis {
    async fn at<'a>(&'a self, attempt: &'a Attempt) -> Result<At<'a>, HarnessError> {
        Ok(At { redis: self.way.leader().await?, key: key(&self.namespace, &attempt.name), attempt })
    }
}

#[async_trait]
impl backend::Steps for OnRedis {
    async fn take(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        self.steps.take(&self.at(attempt).await?).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        self.steps.release(&self.at(attempt).await?).await
    }

    async fn extend(&self, attempt: &Attempt, ttl: Duration) -> Result<bool, HarnessError> {
        self.steps.extend(&self.at(attempt).await?, ttl).await
    }

    async fn abandon(&self, attempt: &Attempt) -> Result<(), HarnessError> {
        self.steps.abandon(&self.at(attempt).await?).await
    }

    fn counts_from_the_reply(&self) -> bool {
        self.steps.counts_from_the_reply()
    }

    fn time_for_a_look(&self) -> Duration {
        self.steps.time_for_a_look()
    }

    fn turns(&self) -> Option<&tokio::sync::Mutex<()>> {
        self.steps.turns()
    }
}

/// One lock, as a recipe's step sees it.
struct At<'a> {
    redis: Arc<Resp>,
    key: String,
    attempt: &'a Attempt,
}

impl At<'_> {
    /// The nonce, as it is stored.
    fn nonce(&self) -> String {
        self.attempt.id.to_string()
    }
}

/// The key of a lock's entry.
fn key(namespace: &str, name: &LockName) -> String {
    format!("{namespace}:{name}")
}
