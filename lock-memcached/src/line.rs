//! Where the waiters of one client stand in line for one lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Grant;
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, oneshot};

use crate::grants::Entry;
use crate::keys::Key;
use crate::streak::{Streak, WANTED_FOR};

/// The lines of one client.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    lines: HashMap<Key, Arc<Line>>,
    /// When those that nobody stands in were looked through last.
    swept_at: Option<BootInstant>,
}

/// Who waits for one lock.
#[derive(Debug)]
pub(crate) struct Line {
    /// Taken by the first one; the others wait for it in the order of their coming.
    pub(crate) first: Semaphore,
    /// What a holder in this process may hand its lock to.
    pub(crate) offer: Mutex<Option<Offer>>,
    pub(crate) streak: Mutex<Streak>,
    pub(crate) wake: Notify,
    /// Who of this client was granted the lock last.
    holder: Mutex<Weak<Entry>>,
    answered_at: Mutex<BootInstant>,
}

/// The first one's wish, while it pauses.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) entry: Arc<Entry>,
    pub(crate) ttl: Duration,
    pub(crate) granted: oneshot::Sender<Grant>,
    /// Who undoes the first one's attempt has to wait until the hand-over is through.
    pub(crate) _turn: OwnedMutexGuard<()>,
}

impl Lines {
    /// Whether anybody waits in this line.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.all().lines.get(key).is_some_and(is_waited_in)
    }

    /// The first one's wish in this line, if a lock may be handed to it now.
    pub(crate) fn offer(&self, key: &Key) -> Option<Offer> {
        // The map stays locked: a line that is in use here would not end with its last place.
        let all = self.all();
        let line = all.lines.get(key)?;
        let (mut offer, mut streak, now) = (locked(&line.offer), locked(&line.streak), SystemClock.now());
        if offer.is_none() || !streak.goes_on(now) {
            return None;
        }
        streak.counts(now);
        let offer = offer.take()?;
        line.held_by(&offer.entry);
        Some(offer)
    }

    /// Has the first one in this line look at once, unless it is others' turn.
    pub(crate) fn wake(&self, key: &Key) {
        if let Some(line) = self.all().lines.get(key)
            && is_waited_in(line)
            && SystemClock.now() >= locked(&line.streak).others_until()
        {
            line.wake.notify_one();
        }
    }

    pub(crate) fn enter(self: &Arc<Self>, key: &Key) -> Place {
        let mut all = self.all();
        all.sweep();
        let line = all.lines.entry(key.clone()).or_insert_with(|| Arc::new(Line::new())).clone();
        drop(all);
        Place { lines: self.clone(), key: key.clone(), line }
    }

    fn all(&self) -> MutexGuard<'_, Map> {
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
            holder: Mutex::default(),
            answered_at: Mutex::new(SystemClock.now()),
        }
    }

    pub(crate) fn held_by(&self, entry: &Arc<Entry>) {
        *locked(&self.holder) = Arc::downgrade(entry);
    }

    /// Whether somebody of this client has the lock, as far as this line has seen.
    pub(crate) fn is_held_here(&self) -> bool {
        locked(&self.holder).upgrade().is_some_and(|entry| entry.has_pieces())
    }

    pub(crate) fn answered(&self) {
        *locked(&self.answered_at) = SystemClock.now();
    }

    /// The instant at which the server has been silent for too long, for who came at `since`.
    pub(crate) fn silence(&self, since: BootInstant, patience: Duration) -> BootInstant {
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

/// A waiter's place. Leaving the last one ends the line, unless others want the lock too.
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Key,
    line: Arc<Line>,
}

impl Place {
    pub(crate) fn line(&self) -> &Line {
        &self.line
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.lines.all();
        // Ours, and the one in the map: whoever enters holds the map.
        if Arc::strong_count(&self.line) > 2 {
            return;
        }
        // Otherwise it is swept away later.
        if !locked(&self.line.streak).is_wanted(SystemClock.now()) {
            all.lines.remove(&self.key);
        }
    }
}

impl Map {
    /// Ends the lines that nobody stands in and that have not been left just now. Whoever enters one sweeps, at most once a
    /// second: what stays is what was contended within the last two seconds before the client's last wait.
    fn sweep(&mut self) {
        let now = SystemClock.now();
        if self.swept_at.is_none_or(|before| now.since(before) >= WANTED_FOR) {
            self.lines.retain(|_, line| is_waited_in(line) || locked(&line.streak).is_wanted(now));
            self.swept_at = Some(now);
        }
    }
}

/// Whether anybody stands in it: the map has the first reference.
fn is_waited_in(line: &Arc<Line>) -> bool {
    Arc::strong_count(line) > 1
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;
    use lock_core::driver::{Attempt, Kind};

    use super::*;
    use crate::connection::seen::Seen;
    use crate::grants::Grants;

    #[test]
    fn a_lock_is_held_here_until_its_holder_has_given_it_back() {
        let (line, grants, key) = (Line::new(), Grants::default(), Key::from("lock"));
        let attempt = Attempt::new("lock".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
        let entry = grants.of(&attempt, &key);
        assert!(!line.is_held_here());
        entry.won(&key, Seen::of_a_test(1));
        line.held_by(&entry);
        assert!(line.is_held_here());
        entry.lost(&key);
        assert!(!line.is_held_here());
    }
}
