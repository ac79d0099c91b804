//! The words by which handles and errors show themselves.

use std::time::Duration;

use lock_core::{ErrorKind, LeaseOptions};

use crate::lab::Lab;

#[tokio::test]
async fn the_error_of_work_names_its_lock() {
    let lab = Lab::new();
    let lease = LeaseOptions::new(Duration::from_secs(1)).with_auto_renew(false);
    let guard = lab.connect().mutex("orders/42").with_lease(lease).lock().await.unwrap();
    let (failed, ()) = tokio::join!(guard.while_held(std::future::pending::<()>()), lab.pass(Duration::from_secs(2)));
    let error = failed.unwrap_err().error;
    assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("orders/42")));
}

#[tokio::test]
async fn handles_show_their_lock_and_waits_themselves() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("orders/42").lock().await.unwrap();
    let warning = guard.expires_within(Duration::from_millis(1)).unwrap();
    assert!(format!("{:?}", locks.reentrant("orders/42")).contains("orders/42"));
    assert!(format!("{:?}", *guard).contains("orders/42"));
    let waits = [format!("{:?}", guard.lost()), format!("{:?}", guard.ended()), format!("{warning:?}")];
    for (shown, name) in waits.iter().zip(["Lost", "Ended", "ExpiresWithin"]) {
        assert!(shown.starts_with(name), "{shown}");
    }
}
