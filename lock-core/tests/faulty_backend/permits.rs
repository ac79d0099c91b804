//! Permits that are released by parts.

use std::pin::pin;
use std::time::Duration;

use lock_core::{ErrorKind, Inspection, LeaseOptions, LossReason};

use crate::lab::{Fault, Lab};

/// The number of permits that the server counts as held.
async fn held(lab: &Lab) -> u32 {
    let seen = lab.store.connect().semaphore("a", 5).inspect().await.unwrap();
    seen.holders.iter().map(|holder| holder.permits).sum()
}

#[tokio::test]
async fn a_part_whose_return_was_not_confirmed_is_not_counted_and_is_returned_in_the_background() {
    let lab = Lab::new();
    let locks = lab.connect();
    let mut permit = locks.semaphore("a", 5).acquire_many(5).await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    assert_eq!(permit.release_some(2).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!((permit.permits(), held(&lab).await), (3, 3));
    // Meanwhile more is released: the repetition of the first part does not undo that.
    assert_eq!(permit.release_some(1).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(5)).await;
    locks.close().await.unwrap();
    assert_eq!((permit.permits(), held(&lab).await), (2, 2));
    assert!(permit.is_held());
    permit.release().await.unwrap();
}

#[tokio::test]
async fn the_return_of_a_part_that_finds_the_grant_gone_tells_the_loss() {
    let lab = Lab::new();
    let semaphore = lab.connect().semaphore("a", 5);
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let mut permit = semaphore.with_lease(lease).acquire_many(5).await.unwrap();
    lab.store.connect().semaphore("a", 5).force_release(permit.grant_id(), "the test").await.unwrap();
    let error = permit.release_some(2).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::NotHeld, Some(&LossReason::Taken)));
    assert!(!permit.is_held());
}

#[tokio::test]
async fn a_part_of_a_permit_that_is_gone_is_returned_to_nobody() {
    let lab = Lab::new();
    let locks = lab.connect();
    let mut permit = locks.semaphore("a", 5).acquire_many(5).await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    permit.release_some(2).await.unwrap_err();
    lab.line.set(Fault::None);
    // At the server only: the next try of the part finds it out.
    lab.store.lose("a");
    lab.line.asked_times("shrink", 2).await;
    locks.close().await.unwrap();
    assert_eq!(lab.line.asked("shrink"), 2);
}

#[tokio::test]
async fn a_part_is_not_returned_any_more_when_the_lease_is_over() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(10)).with_auto_renew(false);
    let mut permit = locks.semaphore("a", 5).with_lease(lease).acquire_many(5).await.unwrap();
    lab.line.set(Fault::Down);
    {
        let mut releasing = pin!(permit.release_some(2));
        assert!(futures_util::poll!(releasing.as_mut()).is_ready());
    }
    lab.line.set(Fault::LosesAnswers);
    permit.release_some(2).await.unwrap_err();
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_secs(9)).await;
    let asked = lab.line.asked("shrink");
    assert!((5..=40).contains(&asked), "asked {asked} times");
    lab.pass(Duration::from_secs(2)).await;
    let asked = lab.line.asked("shrink");
    lab.pass(Duration::from_secs(30)).await;
    assert_eq!(lab.line.asked("shrink"), asked, "the lease is over");
}

#[tokio::test]
async fn a_part_that_certainly_was_not_returned_is_still_counted() {
    let lab = Lab::new();
    let locks = lab.connect();
    let mut permit = locks.semaphore("a", 5).acquire_many(5).await.unwrap();
    lab.line.set(Fault::Down);
    assert_eq!(permit.release_some(2).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(permit.permits(), 5);
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(held(&lab).await, 5, "released although the caller was told that it was not");
    permit.release_some(2).await.unwrap();
    assert_eq!((permit.permits(), held(&lab).await), (3, 3));
}

#[tokio::test]
async fn a_dropped_return_is_finished_in_the_background() {
    let lab = Lab::new();
    let locks = lab.connect();
    let mut permit = locks.semaphore("a", 5).acquire_many(5).await.unwrap();
    lab.line.set(Fault::Silent);
    {
        let mut releasing = pin!(permit.release_some(2));
        assert!(futures_util::poll!(releasing.as_mut()).is_pending());
    }
    assert_eq!((permit.permits(), held(&lab).await), (3, 5));
    lab.line.set(Fault::None);
    locks.close().await.unwrap();
    assert_eq!(held(&lab).await, 3);
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_return_in_the_background_ends_with_its_grant() {
    let lab = Lab::new();
    let locks = lab.connect();
    let mut permit = locks.semaphore("a", 5).acquire_many(5).await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    permit.release_some(2).await.unwrap_err();
    permit.release().await.unwrap_err();
    assert_eq!(lab.store.used(), 0);
    lab.line.set(Fault::None);
    let tries = lab.line.asked("shrink");
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(lab.line.asked("shrink"), tries, "a grant that has ended is still being shrunk");
    let (closed, ()) = tokio::join!(locks.close(), lab.pass(Duration::from_secs(3)));
    closed.unwrap();
}

#[tokio::test]
async fn free_permits_are_counted_whatever_their_number_and_holders_are_listed_up_to_a_bound() {
    const HELD: u32 = 1200;
    let lab = Lab::new();
    for held in [HELD, 3] {
        let semaphore = lab.store.connect().semaphore(format!("{held}"), 5000);
        let mut permits = Vec::new();
        for _ in 0..held {
            permits.push(semaphore.try_acquire().await.unwrap().unwrap());
        }
        assert_eq!(semaphore.available().await.unwrap(), 5000 - held);
        let seen = semaphore.inspect().await.unwrap();
        assert_eq!((seen.holders.len(), seen.holder_count()), ((held as usize).min(Inspection::MOST), u64::from(held)));
    }
    let (counts, locks) = (lab.store.connect().semaphore("a", 5), lab.connect());
    let held = locks.semaphore("a", 5).acquire_many(3).await.unwrap();
    assert_eq!((locks.semaphore("a", 5).available().await.unwrap(), counts.available().await.unwrap()), (2, 2));
    assert_eq!(lab.line.asked("inspect"), 1, "the default counts what is listed");
    held.release().await.unwrap();
}

#[tokio::test]
async fn the_default_does_not_count_by_a_list_that_is_not_complete() {
    let lab = Lab::new();
    let counts = lab.store.connect().semaphore("a", 5000);
    let mut held = Vec::new();
    for _ in 0..=Inspection::MOST {
        held.push(counts.try_acquire().await.unwrap().unwrap());
    }
    let error = lab.connect().semaphore("a", 5000).available().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
