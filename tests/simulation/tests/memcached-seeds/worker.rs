//! Workers that share one client and want locks of every kind again and again. What they do is written down.

use std::sync::Arc;
use std::time::Duration;

use lock_memcached::{ClientOptions, LeaseOptions, MemcachedConfig, MemcachedLocks};
use lock_testkit_checker::history::event::Kind;
use lock_testkit_checker::history::{RecordedGuard, RecordedLocks, Recorder, Wish};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use crate::faults::{LAST, SERVER};
use crate::network::Simulated;

/// The number of workers of each client. Three callers and more go together.
const WORKERS: usize = 4;
/// The number of times that each of them wants a lock.
const ROUNDS: usize = 8;
/// The TTL of every lease.
const TTL: Duration = Duration::from_millis(1500);
/// The longest lease of the prefix, and so nearly the length of a quarantine.
const LONGEST_LEASE: Duration = Duration::from_secs(2);
/// The time within which a client takes a lock again: a quarantine, the leases of others, and the pauses between requests.
const RECOVERED: Duration = Duration::from_secs(20);
/// The permits of the semaphore.
const PERMITS: u32 = 2;

/// One worker.
struct Worker {
    locks: RecordedLocks,
    rng: StdRng,
}

/// Everything that one client's workers do, until the client is closed.
///
/// # Errors
/// If a worker panics, or the client takes no lock any more when all faults are over.
pub(crate) async fn work(client: usize, seed: u64, recorder: Recorder) -> turmoil::Result {
    let client_locks = connect().await;
    // A new server grants nothing for a while, of which the history does not know.
    while client_locks.mutex("first").lock().await.is_err() {}
    let locks = RecordedLocks::new((&client_locks).into(), recorder);
    let worker = |number: usize| {
        let rng = StdRng::seed_from_u64(seed ^ ((client * WORKERS + number) as u64 + 1) << 48);
        Worker { locks: locks.clone(), rng }
    };
    let tasks: Vec<_> = (0..WORKERS).map(|number| spawn_local(worker(number).rounds())).collect();
    for task in tasks {
        task.await?;
    }
    sleep(LAST.saturating_sub(turmoil::elapsed())).await;
    timeout(RECOVERED, take_again(&client_locks)).await.map_err(|_| "no lock is granted after the last fault")?;
    // What a fault has left open ends with its lease.
    let _ = client_locks.close().await;
    Ok(())
}

/// Takes a lock that nobody holds for long, and releases it.
async fn take_again(locks: &MemcachedLocks) {
    loop {
        if let Ok(guard) = locks.mutex("last").lock().await
            && guard.release().await.is_ok()
        {
            return;
        }
    }
}

pub(crate) async fn connect() -> MemcachedLocks {
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::new(TTL);
    options.op_timeout = Duration::from_millis(500);
    let config = MemcachedConfig::new(format!("memcached://{SERVER}:11211"))
        .with_client(options)
        .with_longest_lease(LONGEST_LEASE)
        .with_readers(16)
        .with_network(Arc::new(Simulated));
    loop {
        match MemcachedLocks::connect_with(config.clone()).await {
            Ok(locks) => return locks,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Worker {
    async fn rounds(mut self) {
        for _ in 0..ROUNDS {
            let wish = self.wish();
            let patience = if self.rng.random_ratio(1, 4) { self.up_to(400) } else { Duration::from_secs(60) };
            // Dropped at whichever point it has come to.
            if let Ok(Ok(Some(guard))) = timeout(patience, self.locks.acquire(&wish)).await {
                self.hold(guard).await;
            }
            sleep(self.up_to(300)).await;
        }
    }

    fn wish(&mut self) -> Wish {
        let kind = [Kind::Mutex, Kind::Mutex, Kind::Read, Kind::Write, Kind::Sem][self.rng.random_range(0..5)];
        let wish = Wish::new("x", kind, TTL).with_wait(match self.rng.random_range(0..3) {
            0 => Duration::ZERO,
            _ => self.up_to(4000),
        });
        if kind == Kind::Sem { wish.with_permits(self.rng.random_range(1..=PERMITS), PERMITS) } else { wish }
    }

    async fn hold(&mut self, guard: RecordedGuard) {
        for _ in 0..self.rng.random_range(0..30) {
            sleep(self.up_to(40)).await;
            if !guard.check() {
                break;
            }
        }
        match self.rng.random_range(0..4) {
            0 => drop(guard),
            1 => {
                let patience = self.up_to(6);
                let _ = timeout(patience, guard.release()).await;
            }
            _ => {
                // Its outcome is in the history.
                let _ = guard.release().await;
            }
        }
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.rng.random_range(0..ms))
    }
}
