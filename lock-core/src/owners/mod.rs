//! The owners that use the locks of one client: one record for each lock and owner, as long as anybody has it.

mod entry;
mod gate;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, Weak};

pub(crate) use entry::{Entry, Silence};
pub(crate) use gate::GateTurn;

use crate::lease::LiveGrant;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::sync::locked;

/// The grant of an owner's use of a read-write lock, once there is one.
pub(crate) type UsedGrant = OnceLock<Weak<LiveGrant>>;

/// The owners that use the locks of one client.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The owners that are inside reentrant locks, or ask for them.
    pub(crate) inside: OwnerTable<Entry>,
    /// The explicit owners that use read-write locks.
    pub(crate) uses: OwnerTable<UsedGrant>,
}

/// A lock, and the id of an owner.
type OwnerKey = (LockName, GrantId);

type Records<T> = Mutex<HashMap<OwnerKey, Weak<Owned<T>>>>;

/// The records of one type. One that nobody has any more is forgotten.
#[derive(Debug)]
pub(crate) struct OwnerTable<T>(Arc<Records<T>>);

impl<T: Default> OwnerTable<T> {
    /// The owner's record at this lock, which all who ask share.
    pub(crate) fn shared(&self, name: &LockName, owner: GrantId) -> Arc<Owned<T>> {
        let key = (name.clone(), owner);
        let mut records = locked(&self.0);
        match records.get(&key).and_then(Weak::upgrade) {
            Some(known) => known,
            None => self.insert(&mut records, key),
        }
    }

    /// A new record of the owner at this lock; `None` if there is one that is in use.
    pub(crate) fn exclusive(
        &self,
        name: &LockName,
        owner: GrantId,
        in_use: impl FnOnce(&T) -> bool,
    ) -> Option<Arc<Owned<T>>> {
        let key = (name.clone(), owner);
        // Declared first, so dropped last: a record that goes locks the table.
        let known;
        let mut records = locked(&self.0);
        known = records.get(&key).and_then(Weak::upgrade);
        if known.as_ref().is_some_and(|known| in_use(&known.record)) {
            return None;
        }
        Some(self.insert(&mut records, key))
    }

    fn insert(&self, records: &mut HashMap<OwnerKey, Weak<Owned<T>>>, key: OwnerKey) -> Arc<Owned<T>> {
        let owned = Arc::new(Owned { record: T::default(), key: key.clone(), table: self.0.clone() });
        records.insert(key, Arc::downgrade(&owned));
        owned
    }
}

impl<T> Default for OwnerTable<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// A record of an owner at a lock.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    record: T,
    key: OwnerKey,
    table: Arc<Records<T>>,
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.record
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        let mut records = locked(&self.table);
        // Another record may have taken the place since the last reference went.
        if records.get(&self.key).is_some_and(|record| record.strong_count() == 0) {
            records.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    #[tokio::test]
    async fn an_owner_that_holds_nothing_is_forgotten() {
        let locks = crate::MemoryLocks::new();
        let (tree, config) = (locks.reentrant("tree"), locks.rwlock("config"));
        let Owners { inside, uses } = &locks.core().owners;
        for owner in [Owner::new(), Owner::new()] {
            let guard = tree.lock(&owner).await.unwrap();
            let read = config.clone().with_owner(owner).read().await.unwrap();
            assert_eq!((locked(&inside.0).len(), locked(&uses.0).len()), (1, 1));
            guard.release().await.unwrap();
            read.release().await.unwrap();
            assert!(locked(&inside.0).is_empty() && locked(&uses.0).is_empty());
        }
    }

    #[test]
    fn a_record_that_has_been_replaced_leaves_its_successor_alone() {
        let (table, name, owner) = (OwnerTable::<()>::default(), "a".into(), GrantId::random().unwrap());
        let lost = table.exclusive(&name, owner, |()| true).unwrap();
        assert!(table.exclusive(&name, owner, |()| true).is_none());
        let successor = table.exclusive(&name, owner, |()| false).unwrap();
        drop(lost);
        assert!(table.exclusive(&name, owner, |()| true).is_none());
        drop(successor);
        assert!(locked(&table.0).is_empty());
    }
}
