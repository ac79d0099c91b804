//! Errors: their text, and what they say of an outcome.

use super::*;

#[test]
fn the_message_names_everything_and_does_not_repeat_the_cause() {
    let error = Error::unavailable(Phase::Acquire, "the connection was refused")
        .with_name(&LockName::from("orders/42"))
        .with_backend("redis")
        .with_server("127.0.0.1:6379")
        .with_source(std::io::Error::other("ECONNREFUSED"));
    assert_eq!(
        error.to_string(),
        "unavailable: acquire \"orders/42\" on redis at 127.0.0.1:6379: the connection was refused"
    );
    assert_eq!(error.source().unwrap().to_string(), "ECONNREFUSED");
    assert_eq!((error.backend(), error.server()), (Some("redis"), Some("127.0.0.1:6379")));
    assert!(error.is_definite());
    assert!(!Error::indeterminate(Phase::Release, "no answer").is_definite());
    assert!(!Error::new(ErrorKind::Protocol, Phase::Release, "an answer to nothing").is_definite());
}

#[test]
fn what_may_have_left_something_is_asked_for_again_after_its_lease() {
    use ErrorKind::{Indeterminate, Lost, TimedOut, Unavailable};
    for (kind, retry, definite) in [
        (Unavailable, Retry::Later, true),
        (Lost, Retry::Later, true),
        (Indeterminate, Retry::AfterLease, false),
        (TimedOut, Retry::AfterLease, false),
    ] {
        let error = Error::new(kind, Phase::Acquire, "the test");
        assert_eq!((error.retry(), error.is_definite()), (retry, definite), "{kind}");
    }
}

#[test]
fn only_what_the_server_says_makes_the_error_of_a_call_that_released_its_lock_definite() {
    use LossReason::{Expired, SessionExpired, Taken};
    let not_held = |loss| Err(Error::new(ErrorKind::NotHeld, Phase::Release, "gone").with_loss(loss));
    for (outcome, definite) in [
        (Ok(()), true),
        (not_held(None), true),
        (not_held(Some(Taken)), true),
        (not_held(Some(Expired)), false),
        (not_held(Some(SessionExpired)), false),
        (Err(Error::indeterminate(Phase::Release, "no answer")), false),
    ] {
        let failed =
            || Error::unavailable(Phase::Hold, "the disk is full").with_name(&"a".into()).with_backend("redis");
        let error = failed().after_release(&outcome, "it may be held");
        assert_eq!((error.is_definite(), error.name()), (definite, Some("a")), "{outcome:?}");
        assert_eq!(error.source().is_none(), definite, "the cause is kept: {error}");
        let lost = Error::lost(Phase::Hold, Expired).after_release(&outcome, "it may be held");
        assert_eq!((lost.kind(), lost.is_definite()), (ErrorKind::Lost, definite), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_loss_that_the_release_notices_is_no_reason_to_give_up() {
    let locks = crate::MemoryLocks::new();
    let mutex = locks.mutex("a");
    let guard = mutex.lock().await.unwrap();
    mutex.force_release(guard.grant_id(), "the test").await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::NotHeld, Retry::Later));
    assert_eq!(Error::new(ErrorKind::NotHeld, Phase::Acquire, "never").retry(), Retry::Never);
}
