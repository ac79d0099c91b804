//! The "server" of the memory backend: every lock, and whom to tell of a loss.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::holders::Holding;
use super::records::Records;
use super::rules::{Fence, Lock};
use crate::clock::{BootInstant, Clock};
use crate::driver::{Attempt, Kind, Notice, NoticeSource, Notices, Record, RecordWrite, SeveralOutcome};
use crate::error::{Error, ErrorKind, Phase};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::sync::locked;
use crate::token::FencingToken;

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    clock: Arc<dyn Clock>,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    locks: HashMap<Key, Lock>,
    records: Records,
    last_token: u64,
    last_client: u64,
    notices: HashMap<u64, NoticeSource>,
    unreachable: bool,
    delay: Option<Delay>,
}

/// One lock's place: names of different namespaces and kinds are apart, keys shared by choice are not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    namespace: Arc<str>,
    space: &'static str,
    name: LockName,
}

#[derive(Debug)]
struct Delay {
    least: Duration,
    most: Duration,
    seed: u64,
}

impl Key {
    fn of(namespace: &Arc<str>, name: &LockName, kind: Kind) -> Self {
        let space = if name.is_key() { "key" } else { kind.space() };
        Self { namespace: namespace.clone(), space, name: name.clone() }
    }
}

impl Hash for Key {
    /// Hashes the name alone: few names are used in two namespaces, or for two kinds.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Server {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// The number of one more client.
    pub(super) fn next_client(&self) -> u64 {
        let mut state = locked(&self.state);
        state.last_client += 1;
        state.last_client
    }

    /// Takes every lock of this name away, of every kind and namespace; says how many grants that were.
    pub(super) fn lose(&self, name: &LockName) -> usize {
        let mut state = locked(&self.state);
        let keys: Vec<_> = state.locks.keys().filter(|key| &key.name == name).cloned().collect();
        let now = self.clock.now();
        let lost: Vec<_> = keys.into_iter().flat_map(|key| state.with(key, now, |lock, _| lock.remove_all())).collect();
        for held in &lost {
            state.tell(held, LossReason::Taken, now);
        }
        lost.len()
    }

    pub(super) fn set_reachable(&self, reachable: bool) {
        locked(&self.state).unreachable = !reachable;
    }

    pub(super) fn set_delay(&self, least: Duration, most: Duration, seed: u64) {
        locked(&self.state).delay = Some(Delay { least, most, seed });
    }

    /// The number of locks with a holder or a waiter.
    pub(super) fn used(&self) -> usize {
        locked(&self.state).locks.len()
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The losses of this client's grants.
    pub(super) fn notices(&self, client: u64) -> Notices {
        locked(&self.state).notices.entry(client).or_default().subscribe()
    }

    pub(super) fn forget(&self, client: u64) {
        locked(&self.state).notices.remove(&client);
    }

    /// Carries a request to the store, through the injected delay and outage.
    pub(super) async fn reach(&self, phase: Phase) -> Result<(), Error> {
        let (delay, mut unreachable) = {
            let mut state = locked(&self.state);
            (state.delay.as_mut().map(Delay::next), state.unreachable)
        };
        if let Some(delay) = delay {
            self.clock.sleep_until(self.clock.now().plus(delay)).await;
            unreachable = locked(&self.state).unreachable;
        }
        if unreachable {
            return Err(Error::new(ErrorKind::Unavailable, phase, "the store was made unreachable"));
        }
        Ok(())
    }

    /// Works on one lock.
    pub(super) fn with<R>(
        &self,
        namespace: &Arc<str>,
        name: &LockName,
        kind: Kind,
        work: impl FnOnce(&mut Lock, BootInstant, Fence<'_>) -> R,
    ) -> R {
        let key = Key::of(namespace, name, kind);
        let mut state = locked(&self.state);
        let now = self.clock.now();
        state.with(key, now, |lock, fence| work(lock, now, fence))
    }

    /// Asks for several locks as one step: all of them or none.
    pub(super) fn ask_several(
        &self,
        namespace: &Arc<str>,
        attempts: &[&Attempt],
        client: u64,
    ) -> Result<SeveralOutcome, Error> {
        let mut state = locked(&self.state);
        let now = self.clock.now();
        let key = |attempt: &Attempt| Key::of(namespace, &attempt.name, attempt.kind);
        let mut grants = Vec::with_capacity(attempts.len());
        for attempt in attempts {
            let refused = match state.with(key(attempt), now, |lock, fence| lock.ask(attempt, client, now, fence)) {
                Ok(Some(grant)) => {
                    grants.push(grant);
                    continue;
                }
                Ok(None) => Ok(SeveralOutcome::Held),
                Err(error) => Err(error),
            };
            // Nobody has seen them, and nobody waits for them: they are as they were.
            for attempt in &attempts[..grants.len()] {
                state.with(key(attempt), now, |lock, _| lock.remove(attempt.id));
            }
            return refused;
        }
        Ok(SeveralOutcome::Granted(grants))
    }

    /// The record beside a mutex.
    pub(super) fn record(&self, namespace: &Arc<str>, name: &LockName) -> Option<Record> {
        let mut state = locked(&self.state);
        let now = self.clock.now();
        state.records.get(&(namespace.clone(), name.clone()), now)
    }

    /// Writes the record beside a mutex, if the mutex is held by this attempt.
    pub(super) fn write_record(
        &self,
        namespace: &Arc<str>,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> RecordWrite {
        let key = Key::of(namespace, &attempt.name, attempt.kind);
        let mut state = locked(&self.state);
        let now = self.clock.now();
        if !state.with(key, now, |lock, _| lock.is_held_by(attempt.id)) {
            return RecordWrite::NotHeld;
        }
        let place = (namespace.clone(), attempt.name.clone());
        let Ok(next) = Record::next(state.records.get(&place, now), token, data) else { return RecordWrite::NotHeld };
        state.records.put(place, next.clone(), now, retention);
        RecordWrite::Done(next)
    }

    /// Takes one grant away and tells its holder.
    pub(super) fn take_away(
        &self,
        namespace: &Arc<str>,
        name: &LockName,
        kind: Kind,
        id: GrantId,
        reason: LossReason,
    ) -> bool {
        let held = self.with(namespace, name, kind, |lock, _, _| lock.remove_grant(id));
        match held {
            Some(held) => {
                locked(&self.state).tell(&held, reason, self.clock.now());
                true
            }
            None => false,
        }
    }
}

impl StoreState {
    /// Works on one lock: expiry first, hand-over last. One that nobody uses any more is forgotten.
    fn with<R>(&mut self, key: Key, now: BootInstant, work: impl FnOnce(&mut Lock, Fence<'_>) -> R) -> R {
        let Self { locks, last_token, .. } = self;
        let mut fence = || next_token(last_token);
        let mut place = match locks.entry(key) {
            Entry::Occupied(place) => place,
            Entry::Vacant(place) => place.insert_entry(Lock::default()),
        };
        let lock = place.get_mut();
        lock.settle(now, &mut fence);
        let result = work(lock, &mut fence);
        lock.settle(now, &mut fence);
        if lock.is_unused() {
            place.remove();
        }
        result
    }

    fn tell(&self, held: &Holding, reason: LossReason, lost_by: BootInstant) {
        if let Some(notices) = self.notices.get(&held.client) {
            notices.announce(Notice { grant: held.id, reason, lost_by });
        }
    }
}

impl Delay {
    /// SplitMix64 (Steele, Lea, Flood 2014): reproducible from the seed.
    fn next(&mut self) -> Duration {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let range = self.most.saturating_sub(self.least);
        self.least + range.mul_f64(((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// One store counts all its grants, so a token never repeats even when a lock has left no trace.
fn next_token(last: &mut u64) -> FencingToken {
    *last += 1;
    // 2^53 grants take centuries.
    FencingToken::new(*last).unwrap_or(FencingToken::MAX)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn a_wait_goes_on_if_its_id_is_taken_for_a_grant_s() {
        let store = MemoryStore::new();
        let (a, b) = (store.connect().mutex("a"), store.connect().mutex("a"));
        let held = a.lock().await.unwrap();
        let mut waiting = pin!(b.lock());
        assert!((&mut waiting).now_or_never().is_none());
        let waiter = a.inspect().await.unwrap().waiters[0].attempt;
        assert!(!a.force_release(waiter, "by mistake").await.unwrap(), "a waiter is no holder");
        assert!((&mut waiting).now_or_never().is_none(), "the wait has ended");
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
    }
}
