//! Locks that are to go on in another client.

use lock_core::ErrorKind;

use crate::lab::Lab;

/// The copy would bring the lock back, under an id that others know, after it has ended.
#[tokio::test]
async fn a_lock_of_which_a_copy_of_its_request_is_on_its_way_is_not_detached_yet() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(1);
    let failed = guard.detach().await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.error.name()), (ErrorKind::Unavailable, Some("a")), "{}", failed.error);
    assert!(failed.guard.is_held(), "a detachment that was refused costs the lock");
    lab.line.keeps_copies(0);
    let detached = failed.guard.detach().await.unwrap();
    assert!(lab.store.connect().adopt(&detached).await.unwrap().is_held());
}
