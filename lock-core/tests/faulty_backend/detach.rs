//! Locks that are to go on in another client.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{ErrorKind, LeaseOptions};

use crate::lab::Lab;

/// The copy would bring the lock back, under an id that others know, after it has ended.
#[tokio::test]
async fn a_lock_of_which_a_copy_of_its_request_is_on_its_way_is_not_detached_yet() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(1);
    // Longer than its answer is waited for.
    let (failed, ()) = tokio::join!(guard.detach(), lab.pass(Duration::from_secs(6)));
    let failed = failed.unwrap_err();
    assert_eq!((failed.error.kind(), failed.error.name()), (ErrorKind::Unavailable, Some("a")), "{}", failed.error);
    assert!(failed.guard.is_held(), "a detachment that was refused costs the lock");
    lab.line.keeps_copies(0);
    let detached = failed.guard.detach().await.unwrap();
    assert!(lab.store.connect().adopt(&detached).await.unwrap().is_held());
}

#[tokio::test]
async fn a_copy_that_is_answered_soon_is_waited_for_and_the_lock_has_its_whole_lease_then() {
    let lab = Lab::new();
    let ttl = Duration::from_secs(4);
    let guard =
        lab.connect().mutex("a").with_lease(LeaseOptions::new(ttl).with_auto_renew(false)).lock().await.unwrap();
    lab.line.keeps_copies(1);
    let mut detached = pin!(guard.detach());
    assert!((&mut detached).now_or_never().is_none(), "it is refused at once");
    tokio::join!(lab.pass(ttl / 8), async { assert!((&mut detached).now_or_never().is_none()) });
    lab.line.keeps_copies(0);
    let (detached, ()) = tokio::join!(detached, lab.pass(Duration::from_millis(500)));
    // The clock moves in steps.
    let left_ms = detached.unwrap().left_ms;
    assert!((3900..=4000).contains(&left_ms), "{left_ms}");
}

#[tokio::test]
async fn a_copy_that_is_waited_for_in_vain_does_not_cost_a_short_lease() {
    let lab = Lab::new();
    let ttl = Duration::from_secs(1);
    let guard =
        lab.connect().mutex("a").with_lease(LeaseOptions::new(ttl).with_auto_renew(false)).lock().await.unwrap();
    lab.line.keeps_copies(1);
    let mut detached = pin!(guard.detach());
    let mut failed = None;
    while failed.is_none() {
        lab.pass(Duration::from_millis(50)).await;
        failed = (&mut detached).now_or_never();
    }
    assert!(failed.unwrap().unwrap_err().guard.is_held());
}
