//! Calls that have a lock already, and are kept without being polled.

#![cfg(test)]

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::VirtualClock;
use lock_core::memory::MemoryStore;
use lock_recipes::{Election, Once};

const SECOND: Duration = Duration::from_secs(1);

/// Polls a call until it has stamped the record and writes it, in three requests of a second each, and keeps it: another client can have
/// the lock after one TTL.
async fn is_free_after_one_ttl<T>(store: &MemoryStore, clock: &VirtualClock, call: impl Future<Output = T>) {
    let other = store.connect().recorded("a").unwrap();
    let mut call = pin!(call);
    for _ in 0..3 {
        assert!((&mut call).now_or_never().is_none());
        clock.advance(SECOND);
    }
    store.set_delay(Duration::ZERO, Duration::ZERO, 1);
    let stamped = other.read().await.unwrap().expect("it is stamped");
    assert!(!stamped.is_of_term() && other.try_lock().await.unwrap().is_none());
    for _ in 0..other.lease().ttl.as_secs() + 1 {
        clock.advance(SECOND);
        // The renewals, if there are any.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(other.try_lock().await.unwrap().is_some(), "a call that nobody polls keeps the lock");
}

#[tokio::test]
async fn a_candidate_that_announces_itself_blocks_nobody_for_longer_than_one_ttl() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let election = Election::new(store.connect().recorded("a").unwrap());
    store.set_delay(SECOND, SECOND, 1);
    is_free_after_one_ttl(&store, &clock, election.campaign()).await;
}

#[tokio::test]
async fn an_operator_that_has_slots_forgotten_blocks_nobody_for_longer_than_one_ttl() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let once = Once::new(store.connect().recorded("a").unwrap());
    store.set_delay(SECOND, SECOND, 1);
    is_free_after_one_ttl(&store, &clock, once.forget()).await;
}
