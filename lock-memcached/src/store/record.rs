//! For `inspect`: who holds, in an item beside the lock's.
//!
//! A lock's own item has room for a number only. A grant that lasts is described in one more item, by one task per client,
//! a moment after it was granted: short holds cost nothing. It is best effort: no lock depends on it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{GrantId, Owner};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::backend::Shared;
use crate::client::command::Command;
use crate::registry::Entry;
use crate::store::ttl;

/// How long a grant has to last until it is described.
pub(crate) const AFTER: Duration = Duration::from_millis(5);

/// How many descriptions are sent at once at most.
const BATCH: usize = 128;

/// The most grants that wait to be described. One more is not described.
const WAITING: usize = 1024;

/// What is known of a holder, beside its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HolderRecord {
    pub(crate) grant: GrantId,
    pub(crate) owner: Owner,
    pub(crate) token: Option<u64>,
    /// Since when, in ms since 1970 by the holder's clock.
    pub(crate) since: u64,
    /// Whether it waits for others to leave.
    #[serde(default)]
    pub(crate) waits: bool,
}

/// The way to the task that describes grants. It ends with its runtime, and is started again on that of the next grant.
#[derive(Debug, Default)]
pub(crate) struct HolderInfoWriter(Mutex<Option<mpsc::Sender<Task>>>);

#[derive(Debug)]
struct Task {
    entry: Weak<Entry>,
    token: Option<u64>,
    since: u64,
    waits: bool,
    ttl: Duration,
}

impl HolderInfoWriter {
    fn describe(&self, shared: &Arc<Shared>, task: Task) {
        let mut way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = way.take().filter(|sender| !sender.is_closed());
        let sender = running.or_else(|| {
            let runtime = tokio::runtime::Handle::try_current().ok()?;
            let (sender, tasks) = mpsc::channel(WAITING);
            runtime.spawn(write_all(Arc::downgrade(shared), tasks));
            Some(sender)
        });
        if let Some(sender) = &sender {
            // If it has just ended, or has too many before it, this one is not described: it is best effort.
            let _ = sender.try_send(task);
        }
        *way = sender;
    }
}

impl Shared {
    /// Has a grant described, if it is one and lasts.
    pub(crate) fn described(
        self: &Arc<Self>,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        granted: Option<Grant>,
    ) -> Option<Grant> {
        if let Some(grant) = &granted {
            self.describe(attempt, entry, grant.token.map(lock_core::FencingToken::as_u64), false);
        }
        granted
    }

    /// Has a writer described that keeps others out while it waits for readers.
    pub(crate) fn describe_waiting(self: &Arc<Self>, attempt: &Attempt, entry: &Arc<Entry>) {
        self.describe(attempt, entry, None, true);
    }

    fn describe(self: &Arc<Self>, attempt: &Attempt, entry: &Arc<Entry>, token: Option<u64>, waits: bool) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let since = u64::try_from(since).unwrap_or_default();
        let task = Task { entry: Arc::downgrade(entry), token, since, waits, ttl: attempt.ttl };
        self.holder_info.describe(self, task);
    }
}

async fn write_all(shared: Weak<Shared>, mut tasks: mpsc::Receiver<Task>) {
    while let Some(first) = tasks.recv().await {
        SystemClock.sleep_until(SystemClock.now().plus(AFTER)).await;
        let mut held: Vec<_> = first.held().into_iter().collect();
        // Short holds are over by now: however many there were, none of them is left waiting.
        while held.len() < BATCH
            && let Ok(task) = tasks.try_recv()
        {
            held.extend(task.held());
        }
        let Some(shared) = shared.upgrade() else { return };
        shared.write(held).await;
    }
}

impl Task {
    /// The grant's entry, if it is still held.
    fn held(self) -> Option<(Arc<Entry>, Self)> {
        let entry = self.entry.upgrade().filter(|entry| !entry.is_empty())?;
        Some((entry, self))
    }
}

impl Shared {
    async fn write(&self, held: Vec<(Arc<Entry>, Task)>) {
        let notes = held.iter().filter_map(|(entry, task)| {
            entry.show();
            let (grant, owner) = (entry.grant, entry.owner.clone());
            let record = HolderRecord { grant, owner, token: task.token, since: task.since, waits: task.waits };
            let text = serde_json::to_string(&record).ok()?;
            Some(Command::Note { key: self.keys.holder(entry.nonce), text, seconds: ttl::seconds(task.ttl) })
        });
        let notes: Vec<_> = notes.collect();
        if notes.is_empty() {
            return;
        }
        self.link.run(notes).await;
        // What was given back meanwhile may have been described after it was forgotten.
        let over = held.iter().filter(|(entry, _)| entry.is_empty());
        let forget: Vec<_> = over.map(|(entry, _)| self.forget(entry)).collect();
        if !forget.is_empty() {
            self.link.run(forget).await;
        }
    }
}
