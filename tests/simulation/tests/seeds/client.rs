//! A client, and a worker on it that wants the lock again and again.

use std::sync::Arc;
use std::time::Duration;

use lock_redis::{ClientOptions, Error, LeaseOptions, Mutex, MutexGuard, RedisConfig, RedisLocks};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::beliefs::Beliefs;
use crate::clock::{now, time_of};
use crate::company::Company;
use crate::faults::Needed;
use crate::hosts::{SERVER, WORKERS};
use crate::network::Simulated;
use crate::record::Record;

/// The number of times that the workers of each client want the lock.
const ROUNDS: usize = 8;
/// The TTL with which a client asks for a lock.
pub(crate) const TTL: Duration = Duration::from_millis(1500);
/// The longest wait without a fault for each of the other clients' workers: it holds for its longest and then leaves it to the TTL.
const LONG: Duration = Duration::from_secs(5);

/// The longest time without a fault until a waiter knows of its grant: some round trips, and no pause between heartbeats.
const SOON: Duration = Duration::from_millis(500);
/// The time for which a holder may believe in a lock that was taken away at the server: until its renewal is answered.
const TOLD: Duration = Duration::from_millis(700);

/// One who shares a lock with others.
pub(crate) struct Worker {
    number: usize,
    name: String,
    record: Record,
    beliefs: Beliefs,
    rng: StdRng,
    seed: u64,
    /// The number of those that work through each client.
    of_client: usize,
}

impl Worker {
    /// The first worker of a client. In some seeds there are two, so that a release lets in a waiter of its own client.
    pub(crate) fn new(number: usize, seed: u64, record: &Record, beliefs: &Beliefs) -> Self {
        let (record, beliefs, of_client) = (record.clone(), beliefs.clone(), if seed / 4 % 2 == 1 { 2 } else { 1 });
        Self { number, name: format!("client {number}"), record, beliefs, rng: rng(number, seed), seed, of_client }
    }

    /// The second worker of the same client.
    fn beside(&self) -> Self {
        let (record, beliefs) = (self.record.clone(), self.beliefs.clone());
        let (name, rng) = (format!("{}, second", self.name), rng(self.number + 100, self.seed));
        Self { name, record, beliefs, rng, ..*self }
    }

    /// Everything that it does.
    pub(crate) async fn work(mut self) {
        let locks = connect().await;
        let company = Company::of(&locks, self.number, self.seed, &self.record);
        if self.of_client == 1 {
            self.rounds(&locks, &company).await;
        } else {
            let mut second = self.beside();
            tokio::join!(self.rounds(&locks, &company), second.rounds(&locks, &company));
        }
        company.leaves().await;
        // What a fault has left open may be tried for a minute.
        closed(locks.close().await, self.number, Duration::ZERO, &self.record);
    }

    async fn rounds(&mut self, locks: &RedisLocks, company: &Company) {
        let mutex = locks.mutex("m");
        let unrenewed = mutex.clone().with_lease(LeaseOptions::new(TTL).with_auto_renew(false));
        for _ in 0..ROUNDS / self.of_client {
            company.comes().await;
            if self.rng.random_ratio(1, 8) {
                if let Some(guard) = self.acquire(&unrenewed).await {
                    self.outlive(guard).await;
                }
            } else if let Some(guard) = self.acquire(&mutex).await {
                self.hold(guard, company).await;
            }
            sleep(self.up_to(200)).await;
        }
    }

    async fn acquire(&mut self, mutex: &Mutex) -> Option<MutexGuard> {
        let began = now();
        let outcome = match self.rng.random_range(0..6) {
            0 => mutex.try_lock().await,
            1 | 2 => mutex.try_lock_for(self.up_to(3000)).await,
            // Dropped at whichever point it has come to.
            3 => {
                let patience = self.up_to(400);
                let Ok(outcome) = timeout(patience, mutex.lock()).await else {
                    self.record.note(&format!("{} gave up", self.name));
                    return None;
                };
                outcome.map(Some)
            }
            _ => mutex.lock().await.map(Some),
        };
        if now() - began > LONG * u32::try_from(WORKERS * self.of_client - 1).unwrap_or(u32::MAX) {
            self.record.suffered(self.number, began, "waited for too long");
        }
        if let Ok(Some(guard)) = &outcome {
            self.hears(guard);
        }
        outcome
            .inspect_err(|error| self.record.suffered(self.number, began, &format!("got {:?}", error.kind())))
            .ok()
            .flatten()
    }

    /// A grant has come, whose token tells when it was given.
    fn hears(&self, guard: &MutexGuard) {
        let granted = guard.fencing_token().map_or(now(), |token| time_of(token.as_u64()));
        let after = now().saturating_sub(granted);
        if after > SOON {
            // A push may be lost long after a fault: the connection for pushes is looked at by heartbeats only.
            self.record.suffered(self.number, Duration::ZERO, &format!("heard of its grant after {after:?}"));
        }
    }

    /// Holds to the very end of a lease that is not renewed.
    async fn outlive(&mut self, guard: MutexGuard) {
        self.beliefs.granted(&self.name, &guard);
        while guard.is_held() {
            sleep(self.up_to(40)).await;
        }
        self.beliefs.ended(&self.name);
    }

    async fn hold(&mut self, guard: MutexGuard, company: &Company) {
        self.beliefs.granted(&self.name, &guard);
        let began = now();
        for _ in 0..self.rng.random_range(0..80) {
            sleep(self.up_to(40)).await;
            let taken = self.beliefs.taken_since(guard.fencing_token());
            if !guard.is_held() {
                self.complains(began, taken, "lost the lock");
                break;
            }
            self.beliefs.still(&self.name, &guard);
            if let Some(since) = taken.map(|at| at.max(began)).filter(|since| now() > *since + TOLD) {
                self.record.suffered(self.number, since, "still believes in a lock that was taken away");
            }
        }
        self.beliefs.ended(&self.name);
        company.comes().await;
        self.release(guard, began).await;
    }

    async fn release(&mut self, guard: MutexGuard, began: Duration) {
        let token = guard.fencing_token();
        match self.rng.random_range(0..4) {
            0 => drop(guard),
            1 => {
                // Dropped at whichever point it has come to.
                let patience = self.up_to(6);
                let _ = timeout(patience, guard.release()).await;
            }
            _ => match guard.release().await {
                Ok(()) => self.record.note(&format!("{} has released", self.name)),
                Err(error) => {
                    let what = format!("heard of its release {:?}", error.kind());
                    self.complains(began, self.beliefs.taken_since(token), &what);
                }
            },
        }
    }

    /// Complains of what needs a reason: a fault since then, or that its lock was taken away.
    fn complains(&self, since: Duration, taken: Option<Duration>, what: &str) {
        match taken {
            Some(at) => self.record.note(&format!("{}, whose lock was taken away at {at:?}, {what}", self.name)),
            None => self.record.suffered(self.number, since, what),
        }
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(0..ms))
    }
}

/// The chance of one client in a run.
pub(crate) fn rng(number: usize, seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed ^ (number as u64 + 1) << 48)
}

/// A client of the server, as soon as it can be reached.
pub(crate) async fn connect() -> RedisLocks {
    let url = format!("redis://{SERVER}:6379");
    let config = RedisConfig::new(url).with_client(options()).with_network(Arc::new(Simulated));
    loop {
        match RedisLocks::connect_with(config.clone()).await {
            Ok(locks) => return locks,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The options of every client.
pub(crate) fn options() -> ClientOptions {
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::new(TTL);
    options.op_timeout = Duration::from_millis(500);
    options.patience = Duration::from_secs(4);
    options
}

/// Notes how a client was closed; what it has not released ends with its lease. A fault since then at any one server explains that:
/// a dropped acquisition is taken back from all of them.
pub(crate) fn closed(outcome: Result<(), Error>, client: usize, since: Duration, record: &Record) {
    match outcome {
        Ok(()) => record.note(&format!("client {client} is closed")),
        Err(error) => {
            record.kept();
            record.suffered_without(&Needed::All, client, since, &format!("was closed with {:?}", error.kind()));
        }
    }
}
