//! Locks that their holders leave: taken for a while yet.

use std::time::Duration;

use lock_core::driver::Support;
use lock_core::{Ending, ErrorKind, LossReason, Mutex};

use crate::lab::{Fault, Lab, Leaves, eventually};
use crate::runtimes::soon;

const TTL: Duration = Duration::from_secs(30);
const LEFT: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Whether somebody else can have the mutex at this instant.
async fn is_free(lab: &Lab) -> bool {
    let other = mutex(lab);
    match other.try_lock().await.unwrap() {
        Some(guard) => guard.release().await.is_ok(),
        None => false,
    }
}

/// The mutex of another client, which needs no line.
fn mutex(lab: &Lab) -> Mutex {
    lab.store.connect().mutex("a")
}

#[tokio::test]
async fn a_lock_that_was_left_is_taken_for_its_time_and_not_longer() {
    for (ttl, left) in [(TTL, LEFT), (seconds(2), LEFT)] {
        let lab = Lab::new();
        let locks = lab.connect();
        let guard = locks.mutex("a").with_ttl(ttl).lock().await.unwrap();
        let (ended, renewals) = (guard.ended(), lab.line.asked("renew"));
        guard.leave(left).await.unwrap();
        assert_eq!(soon("the end", ended).await, Ending::Released);
        lab.pass(left - Duration::from_millis(50)).await;
        lab.clock.advance(Duration::from_millis(49));
        assert!(!is_free(&lab).await, "free too early");
        lab.clock.advance(MOMENT);
        assert!(is_free(&lab).await, "not free when its time was over");
        assert_eq!((lab.line.asked("renew"), lab.line.asked("release")), (renewals, 0));
        locks.close().await.unwrap();
    }
}

#[tokio::test]
async fn whoever_waits_is_granted_the_lock_when_it_ends() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").with_ttl(TTL).lock().await.unwrap();
    let other = mutex(&lab);
    let waiting = tokio::spawn(async move { other.lock().await });
    lab.settle().await;
    guard.leave(LEFT).await.unwrap();
    lab.pass(LEFT).await;
    let next = soon("a grant", waiting).await.unwrap().unwrap();
    assert!(next.is_held());
}

#[tokio::test]
async fn a_time_out_of_range_and_a_backend_that_cannot_are_refused_and_the_guard_comes_back() {
    let lab = Lab::new();
    let lock = lab.connect().mutex("a").with_ttl(TTL);
    let mut guard = lock.lock().await.unwrap();
    let too_long = seconds(24 * 60 * 60) + MOMENT;
    for (leaves, time, kind) in [
        (Leaves::ByItself, Duration::ZERO, ErrorKind::InvalidArgument),
        (Leaves::ByItself, too_long, ErrorKind::InvalidArgument),
        (Leaves::No, LEFT, ErrorKind::Unsupported),
    ] {
        lab.line.leaves(leaves);
        assert_eq!(lock.check_leave(time).unwrap_err().kind(), kind);
        let failed = guard.leave(time).await.unwrap_err();
        assert_eq!((failed.error.kind(), failed.error.backend()), (kind, Some("faulty")));
        guard = failed.guard.expect("nothing was asked");
    }
    assert_eq!(lab.line.asked("leave"), 0);
    lab.pass(TTL * 2).await;
    assert!(guard.is_held(), "it was renewed no more");
    lab.line.leaves(Leaves::ByItself);
    assert!(lock.check_leave(too_long - MOMENT).is_ok());
    guard.leave(too_long - MOMENT).await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_client_goes_on_with_what_is_left_of_the_time() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    let failed = guard.leave(LEFT).await.unwrap_err();
    assert!(failed.guard.is_none() && failed.error.kind() == ErrorKind::Indeterminate, "{failed:?}");
    lab.pass(seconds(3)).await;
    lab.line.set(Fault::None);
    lab.pass(seconds(2) - Duration::from_millis(50)).await;
    assert!(!is_free(&lab).await, "free too early");
    lab.clock.advance(Duration::from_millis(50));
    assert!(is_free(&lab).await, "a repetition has begun the time anew");
    locks.close().await.unwrap();
    assert!(lab.line.asked("leave") > 1);
}

#[tokio::test]
async fn a_request_that_never_arrived_is_sent_again() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::Down);
    assert_eq!(guard.leave(LEFT).await.unwrap_err().error.kind(), ErrorKind::Indeterminate);
    lab.pass(seconds(1)).await;
    lab.line.set(Fault::None);
    lab.pass(LEFT - seconds(1)).await;
    assert!(is_free(&lab).await, "it has the lease that it had");
}

#[tokio::test]
async fn what_could_not_be_left_in_time_is_released_then() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::Down);
    assert!(guard.leave(LEFT).await.is_err());
    lab.pass(LEFT + seconds(2)).await;
    assert!(!is_free(&lab).await, "nobody could have ended it");
    lab.line.set(Fault::None);
    let asked = lab.line.asked("leave");
    lab.pass(seconds(2)).await;
    assert!(is_free(&lab).await, "it was not released");
    assert_eq!(lab.line.asked("leave"), asked, "there is no time left for which to leave it");
}

#[tokio::test]
async fn a_dropped_call_is_finished_in_the_background() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::Silent);
    let mut leaving = Box::pin(guard.leave(LEFT));
    assert!(futures_util::poll!(&mut leaving).is_pending());
    drop(leaving);
    lab.line.set(Fault::None);
    lab.line.asked_times("leave", 2).await;
    assert!(!is_free(&lab).await, "the drop has released it");
    lab.pass(LEFT).await;
    assert!(is_free(&lab).await, "it was not left");
}

#[tokio::test]
async fn a_lock_that_was_lost_is_said_to_be_and_nobody_elses_is_touched() {
    let lab = Lab::new();
    let lock = lab.connect().mutex("a").with_ttl(TTL);
    // By the holder's clock.
    lab.line.set(Fault::Down);
    let guard = lock.lock().await;
    assert!(guard.is_err());
    lab.line.set(Fault::None);
    let guard = lock.lock().await.unwrap();
    lab.line.set(Fault::Down);
    lab.clock.advance(TTL);
    let failed = guard.leave(LEFT).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Lost);
    assert!(!failed.guard.unwrap().is_held());
    lab.line.set(Fault::None);
    lab.pass(seconds(1)).await;
    // By the server's word.
    let guard = lock.lock().await.unwrap();
    let lost = guard.lost();
    lab.store.lose("a");
    let next = mutex(&lab).try_lock().await.unwrap().unwrap();
    let failed = guard.leave(MOMENT).await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.guard.is_none()), (ErrorKind::Lost, true));
    assert_eq!(soon("the loss", lost).await, LossReason::Taken);
    lab.pass(seconds(1)).await;
    assert!(next.is_held() && !is_free(&lab).await, "it left what is somebody else's");
}

/// A copy of the acquisition may be on its way: what undoes it does not undo what was left.
#[tokio::test]
async fn what_clears_up_after_the_attempt_leaves_the_lock_alone() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.keeps_copies(2);
    guard.leave(LEFT).await.unwrap();
    lab.pass(seconds(1)).await;
    assert_eq!(lab.line.asked("cancel"), 2);
    assert!(!is_free(&lab).await, "it was cancelled");
    // And after an answer that was lost.
    lab.pass(LEFT).await;
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.keeps_copies(2);
    lab.line.set(Fault::LosesAnswers);
    assert!(guard.leave(LEFT).await.is_err());
    lab.line.set(Fault::None);
    lab.pass(seconds(2)).await;
    assert_eq!(lab.line.asked("cancel"), 4);
    assert!(!is_free(&lab).await, "it was cancelled");
}

#[tokio::test]
async fn a_server_that_ends_nothing_by_itself_is_asked_to_when_the_time_is_over() {
    let lab = Lab::new();
    lab.line.leaves(Leaves::UntilReleased);
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(seconds(2)).lock().await.unwrap();
    guard.leave(LEFT).await.unwrap();
    // The client goes, and what it has left stays.
    drop(locks);
    lab.pass(LEFT - Duration::from_millis(50)).await;
    assert_eq!(lab.line.asked("release"), 0);
    lab.pass(Duration::from_millis(50)).await;
    eventually("its release", || lab.line.asked("release") == 1).await;
    assert!(is_free(&lab).await);
}

#[tokio::test]
async fn such_a_server_is_asked_at_once_when_the_client_is_closed() {
    let lab = Lab::new();
    lab.line.leaves(Leaves::UntilReleased);
    let locks = lab.connect();
    locks.mutex("a").lock().await.unwrap().leave(seconds(3600)).await.unwrap();
    let late = locks.mutex("b").lock().await.unwrap();
    locks.close().await.unwrap();
    assert!(is_free(&lab).await, "left behind by a client that was closed");
    // Whoever leaves a lock of a closed client leaves it to nobody.
    late.leave(seconds(3600)).await.unwrap();
    lab.line.asked_times("release", 2).await;
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn such_a_server_is_asked_by_the_background_too() {
    let lab = Lab::new();
    lab.line.leaves(Leaves::UntilReleased);
    let locks = lab.connect();
    let guard = locks.mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    assert!(guard.leave(LEFT).await.is_err());
    lab.line.set(Fault::None);
    lab.pass(LEFT - Duration::from_millis(50)).await;
    assert_eq!((lab.line.asked("release"), is_free(&lab).await), (0, false));
    lab.pass(Duration::from_millis(50)).await;
    assert!(is_free(&lab).await);
}

#[tokio::test]
async fn with_a_token_or_a_record_it_is_the_same_lock() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let fenced = locks.mutex("a").fenced().unwrap().lock().await.unwrap();
    let token = fenced.fencing_token();
    let fenced = fenced.leave(Duration::ZERO).await.unwrap_err().guard.unwrap();
    assert_eq!(fenced.fencing_token(), token);
    fenced.leave(LEFT).await.unwrap();
    assert!(!is_free(&lab).await);
    lab.pass(LEFT).await;
    let recorded = locks.recorded("a").unwrap();
    let guard = recorded.lock().await.unwrap();
    guard.write(b"done").await.unwrap();
    let guard = guard.leave(Duration::ZERO).await.unwrap_err().guard.unwrap();
    guard.leave(LEFT).await.unwrap();
    assert!(!is_free(&lab).await);
    assert_eq!(recorded.read().await.unwrap().unwrap().data, b"done");
    assert_eq!(locks.guarantees().leave, Support::Yes);
}
