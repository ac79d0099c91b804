//! The shared store, the "server" of the memory backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::backend::MemoryBackend;
use super::rules::{Holding, Lock};
use super::{MemoryConfig, MemoryLocks};
use crate::client::Client;
use crate::clock::{BootInstant, Clock, SystemClock};
use crate::driver::Kind;
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::LossReason;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::sync::locked;
use crate::token::FencingToken;

/// The store that clients share. A clone is the same store.
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<StoreInner>);

#[derive(Debug)]
struct StoreInner {
    clock: Arc<dyn Clock>,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    locks: HashMap<Key, Lock>,
    last_token: u64,
    last_client: u64,
    notices: HashMap<u64, mpsc::UnboundedSender<(GrantId, LossReason)>>,
    unreachable: bool,
    delay: Option<Delay>,
}

/// One lock's place: names of different namespaces and kinds are apart, keys shared by choice are not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    space: &'static str,
    name: LockName,
}

#[derive(Debug)]
struct Delay {
    least: Duration,
    most: Duration,
    seed: u64,
}

impl MemoryStore {
    /// An empty store on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store on this clock; its clients' leases run on the same one.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self(Arc::new(StoreInner { clock: Arc::new(clock), state: Mutex::default() }))
    }

    /// A client with the default options.
    #[must_use]
    pub fn connect(&self) -> MemoryLocks {
        let options = crate::ClientOptions::default();
        Client::with_checked(self.backend(String::new(), options.op_timeout), options)
    }

    /// A client with these options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if an option is out of its range.
    pub fn connect_with(&self, config: MemoryConfig) -> Result<MemoryLocks, Error> {
        Client::over(self.backend(config.namespace, config.client.op_timeout), config.client)
    }

    /// Takes every lock of this name away from its holders, of every kind and namespace, and tells them; says how many
    /// grants that were.
    pub fn lose(&self, name: impl Into<LockName>) -> usize {
        let name = name.into();
        let mut state = locked(&self.0.state);
        let keys: Vec<_> = state.locks.keys().filter(|key| key.name == name).cloned().collect();
        let mut lost = 0;
        for key in keys {
            let holders = state.locks.get_mut(&key).map(Lock::remove_all).unwrap_or_default();
            lost += holders.len();
            for held in holders {
                state.tell(&held, LossReason::Taken);
            }
            self.settle(&mut state, &key);
        }
        lost
    }

    /// While `false`, every request fails with [`ErrorKind::Unavailable`].
    pub fn set_reachable(&self, reachable: bool) {
        locked(&self.0.state).unreachable = !reachable;
    }

    /// Delays every request by a time between these two, in a sequence that `seed` decides; on the store's clock. One that
    /// is delayed beyond its operation timeout is never carried out, and fails with [`ErrorKind::Indeterminate`].
    pub fn set_delay(&self, least: Duration, most: Duration, seed: u64) {
        locked(&self.0.state).delay = Some(Delay { least, most, seed });
    }

    /// Returns the number of locks with a holder or a waiter.
    #[must_use]
    pub fn used(&self) -> usize {
        locked(&self.0.state).locks.len()
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    pub(super) fn set_notices(&self, client: u64, notices: mpsc::UnboundedSender<(GrantId, LossReason)>) {
        locked(&self.0.state).notices.insert(client, notices);
    }

    pub(super) fn forget(&self, client: u64) {
        locked(&self.0.state).notices.remove(&client);
    }

    /// Carries a request to the store, through the injected delay and outage.
    pub(super) async fn reach(&self, phase: Phase) -> Result<(), Error> {
        let delay = locked(&self.0.state).delay.as_mut().map(Delay::next);
        if let Some(delay) = delay {
            self.0.clock.sleep_until(self.0.clock.now().plus(delay)).await;
        }
        if locked(&self.0.state).unreachable {
            return Err(Error::new(ErrorKind::Unavailable, phase, "the store was made unreachable"));
        }
        Ok(())
    }

    /// Works on one lock: expiry first, hand-over last.
    pub(super) fn with<R>(
        &self,
        namespace: &str,
        name: &LockName,
        kind: Kind,
        work: impl FnOnce(&mut Lock, BootInstant, &mut dyn FnMut() -> FencingToken) -> R,
    ) -> R {
        let space = if name.is_at_key() { "key" } else { kind.space() };
        let key = Key { namespace: namespace.to_owned(), space, name: name.clone() };
        let mut state = locked(&self.0.state);
        self.settle(&mut state, &key);
        let StoreState { locks, last_token, .. } = &mut *state;
        let mut fence = || next_token(last_token);
        let lock = locks.entry(key.clone()).or_default();
        let result = work(lock, self.0.clock.now(), &mut fence);
        self.settle(&mut state, &key);
        result
    }

    /// Takes one grant away and tells its holder.
    pub(super) fn take_away(
        &self,
        namespace: &str,
        name: &LockName,
        kind: Kind,
        id: GrantId,
        reason: LossReason,
    ) -> bool {
        let held = self.with(namespace, name, kind, |lock, _, _| lock.remove(id));
        match held {
            Some(held) => {
                locked(&self.0.state).tell(&held, reason);
                true
            }
            None => false,
        }
    }

    fn settle(&self, state: &mut StoreState, key: &Key) {
        let StoreState { locks, last_token, .. } = state;
        if let Some(lock) = locks.get_mut(key) {
            lock.settle(self.0.clock.now(), &mut || next_token(last_token));
            if lock.is_unused() {
                locks.remove(key);
            }
        }
    }

    pub(crate) fn backend(&self, namespace: String, op_timeout: Duration) -> MemoryBackend {
        let mut state = locked(&self.0.state);
        state.last_client += 1;
        MemoryBackend::new(self.clone(), state.last_client, namespace, op_timeout)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl StoreState {
    fn tell(&self, held: &Holding, reason: LossReason) {
        if let Some(notices) = self.notices.get(&held.client) {
            // A client that is gone has no guards to tell.
            let _ = notices.send((held.id, reason));
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
