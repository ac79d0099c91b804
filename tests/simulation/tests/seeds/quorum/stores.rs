//! The data of the servers of a quorum, as a judge sees them who is asked by nobody.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use simulation::redis::store::Store;

use crate::clock::{clock, now};
use crate::hosts::SERVERS;

/// The keys of three acquisitions: fewer keys may be those of one request.
const SEVERAL: usize = 6;

/// The data of all servers; they outlive a restart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stores(Rc<[Rc<RefCell<Store>>; SERVERS.len()]>);

impl Stores {
    /// Each of them.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Rc<RefCell<Store>>> {
        self.0.iter()
    }

    /// Whether a majority has this lock under this grant now.
    pub(crate) fn majority_has(&self, lock: &str, grant: &str) -> bool {
        self.holders(lock, grant).len() > SERVERS.len() / 2
    }

    /// The numbers of the servers that have this lock under this grant now.
    pub(crate) fn holders(&self, lock: &str, grant: &str) -> BTreeSet<usize> {
        let key = format!("lock:mutex:{{{lock}}}");
        let has = |store: &Rc<RefCell<Store>>| {
            let mut store = store.borrow_mut();
            store.now = clock(now());
            // Of another kind is nobody's grant.
            let held = store.text(key.as_bytes()).ok().flatten();
            held.is_some_and(|held| held.starts_with(grant.as_bytes()))
        };
        self.each().enumerate().filter_map(|(server, store)| has(store).then_some(server)).collect()
    }

    /// Whether requests have gone together at every server.
    pub(crate) fn saw_batches(&self) -> bool {
        self.each().all(|store| store.borrow().most_keys > SEVERAL)
    }
}
