//! The tasks of one client of a quorum. All ask in the same turn, each for a lock of its own or for one of those that the clients
//! share, and release in the same turn too.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lock_redis::{ErrorKind, Mutex, MutexGuard, QuorumConfig, QuorumLocks};
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use super::stores::Stores;
use crate::beliefs::Beliefs;
use crate::client::{closed, options, rng};
use crate::clock::now;
use crate::faults::Needed;
use crate::hosts::SERVERS;
use crate::network::Simulated;
use crate::record::Record;

/// The number of times that all tasks of a client ask.
const ROUNDS: usize = 12;
/// The number of tasks with a lock of their own.
const OWN: usize = 8;

/// The longest time for which a request is on its way where no fault holds it up, and the step of its server.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// The record, data and shared locks that the clients of a run have in common.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) record: Record,
    pub(crate) stores: Stores,
    /// The locks that the clients share, and who believes to hold them.
    pub(crate) shared: Vec<(&'static str, Beliefs)>,
}

/// A task: it wants one lock, again and again.
struct Task {
    name: String,
    lock: String,
    mutex: Mutex,
    /// `None` of a lock that only this task wants.
    beliefs: Option<Beliefs>,
    client: usize,
    common: Common,
    state: RefCell<State>,
}

struct State {
    rng: StdRng,
    /// Whether its last release is confirmed: then nothing may keep it from its own lock.
    is_clean: bool,
}

/// Everything that the tasks of a client do.
pub(crate) async fn work(client: usize, seed: u64, common: Common) {
    let locks = connect().await;
    let own = (0..OWN).map(|number| (format!("own of {client}/{number}"), None));
    let shared = common.shared.iter().map(|(lock, beliefs)| ((*lock).to_owned(), Some(beliefs.clone())));
    let tasks: Vec<_> = own
        .chain(shared)
        .enumerate()
        .map(|(number, (lock, beliefs))| {
            let state = State { rng: rng((number + 1) * 100 + client, seed), is_clean: true };
            let (name, common) = (format!("task {client}/{number}"), common.clone());
            let mutex = locks.mutex(&lock);
            Rc::new(Task { name, mutex, lock, beliefs, client, common, state: RefCell::new(state) })
        })
        .collect();
    let mut rng = rng(client, seed);
    for _ in 0..ROUNDS {
        // Some of the leases are renewed, and those of one turn are renewed together.
        let hold = Duration::from_millis(rng.random_range(0..80) * if rng.random_ratio(1, 4) { 20 } else { 1 });
        let turns: Vec<_> = tasks.iter().map(|task| spawn_local(task.clone().turn(hold))).collect();
        for turn in turns {
            if let Err(error) = turn.await {
                common.record.violated(format!("a task of client {client} has ended: {error}"));
            }
        }
        sleep(Duration::from_millis(rng.random_range(0..600))).await;
    }
    drop(tasks);
    let began = now();
    closed(locks.close().await, client, began, &common.record);
}

/// A client of the quorum, as soon as a majority can be reached.
async fn connect() -> QuorumLocks {
    // The servers keep their data, and do not tell their uptime.
    let config = QuorumConfig::new(SERVERS.map(|server| format!("redis://{server}:6379")))
        .with_client(options())
        .with_young_servers(true)
        .with_network(Arc::new(Simulated));
    loop {
        match QuorumLocks::connect_with(config.clone()).await {
            Ok(locks) => return locks,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Task {
    /// Asks, holds for so long, and releases; or drops one of its futures.
    async fn turn(self: Rc<Self>, hold: Duration) {
        let Some(guard) = self.acquire().await else { return };
        let began = now();
        let grant = guard.grant_id().to_string();
        self.granted(&guard, &grant);
        let ((), needed) = tokio::join!(sleep(hold), self.needed(hold, &grant));
        if guard.is_held() {
            if let Some(beliefs) = &self.beliefs {
                beliefs.still(&self.name, &guard);
            }
        } else {
            self.suffered_without(&needed, began, "lost the lock");
        }
        if let Some(beliefs) = &self.beliefs {
            beliefs.ended(&self.name);
        }
        self.release(guard, &grant, &needed).await;
    }

    async fn acquire(&self) -> Option<MutexGuard> {
        let (began, was_clean) = (now(), self.becomes_clean(false));
        let is_own = self.beliefs.is_none();
        let asks = async {
            if is_own { self.mutex.try_lock().await } else { self.mutex.try_lock_for(Duration::from_secs(2)).await }
        };
        let outcome = match self.patience(80) {
            Some(patience) => match timeout(patience, asks).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.note("gave up");
                    return None;
                }
            },
            None => asks.await,
        };
        match outcome {
            Ok(Some(guard)) => return Some(guard),
            // Nobody else wants it, and nothing of it is left.
            Ok(None) if is_own && was_clean => self.suffered(began, "was refused its own lock"),
            Ok(None) => self.note("was refused"),
            Err(error) if is_own && was_clean => self.suffered(began, &format!("got {error}")),
            Err(error) => self.note(&format!("got {:?}", error.kind())),
        }
        None
    }

    /// A grant was told: a majority has it, and nobody else.
    fn granted(&self, guard: &MutexGuard, grant: &str) {
        match &self.beliefs {
            Some(beliefs) => beliefs.granted(&self.name, guard),
            None => self.common.record.granted(&format!("{} has {}", self.name, self.lock)),
        }
        if guard.is_held() && !self.common.stores.majority_has(&self.lock, grant) {
            self.violated("was told of a grant that no majority has");
        }
    }

    /// The servers without which its grant is not renewed. A minority may have been won by another client that wants the lock too, and a
    /// renewal takes nothing. The grant is at those servers that have it when all requests have come.
    async fn needed(&self, hold: Duration, grant: &str) -> Needed {
        if self.beliefs.is_none() {
            return Needed::Majority;
        }
        sleep(hold.min(ON_ITS_WAY)).await;
        Needed::MajorityAmong(self.common.stores.holders(&self.lock, grant))
    }

    async fn release(&self, guard: MutexGuard, grant: &str, needed: &Needed) {
        let began = now();
        match self.patience(20) {
            Some(patience) => {
                // Dropped at whichever point it has come to.
                let _ = timeout(patience, guard.release()).await;
            }
            None => match guard.release().await {
                Ok(()) => self.released(grant),
                Err(error) if error.kind() == ErrorKind::NotHeld => {
                    self.suffered_without(needed, began, &format!("heard of its release {error}"));
                }
                Err(error) => self.suffered(began, &format!("heard of its release {error}")),
            },
        }
    }

    /// A release was told as done: no majority has the grant any more.
    fn released(&self, grant: &str) {
        self.becomes_clean(true);
        if self.common.stores.majority_has(&self.lock, grant) {
            self.violated("was told of a release while a majority has the grant");
        }
    }

    /// Sets whether its last release is confirmed; returns whether it was.
    fn becomes_clean(&self, is_clean: bool) -> bool {
        std::mem::replace(&mut self.state.borrow_mut().is_clean, is_clean)
    }

    /// Now and then, the time after which a future is dropped, up to so many ms.
    fn patience(&self, most: u64) -> Option<Duration> {
        let rng = &mut self.state.borrow_mut().rng;
        rng.random_ratio(1, 8).then(|| Duration::from_millis(rng.random_range(0..most)))
    }

    fn note(&self, what: &str) {
        self.common.record.note(&format!("{} {what}", self.name));
    }

    fn suffered(&self, began: Duration, what: &str) {
        self.common.record.suffered(self.client, began, &format!("({}) {what}", self.name));
    }

    fn suffered_without(&self, needed: &Needed, began: Duration, what: &str) {
        self.common.record.suffered_without(needed, self.client, began, &format!("({}) {what}", self.name));
    }

    fn violated(&self, what: &str) {
        self.common.record.violated(format!("{} {what}", self.name));
    }
}
