//! The queues that listings show. Those who asked together share one listing, and the first of them reads it for all: a thousand readers
//! behind a writer would otherwise read a thousand names each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use lock_core::Error;

use crate::client::Names;
use crate::store::layout::LockPaths;
use crate::store::node::{Contender, Dialect, Role};
use crate::wait::contention::ListedQueue;

/// The listings of a client, of which one is kept as long as somebody has not read it yet.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<Option<SharedQueue>>);

/// The queue that a listing shows.
#[derive(Debug)]
struct SharedQueue {
    names: Weak<Vec<String>>,
    dialect: Dialect,
    role: Role,
    queue: Arc<ListedQueue<Contender>>,
}

impl SharedQueue {
    /// Whether it is what this lock's listing shows.
    fn is_of(&self, lock: &LockPaths, names: &Names) -> bool {
        // Readers and writers stand in one queue.
        let among = |role| if role == Role::Read { Role::Write } else { role };
        // No other listing can be at this address while there is a `Weak` of it.
        self.names.as_ptr() == Arc::as_ptr(names)
            && self.dialect == lock.dialect
            && among(self.role) == among(lock.role)
    }
}

impl Listings {
    /// Returns the contenders in a queue by their names.
    ///
    /// # Errors
    /// Those of [`LockPaths::queue`].
    pub(crate) fn queue(&self, lock: &LockPaths, names: Names) -> Result<Arc<ListedQueue<Contender>>, Error> {
        let mut last = self.last();
        let known = last.as_ref().filter(|known| known.is_of(lock, &names)).map(|known| known.queue.clone());
        match (known, Arc::try_unwrap(names)) {
            (Some(queue), names) => {
                if names.is_ok() {
                    // Nobody else has it yet to read.
                    *last = None;
                }
                Ok(queue)
            }
            (None, Ok(names)) => {
                drop(last);
                Ok(Arc::new(ListedQueue::new(lock.queue(names)?)))
            }
            // The others wait meanwhile for what they need.
            (None, Err(names)) => {
                let queue = Arc::new(ListedQueue::new(lock.queue(Vec::clone(&names))?));
                let (dialect, role) = (lock.dialect, lock.role);
                *last = Some(SharedQueue { names: Arc::downgrade(&names), dialect, role, queue: queue.clone() });
                Ok(queue)
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<SharedQueue>> {
        // Every critical section leaves it valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::driver::Kind;

    use super::*;
    use crate::store::layout::Layout;

    fn lock(kind: Kind) -> LockPaths {
        let layout = Layout { prefix: "lock".to_owned(), dialects: Vec::new(), access_bytes: 0 };
        LockPaths::of(&layout, &"shared".into(), kind).unwrap()
    }

    fn names() -> Names {
        let stem = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-__READ__";
        Arc::new(vec![format!("{stem}0000000002"), format!("{stem}0000000001")])
    }

    #[test]
    fn a_shared_listing_is_read_once_and_forgotten_when_all_have_read_it() {
        let (listings, names) = (Listings::default(), names());
        let first = listings.queue(&lock(Kind::Read), names.clone()).unwrap();
        assert_eq!(first.members().iter().map(|contender| contender.number).collect::<Vec<_>>(), [1, 2]);
        let second = listings.queue(&lock(Kind::Write), names.clone()).unwrap();
        assert!(Arc::ptr_eq(&first, &second), "it was read twice");
        assert!(listings.last().is_some());
        let third = listings.queue(&lock(Kind::Read), names).unwrap();
        assert!(Arc::ptr_eq(&first, &third) && listings.last().is_none());
    }

    #[test]
    fn a_listing_is_taken_for_no_other_one_nor_for_that_of_another_kind_of_lock() {
        let (listings, one, other) = (Listings::default(), names(), names());
        let first = listings.queue(&lock(Kind::Read), one.clone()).unwrap();
        assert!(!Arc::ptr_eq(&first, &listings.queue(&lock(Kind::Read), other.clone()).unwrap()));
        listings.queue(&lock(Kind::Mutex), other).unwrap_err();
        drop(one);
    }

    #[test]
    fn a_listing_of_one_alone_is_not_kept() {
        let listings = Listings::default();
        listings.queue(&lock(Kind::Read), names()).unwrap();
        assert!(listings.last().is_none());
    }
}
