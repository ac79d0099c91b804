//! Records of holders for `inspect`, in items beside the lock's: when they are written, kept and forgotten.
//!
//! A lock's own item has room for a number only. A grant that lasts is described in one more item, by one task per client,
//! a moment after it was granted: short holds cost nothing. It is best effort: no lock depends on it. A description that did not get
//! through is sent again when the grant is renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{GrantId, Owner};
use tokio::sync::mpsc;

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::error::Failure;
use crate::registry::{Description, Entry};
use crate::store::keys::{Keys, Nonce, item_ttl, since_1970};
use crate::store::record::HolderRecord;

/// Time that a grant has to last until it is described.
pub(crate) const AFTER: Duration = Duration::from_millis(5);

/// Most records that are written at once.
const BATCH: usize = 128;

/// The most grants that wait to be described. One more is described when it is renewed.
const WAITING: usize = 1024;

/// The time beyond an operation timeout after which a task that has not come to what waits is left alone, and another one started. It goes on
/// with what it has, if it is driven again.
const LEFT_AFTER: Duration = Duration::from_secs(1);

/// The records of this client's holders.
pub(crate) struct HolderRecords {
    link: Arc<Link>,
    keys: Arc<Keys>,
    /// The task that writes. It ends with its runtime, or is left with it, and is started again on that of the next grant.
    writer: Mutex<Option<RecordWriter>>,
}

/// The way to the task that writes records.
#[derive(Debug)]
struct RecordWriter {
    tasks: mpsc::Sender<RecordTask>,
    /// The last instant at which nothing waited for it.
    idle_at: BootInstant,
}

#[derive(Debug)]
struct RecordTask {
    entry: Weak<Entry>,
}

/// A holder that is to be described.
struct Undescribed {
    entry: Arc<Entry>,
    description: Description,
}

impl HolderRecords {
    pub(crate) fn new(link: &Arc<Link>, keys: &Arc<Keys>) -> Arc<Self> {
        let (link, keys) = (link.clone(), keys.clone());
        Arc::new(Self { link, keys, writer: Mutex::default() })
    }

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
        entry.describe(Description { token, since: now_in_ms(), waits, seconds: item_ttl(attempt.ttl) });
        self.write_soon(entry);
    }

    /// Has what is to be said of a holder written in the background.
    fn write_soon(self: &Arc<Self>, entry: &Arc<Entry>) {
        let task = RecordTask { entry: Arc::downgrade(entry) };
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemClock.now();
        // It may wait for its answers.
        let left_after = self.link.deadline().since(now) + LEFT_AFTER;
        let running = writer.take().filter(|writer| writer.goes_on(now, left_after));
        let mut next = running.or_else(|| {
            let runtime = tokio::runtime::Handle::try_current().ok()?;
            let (sender, tasks) = mpsc::channel(WAITING);
            runtime.spawn(write_all(Arc::downgrade(self), tasks));
            Some(RecordWriter { tasks: sender, idle_at: now })
        });
        if let Some(next) = &mut next {
            next.send(task, now);
        }
        *writer = next;
    }

    /// Keeps a grant's record for as long as the grant, if it has one. One that did not get through is sent again.
    pub(crate) fn keep(self: &Arc<Self>, entry: &Arc<Entry>, seconds: u32) -> Option<Command> {
        if let Some(description) = entry.to_describe() {
            // What is on its way may end sooner.
            entry.describe(Description { seconds, ..description });
            self.write_soon(entry);
        }
        entry.is_shown().then(|| Command::Keep { key: self.keys.holder(entry.nonce), seconds })
    }

    /// Deletes a grant's record.
    pub(crate) fn forget(&self, nonce: Nonce) -> Command {
        Command::Forget { key: self.keys.holder(nonce) }
    }

    /// Deletes a grant's record in the background, unless that was done with the release.
    pub(crate) fn forget_soon(&self, entry: &Entry) {
        if entry.hide() {
            self.forget_number_soon(entry.nonce);
        }
    }

    /// Deletes the record of a grant of another client in the background.
    pub(crate) fn forget_number_soon(&self, nonce: Nonce) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (link, forget, until) = (self.link.clone(), self.forget(nonce), self.link.deadline());
            runtime.spawn(async move { link.run_with_others(vec![forget], until).await });
        }
    }

    /// Describes a grant in the background under the id under which it was left for this time.
    pub(crate) fn left_soon(self: &Arc<Self>, entry: &Entry, left: GrantId, time: Duration) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            entry.hide();
            let (records, nonce, owner) = (self.clone(), entry.nonce, entry.owner.clone());
            runtime.spawn(async move { records.left(nonce, owner, left, time).await });
        }
    }

    async fn left(&self, nonce: Nonce, owner: Owner, left: GrantId, time: Duration) {
        let before = self.read(&[nonce]).await.ok().and_then(|mut records| records.remove(&nonce));
        // A short hold was not described.
        let new = HolderRecord { grant: left, owner, token: None, since: now_in_ms(), waits: false };
        let record = before.map_or(new, |before| HolderRecord { grant: left, ..before });
        let (key, seconds) = (self.keys.holder(Nonce::of(left)), item_ttl(time));
        let note = record.text().map(|text| Command::Note { key, text, seconds });
        self.link.run(note.into_iter().chain([self.forget(nonce)]).collect()).await;
    }

    /// Reads the records of these grants.
    pub(crate) async fn read(&self, grants: &[Nonce]) -> Result<HashMap<Nonce, HolderRecord>, Failure> {
        let reads = grants.iter().map(|nonce| Command::Read { key: self.keys.holder(*nonce) });
        let answers = self.link.run(reads.collect()).await;
        let mut records = HashMap::new();
        for (nonce, answer) in grants.iter().zip(answers) {
            if let Some(item) = answer.item()?
                && let Some(record) = HolderRecord::read(&item.value)
            {
                records.insert(*nonce, record);
            }
        }
        Ok(records)
    }

    async fn write(&self, held: Vec<Undescribed>) {
        let notes = held.iter().filter_map(|holder| {
            let Undescribed { entry, description: Description { token, since, waits, seconds } } = holder;
            entry.show();
            let record = HolderRecord {
                grant: entry.grant,
                owner: entry.owner.clone(),
                token: *token,
                since: *since,
                waits: *waits,
            };
            let text = record.text()?;
            Some((holder, Command::Note { key: self.keys.holder(entry.nonce), text, seconds: *seconds }))
        });
        let (noted, notes): (Vec<_>, Vec<_>) = notes.unzip();
        if notes.is_empty() {
            return;
        }
        for (holder, answer) in noted.into_iter().zip(self.link.run(notes).await) {
            if matches!(answer, CommandAnswer::Done(_)) {
                holder.entry.described(holder.description);
            }
        }
        // What was released meanwhile may have been described after it was forgotten.
        let over = held.iter().filter(|holder| holder.entry.is_empty());
        let forget: Vec<_> = over.map(|holder| self.forget(holder.entry.nonce)).collect();
        if !forget.is_empty() {
            self.link.run(forget).await;
        }
    }
}

/// The present time, in ms since 1970.
fn now_in_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or_default()
}

impl RecordWriter {
    /// Whether it has not ended, and comes to what waits for it: nobody may drive its runtime any more.
    fn goes_on(&self, now: BootInstant, left_after: Duration) -> bool {
        !self.tasks.is_closed() && (self.is_idle() || now.since(self.idle_at) < left_after)
    }

    fn is_idle(&self) -> bool {
        self.tasks.capacity() == self.tasks.max_capacity()
    }

    /// Queues a grant to be described; not if the task has just ended or its queue is full: a renewal does so again.
    fn send(&mut self, task: RecordTask, now: BootInstant) {
        if self.is_idle() {
            self.idle_at = now;
        }
        let _ = self.tasks.try_send(task);
    }
}

async fn write_all(records: Weak<HolderRecords>, mut tasks: mpsc::Receiver<RecordTask>) {
    while let Some(first) = tasks.recv().await {
        SystemClock.sleep_until(SystemClock.now().plus(AFTER)).await;
        let mut held: Vec<_> = first.held().into_iter().collect();
        // Short holds are over by now: however many there were, none of them is left waiting.
        while held.len() < BATCH
            && let Ok(task) = tasks.try_recv()
        {
            held.extend(task.held());
        }
        let Some(records) = records.upgrade() else { return };
        records.write(held).await;
    }
}

impl RecordTask {
    /// The grant, if it is still held and has not been described since.
    fn held(self) -> Option<Undescribed> {
        let entry = self.entry.upgrade().filter(|entry| !entry.is_empty())?;
        let description = entry.to_describe()?;
        Some(Undescribed { entry, description })
    }
}
