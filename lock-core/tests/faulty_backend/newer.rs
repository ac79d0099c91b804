//! Records that have a newer token than the present grant: the server's tokens went back.

use std::time::Duration;

use lock_core::driver::{Attempt, Backend, Kind, MutexBackend, RecordBackend, RecordWrite};
use lock_core::{ErrorKind, FencingToken, GrantId, LossReason, Owner};

use crate::lab::{Lab, eventually};

const SECOND: Duration = Duration::from_secs(1);

/// Stamps the record of "a" with a token that the store gives much later, under this grant or, without one, under one of its own.
async fn stamp_with_newer(lab: &Lab, grant: Option<GrantId>) {
    let locks = lab.store.connect();
    let backend = locks.backend();
    let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), 10 * SECOND).unwrap();
    match grant {
        Some(id) => attempt.id = id,
        None => assert!(backend.try_lock(&attempt).await.unwrap().is_some()),
    }
    let newer = FencingToken::new(1_000).unwrap();
    let written = backend.write_record(&attempt, newer, None, 3600 * SECOND).await.unwrap();
    assert!(matches!(written, RecordWrite::Done(_)), "{written:?}");
    if grant.is_none() {
        backend.release(&attempt).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_whose_stamp_is_refused_is_released_by_then() {
    let lab = Lab::new();
    stamp_with_newer(&lab, None).await;
    let recorded = lab.connect().recorded("a").unwrap();
    for _ in 0..3 {
        let error = recorded.try_lock().await.unwrap_err();
        assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Lost, true), "{error}");
        assert_eq!(lab.store.used(), 0, "it is still held");
    }
}

#[tokio::test]
async fn a_holder_whose_write_is_refused_has_lost_its_lock_and_blocks_nobody() {
    let lab = Lab::new();
    let guard = lab.connect().recorded("a").unwrap().lock().await.unwrap();
    stamp_with_newer(&lab, Some(guard.grant_id())).await;
    let error = guard.write(b"late").await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Taken)), "{error}");
    assert!(!guard.is_held());
    eventually("it is released", || lab.store.used() == 0).await;
}
