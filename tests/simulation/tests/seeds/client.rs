//! A client of a run: wants the lock several times, in every way, and says what it believes.

use std::sync::Arc;
use std::time::Duration;

use lock_redis::{ClientOptions, LeaseOptions, Mutex, MutexGuard, RedisConfig, RedisLocks};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::beliefs::Beliefs;
use crate::network::Simulated;
use crate::world::SERVER;

/// How often each client wants the lock.
const ROUNDS: usize = 8;
const TTL: Duration = Duration::from_millis(1500);

/// One client.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) beliefs: Beliefs,
    dice: StdRng,
}

impl Worker {
    pub(crate) fn new(number: usize, seed: u64, beliefs: Beliefs) -> Self {
        Self { number, beliefs, dice: StdRng::seed_from_u64(seed ^ (number as u64 + 1) << 48) }
    }

    /// Everything that it does.
    pub(crate) async fn work(mut self) {
        let locks = connect().await;
        let mutex = locks.mutex("m");
        for _ in 0..ROUNDS {
            if let Some(guard) = self.acquire(&mutex).await {
                self.hold(guard).await;
            }
            sleep(self.up_to(200)).await;
        }
        let closed = locks.close().await;
        if closed.is_err() {
            self.beliefs.kept();
        }
        self.note(format!("closed: {:?}", closed.map_err(|error| error.kind())));
    }

    async fn acquire(&mut self, mutex: &Mutex) -> Option<MutexGuard> {
        let outcome = match self.dice.random_range(0..6) {
            0 => mutex.try_lock().await,
            1 | 2 => mutex.try_lock_for(self.up_to(3000)).await,
            // Dropped at whichever point it has come to.
            3 => {
                let patience = self.up_to(400);
                let Ok(outcome) = timeout(patience, mutex.lock()).await else {
                    self.note("gave up".to_owned());
                    return None;
                };
                outcome.map(Some)
            }
            _ => mutex.lock().await.map(Some),
        };
        match outcome {
            Ok(guard) => guard,
            Err(error) => {
                self.note(format!("{:?}", error.kind()));
                None
            }
        }
    }

    async fn hold(&mut self, guard: MutexGuard) {
        let now = now();
        let token = guard.fencing_token().map_or(0, |token| token.as_u64());
        self.beliefs.granted(self.number, token, now, now + guard.remaining());
        for _ in 0..self.dice.random_range(0..60) {
            sleep(self.up_to(40)).await;
            if !guard.is_held() {
                break;
            }
            self.beliefs.still(self.number, crate::client::now(), crate::client::now() + guard.remaining());
        }
        self.beliefs.ended(self.number);
        match self.dice.random_range(0..4) {
            0 => drop(guard),
            1 => {
                // Dropped at whichever point it has come to.
                let patience = self.up_to(6);
                let _ = timeout(patience, guard.release()).await;
            }
            _ => {
                let released = guard.release().await;
                self.note(format!("released: {:?}", released.map_err(|error| error.kind())));
            }
        }
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.dice.random_range(0..ms))
    }

    fn note(&self, what: String) {
        self.beliefs.note(format!("{:?} client {} {what}", now(), self.number));
    }
}

/// A client of the server, as soon as it can be reached.
pub(crate) async fn connect() -> RedisLocks {
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::with_ttl(TTL);
    options.op_timeout = Duration::from_millis(500);
    let config = RedisConfig::new(format!("redis://{SERVER}:6379")).with_client(options).over(Arc::new(Simulated));
    loop {
        match RedisLocks::connect_with(config.clone()).await {
            Ok(locks) => return locks,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The simulation's clock.
pub(crate) fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}
