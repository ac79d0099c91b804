//! The locks that this client is to give back in the background, until that was tried once.
//!
//! A try of the same client may be refused because of them: a task that drops a guard and tries again at once finds its own lock in
//! the way.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::name::LockName;
use crate::sync::locked;

/// The jobs that were not tried yet, by the names of their locks.
#[derive(Debug, Default)]
pub(super) struct UntriedJobs {
    names: Mutex<Names>,
    /// The number of jobs, for those who find none without the lock.
    count: AtomicUsize,
}

/// A name without such a job is forgotten.
#[derive(Debug, Default)]
struct Names {
    by_name: HashMap<LockName, Numbers>,
    /// The number that was given out last.
    last: u64,
}

/// The numbers of the jobs of one name.
#[derive(Debug)]
struct Numbers {
    untried: BTreeSet<u64>,
    /// The lowest of them.
    first: watch::Sender<u64>,
}

impl UntriedJobs {
    /// Notes a job of this name, until the answer is dropped.
    pub(super) fn begin(self: &Arc<Self>, name: &LockName) -> Untried {
        self.count.fetch_add(1, Ordering::AcqRel);
        let mut names = locked(&self.names);
        names.last += 1;
        let number = names.last;
        let new = || Numbers { untried: BTreeSet::new(), first: watch::Sender::new(number) };
        names.by_name.entry(name.clone()).or_insert_with(new).untried.insert(number);
        Untried { jobs: self.clone(), name: name.clone(), number }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The end of the first tries of all jobs of this name that there are now; `None` if there are none.
    pub(super) fn tried(&self, name: &LockName) -> Option<impl Future<Output = ()> + use<>> {
        let (last, mut first) = {
            let names = locked(&self.names);
            let numbers = names.by_name.get(name)?;
            (*numbers.untried.last()?, numbers.first.subscribe())
        };
        // The name is forgotten, and the channel closed, with the last of its jobs.
        Some(async move { drop(first.wait_for(|first| *first > last).await) })
    }
}

/// A job that was not tried yet.
#[derive(Debug)]
pub(super) struct Untried {
    jobs: Arc<UntriedJobs>,
    name: LockName,
    number: u64,
}

impl Drop for Untried {
    fn drop(&mut self) {
        let mut names = locked(&self.jobs.names);
        self.jobs.count.fetch_sub(1, Ordering::AcqRel);
        let Some(numbers) = names.by_name.get_mut(&self.name) else { return };
        numbers.untried.remove(&self.number);
        match numbers.untried.first() {
            Some(&first) => {
                numbers.first.send_if_modified(|before| std::mem::replace(before, first) != first);
            }
            None => {
                names.by_name.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn it_ends_with_the_first_tries_of_those_that_there_were_in_whatever_order() {
        let (jobs, name) = (Arc::<UntriedJobs>::default(), LockName::from("a"));
        assert!(jobs.tried(&name).is_none());
        let (first, second, _other) = (jobs.begin(&name), jobs.begin(&name), jobs.begin(&"b".into()));
        let mut both = Box::pin(jobs.tried(&name).unwrap());
        assert!((&mut both).now_or_never().is_none());
        drop(second);
        assert!((&mut both).now_or_never().is_none(), "one of two");
        let _later = jobs.begin(&name);
        drop(first);
        assert!((&mut both).now_or_never().is_some());
    }

    #[test]
    fn names_are_forgotten_with_their_last_job() {
        let (jobs, name) = (Arc::<UntriedJobs>::default(), LockName::from("a"));
        let only = jobs.begin(&name);
        let tried = jobs.tried(&name).unwrap();
        drop(only);
        assert!(tried.now_or_never().is_some());
        assert!(jobs.is_empty() && locked(&jobs.names).by_name.is_empty());
    }
}
