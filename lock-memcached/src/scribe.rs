//! For `inspect`: who holds, in an item beside the lock's.
//!
//! A lock's own item has room for a number only. A grant that lasts is described in one more item, by one task per client,
//! a moment after it was granted: short holds cost nothing. It is best effort: no lock depends on it.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::backend::{Attempt, Grant};
use lock_core::clock::{Clock, SystemClock};
use lock_core::{GrantId, Owner};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::backend::Shared;
use crate::connection::command::Command;
use crate::grants::Entry;
use crate::wire;

/// How long a grant has to last until it is described.
pub(crate) const AFTER: Duration = Duration::from_millis(5);

/// How many descriptions are sent at once at most.
const BATCH: usize = 128;

/// What is known of a holder, beside its number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Card {
    pub(crate) grant: GrantId,
    pub(crate) owner: Owner,
    pub(crate) token: Option<u64>,
    /// Since when, in ms since 1970 by the holder's clock.
    pub(crate) since: u64,
}

/// The way to the task that describes grants.
#[derive(Debug, Default)]
pub(crate) struct Scribe(Mutex<Option<mpsc::UnboundedSender<Task>>>);

#[derive(Debug)]
struct Task {
    entry: Weak<Entry>,
    token: Option<u64>,
    since: u64,
    ttl: Duration,
}

impl Scribe {
    /// Starts the task, which ends with the client.
    pub(crate) fn start(&self, shared: &Arc<Shared>) {
        let (sender, tasks) = mpsc::unbounded_channel();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        tokio::spawn(write_all(Arc::downgrade(shared), tasks));
    }

    fn describe(&self, task: Task) {
        if let Some(sender) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // The task ends with its runtime: then nothing is described any more.
            let _ = sender.send(task);
        }
    }
}

impl Shared {
    /// Has a grant described, if it is one and lasts.
    pub(crate) fn shown(&self, attempt: &Attempt, entry: &Arc<Entry>, granted: Option<Grant>) -> Option<Grant> {
        if let Some(grant) = &granted {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let since = u64::try_from(since).unwrap_or_default();
            let token = grant.token.map(lock_core::FencingToken::as_u64);
            self.scribe.describe(Task { entry: Arc::downgrade(entry), token, since, ttl: attempt.ttl });
        }
        granted
    }
}

async fn write_all(shared: Weak<Shared>, mut tasks: mpsc::UnboundedReceiver<Task>) {
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
            let card = Card { grant: entry.grant, owner: entry.owner.clone(), token: task.token, since: task.since };
            let text = serde_json::to_string(&card).ok()?;
            Some(Command::Note { key: self.keys.holder(entry.nonce), text, seconds: wire::seconds(task.ttl) })
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
