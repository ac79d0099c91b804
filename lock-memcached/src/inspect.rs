//! The operator's side: who holds, and freeing a grant by force.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, LossReason, Owner, Phase, Waiter};

use crate::backend::{MemcachedBackend, Shared};
use crate::client::cas::OwnItem;
use crate::client::command::{Command, CommandAnswer, Item};
use crate::client::detach_on_drop::detach_on_drop;
use crate::error::Failure;
use crate::registry::Entry;
use crate::store::keys::{self, Key};
use crate::store::nonce::Nonce;
use crate::store::record::{self, HolderRecord};
use crate::store::ttl;

/// How often a holder is looked for that is not described yet.
const LOOKS: usize = 4;

#[async_trait]
impl Operator for MemcachedBackend {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let shared = &self.shared;
        let lock = shared.keys.lock(name, kind)?;
        let inspected = async {
            let found = shared.inspected(&lock, kind).await;
            found.map_err(|failure| shared.link.error(failure, Phase::Inspect))
        };
        shared.in_time(inspected).await
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        let shared = self.shared.clone();
        let lock = shared.keys.lock(name, kind)?;
        let reason = (by.to_string(), why.to_owned());
        let forced = detach_on_drop(async move {
            let freed = shared.force(&lock, kind, Nonce::of(grant), reason).await;
            freed.map_err(|failure| shared.link.error(failure, Phase::Inspect))
        });
        self.shared.in_time(forced).await
    }
}

impl Shared {
    async fn inspected(&self, lock: &Key, kind: Kind) -> Result<Inspection, Failure> {
        for look in 1.. {
            let items = self.items(lock, kind).await?;
            let numbers: Vec<_> = items.iter().filter_map(|(_, item)| Nonce::read(&item.value)).collect();
            let records = self.records(&numbers).await?;
            // A grant is described a moment after it was granted.
            if numbers.iter().all(|nonce| records.contains_key(nonce)) || look == LOOKS {
                return Ok(told(&items, &records));
            }
            SystemClock.sleep_until(SystemClock.now().plus(record::AFTER * 4)).await;
        }
        Ok(Inspection::default())
    }

    /// The number of items that hold a part of a semaphore, each of which is a permit.
    pub(crate) async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let kind = Kind::Permits { permits: 1, limit };
        let lock = self.keys.lock(name, kind)?;
        let counted = async {
            let items = self.items(&lock, kind).await;
            items.map(|items| items.len() as u64).map_err(|failure| self.link.error(failure, Phase::Inspect))
        };
        self.in_time(counted).await
    }

    /// Every item that holds a part of the lock, and whether that part is shared.
    async fn items(&self, lock: &Key, kind: Kind) -> Result<Vec<(bool, Item)>, Failure> {
        let keys = self.keys_of(lock, kind).await?;
        let reads = keys.iter().map(|(_, key)| Command::Read { key: key.clone() });
        let answers = self.link.run(reads.collect()).await;
        let mut items = Vec::new();
        for ((shared, _), answer) in keys.iter().zip(answers) {
            items.extend(answer.item()?.map(|item| (*shared, item)));
        }
        Ok(items)
    }

    /// The keys of a lock's holders, and whether others may hold it beside them.
    async fn keys_of(&self, lock: &Key, kind: Kind) -> Result<Vec<(bool, Key)>, Failure> {
        Ok(match kind {
            Kind::Read | Kind::Write => {
                let readers = (0..self.readers).map(|number| (true, keys::slot(lock, number)));
                [(false, keys::writer(lock))].into_iter().chain(readers).collect()
            }
            Kind::Permits { .. } => {
                let limit = self.limit(lock).await?.unwrap_or_default();
                (0..limit).map(|number| (true, keys::slot(lock, number))).collect()
            }
            _ => vec![(false, lock.clone())],
        })
    }

    async fn records(&self, numbers: &[Nonce]) -> Result<HashMap<Nonce, HolderRecord>, Failure> {
        let reads = numbers.iter().map(|nonce| Command::Read { key: self.keys.holder(*nonce) });
        let answers = self.link.run(reads.collect()).await;
        let mut records = HashMap::new();
        for (nonce, answer) in numbers.iter().zip(answers) {
            if let Some(item) = answer.item()?
                && let Ok(record) = serde_json::from_slice(&item.value)
            {
                records.insert(*nonce, record);
            }
        }
        Ok(records)
    }

    /// Leaves the reason first, then frees every part: the holder finds the one when it misses the other.
    async fn force(&self, lock: &Key, kind: Kind, nonce: Nonce, why: (String, String)) -> Result<bool, Failure> {
        let keys = self.keys_of(lock, kind).await?;
        let found = self.find_own(keys.iter().map(|(_, key)| (nonce, key))).await;
        let mut releases = Vec::new();
        for ((_, key), found) in keys.iter().zip(found) {
            let own = found?.map(|seen| OwnItem { value: nonce.number(), seen });
            releases.extend(own.map(|own| Command::Release { key: key.clone(), own }));
        }
        if releases.is_empty() {
            return Ok(false);
        }
        let text = serde_json::to_string(&why).unwrap_or_default();
        let seconds = ttl::seconds(self.longest_lease);
        let note = Command::Note { key: self.keys.forced(nonce), text, seconds };
        if let CommandAnswer::Failed(failure) = self.link.run_one(note).await {
            return Err(failure);
        }
        let mut freed = false;
        for answer in self.link.run(releases).await {
            match answer {
                CommandAnswer::Failed(failure) => return Err(failure),
                answer => freed |= matches!(answer, CommandAnswer::Done(_)),
            }
        }
        if freed {
            self.link.run_one(Command::Forget { key: self.keys.holder(nonce) }).await;
        }
        Ok(freed)
    }

    /// Why each of these grants, which are gone, was freed by force, if it was.
    pub(crate) async fn forced(&self, grants: impl Iterator<Item = Nonce>) -> Vec<Option<LossReason>> {
        let reads = grants.map(|nonce| Command::Read { key: self.keys.forced(nonce) });
        self.link.run(reads.collect()).await.into_iter().map(reason).collect()
    }

    /// Forgets who held, in the background, unless that was done with the release.
    pub(crate) fn forget_holder(self: &Arc<Self>, entry: &Entry) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && entry.hide()
        {
            let (shared, forget) = (self.clone(), self.forget(entry));
            runtime.spawn(async move { shared.link.run_one(forget).await });
        }
    }

    /// Forgets who held.
    pub(crate) fn forget(&self, entry: &Entry) -> Command {
        Command::Forget { key: self.keys.holder(entry.nonce) }
    }
}

/// By whom and why a grant was freed by force, out of what was left for its holder.
pub(crate) fn reason(answer: CommandAnswer) -> Option<LossReason> {
    let (by, reason) = serde_json::from_slice(&answer.item().ok()??.value).ok()?;
    Some(LossReason::ForceReleased { by, reason })
}

/// One holder for each number, with as many permits as it has items; the earliest first. A writer that waits for the readers
/// that are there is no holder yet.
pub(crate) fn told(items: &[(bool, Item)], records: &HashMap<Nonce, HolderRecord>) -> Inspection {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut inspection = Inspection::default();
    let mut holders: Vec<(Option<Nonce>, Holder)> = Vec::new();
    let are_shared = items.iter().any(|(shared, _)| *shared);
    for (shared, item) in items {
        let nonce = Nonce::read(&item.value);
        let record = nonce.and_then(|nonce| records.get(&nonce));
        if let (false, true, Some(record)) = (*shared, are_shared, record.filter(|record| record.waits)) {
            let mut waiter = Waiter::new(record.grant);
            waiter.owner = Some(record.owner.clone());
            waiter.waiting_for = Some(now.saturating_sub(Duration::from_millis(record.since)));
            inspection.waiters.push(waiter);
            continue;
        }
        if let Some((_, known)) = holders.iter_mut().find(|(known, _)| nonce.is_some() && *known == nonce) {
            known.permits += 1;
            continue;
        }
        let mut holder = Holder::unknown();
        holder.shared = *shared;
        holder.expires_in = u64::try_from(item.left).ok().map(Duration::from_secs);
        if let Some(record) = record {
            holder.grant = Some(record.grant);
            holder.owner = Some(record.owner.clone());
            holder.token = record.token;
            holder.held_for = Some(now.saturating_sub(Duration::from_millis(record.since)));
        }
        holders.push((nonce, holder));
    }
    inspection.holders = holders.into_iter().map(|(_, holder)| holder).collect();
    inspection.holders.sort_by_key(|holder| holder.token);
    inspection
}
