//! Waiting, for a server that neither queues nor pushes.
//!
//! The waiters of one client for one lock stand in line, first come first served. Only the first one asks the server: one
//! cheap read, after pauses that grow to about 25 ms, and a claim when the lock seems free. A holder in the same process
//! does not let the first one find out by itself: it turns its item into that one's, in one command, or else wakes it.
//! Waiters of other clients get their turn because that happens only a few times in a row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Attempt, Grant};
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::{Error, ErrorKind, Phase, wait};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, oneshot};

use crate::backend::Shared;
use crate::claim::{Outcome, may_pass};
use crate::grants::Entry;
use crate::keys::Key;
use crate::streak::Streak;

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// A lock that is wanted.
#[async_trait]
pub(crate) trait Wanted: Send + Sync {
    /// Whether a claim has a chance, by one cheap read.
    async fn looks_free(&self) -> Result<bool, Error>;

    /// One try.
    async fn take(&self) -> Result<Outcome, Error>;

    /// The entry into which a holder of this process may hand its lock.
    fn receives(&self) -> Option<Arc<Entry>> {
        None
    }
}

/// The lines of one client.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<HashMap<Key, Arc<Line>>>);

/// Who waits for one lock.
#[derive(Debug)]
pub(crate) struct Line {
    /// Taken by the first one; the others wait for it in the order of their coming.
    first: Semaphore,
    /// What a holder in this process may hand its lock to.
    offer: Mutex<Option<Offer>>,
    streak: Mutex<Streak>,
    wake: Notify,
    answered_at: Mutex<BootInstant>,
}

/// The first one's wish, while it pauses.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) entry: Arc<Entry>,
    pub(crate) ttl: Duration,
    granted: oneshot::Sender<Grant>,
    /// Who undoes the first one's attempt has to wait until the hand-over is through.
    _turn: OwnedMutexGuard<()>,
}

impl Lines {
    /// The first one's wish in this line, if a lock may be handed to it now.
    pub(crate) fn offer(&self, key: &Key) -> Option<Offer> {
        // The map stays locked: a line that is in use here would not end with its last place.
        let all = self.all();
        let line = all.get(key)?;
        let mut offer = locked(&line.offer);
        if offer.is_none() || !locked(&line.streak).goes_on(SystemClock.now()) {
            return None;
        }
        offer.take()
    }

    /// Has the first one in this line look at once, unless it is others' turn.
    pub(crate) fn wake(&self, key: &Key) {
        if let Some(line) = self.all().get(key)
            && SystemClock.now() >= locked(&line.streak).others_until()
        {
            line.wake.notify_one();
        }
    }

    fn enter(self: &Arc<Self>, key: &Key) -> Place {
        let line = self.all().entry(key.clone()).or_insert_with(|| Arc::new(Line::new())).clone();
        Place { lines: self.clone(), key: key.clone(), line }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Arc<Line>>> {
        locked(&self.0)
    }
}

impl Line {
    fn new() -> Self {
        Self {
            first: Semaphore::new(1),
            offer: Mutex::default(),
            streak: Mutex::default(),
            wake: Notify::new(),
            answered_at: Mutex::new(SystemClock.now()),
        }
    }

    fn answered(&self) {
        *locked(&self.answered_at) = SystemClock.now();
    }

    /// The instant at which the server has been silent for too long, for who came at `since`.
    fn silence(&self, since: BootInstant, patience: Duration) -> BootInstant {
        since.max(*locked(&self.answered_at)).plus(patience)
    }
}

impl Offer {
    /// Tells the first one that the lock is its own.
    pub(crate) fn grant(self, grant: Grant) {
        // If it has gone, its attempt is undone as soon as this ends.
        let _ = self.granted.send(grant);
    }
}

/// A waiter's place. Leaving the last one ends the line.
struct Place {
    lines: Arc<Lines>,
    key: Key,
    line: Arc<Line>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.lines.all();
        // Ours, and the one in the map: whoever enters holds the map.
        if Arc::strong_count(&self.line) <= 2 {
            all.remove(&self.key);
        }
    }
}

/// Waits in line until the lock is granted, or the deadline passes.
pub(crate) async fn wait(
    shared: &Shared,
    key: &Key,
    wanted: &dyn Wanted,
    attempt: &Attempt,
    deadline: Deadline,
) -> Result<Option<Grant>, Error> {
    let place = shared.lines.enter(key);
    let line = &place.line;
    let since = SystemClock.now();
    let _first = loop {
        let silence = line.silence(since, attempt.patience);
        tokio::select! {
            biased;
            first = line.first.acquire() => break first,
            () = SystemClock.sleep_until(deadline.instant().min(silence)) => {}
        }
        let now = SystemClock.now();
        let is_over = deadline.has_passed(now);
        // Who asks, asks all the time: so long a silence at the end is no answer that somebody holds.
        let patience = if is_over { attempt.op_timeout.min(attempt.patience) } else { attempt.patience };
        if now >= line.silence(since, patience) {
            let what = format!("the server has not answered for {patience:?}");
            return Err(attempt.error(ErrorKind::Unavailable, Phase::Wait, what));
        }
        if is_over {
            return Ok(None);
        }
    };
    First { shared, line, wanted, attempt, deadline, since }.asks().await
}

/// The first one in line.
struct First<'a> {
    shared: &'a Shared,
    line: &'a Line,
    wanted: &'a dyn Wanted,
    attempt: &'a Attempt,
    deadline: Deadline,
    since: BootInstant,
}

impl First<'_> {
    async fn asks(&self) -> Result<Option<Grant>, Error> {
        let mut pauses = wait::pauses(FIRST_PAUSE, self.shared.longest_pause);
        let mut is_free = Ok(true);
        loop {
            let outcome = match is_free {
                Ok(true) => self.wanted.take().await,
                Ok(false) => Ok(Outcome::Held),
                Err(error) => Err(error),
            };
            // The sequence is endless; the longest pause is its own last value.
            let mut pause = pauses.next().unwrap_or(self.shared.longest_pause);
            let refused = match outcome {
                Ok(Outcome::Granted(grant)) => {
                    *locked(&self.line.streak) = Streak::default();
                    return Ok(Some(grant));
                }
                Ok(Outcome::Held) => None,
                Ok(Outcome::NotNow(why)) => {
                    pause = pause.max(why.pause());
                    Some(why.into_error(Phase::Wait))
                }
                Err(error) if may_pass(&error) => {
                    let now = SystemClock.now();
                    if self.deadline.has_passed(now) || now >= self.line.silence(self.since, self.attempt.patience) {
                        return Err(error);
                    }
                    if let Some(grant) = self.pauses(pause.max(self.shared.longest_pause)).await {
                        return Ok(Some(grant));
                    }
                    // Not by a look: what is there may be this attempt's own, whose claim was not answered.
                    is_free = Ok(true);
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.line.answered();
            if self.deadline.has_passed(SystemClock.now()) {
                return refused.map_or(Ok(None), Err);
            }
            if let Some(grant) = self.pauses(pause).await {
                return Ok(Some(grant));
            }
            is_free = self.wanted.looks_free().await;
        }
    }

    /// Pauses, ready to be handed the lock; until it is woken at the latest, or the deadline passes.
    async fn pauses(&self, pause: Duration) -> Option<Grant> {
        let now = SystemClock.now();
        let others_until = locked(&self.line.streak).others_until();
        let until = now.plus(pause).max(others_until).min(self.deadline.instant());
        let Some(entry) = self.wanted.receives() else {
            tokio::select! {
                () = self.line.wake.notified() => {}
                () = SystemClock.sleep_until(until) => {}
            }
            return None;
        };
        let (granted, mut handed) = oneshot::channel();
        let turn = entry.turn().await;
        *locked(&self.line.offer) = Some(Offer { entry, ttl: self.attempt.ttl, granted, _turn: turn });
        let withdrawal = Withdrawal(self.line);
        tokio::select! {
            biased;
            grant = &mut handed => return grant.ok(),
            () = self.line.wake.notified() => {}
            () = SystemClock.sleep_until(until) => {}
        }
        drop(withdrawal);
        // If a holder has taken the offer, it says what came of it; otherwise the channel is closed.
        handed.await.ok()
    }
}

/// Takes an offer back that nobody has taken.
struct Withdrawal<'a>(&'a Line);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        locked(&self.0.offer).take();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
