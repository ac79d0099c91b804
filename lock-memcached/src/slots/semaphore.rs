//! The semaphore: one key for each permit.
//!
//! A grant has as many keys as it has permits, each of which ends by itself if it is not renewed. Several are claimed
//! together, the lowest free ones first. Whoever gets only some of them releases those and waits a moment, so that two who
//! ask for much do not hold each other up. The limit is in a key of its own, so that clients that disagree on it are told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Kind};
use lock_core::{Error, ErrorKind, Phase, driver};

use crate::acquire::{Acquirer, TryOutcome, WantedLock};
use crate::client::cas::OwnItem;
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::config::LongestLease;
use crate::error::Failure;
use crate::registry::{Entry, Registry};
use crate::release::Releaser;
use crate::slots::{self, CHUNK, MOST, Slots, TRIES, stored_limit};
use crate::store::keys::{self, Key};

/// The looks that tell whether permits are in use under another limit.
const LOOKS: u32 = 3;

/// Pauses between two of these looks, the shortest and the longest one: as long as a few round trips. A claim that is released again,
/// because it met another limit, is gone by the last look, also if its client is slower than this one.
const BETWEEN_LOOKS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

/// The semaphores of one client.
pub(crate) struct Semaphores {
    link: Arc<Link>,
    registry: Arc<Registry>,
    acquirer: Arc<Acquirer>,
    releaser: Arc<Releaser>,
    slots: Slots,
    longest: LongestLease,
    longest_pause: Duration,
}

impl Semaphores {
    pub(crate) fn new(
        link: &Arc<Link>,
        registry: &Arc<Registry>,
        acquirer: &Arc<Acquirer>,
        releaser: &Arc<Releaser>,
        longest: LongestLease,
        longest_pause: Duration,
    ) -> Self {
        Self {
            link: link.clone(),
            registry: registry.clone(),
            acquirer: acquirer.clone(),
            releaser: releaser.clone(),
            slots: Slots::new(link),
            longest,
            longest_pause,
        }
    }

    /// The permits of an attempt.
    pub(crate) fn permits<'a>(&'a self, attempt: &'a Attempt) -> Result<Permits<'a>, Error> {
        let Kind::Permits { permits, limit } = attempt.kind else {
            return Err(attempt.error(ErrorKind::InvalidArgument, Phase::Acquire, "not an attempt of a semaphore"));
        };
        if limit > MOST {
            let what = format!("a semaphore has {MOST} permits at most here, not {limit}");
            return Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what));
        }
        // It is at most `MOST`.
        let wanted = usize::try_from(permits).unwrap_or(usize::MAX);
        Ok(Permits {
            locks: self,
            attempt,
            entry: self.registry.register(attempt)?,
            wanted,
            limit,
            at: AtomicU32::default(),
            free: Mutex::default(),
        })
    }

    pub(crate) async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        // What is left of a grant of which something was lost does not count.
        let entry = self.registry.get(attempt.id).filter(|entry| !entry.is_lost());
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        let (Some(entry), false) = (entry, pieces.is_empty()) else {
            return Err(slots::not_held(attempt, Phase::Release));
        };
        let rest = pieces.into_iter().skip(usize::try_from(keep).unwrap_or(usize::MAX)).collect();
        let released = self.releaser.release_some(attempt, &entry, rest, Phase::Release).await?;
        self.releaser.wake(&entry.lock, attempt.kind);
        if released.gone > 0 {
            entry.lose();
            return Err(slots::not_held(attempt, Phase::Release));
        }
        Ok(())
    }
}

/// Permits, wanted by one attempt.
pub(crate) struct Permits<'a> {
    locks: &'a Semaphores,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    wanted: usize,
    limit: u32,
    /// First slot of the next look of a waiter.
    at: AtomicU32,
    /// A slot that was free when a waiter looked.
    free: Mutex<Option<u32>>,
}

impl Permits<'_> {
    fn free(&self) -> MutexGuard<'_, Option<u32>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Slots that may be free: any one at first, and then those that were seen to be.
    async fn choose(&self, turn: u32) -> Result<Vec<u32>, Error> {
        if self.wanted == 1 && turn == 0 {
            let seen = self.free().take();
            return Ok(vec![seen.unwrap_or_else(|| slots::any(&self.entry, turn, self.limit))]);
        }
        let mut free = self.locks.slots.free_slots(self.attempt, &self.entry.lock, self.limit, self.wanted).await?;
        if self.wanted == 1 && !free.is_empty() {
            let many = u32::try_from(free.len()).unwrap_or(u32::MAX);
            let one = slots::any(&self.entry, turn, many);
            return Ok(free.into_iter().skip(usize::try_from(one).unwrap_or_default()).take(1).collect());
        }
        free.truncate(self.wanted);
        Ok(free)
    }

    /// Whether the limit that is stored is this one. One that nobody holds permits under is forgotten.
    async fn agrees(&self, answer: Option<CommandAnswer>, sent_at: BootInstant) -> Result<bool, Error> {
        let locks = self.locks;
        let found = answer.map_or(Ok(None), CommandAnswer::item).and_then(|found| found.map(stored_limit).transpose());
        let limit = match found.map_err(|failure| locks.acquirer.error(failure))? {
            Some((limit, _)) if limit != self.limit => limit,
            _ => return Ok(true),
        };
        Box::pin(locks.acquirer.abandon(self.attempt, &self.entry, sent_at)).await?;
        let used = async { self.is_used_under(limit).await.map_err(|failure| locks.acquirer.error(failure)) };
        // Seldom, and so not a part of every request's future.
        if locks.link.within(self.attempt, Phase::Acquire, Box::pin(used)).await? {
            let what = "the permits in use were asked for with another limit";
            return Err(self.attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what));
        }
        Ok(false)
    }

    /// Whether permits are in use under another limit, which is forgotten if there are none.
    ///
    /// A slot may be taken for a moment only, by a claim that meets this limit as ours did. So permits count as in use if some slot is taken
    /// at every look.
    async fn is_used_under(&self, limit: u32) -> Result<bool, Failure> {
        let (link, lock) = (&self.locks.link, &self.entry.lock);
        let mut trip = Duration::ZERO;
        for look in 0..LOOKS {
            if look > 0 {
                let [shortest, longest] = BETWEEN_LOOKS;
                let pause = (trip * 4).clamp(shortest, longest).min(link.op_timeout() / 10);
                SystemClock.sleep_until(SystemClock.now().plus(pause)).await;
            }
            let sent_at = SystemClock.now();
            let read = Command::Read { key: keys::limit(lock) };
            let mut answers = link.run(slots::reads(lock, 0..limit).chain([read]).collect()).await;
            trip = SystemClock.now().since(sent_at);
            let stored = CommandAnswer::expected(answers.pop()).item()?.map(stored_limit).transpose()?;
            // Another client may have forgotten it meanwhile.
            let Some((_, item)) = stored.filter(|(stored, _)| *stored == limit) else { return Ok(false) };
            if slots::taken(0.., answers)?.is_empty() {
                let own = OwnItem { value: limit.into(), seen: item.seen };
                link.run_one(Command::Release { key: keys::limit(lock), own }).await;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Claims these slots; `None` if another try may have more luck.
    async fn claim(&self, numbers: &[u32]) -> Result<Option<TryOutcome>, Error> {
        let (locks, attempt, entry) = (self.locks, self.attempt, &self.entry);
        let keys = numbers.iter().map(|number| keys::slot(&entry.lock, *number)).collect();
        let key = keys::limit(&entry.lock);
        let limit = Command::Claim { key, value: self.limit.into(), seconds: locks.longest.item_ttl() };
        // It has to outlast what is taken now, whoever stored it, and when.
        let keep = slots::keep_limit(&entry.lock, locks.longest);
        let mut round = locks.acquirer.claim(attempt, entry, keys, vec![limit, keep]).await?;
        let stored = round.also.pop();
        if !self.agrees(stored, round.sent_at).await? {
            return Ok(None);
        }
        let is_complete = entry.pieces().len() == self.wanted;
        let outcome = locks.acquirer.settle(attempt, entry, &round, is_complete).await?;
        Ok(Some(outcome).filter(|outcome| !matches!(outcome, TryOutcome::Held)))
    }

    /// The answer to whoever finds too few free slots; `None` if another try may have more luck.
    async fn finds_too_few(&self) -> Result<Option<TryOutcome>, Error> {
        // The limit of one that wants a single permit was read with its claim.
        if self.wanted > 1 {
            let stored = self.locks.link.run_one(Command::Read { key: keys::limit(&self.entry.lock) }).await;
            if !self.agrees(Some(stored), SystemClock.now()).await? {
                return Ok(None);
            }
        }
        Ok(Some(TryOutcome::Held))
    }
}

impl WantedLock for Permits<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        if self.wanted > 1 {
            let free = self.locks.slots.free_slots(self.attempt, &self.entry.lock, self.limit, self.wanted).await?;
            return Ok(free.len() >= self.wanted);
        }
        // One part of the slots after the other.
        let from = self.at.fetch_add(CHUNK, Ordering::Relaxed) % self.limit;
        let some = from..self.limit.min(from + CHUNK);
        if some.end == self.limit {
            self.at.store(0, Ordering::Relaxed);
        }
        let free = self.locks.slots.free_of(self.attempt, &self.entry.lock, some).await?;
        *self.free() = free.first().copied();
        Ok(!free.is_empty())
    }

    fn take_looks(&self) -> u32 {
        if self.wanted > 1 { self.limit } else { self.limit.min(CHUNK) }
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let mut pauses = driver::wait::pauses(Duration::from_millis(1), self.locks.longest_pause);
        self.locks.acquirer.release_unanswered(&self.entry).await?;
        for turn in 0..TRIES {
            let numbers = self.choose(turn).await?;
            let too_few = numbers.len() < self.wanted;
            let outcome = if too_few { self.finds_too_few().await? } else { self.claim(&numbers).await? };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            if self.wanted > 1 {
                // The sequence is endless.
                let pause = pauses.next().unwrap_or_default();
                SystemClock.sleep_until(SystemClock.now().plus(pause)).await;
            }
        }
        Ok(TryOutcome::Held)
    }

    fn queue(&self) -> Key {
        self.entry.lock.clone()
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}
