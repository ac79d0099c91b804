//! A job that runs once per slot, in processes that crash at any step, on real servers.

#![cfg(test)]

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_core::{Guarantee, LeaseOptions, Locks, Support};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_recipes::{Attempts, Once, Outcome};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::testing::installed;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{ZkConfig, ZkLocks};
use tokio::runtime::Builder;

const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a busy machine stands still.
const TTL: Duration = Duration::from_secs(4);
/// The time for which a job's lock is to be kept at least: for longer than its job takes, and not for as long as a lease.
const LEAST: Duration = Duration::from_secs(2);
/// The number of steps that are tried at once.
const BATCH: u64 = 2;
/// More steps than any backend takes.
const MOST_STEPS: u64 = 200;

/// A server, by its URL.
#[derive(Debug, Clone, Copy)]
enum Backend {
    Redis,
    ZooKeeper,
    Memcached,
}

impl Backend {
    async fn connect(self, url: &str) -> Locks {
        match self {
            Self::Redis => {
                let mut config = RedisConfig::new(url);
                config.client.lease = LeaseOptions::new(TTL);
                RedisLocks::connect_with(config).await.unwrap().into()
            }
            Self::ZooKeeper => {
                let mut config = ZkConfig::new(url)
                    .with_session_timeout(Duration::from_secs(4))
                    .with_tick_time(Duration::from_millis(200));
                config.client.lease = LeaseOptions::new(TTL);
                ZkLocks::connect_with(config).await.unwrap().into()
            }
            Self::Memcached => {
                let mut config = MemcachedConfig::new(url).with_longest_lease(TTL);
                config.client.lease = LeaseOptions::new(TTL);
                MemcachedLocks::connect_with(config).await.unwrap().into()
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    at_every_step(Backend::Redis, server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    at_every_step(Backend::ZooKeeper, server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memcached() {
    let Some(server) = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await) else { return };
    at_every_step(Backend::Memcached, server.url()).await;
}

/// The moment of a crash.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After a step: what it has asked for may be on its way.
    After,
    /// Before the step that follows: what the step before has asked for was answered.
    Before,
}

/// The end of whoever has crashed.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The process ends, and cleans nothing up.
    Dies,
    /// The call was dropped, and the process goes on.
    Lives,
}

/// One crash.
#[derive(Debug, Clone, Copy)]
struct Crash {
    steps: u64,
    moment: Moment,
    end: End,
    attempts: Attempts,
    /// Whether the lock is kept for a while.
    is_kept: bool,
}

impl Crash {
    /// Every way to crash at these steps.
    fn at(steps: std::ops::Range<u64>) -> Vec<Self> {
        let mut all = Vec::new();
        for steps in steps {
            for moment in [Moment::After, Moment::Before] {
                for end in [End::Dies, End::Lives] {
                    for attempts in [Attempts::AtMostOnce, Attempts::AtLeastOnce] {
                        for is_kept in [false, true] {
                            all.push(Self { steps, moment, end, attempts, is_kept });
                        }
                    }
                }
            }
        }
        all
    }

    fn once(self, locks: &Locks) -> Once {
        let name = format!("{self:?}").replace(|sign: char| !sign.is_alphanumeric(), "-");
        let once = Once::new(locks.recorded(name).unwrap()).with_attempts(self.attempts).with_wait(PATIENCE);
        if self.is_kept { once.with_at_least(LEAST).unwrap() } else { once }
    }

    /// Polls a future so many times, and drops it; its output, if it came to its end.
    async fn cut<T>(self, future: impl Future<Output = T>) -> Option<T> {
        let (mut future, mut polls) = (pin!(future), 0);
        poll_fn(|cx| {
            if polls == self.steps {
                return Poll::Ready(None);
            }
            polls += 1;
            let polled = future.as_mut().poll(cx).map(Some);
            let is_over = polls == self.steps && matches!(self.moment, Moment::After);
            if is_over && polled.is_pending() { Poll::Ready(None) } else { polled }
        })
        .await
    }
}

/// The runs of one slot.
#[derive(Debug, Clone, Default)]
struct Runs(Arc<[AtomicU64; 2]>, Arc<OnceLock<Instant>>);

impl Runs {
    /// The job, which takes two steps.
    async fn work(self) {
        let Self(runs, _) = self;
        runs[0].fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        runs[1].fetch_add(1, Ordering::SeqCst);
    }

    fn begun(&self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    fn ended(&self) -> u64 {
        self.0[1].load(Ordering::SeqCst)
    }

    /// Notes the instant after which the first one begins.
    fn is_asked_for(&self) {
        self.1.get_or_init(Instant::now);
    }

    /// An instant before the beginning of the first one.
    fn first(&self) -> Option<Instant> {
        self.1.get().copied()
    }
}

async fn at_every_step(backend: Backend, url: &str) {
    let next = backend.connect(url).await;
    // The prefix is new: memcached grants nothing at first.
    next.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap().release().await.unwrap();
    for from in (0..MOST_STEPS).step_by(BATCH as usize) {
        let crashes = Crash::at(from..from + BATCH).into_iter();
        let ended = join_all(crashes.map(|crash| survived(backend, url.to_owned(), crash, &next))).await;
        if ended.iter().all(|has_ended| *has_ended) {
            return;
        }
    }
    panic!("the last step was never reached");
}

/// Crashes, and lets another one ask for the slot; whether the first one had come to its end before.
async fn survived(backend: Backend, url: String, crash: Crash, next: &Locks) -> bool {
    let runs = Runs::default();
    let job = runs.clone();
    let process = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            let locks = backend.connect(&url).await;
            let once = crash.once(&locks);
            job.is_asked_for();
            let outcome = crash.cut(once.run(1, |_| job.work())).await;
            if let End::Lives = crash.end {
                locks.close().await.unwrap();
            }
            outcome
        });
        runtime.shutdown_background();
        outcome
    });
    let first = process.await.unwrap().map(Result::unwrap);
    let has_ended = first.is_some();
    let begun_before = runs.begun();
    assert!(first.is_none_or(|outcome| outcome == Outcome::Ran(())), "{crash:?}: nobody else has asked");
    let then = crash.once(next).run(1, |_| runs.clone().work()).await.unwrap();
    assert!(!has_ended || matches!(then, Outcome::Skipped { .. }), "{crash:?}: done, and asked for again: {then:?}");
    match crash.attempts {
        Attempts::AtMostOnce => assert!(runs.begun() <= 1, "{crash:?}: begun {} times", runs.begun()),
        _ => assert!((1..=2).contains(&runs.ended()), "{crash:?}: done {} times", runs.ended()),
    }
    assert!(crash.steps > 0 || begun_before == 0 && then == Outcome::Ran(()), "{crash:?}: nobody has asked before");
    // Whatever became of it is known by now.
    let ended = runs.ended();
    let last = crash.once(next).run(1, |_| runs.clone().work()).await.unwrap();
    assert!(matches!(last, Outcome::Skipped { .. }) && runs.ended() == ended, "{crash:?}: run once more: {last:?}");
    if crash.is_kept {
        // Whatever became of it, the lock is free in the end: for the next slot, and not too soon after a job that has come to its end.
        let later = crash.once(next).run(2, |_| async { Instant::now() }).await.unwrap().ran();
        let later = later.unwrap_or_else(|| panic!("{crash:?}: the lock is not free for the next slot"));
        let after =
            runs.first().map(|first| later.duration_since(first)).filter(|_| has_ended && is_left_for_sure(next));
        // The clocks of two machines differ by a little.
        let is_late = after.is_none_or(|after| after >= LEAST.mul_f64(0.99));
        assert!(is_late, "{crash:?}: the next slot's job began {after:?} after this one's");
    }
    has_ended
}

/// Whether a lock that was left outlasts its client.
fn is_left_for_sure(locks: &Locks) -> bool {
    locks.guarantees().of(Guarantee::Leave) == Support::Yes
}
