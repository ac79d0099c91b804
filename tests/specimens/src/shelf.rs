//! Broken locks on a shelf in memory: flaws of a backend whose author has neither a network nor a proxy to show them.
//!
//! What breaks:
//! - [`Recipe::WritesAnew`], a renewal that puts an entry where there is none: what an operator has removed comes back, and with
//!   it a holder who should have lost it.
//! - [`Recipe::Shortens`], a renewal that moves the end to where it says, and not at least there: a short renewal that comes
//!   after a longer one ends the entry while its holder believes in the longer one.
//! - [`Recipe::CountsFromTheReply`], a lease that counts from the answer, in a client to which answers take 120 ms; to others they
//!   take none.
//! - [`Recipe::LeavesByRenewal`], a lock that is left by a renewal, which never shortens: it ends with its lease.
//! - [`Recipe::LeavesToItsClient`], a lock that is left to the client to release: it goes with the client.
//! - [`Recipe::KeepsItsId`], a lock that is left under the id that it had: whoever knows that can free it.
//! - [`Recipe::LeavesAnybodys`], a lock that is left without a look at whose it is: one who has lost it ends the next holder's.
//! - [`Recipe::NewestFirst`], a queue of which the one who came last is served: who came first waits for as long as others come.
//! - [`Recipe::LosesItsTask`], a task that panics. Everything else goes on, and nobody looks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_core::driver::{Attempt, Kind, Left, Operator};
use lock_core::{Error, GrantId, Guarantees, Holder, Inspection, LockName, Locks, Owner, Support};
use lock_testkit::{Admin, GroundTruth, Harness, HarnessError, Missing, ms};

use super::backend::Look;
use super::{Rejection, backend};

/// The time for which a lock is kept that waits for its release.
const KEPT: Duration = Duration::from_secs(3600);

/// A way to keep a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recipe {
    /// Sound as far as the cases here go.
    Reference,
    /// Renews what is not there.
    WritesAnew,
    /// Renews for less than there was.
    Shortens,
    /// Counts its lease from an answer that takes its time.
    CountsFromTheReply,
    /// Leaves a lock for no less than its lease.
    LeavesByRenewal,
    /// Leaves a lock for as long as its client lives.
    LeavesToItsClient,
    /// Leaves a lock under the id that it had.
    KeepsItsId,
    /// Leaves a lock whoever holds it.
    LeavesAnybodys,
    /// Serves the newest waiter.
    NewestFirst,
    /// Has a task that panics.
    LosesItsTask,
}

/// Every specimen with the case that rejects it.
pub const REJECTIONS: &[Rejection<Recipe>] = &[
    Rejection { recipe: Recipe::WritesAnew, case: "C-R07b", symptom: "its entry is gone: not within" },
    Rejection { recipe: Recipe::Shortens, case: "C-R08c", symptom: "granted although" },
    Rejection { recipe: Recipe::CountsFromTheReply, case: "C-D11", symptom: "still believed" },
    Rejection { recipe: Recipe::LeavesByRenewal, case: "C-LV01", symptom: "nobody was granted it in time" },
    Rejection { recipe: Recipe::LeavesToItsClient, case: "C-LV04", symptom: "but the lock was left for" },
    Rejection { recipe: Recipe::KeepsItsId, case: "C-LV06", symptom: "under another id than before: not within" },
    Rejection { recipe: Recipe::LeavesAnybodys, case: "C-LV05", symptom: "a lock of somebody else was left" },
    Rejection { recipe: Recipe::NewestFirst, case: "C-W19", symptom: "a waiter had no turn while others had" },
    Rejection { recipe: Recipe::LosesItsTask, case: "C-M07", symptom: "a task or thread panicked: \"the flaw\"" },
];

/// The harness of one specimen.
#[derive(Debug)]
pub struct Specimen {
    recipe: Recipe,
    shelves: Mutex<HashMap<String, Shelf>>,
    clients: AtomicU32,
}

impl Specimen {
    /// This recipe.
    #[must_use]
    pub fn new(recipe: Recipe) -> Self {
        Self { recipe, shelves: Mutex::default(), clients: AtomicU32::new(0) }
    }

    fn shelf(&self, namespace: &str) -> Shelf {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.entry(namespace.to_owned()).or_default().clone()
    }
}

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "the sound reference on a shelf",
            Self::WritesAnew => "a renewal that writes anew",
            Self::Shortens => "a renewal that shortens",
            Self::CountsFromTheReply => "a deadline that counts from a late reply",
            Self::LeavesByRenewal => "a lock that is left by a renewal",
            Self::LeavesToItsClient => "a lock that is left to its client",
            Self::KeepsItsId => "a lock that is left under the id that it had",
            Self::LeavesAnybodys => "a lock that is left without a comparison",
            Self::NewestFirst => "a queue of which the newest is served",
            Self::LosesItsTask => "a task that panics",
        }
    }
}

#[async_trait]
impl Harness for Specimen {
    fn name(&self) -> &'static str {
        self.recipe.name()
    }

    async fn start() -> Result<Self, Missing> {
        Err(Missing::new("a specimen is made of a recipe"))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        // Every other one. A suite asks for its abilities with the first.
        let is_far = self.clients.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        backend::mutexes(OnShelf { recipe: self.recipe, shelf: self.shelf(namespace), is_far })
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl GroundTruth for Specimen {
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        Ok(self.shelf(namespace).entries().keys().cloned().collect())
    }
}

#[async_trait]
impl Admin for Specimen {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        self.shelf(namespace).entries().remove(name.as_str());
        Ok(())
    }
}

/// The server: the entries, each with its holder and its end, and the queues, where a recipe has some. Clones are the same one.
#[derive(Debug, Clone, Default)]
struct Shelf {
    entries: Arc<Mutex<HashMap<String, (GrantId, Instant)>>>,
    queues: Arc<Mutex<HashMap<String, Vec<GrantId>>>>,
}

impl Shelf {
    /// Puts a waiter at the end of the queue if it is not in it; whether it is the newest.
    fn enqueue(&self, attempt: &Attempt) -> bool {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(attempt.name.to_string()).or_default();
        if !queue.contains(&attempt.id) {
            queue.push(attempt.id);
        }
        queue.last() == Some(&attempt.id)
    }

    fn dequeue(&self, attempt: &Attempt) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(attempt.name.to_string()).or_default().retain(|waiter| *waiter != attempt.id);
    }

    /// Those whose end has not come.
    fn entries(&self) -> MutexGuard<'_, HashMap<String, (GrantId, Instant)>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        entries.retain(|_, (_, ends)| *ends > now);
        entries
    }
}

#[async_trait]
impl Operator for Shelf {
    async fn inspect(&self, name: &LockName, _kind: Kind) -> Result<Inspection, Error> {
        let mut inspection = Inspection::default();
        if let Some((grant, _)) = self.entries().get(name.as_str()) {
            let mut holder = Holder::unknown();
            holder.grant = Some(*grant);
            inspection.holders.push(holder);
        }
        Ok(inspection)
    }

    async fn force_release(
        &self,
        name: &LockName,
        _kind: Kind,
        freed: GrantId,
        _by: &Owner,
        _why: &str,
    ) -> Result<bool, Error> {
        let mut entries = self.entries();
        let is_there = entries.get(name.as_str()).is_some_and(|(holder, _)| *holder == freed);
        Ok(is_there && entries.remove(name.as_str()).is_some())
    }
}

/// A recipe's client.
#[derive(Debug)]
struct OnShelf {
    recipe: Recipe,
    shelf: Shelf,
    is_far: bool,
}

#[async_trait]
impl backend::Steps for OnShelf {
    async fn take(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        let ends = Instant::now() + attempt.ttl;
        let holder = self.shelf.entries().entry(attempt.name.to_string()).or_insert((attempt.id, ends)).0;
        match self.recipe {
            Recipe::CountsFromTheReply if self.is_far => tokio::time::sleep(ms(120)).await,
            #[expect(clippy::panic, reason = "the flaw")]
            Recipe::LosesItsTask => drop(tokio::spawn(async { panic!("the flaw") })),
            _ => {}
        }
        Ok(holder == attempt.id)
    }

    async fn look(&self, attempt: &Attempt) -> Result<Look, HarnessError> {
        if self.recipe == Recipe::NewestFirst && !self.shelf.enqueue(attempt) {
            return Ok(Look::NotYet(None));
        }
        if !self.take(attempt).await? {
            return Ok(Look::NotYet(None));
        }
        self.shelf.dequeue(attempt);
        Ok(Look::Granted)
    }

    async fn release(&self, attempt: &Attempt) -> Result<bool, HarnessError> {
        let mut entries = self.shelf.entries();
        let is_mine = entries.get(attempt.name.as_str()).is_some_and(|(holder, _)| *holder == attempt.id);
        Ok(is_mine && entries.remove(attempt.name.as_str()).is_some())
    }

    async fn extend(&self, attempt: &Attempt, ttl: Duration) -> Result<bool, HarnessError> {
        if self.recipe == Recipe::Shortens {
            // The request's way to the server: two that begin at about the same time are on it together.
            tokio::time::sleep(ms(20)).await;
        }
        let mut entries = self.shelf.entries();
        let until = Instant::now() + ttl;
        if self.recipe == Recipe::WritesAnew {
            entries.entry(attempt.name.to_string()).or_insert((attempt.id, until));
        }
        let mine = entries.get_mut(attempt.name.as_str()).filter(|(holder, _)| *holder == attempt.id);
        let Some((_, ends)) = mine else { return Ok(false) };
        *ends = if self.recipe == Recipe::Shortens { until } else { until.max(*ends) };
        Ok(true)
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, HarnessError> {
        let mut entries = self.shelf.entries();
        let is_mine = |holder: &GrantId| [attempt.id, left].contains(holder) || self.recipe == Recipe::LeavesAnybodys;
        let mine = entries.get_mut(attempt.name.as_str()).filter(|(holder, _)| is_mine(holder));
        let Some((holder, ends)) = mine else { return Ok(Left::NotHeld(None)) };
        if self.recipe == Recipe::LeavesToItsClient {
            *ends = Instant::now() + KEPT;
            return Ok(Left::UntilReleased);
        }
        let until = Instant::now() + time;
        if self.recipe != Recipe::KeepsItsId {
            *holder = left;
        }
        *ends = if self.recipe == Recipe::LeavesByRenewal { until.max(*ends) } else { until };
        Ok(Left::Done)
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        (guarantees.leave, guarantees.inspect, guarantees.force_release) = (Support::Yes, Support::Yes, Support::Yes);
        guarantees
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.shelf)
    }

    async fn abandon(&self, attempt: &Attempt) -> Result<(), HarnessError> {
        self.shelf.dequeue(attempt);
        self.release(attempt).await.map(drop)
    }

    fn counts_from_the_reply(&self) -> bool {
        self.recipe == Recipe::CountsFromTheReply
    }
}
