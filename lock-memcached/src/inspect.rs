//! The operator's side: who holds, and releasing a grant by force.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};

use crate::client::cas::OwnItem;
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::error::Failure;
use crate::items::reason::ForcedReasons;
use crate::items::record::{self, HolderRecords};
use crate::slots::stored_limit;
use crate::store::keys::{self, Key, Keys, Nonce, since_1970};
use crate::store::record::HolderRecord;

/// Looks for the record of a holder that is not described yet.
const LOOKS: usize = 4;

/// Rounds of a release by force for an item that its holder renews meanwhile.
const ROUNDS: usize = 5;

/// The operator's side of one client.
#[derive(Clone)]
pub(crate) struct Inspector {
    link: Arc<Link>,
    keys: Arc<Keys>,
    records: Arc<HolderRecords>,
    reasons: Arc<ForcedReasons>,
    readers: u32,
}

#[async_trait]
impl Operator for Inspector {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let lock = self.keys.lock(name, kind)?;
        let inspected = async {
            let found = self.inspected(&lock, kind).await;
            found.map_err(|failure| self.link.error(failure, Phase::Inspect))
        };
        self.link.in_time(inspected).await
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        let inspector = self.clone();
        let lock = self.keys.lock(name, kind)?;
        let reason = (by.to_string(), why.to_owned());
        let forced = self.link.detach_on_drop(async move {
            let released = inspector.force(&lock, kind, Nonce::of(grant), reason).await;
            released.map_err(|failure| inspector.link.error(failure, Phase::Inspect))
        });
        self.link.in_time(forced).await
    }
}

impl Inspector {
    /// The operator's side of a client whose read-write locks have room for so many readers.
    pub(crate) fn new(
        link: &Arc<Link>,
        keys: &Arc<Keys>,
        records: &Arc<HolderRecords>,
        reasons: &Arc<ForcedReasons>,
        readers: u32,
    ) -> Self {
        let (records, reasons) = (records.clone(), reasons.clone());
        Self { link: link.clone(), keys: keys.clone(), records, reasons, readers }
    }

    async fn inspected(&self, lock: &Key, kind: Kind) -> Result<Inspection, Failure> {
        for look in 1.. {
            let items = self.items(lock, kind).await?;
            let numbers: Vec<_> = items.iter().filter_map(|(_, item)| Nonce::read(&item.value)).collect();
            let records = self.records.read(&numbers).await?;
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
        self.link.in_time(counted).await
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
                // Those who read may have been set up with another number than this client.
                let agreed = self.number_at(self.keys.readers.clone()).await?;
                let readers = (0..agreed.unwrap_or(self.readers)).map(|number| (true, keys::slot(lock, number)));
                [(false, keys::writer(lock))].into_iter().chain(readers).collect()
            }
            Kind::Permits { .. } => {
                let limit = self.number_at(keys::limit(lock)).await?.unwrap_or_default();
                (0..limit).map(|number| (true, keys::slot(lock, number))).collect()
            }
            _ => vec![(false, lock.clone())],
        })
    }

    /// The number of slots on which clients have agreed at this key, if they have.
    async fn number_at(&self, key: Key) -> Result<Option<u32>, Failure> {
        let found = self.link.run_one(Command::Read { key }).await.item()?;
        Ok(found.map(stored_limit).transpose()?.map(|(limit, _)| limit))
    }

    /// Notes the reason first, then releases every part: the holder finds the one when it misses the other. A renewal that comes between
    /// the look and the release changes an item, and a downgrade moves the grant to another one: all are looked at again then. `false` if
    /// the grant has nothing (any more).
    async fn force(&self, lock: &Key, kind: Kind, nonce: Nonce, why: (String, String)) -> Result<bool, Failure> {
        let keys: Vec<_> = self.keys_of(lock, kind).await?.into_iter().map(|(_, key)| key).collect();
        let (until, mut is_noted, mut released) = (self.link.deadline(), false, false);
        for _ in 0..ROUNDS {
            let found = self.link.find_own(keys.iter().map(|key| (nonce, key)), until).await;
            let mut releases = Vec::new();
            for (key, found) in keys.iter().zip(found) {
                match found {
                    Ok(None) => {}
                    Ok(Some(seen)) => {
                        let own = OwnItem { value: nonce.number(), seen };
                        releases.push(Command::Release { key: key.clone(), own });
                    }
                    Err(failure) if is_noted => return Err(self.unreleased(nonce, &keys, failure, released).await),
                    Err(failure) => return Err(failure),
                }
            }
            if releases.is_empty() {
                return Ok(self.forced(nonce, released).await);
            }
            if !is_noted {
                self.reasons.note(nonce, &why).await?;
                is_noted = true;
            }
            let (mut is_done, mut failed) = (true, None::<Failure>);
            for answer in self.link.run_by(releases, until).await {
                match answer {
                    CommandAnswer::Done(_) => released = true,
                    CommandAnswer::Failed(failure) => failed = Some(failure.beside(failed)),
                    CommandAnswer::Missing | CommandAnswer::Other | CommandAnswer::Item(_) => is_done = false,
                }
            }
            if let Some(failure) = failed {
                return Err(self.unreleased(nonce, &keys, failure, released).await);
            }
            if is_done {
                return Ok(self.forced(nonce, released).await);
            }
        }
        let busy = Failure::busy("the grant is renewed all the time, and was not released");
        Err(self.unreleased(nonce, &keys, busy, released).await)
    }

    /// Forgets the holder of a grant of which something was released, and nothing is left; whether that is so.
    async fn forced(&self, nonce: Nonce, released: bool) -> bool {
        if released {
            self.link.run_one(self.records.forget(nonce)).await;
        }
        released
    }

    /// The failure of a release by force of which a reason was noted. That does not stay if the grant is seen to live on: a later loss
    /// would be told as this one. If it is gone, another operator's reason may be in the place of ours.
    async fn unreleased(&self, nonce: Nonce, keys: &[Key], failure: Failure, released: bool) -> Failure {
        if released {
            return failure.partly_done();
        }
        if !failure.is_unknown {
            let found = self.link.find_own(keys.iter().map(|key| (nonce, key)), self.link.deadline()).await;
            if found.iter().any(|found| matches!(found, Ok(Some(_)))) {
                self.reasons.forget(nonce).await;
            }
        }
        failure
    }
}

/// Returns one holder for each number, with as many permits as it has items; the earliest first. A writer that waits for the readers
/// that are there is no holder yet.
pub(crate) fn told(items: &[(bool, Item)], records: &HashMap<Nonce, HolderRecord>) -> Inspection {
    let now = since_1970();
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
