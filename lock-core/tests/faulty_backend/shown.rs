//! The words by which handles and errors show themselves.

use std::error::Error as _;
use std::time::Duration;

use lock_core::{Error, ErrorKind, LeaseOptions, LeaveError, Phase, WorkError};

use crate::lab::Lab;

fn failure() -> Error {
    Error::indeterminate(Phase::Release, "no answer")
        .with_source(Error::unavailable(Phase::Release, "the link is down"))
}

#[test]
fn an_error_that_brings_something_back_reads_as_its_reason_does() {
    let work = WorkError { value: Some("a secret"), error: failure() };
    let leave = LeaveError { guard: None::<()>, error: failure() };
    assert_eq!(work.to_string(), failure().to_string());
    assert_eq!(leave.to_string(), failure().to_string());
    for source in [work.source(), leave.source()] {
        assert!(source.is_some_and(|source| source.to_string().contains("the link is down")));
    }
    let shown = format!("{work:?}");
    assert!(shown.contains("had_ended: true") && shown.contains("no answer") && !shown.contains("secret"), "{shown}");
}

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
