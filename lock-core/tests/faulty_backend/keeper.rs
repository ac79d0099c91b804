//! The task that renews, and what a holder can ask its guard.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{ErrorKind, LeaseOptions, LossReason};

use crate::lab::{Fault, Lab, eventually};
use crate::runtimes::soon;

fn minute() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(60))
}

#[tokio::test]
async fn a_client_has_two_tasks_however_many_locks() {
    let lab = Lab::new();
    let locks = lab.connect();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let names: Vec<_> = (0..300).map(|i| locks.mutex(format!("{i}"))).collect();
    let guards = join_all(names.iter().map(|lock| lock.lock())).await;
    assert_eq!(alive(), 2);
    lab.pass(Duration::from_secs(20)).await;
    assert!(guards.iter().all(|guard| guard.as_ref().unwrap().is_held()));
    assert_eq!(alive(), 2);
    drop(guards);
    lab.line.asked_times("release", 300).await;
    assert_eq!(alive(), 2);
}

#[tokio::test]
async fn every_lease_is_verified_when_the_server_may_have_forgotten_it() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (kept, gone) = (locks.mutex("kept").with_lease(minute()), locks.mutex("gone").with_lease(minute()));
    let (kept, gone) = (kept.lock().await.unwrap(), gone.lock().await.unwrap());
    lab.settle().await;
    lab.store.lose("gone");
    lab.line.raises_doubts();
    assert_eq!(soon("the loss is found", gone.lost()).await, LossReason::Taken);
    lab.line.asked_times("renew", 2).await;
    assert!(kept.is_held());
    lab.line.raises_doubts();
    lab.line.asked_times("renew", 3).await;
    lab.pass(Duration::from_secs(1)).await;
    assert_eq!(lab.line.asked("renew"), 3, "verified more than once");
}

#[tokio::test]
async fn a_lease_without_renewal_is_verified_when_the_server_may_have_forgotten_it() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (kept, gone) = (locks.mutex("kept"), locks.mutex("gone"));
    let by_hand = minute().with_auto_renew(false);
    let (kept, gone) = (kept.with_lease(by_hand), gone.with_lease(by_hand));
    let (kept, gone) = (kept.lock().await.unwrap(), gone.lock().await.unwrap());
    lab.settle().await;
    lab.store.lose("gone");
    lab.line.raises_doubts();
    assert_eq!(soon("the loss is found", gone.lost()).await, LossReason::Taken);
    lab.line.asked_times("renew", 2).await;
    assert!(kept.is_held());
    lab.pass(Duration::from_secs(30)).await;
    assert_eq!(lab.line.asked("renew"), 2, "renewed although nobody wants that");
    assert!(kept.is_held());
    lab.pass(Duration::from_secs(30)).await;
    assert!(!kept.is_held(), "kept for longer than its holder has asked for");
}

/// Its answer came from a server that does not count any more, after the client had gone over to another one.
#[tokio::test]
async fn a_grant_that_was_asked_for_before_a_doubt_is_verified_at_once() {
    let lab = Lab::new();
    let locks = lab.connect();
    let kept = locks.mutex("kept").with_lease(minute()).lock().await.unwrap();
    lab.settle().await;
    lab.line.set(Fault::KeepsAnswers);
    let asking = tokio::spawn(async move { locks.mutex("gone").with_lease(minute()).try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.pass(Duration::from_millis(10)).await;
    lab.store.lose("gone");
    lab.line.raises_doubts();
    lab.line.asked_times("renew", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_millis(100)).await;
    let guard = asking.await.unwrap().unwrap().unwrap();
    assert_eq!(soon("the loss is found", guard.lost()).await, LossReason::Taken);
    assert!(kept.is_held());
}

#[tokio::test]
async fn the_first_grant_of_a_client_is_verified_too_if_it_was_asked_for_before_a_doubt() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::KeepsAnswers);
    let asking = tokio::spawn(async move { locks.mutex("gone").with_lease(minute()).try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.pass(Duration::from_millis(10)).await;
    lab.store.lose("gone");
    lab.line.raises_doubts();
    lab.line.set(Fault::None);
    lab.pass(Duration::from_millis(100)).await;
    let guard = asking.await.unwrap().unwrap().unwrap();
    assert_eq!(soon("the loss is found", guard.lost()).await, LossReason::Taken);
}

#[tokio::test]
async fn a_lease_is_verified_when_the_server_may_have_forgotten_it_before_the_keeper_runs() {
    let lab = Lab::new();
    // The keeper's task begins when this one waits.
    let guard = lab.connect().mutex("gone").with_lease(minute()).lock().await.unwrap();
    lab.store.lose("gone");
    lab.line.raises_doubts();
    assert_eq!(soon("the loss is found", guard.lost()).await, LossReason::Taken);
}

#[tokio::test]
async fn a_loss_that_the_server_announces_is_told_with_its_reason() {
    let lab = Lab::new();
    lab.line.announces_losses();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_lease(minute()).lock().await.unwrap();
    let other = locks.mutex("b").with_lease(minute()).lock().await.unwrap();
    lab.settle().await;
    locks.mutex("a").force_release(guard.grant_id(), "stuck").await.unwrap();
    let reason = soon("the loss is told", guard.lost()).await;
    assert!(matches!(reason, LossReason::ForceReleased { reason, .. } if reason == "stuck"));
    assert!(!guard.is_held() && other.is_held());
    assert_eq!(lab.line.asked("renew"), 0, "it was found by asking");
}

#[tokio::test]
async fn the_release_of_a_lock_whose_loss_is_known_asks_nobody() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.store.lose("a");
    guard.extend(Duration::from_secs(10)).await.unwrap_err();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    assert!(error.to_string().contains("gone or another's"), "{error}");
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(lab.line.asked("release"), 0);
}

#[tokio::test]
async fn the_release_of_a_lock_that_is_gone_says_so() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.store.lose("a");
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::NotHeld, Some("a")));
    assert!(error.to_string().contains("has no such grant"), "{error}");
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(lab.line.asked("release"), 1);
}

#[tokio::test]
async fn a_guard_shows_what_it_holds() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(guard.name().as_str(), "a");
    let shown = format!("{guard:?}");
    for part in ["\"a\"", &guard.grant_id().to_string(), "token", "remaining"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!format!("{:?}", guard.lost()).is_empty());
    let reentrant = format!("{:?}", locks.reentrant("tree"));
    assert!(reentrant.contains("tree") && reentrant.contains("faulty"), "{reentrant}");
}

#[tokio::test]
async fn a_lease_that_is_taken_in_an_idle_time_is_renewed() {
    let lab = Lab::new();
    let locks = lab.connect();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    lab.pass(Duration::from_secs(30)).await;
    let guard = locks.mutex("b").lock().await.unwrap();
    // The clock alone wakes the task, in steps that are longer than a slot.
    lab.pass(Duration::from_secs(30)).await;
    assert!(guard.is_held(), "the task has slept past a lease");
}

#[tokio::test]
async fn what_was_dropped_with_its_client_is_released() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.set(Fault::Down);
    drop((guard, locks));
    lab.line.asked_times("release", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(2)).await;
    eventually("it is free", || lab.store.used() == 0).await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("and no task is left", || alive() == 0).await;
}

#[tokio::test]
async fn a_lease_does_not_wait_for_the_answers_of_a_place_that_is_silent() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_millis(1200));
    let near = locks.mutex("near").with_lease(lease).lock().await.unwrap();
    let _far = locks.mutex("far").with_lease(lease).lock().await.unwrap();
    lab.line.is_silent("far");
    lab.pass(Duration::from_secs(5)).await;
    assert!(near.is_held());
}

#[tokio::test]
async fn a_short_lease_does_not_wait_for_the_answers_for_long_ones_at_its_own_place() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (ttl, often) = (Duration::from_millis(1200), Duration::from_millis(400));
    let short = locks.mutex("short").with_lease(LeaseOptions::new(ttl)).lock().await.unwrap();
    let long = locks.mutex("long").with_lease(minute().with_renew_every(often)).lock().await.unwrap();
    lab.line.has_one_place();
    lab.line.is_silent("long");
    lab.pass(Duration::from_secs(5)).await;
    assert!(short.is_held() && long.is_held());
}

#[tokio::test]
async fn a_backend_that_panics_at_questions_that_need_no_server_ends_nothing() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (kept, dropped) = (locks.mutex("kept").lock().await.unwrap(), locks.mutex("dropped").lock().await.unwrap());
    lab.line.panics_at_questions();
    lab.line.set(Fault::Down);
    drop(dropped);
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_secs(2)).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(lab.store.used(), 1, "the release was not repeated");
    lab.pass(Duration::from_secs(20)).await;
    assert!(kept.is_held(), "it was not renewed");
}

#[tokio::test]
async fn a_backend_that_panics_when_it_is_asked_for_notices_and_doubts_has_its_locks_renewed() {
    let lab = Lab::new();
    // Doubts are asked for with the client, notices with the first lease.
    lab.line.panics_at_doubts();
    let locks = lab.connect();
    lab.line.panics_at_questions();
    let kept = locks.mutex("kept").lock().await.unwrap();
    lab.pass(Duration::from_secs(60)).await;
    assert!(kept.is_held(), "it was not renewed");
}

#[tokio::test]
async fn a_backend_that_panics_when_it_is_to_forget_an_attempt_ends_nothing() {
    let lab = Lab::new();
    let locks = lab.connect();
    let short = LeaseOptions::new(Duration::from_secs(1));
    let given_up = locks.mutex("given up").with_lease(short).lock().await.unwrap();
    let released = locks.mutex("released").with_lease(minute()).lock().await.unwrap();
    lab.line.panics_at_questions();
    lab.line.set(Fault::Down);
    drop((given_up, released));
    lab.pass(Duration::from_secs(20)).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    let next = lab.store.connect().mutex("released").try_lock().await.unwrap();
    assert!(next.is_some(), "nobody cleans up any more");
}
