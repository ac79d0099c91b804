//! The backend that `docs/writing-a-backend.md` builds: the mutex on a shelf of expiring entries.
//!
//! The shelf stands for a server that can do one compare-and-set on one key, as most stores can. It has no queue and
//! no push, so waiting is left to the core's poll.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Grant, MutexBackend, Released, Renewal, Renewed, async_trait};
use lock_core::{Client, ClientOptions, Error, FencingToken, GrantId, Guarantees, Locks, LossReason, Support};

/// The server: entries with an owner and an end. Clones are the same shelf.
#[derive(Debug, Clone, Default)]
pub struct Shelf(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<String, Entry>,
    last_token: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: GrantId,
    token: FencingToken,
    ends: BootInstant,
}

impl Shelf {
    /// Puts an entry where there is none; the same id finds its entry again.
    fn put(&self, key: &str, id: GrantId, ttl: Duration) -> Option<(FencingToken, Duration)> {
        self.with(|entries, now| {
            if let Some(entry) = entries.by_key.get(key) {
                return (entry.id == id).then(|| (entry.token, entry.ends.since(now)));
            }
            entries.last_token += 1;
            let token = FencingToken::new(entries.last_token)?;
            entries.by_key.insert(key.to_owned(), Entry { id, token, ends: now.plus(ttl) });
            Some((token, ttl))
        })
    }

    /// Moves the end of an entry, if it is this id's; never to an earlier instant.
    fn extend(&self, key: &str, id: GrantId, ttl: Duration) -> bool {
        self.with(|entries, now| match entries.by_key.get_mut(key) {
            Some(entry) if entry.id == id => {
                entry.ends = entry.ends.max(now.plus(ttl));
                true
            }
            _ => false,
        })
    }

    /// Removes an entry, if it is this id's.
    fn remove(&self, key: &str, id: GrantId) -> bool {
        self.with(|entries, _| match entries.by_key.get(key) {
            Some(entry) if entry.id == id => entries.by_key.remove(key).is_some(),
            _ => false,
        })
    }

    /// Every key in use: the ground truth of the tests.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.with(|entries, _| entries.by_key.keys().cloned().collect())
    }

    /// Removes an entry whoever has it, as an operator could.
    pub fn delete(&self, key: &str) {
        self.with(|entries, _| entries.by_key.remove(key));
    }

    fn with<R>(&self, work: impl FnOnce(&mut Entries, BootInstant) -> R) -> R {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemClock.now();
        entries.by_key.retain(|_, entry| entry.ends > now);
        work(&mut entries, now)
    }
}

/// One client's connection to a [`Shelf`].
#[derive(Debug)]
pub struct ShelfBackend {
    shelf: Shelf,
}

/// The key of a lock's entry: kinds apart from each other, foreign keys as they are.
fn key(attempt: &Attempt) -> String {
    if attempt.name.is_key() {
        return attempt.name.to_string();
    }
    format!("lock:{}:{}", attempt.kind.space(), attempt.name)
}

#[async_trait]
impl Backend for ShelfBackend {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.fencing = Support::Yes;
        guarantees
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let renew = |Renewal { attempt, ttl, .. }: &Renewal<'_>| {
            if self.shelf.extend(&key(attempt), attempt.id, *ttl) {
                Renewed::For(*ttl)
            } else {
                Renewed::Lost(LossReason::Taken)
            }
        };
        batch.iter().map(renew).collect()
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        Ok(match self.shelf.remove(&key(attempt), attempt.id) {
            true => Released::Done,
            false => Released::NotHeld(None),
        })
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.shelf.remove(&key(attempt), attempt.id);
        Ok(Cancelled::Settled)
    }
}

#[async_trait]
impl MutexBackend for ShelfBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let sent_at = self.clock().now();
        let grant = self.shelf.put(&key(attempt), attempt.id, attempt.ttl);
        Ok(grant.map(|(token, valid_for)| Grant::new(Some(token), sent_at, valid_for)))
    }
}

/// Locks on a [`Shelf`].
pub type ShelfLocks = Client<ShelfBackend>;

/// Connects a client to this shelf.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) if an option is out of its range.
pub fn connect(shelf: &Shelf, options: ClientOptions) -> Result<ShelfLocks, Error> {
    Client::new(ShelfBackend { shelf: shelf.clone() }, options)
}

/// The erased form, for applications that choose at run time.
#[must_use]
pub fn erase(client: &ShelfLocks) -> Locks {
    Locks::new(client)
}
