//! Jobs that run once, in virtual time: what is recorded of a slot, and what a later call makes of it.

use std::pin::{Pin, pin};
use std::task::Poll;

use lock_core::clock::VirtualClock;
use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{ClientOptions, LeaseOptions, MemoryLocks};

use super::*;
use crate::progress::Stage;

const TTL: Duration = Duration::from_secs(3600);
const RETENTION: Duration = Duration::from_secs(2 * 3600);

fn once(store: &MemoryStore) -> Once {
    once_for(store, TTL)
}

fn once_for(store: &MemoryStore, ttl: Duration) -> Once {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(ttl);
    let locks: MemoryLocks = store.connect_with(MemoryConfig::default().with_client(client)).unwrap();
    Once::new(locks.recorded("job").unwrap().with_retention(RETENTION))
}

/// Lets a future do what it can at each second of this time; its output, if it has ended.
async fn during<F: Future>(clock: &VirtualClock, time: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    for second in 0..=time.as_secs() {
        if second > 0 {
            clock.advance(Duration::from_secs(1));
        }
        for _ in 0..10 {
            if let Poll::Ready(output) = futures_util::poll!(future.as_mut()) {
                return Some(output);
            }
            tokio::task::yield_now().await;
        }
    }
    None
}

/// Nobody else can refresh the record while the job has the lock.
#[tokio::test]
async fn a_slot_whose_job_ran_for_longer_than_its_record_is_kept_has_been_begun() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (one, other) = (once(&store), once(&store));
    {
        let mut run = pin!(one.run_if(1.into(), |_| std::future::pending::<()>(), |()| true));
        assert!(during(&clock, RETENTION + Duration::from_secs(1), run.as_mut()).await.is_none());
    }
    let again = other.with_wait(TTL).run(1, |_| async {}).await.unwrap();
    assert!(matches!(again, Outcome::Skipped { slot, .. } if slot == Slot::from(1)), "{again:?}");
}

/// Its beginning is being written again at that moment, and comes late.
#[tokio::test]
async fn the_end_of_a_job_is_the_last_that_is_written() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (one, second) = (once(&store), Duration::from_secs(1));
    let (end, ended) = tokio::sync::oneshot::channel();
    let mut run = pin!(one.run_if(1.into(), |_| ended, |_| true));
    assert!(during(&clock, RETENTION / 4 - second, run.as_mut()).await.is_none());
    let begun = one.lock.read().await.unwrap().unwrap().data;
    assert!(!String::from_utf8(begun).unwrap().contains("refreshed"), "a short job's is written once");
    store.set_delay(second * 2, second * 2, 0);
    assert!(during(&clock, second, run.as_mut()).await.is_none());
    store.set_delay(Duration::ZERO, Duration::ZERO, 0);
    end.send("receipt").unwrap();
    assert!(during(&clock, second, run.as_mut()).await.is_none(), "what is under way may come after the end");
    let outcome = during(&clock, second, run.as_mut()).await.expect("it should have ended").unwrap();
    assert_eq!(outcome, Outcome::Ran(Ok("receipt")));
    let progress = one.progress(one.lock.read().await.unwrap().as_ref()).unwrap().unwrap();
    assert_eq!(progress.stage, Stage::Done);
}

/// The server refuses for a while.
#[tokio::test]
async fn a_beginning_that_could_not_be_written_again_is_so_at_the_next_time() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (one, other) = (once(&store), once(&store));
    {
        let mut run = pin!(one.run_if(1.into(), |_| std::future::pending::<()>(), |()| true));
        assert!(during(&clock, Duration::ZERO, run.as_mut()).await.is_none());
        store.set_reachable(false);
        assert!(during(&clock, RETENTION / 3, run.as_mut()).await.is_none());
        store.set_reachable(true);
        assert!(during(&clock, RETENTION, run.as_mut()).await.is_none());
    }
    let again = other.with_wait(TTL).run(1, |_| async {}).await.unwrap();
    assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
}

/// A server that starts anew refuses at once for as long.
#[tokio::test]
async fn an_end_is_written_again_for_as_long_as_the_lock_is_held() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let (second, ttl) = (Duration::from_secs(1), Duration::from_secs(10));
    let (one, other) = (once_for(&store, ttl), once_for(&store, ttl));
    let job = async |_| {
        store.set_reachable(false);
        "receipt"
    };
    let mut run = pin!(one.run_if(1.into(), job, |_| true));
    let early = during(&clock, second * 3, run.as_mut()).await;
    assert!(early.is_none(), "its lock is held: {early:?}");
    store.set_reachable(true);
    let outcome = during(&clock, second * 2, run.as_mut()).await.expect("it should have ended").unwrap();
    assert_eq!(outcome, Outcome::Ran("receipt"));
    let least = other.with_attempts(Attempts::AtLeastOnce);
    let again = least.run(1, |_| async { "twice" }).await.unwrap();
    assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
}

#[tokio::test]
async fn an_end_that_is_never_written_comes_back_when_the_lock_is_lost() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let ttl = Duration::from_secs(10);
    let one = once_for(&store, ttl);
    let job = async |_| {
        store.set_reachable(false);
        "receipt"
    };
    let mut run = pin!(one.run_if(1.into(), job, |_| true));
    let outcome = during(&clock, ttl * 2, run.as_mut()).await.expect("its lock is lost by then");
    let error = outcome.unwrap_err();
    assert!(matches!(&error, OnceError::NotRecorded { source, .. } if source.kind() == ErrorKind::Unavailable));
    assert_eq!(error.into_value(), Some("receipt"));
}
