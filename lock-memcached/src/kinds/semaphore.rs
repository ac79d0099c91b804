//! The semaphore: one key for each permit.
//!
//! A grant has as many keys as it has permits, each of which ends by itself if it is not renewed. Several are claimed
//! together, the lowest free ones first. Whoever gets only some of them gives those back and waits a moment, so that two who
//! ask for much do not hold each other up. The limit is in a key of its own, so that clients that disagree on it are told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, SemaphoreBackend};
use lock_core::{Error, ErrorKind, LockName, Phase, driver};

use crate::acquire::TryOutcome;
use crate::backend::{MemcachedBackend, Shared};
use crate::client::cas::{self, OwnItem};
use crate::client::command::{Command, CommandAnswer, Item};
use crate::error::Failure;
use crate::kinds::slots::{self, CHUNK, TRIES};
use crate::registry::Entry;
use crate::store::keys::{self, Key};
use crate::store::ttl;
use crate::wait::queue::locked;
use crate::wait::{self, WantedLock};

/// How many permits a semaphore may have: each is a key, and all of them are looked at.
const MOST: u32 = 1000;

/// Permits, wanted by one attempt.
struct Permits<'a> {
    shared: &'a Arc<Shared>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    lock: Key,
    wanted: usize,
    limit: u32,
    /// From which slot on the next look of a waiter looks.
    at: AtomicU32,
    /// A slot that was free when a waiter looked.
    free: Mutex<Option<u32>>,
}

impl<'a> Permits<'a> {
    fn new(shared: &'a Arc<Shared>, attempt: &'a Attempt) -> Result<Self, Error> {
        let Kind::Permits { permits, limit } = attempt.kind else {
            return Err(attempt.error(ErrorKind::InvalidArgument, Phase::Acquire, "not an attempt of a semaphore"));
        };
        if limit > MOST {
            let what = format!("a semaphore has {MOST} permits at most here, not {limit}");
            return Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what));
        }
        let lock = shared.key_of(attempt)?;
        // It is at most `MOST`.
        let wanted = usize::try_from(permits).unwrap_or(usize::MAX);
        Ok(Self {
            shared,
            attempt,
            entry: shared.registry.of(attempt, &lock),
            lock,
            wanted,
            limit,
            at: AtomicU32::default(),
            free: Mutex::default(),
        })
    }

    /// Slots that may be free: any one at first, and then those that were seen to be.
    async fn choose(&self, turn: u32) -> Result<Vec<u32>, Error> {
        if self.wanted == 1 && turn == 0 {
            let seen = locked(&self.free).take();
            return Ok(vec![seen.unwrap_or_else(|| slots::any(&self.entry, turn, self.limit))]);
        }
        let mut free = self.shared.free_slots(self.attempt, &self.lock, self.limit, self.wanted).await?;
        if self.wanted == 1 && !free.is_empty() {
            let many = u32::try_from(free.len()).unwrap_or(u32::MAX);
            let one = slots::any(&self.entry, turn, many);
            return Ok(free.into_iter().skip(usize::try_from(one).unwrap_or_default()).take(1).collect());
        }
        free.truncate(self.wanted);
        Ok(free)
    }

    /// Whether the limit that is stored is this one. One that nobody holds permits under is forgotten.
    async fn agrees(&self, answer: Option<CommandAnswer>) -> Result<bool, Error> {
        let shared = self.shared;
        let agreed = async {
            let found = answer.map_or(Ok(None), CommandAnswer::item)?;
            let Some((limit, item)) = found.map(stored_limit).transpose()? else { return Ok(Some(true)) };
            if limit == self.limit {
                return Ok(Some(true));
            }
            shared
                .release_all(&self.entry, Phase::Acquire)
                .await
                .map_err(|_| Failure::protocol("permits stay behind"))?;
            if u32::try_from(shared.look_at_slots(&self.lock, 0..limit).await?.len()).is_ok_and(|free| free < limit) {
                return Ok(None);
            }
            let own = OwnItem { value: limit.into(), seen: item.seen };
            let forget = Command::Release { key: keys::limit(&self.lock), own };
            shared.link.run_one(forget).await;
            Ok(Some(false))
        };
        let agreed = async { agreed.await.map_err(|failure: Failure| shared.link.error(failure, Phase::Acquire)) };
        let agreed = shared.within(self.attempt, Phase::Acquire, agreed).await?;
        agreed.ok_or_else(|| {
            let what = "the permits in use were asked for with another limit";
            self.attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what)
        })
    }
}

impl WantedLock for Permits<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        if self.wanted > 1 {
            let free = self.shared.free_slots(self.attempt, &self.lock, self.limit, self.wanted).await?;
            return Ok(free.len() >= self.wanted);
        }
        // One part of the slots after the other.
        let from = self.at.fetch_add(CHUNK, Ordering::Relaxed) % self.limit;
        let some = from..self.limit.min(from + CHUNK);
        if some.end == self.limit {
            self.at.store(0, Ordering::Relaxed);
        }
        let free = self.shared.free_of(self.attempt, &self.lock, some).await?;
        *locked(&self.free) = free.first().copied();
        Ok(!free.is_empty())
    }

    fn keys(&self) -> u32 {
        if self.wanted > 1 { self.limit } else { self.limit.min(CHUNK) }
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let (shared, attempt, entry) = (self.shared, self.attempt, &self.entry);
        let mut pauses = driver::wait::pauses(std::time::Duration::from_millis(1), shared.longest_pause);
        for turn in 0..TRIES {
            let numbers = self.choose(turn).await?;
            if numbers.len() < self.wanted {
                return Ok(TryOutcome::Held);
            }
            let keys = numbers.iter().map(|number| keys::slot(&self.lock, *number)).collect();
            let key = keys::limit(&self.lock);
            let limit = Command::Claim { key, value: self.limit.into(), seconds: shared.limit_seconds() };
            // It has to outlast what is taken now, whoever stored it, and when.
            let keep = shared.keep_limit(&self.lock);
            let mut round = shared.claim(attempt, entry, keys, vec![limit, keep]).await?;
            let stored = round.also.pop();
            if self.agrees(stored).await? {
                let is_complete = entry.pieces().len() == self.wanted;
                match shared.settle(attempt, entry, &round, is_complete).await? {
                    TryOutcome::Held => {}
                    outcome => return Ok(outcome),
                }
            }
            if self.wanted > 1 {
                // The sequence is endless.
                let pause = pauses.next().unwrap_or_default();
                SystemClock.sleep_until(SystemClock.now().plus(pause)).await;
            }
        }
        Ok(TryOutcome::Held)
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Shared {
    /// The limit under which permits were taken, if there is one.
    pub(crate) async fn limit(&self, lock: &Key) -> Result<Option<u32>, Failure> {
        let found = self.link.run_one(Command::Read { key: keys::limit(lock) }).await.item()?;
        Ok(found.map(stored_limit).transpose()?.map(|(limit, _)| limit))
    }

    /// Has the limit live on, as long as any lease.
    pub(crate) fn keep_limit(&self, lock: &Key) -> Command {
        Command::Keep { key: keys::limit(lock), seconds: self.limit_seconds() }
    }

    fn limit_seconds(&self) -> u32 {
        ttl::seconds(self.longest_lease)
    }
}

/// The number that an item holds on which clients have agreed.
pub(crate) fn stored_limit(item: Item) -> Result<(u32, Item), Failure> {
    let number = cas::number(&item.value).and_then(|number| u32::try_from(number).ok());
    let limit = number.filter(|limit| (1..=MOST).contains(limit));
    limit.map(|limit| (limit, item)).ok_or_else(|| Failure::protocol("the key of a limit holds something else"))
}

#[async_trait]
impl SemaphoreBackend for MemcachedBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let wanted = Permits::new(&self.shared, attempt)?;
        self.shared.once(&wanted, attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let wanted = Permits::new(&self.shared, attempt)?;
        wait::wait(&self.shared, &wanted.lock, &wanted, attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let shared = &self.shared;
        let entry = shared.registry.get(attempt.id);
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        let (Some(entry), false) = (entry, pieces.is_empty()) else {
            let what = "the server has no such grant (any more)";
            return Err(attempt.error(ErrorKind::NotHeld, Phase::Release, what));
        };
        let rest = pieces.into_iter().skip(usize::try_from(keep).unwrap_or(usize::MAX)).collect();
        shared.within(attempt, Phase::Release, shared.release_some(&entry, rest, Phase::Release)).await?;
        shared.wake(&entry.lock, attempt.kind);
        Ok(())
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.shared.permits_held(name, limit).await
    }
}
