//! Several locks at once, when one of them goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Sleep, VirtualClock};
use lock_core::memory::MemoryStore;
use lock_core::multi::{lock_all, try_lock_all, try_lock_all_for};
use lock_core::{ErrorKind, LossReason};

use crate::lab::{Fault, Lab};

#[tokio::test]
async fn the_first_loss_is_told_with_its_name_and_ends_the_work() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let both = lock_all([locks.mutex("b"), locks.mutex("a")]).await.unwrap();
    let mut lost = both.lost();
    let work = both.while_held(async {
        lab.store.lose("b");
        std::future::pending::<()>().await;
    });
    let error = work.await.unwrap_err().error;
    assert_eq!((error.kind(), error.name(), error.loss()), (ErrorKind::Lost, Some("b"), Some(&LossReason::Taken)));
    assert_eq!(error.backend(), Some("memory"));
    let (name, reason) = (&mut lost).await;
    assert_eq!((name.as_str(), reason), ("b", LossReason::Taken));
    lab.store.lose("a");
    both.guards()[0].lost().await;
    assert!(futures_util::poll!(&mut lost).is_pending(), "told twice");
    assert!(!both.is_held());
    assert_eq!(both.remaining(), Duration::ZERO);
    assert_eq!(both.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some(), "one loss kept another lock from its release");
}

#[tokio::test]
async fn of_losses_that_nobody_has_looked_at_yet_the_first_in_order_is_told() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let both = lock_all([locks.mutex("b"), locks.mutex("a")]).await.unwrap();
    let first = both.guards()[0].name().clone();
    for name in ["a", "b"] {
        lab.store.lose(name);
    }
    for guard in both.guards() {
        guard.lost().await;
    }
    assert_eq!(both.lost().await.0, first);
}

#[tokio::test]
async fn what_remains_is_what_remains_of_the_shortest() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let short = locks.mutex("a").with_ttl(Duration::from_secs(1));
    let both = lock_all([short, locks.mutex("b")]).await.unwrap();
    assert!(both.remaining() <= Duration::from_secs(1), "{:?}", both.remaining());
    let tokens: Vec<_> = both.fencing_tokens().map(|(name, token)| (name.as_str().to_owned(), token)).collect();
    assert_eq!(tokens.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a", "b"]);
    assert!(tokens.iter().all(|(_, token)| token.is_some()));
}

#[tokio::test]
async fn a_try_of_several_takes_all_or_nothing() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let held = locks.mutex("b").lock().await.unwrap();
    assert!(try_lock_all([locks.mutex("b"), locks.mutex("a")]).await.unwrap().is_none());
    let a = locks.mutex("a").try_lock_for(Duration::MAX).await.unwrap();
    drop((a, held));
    let all = lock_all([locks.mutex("b"), locks.mutex("a")]).await.unwrap();
    assert!(all.is_held());
}

#[tokio::test]
async fn all_are_released_within_one_operation_timeout() {
    let lab = Lab::new();
    let locks = lab.connect();
    let all = lock_all((0..5).map(|i| locks.mutex(format!("{i}")))).await.unwrap();
    lab.line.set(Fault::Silent);
    let releasing = tokio::spawn(all.release());
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_millis(2100)).await;
    assert!(releasing.is_finished(), "the timeouts of several releases add up");
    assert_eq!(releasing.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn a_lock_that_is_lost_ends_the_wait_for_the_others_at_once() {
    let lab = Lab::new();
    let (locks, other) = (lab.store.connect(), lab.store.connect());
    let held = other.mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn(lock_all([locks.mutex("a"), locks.mutex("b"), locks.mutex("c")]));
    let is_waited_for = async || !other.mutex("b").inspect().await.unwrap().waiters.is_empty();
    while !is_waited_for().await {
        tokio::task::yield_now().await;
    }
    lab.store.lose("a");
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it waits on");
    let error = ended.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.name(), error.loss()), (ErrorKind::Lost, Some("a"), Some(&LossReason::Taken)));
    assert!(!error.is_definite(), "the request that was cut short may have taken its lock");
    crate::lab::eventually("nothing is left", || lab.store.used() == 1).await;
    let waiting = tokio::spawn(try_lock_all_for([locks.mutex("a"), locks.mutex("b")], Duration::MAX));
    while !is_waited_for().await {
        tokio::task::yield_now().await;
    }
    lab.store.lose("a");
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it waits on");
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_refused_try_of_several_stands_in_nobodys_way() {
    let lab = Lab::new();
    let (locks, other) = (lab.store.connect(), lab.store.connect());
    let held = other.mutex("b").lock().await.unwrap();
    assert!(try_lock_all([locks.mutex("a"), locks.mutex("b")]).await.unwrap().is_none());
    assert_eq!(lab.store.used(), 1, "what was taken is still there");
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_refused_try_of_several_stands_in_nobodys_way_on_a_slow_link_either() {
    let lab = Lab::new();
    let (locks, other) = (lab.store.connect(), lab.store.connect());
    let _held = other.mutex("b").lock().await.unwrap();
    lab.store.set_delay(Duration::from_millis(300), Duration::from_millis(300), 1);
    let trying = tokio::spawn(try_lock_all([locks.mutex("a"), locks.mutex("b")]));
    while !trying.is_finished() {
        lab.pass(Duration::from_millis(50)).await;
    }
    assert!(trying.await.unwrap().unwrap().is_none());
    assert_eq!(lab.store.used(), 1, "what was taken is still there");
}

#[tokio::test]
async fn a_try_of_several_ends_one_operation_timeout_after_its_deadline_however_slow_each_answer_is() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.store.set_delay(Duration::from_millis(1_500), Duration::from_millis(1_500), 1);
    let four = ["a", "b", "c", "d"].map(|name| locks.mutex(name).with_ttl(Duration::from_secs(300)));
    let trying = tokio::spawn(try_lock_all_for(four, Duration::from_millis(100)));
    // With what the core gives a backend beyond that, and as long for releasing what was taken.
    for _ in 0..93 {
        lab.pass(Duration::from_millis(50)).await;
    }
    assert!(trying.is_finished(), "each has an operation timeout of its own");
    let error = trying.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert_eq!((error.name(), error.backend()), (Some("b"), Some("faulty")), "{error}");
}

#[tokio::test]
async fn a_refused_try_of_several_does_not_wait_for_releases_that_are_not_answered() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("b").lock().await.unwrap();
    let trying = tokio::spawn(try_lock_all_for([locks.mutex("a"), locks.mutex("b")], Duration::from_secs(1)));
    lab.line.asked_times("lock", 2).await;
    lab.line.set(Fault::Hangs);
    lab.pass(Duration::from_millis(1_300)).await;
    lab.line.asked_times("release", 1).await;
    lab.line.set(Fault::None);
    assert!(tokio::time::timeout(Duration::from_secs(10), trying).await.unwrap().unwrap().unwrap().is_none());
    lab.pass(Duration::from_secs(4)).await;
    crate::lab::eventually("it is released in the background", || lab.store.used() == 1).await;
    held.release().await.unwrap();
}

/// A wait for a lock says nothing of the link.
#[tokio::test]
async fn a_refused_try_that_had_to_wait_does_not_wait_as_long_for_releases_that_are_not_answered() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let [first, second] = [other.mutex("a").lock().await.unwrap(), other.mutex("b").lock().await.unwrap()];
    let both = ["a", "b"].map(|name| locks.mutex(name).with_ttl(Duration::from_secs(300)));
    let trying = tokio::spawn(try_lock_all_for(both, Duration::from_secs(20)));
    lab.line.asked_times("lock", 1).await;
    lab.pass(Duration::from_secs(10)).await;
    first.release().await.unwrap();
    lab.line.asked_times("lock", 2).await;
    lab.line.set(Fault::Hangs);
    lab.pass(Duration::from_millis(10_200)).await;
    lab.line.asked_times("release", 1).await;
    // Less than the core gives a backend that gives nothing up.
    lab.pass(Duration::from_millis(2_100)).await;
    assert!(trying.is_finished(), "it waits for the release as long as it waited for the lock");
    assert!(trying.await.unwrap().unwrap().is_none());
    drop(second);
}

#[tokio::test]
async fn an_error_is_not_definite_while_what_was_taken_may_still_be_held() {
    for waits in [true, false] {
        let lab = Lab::new();
        let locks = lab.connect();
        lab.line.is_silent("b");
        let both = ["a", "b"].map(|name| locks.mutex(name).with_ttl(Duration::from_secs(300)));
        let taking = tokio::spawn(async move {
            if waits { lock_all(both).await.map(drop) } else { try_lock_all_for(both, Duration::MAX).await.map(drop) }
        });
        lab.line.asked_times("lock", 2).await;
        lab.line.set(Fault::Silent);
        lab.pass(Duration::from_secs(60)).await;
        let error =
            tokio::time::timeout(Duration::from_secs(10), taking).await.expect("it waits on").unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
        assert!(!error.is_definite());
        let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
        assert!(cause.contains("no answer"), "{cause}");
        lab.line.set(Fault::None);
        lab.pass(Duration::from_secs(4)).await;
        crate::lab::eventually("it is released in the background", || lab.store.used() == 0).await;
    }
}

/// A clock that counts how often it is read.
#[derive(Debug, Clone, Default)]
struct CountingClock {
    time: VirtualClock,
    readings: Arc<AtomicUsize>,
}

impl Clock for CountingClock {
    fn now(&self) -> BootInstant {
        self.readings.fetch_add(1, Ordering::Relaxed);
        self.time.now()
    }

    fn sleep_until(&self, at: BootInstant) -> Sleep {
        self.time.sleep_until(at)
    }
}

#[tokio::test]
async fn work_under_a_thousand_locks_costs_little_each_time_that_it_is_polled() {
    let clock = CountingClock::default();
    let locks = MemoryStore::with_clock(clock.clone()).connect();
    let all = lock_all((0..1000).map(|i| locks.mutex(format!("{i}")))).await.unwrap();
    let before = clock.readings.load(Ordering::Relaxed);
    let work = async {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    };
    all.while_held(work).await.unwrap();
    let readings = clock.readings.load(Ordering::Relaxed) - before;
    assert!(readings < 20_000, "{readings} readings of the clock");
}

#[tokio::test]
async fn work_under_several_locks_goes_on_while_they_are_renewed_and_is_over_after_a_deadline_that_passes() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let both = lock_all([locks.mutex("a").with_ttl(Duration::from_secs(1)), locks.mutex("b")]).await.unwrap();
    let work = async {
        lab.pass(Duration::from_secs(10)).await;
        lab.clock.advance(Duration::from_secs(1));
        "done"
    };
    let failed = both.while_held(work).await.unwrap_err();
    assert_eq!((failed.value, failed.error.name()), (Some("done"), Some("a")), "{}", failed.error);
}

#[tokio::test]
async fn a_loss_that_is_found_while_the_work_is_polled_for_the_last_time_is_not_missed() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let both = lock_all([locks.mutex("a"), locks.mutex("b")]).await.unwrap();
    let work = async {
        lab.store.lose("b");
        both.guards()[1].extend(Duration::from_secs(60)).await.unwrap_err();
        "done"
    };
    let failed = both.while_held(work).await.unwrap_err();
    assert_eq!((failed.value, failed.error.name()), (Some("done"), Some("b")), "{}", failed.error);
}
