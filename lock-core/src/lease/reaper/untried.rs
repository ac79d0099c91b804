//! The locks that this client is to release in the background, until that was tried once.
//!
//! A try of the same client may be refused because of them: a task that drops a guard and tries again at once finds its own lock in
//! the way.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::driver::{Attempt, Kind};
use crate::name::LockName;
use crate::sync::locked;

/// The jobs that were not tried yet, by their locks.
#[derive(Debug, Default)]
pub(super) struct UntriedJobs {
    locks: Mutex<Locks>,
    /// The number of jobs, for those who find none without the mutex.
    count: AtomicUsize,
}

/// A lock without such a job is forgotten.
#[derive(Debug, Default)]
struct Locks {
    by_name: HashMap<Name, Numbers>,
    /// The number that was given out last.
    last: u64,
}

/// The name of a lock, behind that of its kind's space.
type Name = (&'static str, LockName);

/// The numbers of the jobs of one lock.
#[derive(Debug)]
struct Numbers {
    untried: BTreeSet<u64>,
    /// The lowest of them.
    first: Arc<watch::Sender<u64>>,
}

impl UntriedJobs {
    /// Notes a job of this attempt, until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>, attempt: &Attempt) -> Untried {
        self.count.fetch_add(1, Ordering::AcqRel);
        let name = (attempt.kind.space(), attempt.name.clone());
        let mut locks = locked(&self.locks);
        locks.last += 1;
        let number = locks.last;
        let new = || Numbers { untried: BTreeSet::new(), first: Arc::new(watch::Sender::new(number)) };
        locks.by_name.entry(name.clone()).or_insert_with(new).untried.insert(number);
        drop(locks);
        Untried { jobs: self.clone(), name, number }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The end of the first tries of all jobs of this lock that there are now; `None` if there are none.
    pub(super) fn tried(&self, name: &LockName, kind: Kind) -> Option<impl Future<Output = ()> + use<>> {
        let name = (kind.space(), name.clone());
        let (last, mut first) = {
            let locks = locked(&self.locks);
            let numbers = locks.by_name.get(&name)?;
            (*numbers.untried.last()?, numbers.first.subscribe())
        };
        // The lock is forgotten, and the channel closed, with the last of its jobs.
        Some(async move { drop(first.wait_for(|first| *first > last).await) })
    }
}

/// A job that was not tried yet.
#[derive(Debug)]
pub(super) struct Untried {
    jobs: Arc<UntriedJobs>,
    name: Name,
    number: u64,
}

impl Drop for Untried {
    fn drop(&mut self) {
        self.jobs.count.fetch_sub(1, Ordering::AcqRel);
        let mut locks = locked(&self.jobs.locks);
        let Some(numbers) = locks.by_name.get_mut(&self.name) else { return };
        numbers.untried.remove(&self.number);
        // Whoever waits is told outside of the mutex: what is woken may drop another guard at once.
        match numbers.untried.first().copied() {
            Some(first) => {
                let told = numbers.first.clone();
                drop(locks);
                told.send_if_modified(|before| first > std::mem::replace(before, first.max(*before)));
            }
            None => {
                let forgotten = locks.by_name.remove(&self.name);
                drop(locks);
                drop(forgotten);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::owner::Owner;

    fn begin(jobs: &Arc<UntriedJobs>, name: &'static str, kind: Kind) -> Untried {
        jobs.begin(&Attempt::new(name.into(), kind, Owner::new(), Duration::from_secs(30)).unwrap())
    }

    #[test]
    fn it_ends_with_the_first_tries_of_those_that_there_were_in_whatever_order() {
        let (jobs, name) = (Arc::<UntriedJobs>::default(), LockName::from("a"));
        assert!(jobs.tried(&name, Kind::Read).is_none());
        let (first, second) = (begin(&jobs, "a", Kind::Write), begin(&jobs, "a", Kind::Read));
        let others = [begin(&jobs, "b", Kind::Read), begin(&jobs, "a", Kind::Mutex)];
        let mut both = Box::pin(jobs.tried(&name, Kind::Read).unwrap());
        assert!((&mut both).now_or_never().is_none());
        drop(second);
        assert!((&mut both).now_or_never().is_none(), "one of two");
        let _later = begin(&jobs, "a", Kind::Read);
        drop(first);
        assert!((&mut both).now_or_never().is_some());
        drop(others);
    }

    #[test]
    fn locks_are_forgotten_with_their_last_job() {
        let jobs = Arc::<UntriedJobs>::default();
        let only = begin(&jobs, "a", Kind::Mutex);
        assert!(!jobs.is_empty());
        let tried = jobs.tried(&"a".into(), Kind::Mutex).unwrap();
        drop(only);
        assert!(tried.now_or_never().is_some());
        assert!(jobs.is_empty() && locked(&jobs.locks).by_name.is_empty());
    }
}
