//! The work that an outage leaves to be done in the background.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::ErrorKind;

use crate::lab::{Fault, Lab, eventually};

const WAIT: Duration = Duration::from_millis(10);

#[tokio::test]
async fn many_abandoned_waits_cost_an_outage_as_much_as_one() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::Down);
    let lock = locks.mutex("a");
    for failed in join_all((0..500).map(|_| lock.try_lock_for(WAIT))).await {
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    lab.line.asked_times("cancel", 500).await;
    lab.pass(Duration::from_secs(30)).await;
    let again = lab.line.asked("cancel") - 500;
    assert!((10..=70).contains(&again), "asked {again} times in 30 s");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    locks.close().await.unwrap();
}

#[tokio::test]
async fn a_wait_whose_lock_came_before_an_outage_stamps_the_record_after_it() {
    for wait in [None, Some(Duration::from_secs(60))] {
        let lab = Lab::new();
        let recorded = lab.connect().recorded("a").unwrap();
        lab.line.set(Fault::KeepsAnswers);
        let taking = tokio::spawn(async move {
            match wait {
                None => recorded.lock().await,
                Some(wait) => recorded.try_lock_for(wait).await.map(|guard| guard.expect("it was free")),
            }
        });
        eventually("it is granted", || lab.store.used() == 1).await;
        lab.line.set(Fault::Down);
        lab.pass(Duration::from_secs(5)).await;
        let tries = lab.line.asked("write_record");
        assert!((3..=15).contains(&tries), "asked {tries} times in 5 s");
        lab.line.set(Fault::None);
        lab.pass(Duration::from_secs(2)).await;
        let guard = taking.await.unwrap().unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

/// The first request was carried out, for all that is known.
#[tokio::test]
async fn a_stamp_that_may_be_there_makes_no_later_error_definite() {
    let lab = Lab::new();
    let recorded = lab.connect().recorded("a").unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.try_lock_for(Duration::from_millis(500)).await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::LosesAnswers);
    lab.pass(Duration::from_millis(60)).await;
    assert_eq!(lab.line.asked("write_record"), 1);
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_secs(3)).await;
    let error = taking.await.unwrap().unwrap_err();
    assert!(lab.line.asked("write_record") > 1);
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
}

/// The keeper may have the lease renewed again meanwhile, so the wait alone would hold the lock for an hour without work.
#[tokio::test]
async fn a_long_wait_stamps_its_record_no_longer_than_the_patience() {
    let lab = Lab::new();
    let recorded = lab.connect().recorded("a").unwrap().with_ttl(Duration::from_secs(600));
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.try_lock_for(Duration::from_secs(3600)).await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_secs(15)).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), taking).await;
    ended.expect("it goes on after the patience").unwrap().unwrap_err();
}

#[tokio::test]
async fn a_lock_that_is_lost_after_a_stamp_without_an_answer_ends_in_doubt() {
    let lab = Lab::new();
    let recorded = lab.connect().recorded("a").unwrap().with_ttl(Duration::from_secs(1));
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.lock().await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::LosesAnswers);
    lab.pass(Duration::from_secs(3)).await;
    let error = taking.await.unwrap().unwrap_err();
    assert!(!error.is_definite(), "{error}");
}

#[tokio::test]
async fn a_client_that_is_closed_stamps_no_record_again() {
    let lab = Lab::new();
    let locks = lab.connect();
    let recorded = locks.recorded("a").unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.lock().await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_millis(100)).await;
    let closing = tokio::spawn(async move { locks.close().await });
    let ended = tokio::time::timeout(Duration::from_secs(10), taking).await;
    let error = ended.expect("no time has to pass").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    drop(closing.await.unwrap());
}

#[tokio::test]
async fn what_was_dropped_in_an_outage_is_free_soon_after_it() {
    let lab = Lab::new();
    let locks = lab.connect();
    let names: Vec<_> = (0..500).map(|i| locks.mutex(format!("{i}"))).collect();
    let guards = join_all(names.iter().map(|lock| lock.lock())).await;
    lab.line.set(Fault::Down);
    drop(guards);
    lab.line.asked_times("release", 500).await;
    lab.pass(Duration::from_secs(5)).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    eventually("all are free", || lab.store.used() == 0).await;
}

#[tokio::test]
async fn a_place_that_stays_away_does_not_hold_up_the_others() {
    let lab = Lab::new();
    let locks = lab.connect();
    // Alternately, so that neither comes first by its number.
    let names: Vec<_> = (0..400).map(|i| locks.mutex(format!("{} {i}", ["far", "near"][i % 2]))).collect();
    let guards = join_all(names.iter().map(|lock| lock.lock())).await;
    lab.line.is_away(Some("far"));
    lab.line.set(Fault::Down);
    drop(guards);
    lab.line.asked_times("release", 400).await;
    lab.pass(Duration::from_secs(2)).await;
    lab.line.set(Fault::None);
    let before = lab.line.asked("release");
    lab.pass(Duration::from_secs(3)).await;
    assert_eq!(lab.store.used(), 200, "the near ones are free, the far ones cannot be");
    let asked = lab.line.asked("release") - before;
    assert!(asked <= 210, "asked {asked} times: 200 near ones, and about one a second far away");
    lab.line.is_away(None);
    lab.pass(Duration::from_secs(3)).await;
    eventually("all are free", || lab.store.used() == 0).await;
}

#[tokio::test]
async fn there_is_a_most_that_is_left_to_be_done_and_the_close_tells_of_the_rest() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::Down);
    let lock = locks.mutex("a");
    for _ in 0..66_000 {
        assert!(lock.try_lock_for(WAIT).await.is_err());
    }
    let (closed, ()) = tokio::join!(locks.close(), lab.pass(Duration::from_millis(2_050)));
    let error = closed.unwrap_err();
    assert!(error.to_string().contains(": 66000 releases or cancellations"), "{error}");
    assert_eq!(lab.line.forgotten().len(), 66_000 - 65_536);
    // What they may have left ends with the leases, and so does the close's doubt.
    lab.clock.advance(Duration::from_secs(62));
    lab.pass(Duration::from_secs(2)).await;
    locks.close().await.unwrap();
    assert_eq!(lab.line.forgotten().len(), 66_000);
}

#[tokio::test]
async fn what_is_released_elsewhere_is_tried_once_however_much_a_dead_place_has_left() {
    let lab = Lab::new();
    let locks = lab.connect();
    let [done, failed] = [locks.mutex("done").lock().await.unwrap(), locks.mutex("failed").lock().await.unwrap()];
    let failed_grant = failed.grant_id();
    lab.line.is_away(Some("far"));
    let lock = locks.mutex("far");
    for i in 0..65_536 {
        assert!(lock.try_lock_for(WAIT).await.is_err());
        if i % 1_000 == 0 {
            lab.settle().await;
        }
    }
    lab.settle().await;
    drop(done);
    lab.settle().await;
    assert_eq!((lab.line.asked("release"), lab.store.used()), (1, 1), "refused without a try");
    lab.line.set(Fault::Down);
    drop(failed);
    lab.settle().await;
    assert_eq!((lab.line.asked("release"), lab.line.forgotten()), (2, vec![failed_grant]), "there is no room to wait");
}

#[tokio::test]
async fn what_may_remain_has_no_limit() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::Down);
    lab.line.lets_remain(true);
    let lock = locks.mutex("a");
    for _ in 0..65_600 {
        assert!(lock.try_lock_for(WAIT).await.is_err());
    }
    assert!(lab.line.forgotten().is_empty(), "not taken in");
    lab.line.asked_times("cancel", 65_600).await;
    lab.settle().await;
    assert!(lab.line.forgotten().is_empty(), "given up after one try");
}

#[tokio::test]
async fn waits_that_were_in_line_when_the_outage_came_are_counted_by_the_close() {
    let lab = Lab::new();
    let (locks, other) = (lab.store.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let lock = locks.mutex("a");
    let mut waits: Vec<_> = (0..100).map(|_| Box::pin(lock.lock())).collect();
    for wait in &mut waits {
        assert!(futures_util::poll!(wait).is_pending());
    }
    lab.store.set_reachable(false);
    drop(waits);
    let (closed, ()) = tokio::join!(locks.close(), lab.pass(Duration::from_millis(2_050)));
    let error = closed.unwrap_err();
    assert!(error.to_string().contains(": 100 releases or cancellations"), "{error}");
    lab.store.set_reachable(true);
    lab.pass(Duration::from_secs(3)).await;
    locks.close().await.unwrap();
    assert!(other.mutex("a").inspect().await.unwrap().waiters.is_empty());
    drop(held);
}

#[tokio::test]
async fn an_attempt_that_was_never_sent_is_settled_at_once() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    lab.store.set_reachable(false);
    let lock = locks.mutex("a");
    for _ in 0..100 {
        assert!(lock.try_lock_for(WAIT).await.is_err());
    }
    tokio::time::timeout(Duration::from_secs(10), locks.close()).await.expect("it waits for the store").unwrap();
}

#[tokio::test]
async fn an_extension_that_was_not_answered_is_taken_back_however_long_it_is() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    let error = guard.extend(Duration::from_secs(3600)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    lab.line.set(Fault::Down);
    drop(guard);
    lab.pass(Duration::from_secs(60)).await;
    assert_eq!(lab.store.used(), 1, "the server keeps it for an hour");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    eventually("it is free", || lab.store.used() == 0).await;
}

#[tokio::test]
async fn an_extension_whose_end_the_server_does_not_confirm_is_unknown_and_the_lock_is_held() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.confirms_no_end(true);
    let error = guard.extend(Duration::from_secs(3600)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    assert!(error.to_string().contains("held"), "{error}");
    assert!(guard.is_held() && guard.remaining() <= Duration::from_secs(10), "{:?}", guard.remaining());
    // The server was asked for an hour, and may have granted it.
    lab.line.set(Fault::Down);
    drop(guard);
    lab.pass(Duration::from_secs(60)).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(3)).await;
    eventually("it is free", || lab.store.used() == 0).await;
}
