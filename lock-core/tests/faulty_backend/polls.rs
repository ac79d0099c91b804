//! The inherited wait of a backend that has only tries, when the server says nothing or loses its answers.

use std::time::Duration;

use lock_core::{Error, ErrorKind, MutexGuard};
use tokio::task::JoinHandle;

use crate::lab::{Fault, Lab};

const SECOND: Duration = Duration::from_secs(1);

/// A wait for a free lock, with a limit or without one, whose first try meets this fault.
async fn waiting(lab: &Lab, limit: Option<Duration>, fault: Fault) -> JoinHandle<Result<Option<MutexGuard>, Error>> {
    lab.line.polls();
    lab.line.set(fault);
    let lock = lab.connect().mutex("a");
    let waiting = tokio::spawn(async move {
        match limit {
            Some(limit) => lock.try_lock_for(limit).await,
            None => lock.lock().await.map(Some),
        }
    });
    lab.line.asked_times("try_lock", 1).await;
    lab.settle().await;
    waiting
}

/// The end of a call whose time has come.
async fn end(waiting: JoinHandle<Result<Option<MutexGuard>, Error>>) -> Result<Option<MutexGuard>, Error> {
    tokio::time::timeout(10 * SECOND, waiting).await.expect("the wait goes on").unwrap()
}

#[tokio::test]
async fn an_answer_that_is_lost_ends_no_wait_that_has_time() {
    for limit in [None, Some(3600 * SECOND)] {
        let lab = Lab::new();
        let waiting = waiting(&lab, limit, Fault::LosesAnswers).await;
        lab.line.set(Fault::None);
        lab.pass(SECOND / 10).await;
        let guard = end(waiting).await.unwrap().unwrap();
        assert!(guard.is_held());
        assert_eq!(lab.store.used(), 1, "its second try is granted the lock of the first one");
    }
}

#[tokio::test]
async fn an_outage_of_five_seconds_in_which_tries_hang_ends_no_wait() {
    let lab = Lab::new();
    let waiting = waiting(&lab, None, Fault::Hangs).await;
    lab.pass(5 * SECOND).await;
    lab.line.set(Fault::None);
    lab.pass(3 * SECOND).await;
    assert!(end(waiting).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn a_lost_answer_makes_no_later_error_of_the_wait_definite() {
    for limit in [None, Some(5 * SECOND)] {
        let lab = Lab::new();
        let waiting = waiting(&lab, limit, Fault::LosesAnswers).await;
        lab.line.set(Fault::Down);
        lab.pass(11 * SECOND).await;
        let error = end(waiting).await.unwrap_err();
        assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
        assert_eq!((error.name(), error.backend()), (Some("a"), Some("faulty")), "{error}");
        let cause = std::error::Error::source(&error).expect("the last try's error");
        assert!(cause.to_string().contains("the link is down"), "{cause}");
    }
}

#[tokio::test]
async fn tries_that_were_never_sent_end_a_wait_definitely_after_its_patience() {
    let lab = Lab::new();
    let waiting = waiting(&lab, None, Fault::Down).await;
    lab.pass(9 * SECOND).await;
    assert!(!waiting.is_finished(), "before the patience was over");
    lab.pass(2 * SECOND).await;
    assert_eq!(end(waiting).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_server_whose_tries_hang_for_ever_ends_a_wait_after_its_patience() {
    let lab = Lab::new();
    let waiting = waiting(&lab, None, Fault::Hangs).await;
    lab.pass(13 * SECOND).await;
    assert_eq!(end(waiting).await.unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn a_process_that_stood_still_for_longer_than_its_patience_goes_on_waiting() {
    let lab = Lab::new();
    let waiting = waiting(&lab, None, Fault::Down).await;
    lab.clock.advance(60 * SECOND);
    lab.settle().await;
    assert!(!waiting.is_finished(), "nobody could be heard meanwhile");
    lab.line.set(Fault::None);
    lab.pass(SECOND).await;
    assert!(end(waiting).await.unwrap().unwrap().is_held());
}
