//! One run with a quorum: three servers, some clients with many tasks each, and what goes wrong.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::stores::Stores;
use super::tasks::{self, Common};
use crate::beliefs::Beliefs;
use crate::faults::Faults;
use crate::hosts::{CLIENTS, SERVERS};
use crate::record::Record;
use crate::world::{Outcome, course, residue, serve, simulation, start};

/// The locks that all clients want.
const SHARED: [&str; 2] = ["m", "n"];
/// The time for which a server keeps what a client could not release there: a lease, and a list of waiters.
const KEPT: Duration = Duration::from_secs(4);

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Outcome {
    let (faults, stores) = (Rc::new(Faults::of(seed, SERVERS.len())), Stores::default());
    let record = Record::of(faults.clone());
    let mut sim = simulation(seed);
    for (server, store) in SERVERS.into_iter().zip(stores.each()) {
        let data = store.clone();
        sim.host(server, move || serve(data.clone()));
    }
    let shared = SHARED.map(|lock| (lock, Beliefs::unfenced(lock, &record))).to_vec();
    let common = Common { record: record.clone(), stores: stores.clone(), shared };
    let working = Rc::new(Cell::new(0));
    for client in 0..CLIENTS {
        start(&mut sim, client, &working, tasks::work(client, seed, common.clone()));
    }
    let late = course(&mut sim, &faults, &record, &working, |_| {});
    let end = sim.elapsed() + KEPT;
    let left = || stores.each().find_map(|store| residue(&mut store.borrow_mut(), end));
    let alone = || (!stores.saw_batches()).then(|| "a server saw no requests that went together".to_owned());
    let violation = record.violation().or(late).or_else(left).or_else(alone);
    Outcome { violation, grants: record.grants(), events: record.events() }
}
