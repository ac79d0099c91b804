//! The waiters of one client: hand-overs among them, and news of releases.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use futures_util::FutureExt;
use lock_core::Owner;
use lock_core::driver::Kind;

use super::*;

fn queues() -> (Arc<Queues>, Arc<AtomicUsize>) {
    let passed = Arc::<AtomicUsize>::default();
    let count = passed.clone();
    let stop_waiting = move |lock: &str| {
        assert_eq!(lock, "a");
        count.fetch_add(1, Ordering::Relaxed);
    };
    (Queues::new(2, Box::new(stop_waiting)), passed)
}

fn grant() -> GrantId {
    GrantId::random().unwrap()
}

/// An attempt whose requests take so long at most.
fn attempt_of(op_timeout: Duration) -> Attempt {
    let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
    attempt.op_timeout = op_timeout;
    attempt
}

/// A client that has entered may register at once, and is not to be taken out again.
#[test]
fn nobody_enters_while_a_client_is_taken_out_of_the_waiters() {
    assert!(!is_overtaken(drop_registered), "at the end of a queue");
    assert!(!is_overtaken(|queues| queues.told("a", 0, Duration::ZERO)), "by news");
    assert!(!is_overtaken(|queues| queues.hand_over("a", Duration::ZERO)), "by a hand-over");
    assert!(!is_overtaken(|queues| queues.note_registered("a")), "by a late answer");
}

/// Whether another thread can enter a queue while the client is being taken out of the waiters.
fn is_overtaken(stops: impl FnOnce(&Arc<Queues>)) -> bool {
    let (begins, begun) = mpsc::channel();
    let (enters, entered) = mpsc::channel();
    let (entered, overtaken) = (Mutex::new(entered), Arc::<AtomicUsize>::default());
    let count = overtaken.clone();
    let stop_waiting = move |_: &str| {
        begins.send(()).unwrap();
        // It cannot come while this call lasts; if it could, it would at once.
        if locked(&entered).recv_timeout(Duration::from_millis(200)).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let queues = Queues::new(2, Box::new(stop_waiting));
    let others = queues.clone();
    thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv().unwrap();
            let _place = others.enter("a", false);
            // Nobody listens any more if it was not overtaken.
            let _ = enters.send(());
        });
        stops(&queues);
    });
    overtaken.load(Ordering::Relaxed) > 0
}

fn drop_registered(queues: &Arc<Queues>) {
    let place = queues.enter("a", false);
    place.registers(true);
}

#[test]
fn a_release_is_handed_over_to_a_waiter_of_the_same_client_and_otherwise_told() {
    let (queues, _) = queues();
    let told = |here, elsewhere| Handover { here, elsewhere, pause: Duration::ZERO };
    assert_eq!(queues.released("a", grant(), false), told(false, true), "nobody waits");
    let (place, id) = (queues.enter("a", false), grant());
    assert_eq!(queues.released("a", id, false), told(false, true), "a grant of a try");
    place.granted(id);
    assert_eq!(queues.released("a", id, false), told(true, false));
    assert_eq!(queues.released("a", id, false), told(false, true), "a repetition");
}

#[test]
fn a_grant_that_has_ended_without_a_release_is_waited_for_no_more() {
    let (queues, _) = queues();
    let (place, id) = (queues.enter("a", false), grant());
    assert_eq!(place.held_here_since_answer(), None);
    place.granted(id);
    queues.ended("a", grant());
    assert!(place.held_here_since_answer().is_some(), "another one has ended");
    queues.ended("a", id);
    assert_eq!(place.held_here_since_answer(), None);
    queues.ended("b", id);
}

#[test]
fn a_run_of_hand_overs_ends_if_others_wait() {
    let (queues, _) = queues();
    let place = queues.enter("a", false);
    queues.set_others_wait("a", true);
    let mut stayed = 0;
    loop {
        let id = grant();
        place.granted(id);
        let Handover { here, elsewhere, .. } = queues.released("a", id, false);
        assert!(here);
        if elsewhere {
            break;
        }
        stayed += 1;
    }
    assert!((1..=20).contains(&stayed), "{stayed}");
}

#[test]
fn news_that_nobody_waits_for_is_passed_on() {
    let (queues, passed) = queues();
    queues.told("a", 0, Duration::ZERO);
    queues.hand_over("a", Duration::ZERO);
    assert_eq!(passed.load(Ordering::Relaxed), 2, "nobody waits");
    let (first, second) = (queues.enter("a", false), queues.enter("a", false));
    queues.hand_over("a", Duration::ZERO);
    drop(first);
    assert_eq!(passed.load(Ordering::Relaxed), 2, "the second one has it");
    drop(second);
    assert_eq!(passed.load(Ordering::Relaxed), 3, "the last one left without asking");
    assert!(locked(&queues.queues).is_empty());
}

#[test]
fn a_registration_that_is_heard_of_late_ends_with_the_last_waiter() {
    let (queues, passed) = queues();
    let place = queues.enter("a", false);
    queues.note_registered("a");
    assert_eq!(passed.load(Ordering::Relaxed), 0, "somebody waits");
    drop(place);
    assert_eq!(passed.load(Ordering::Relaxed), 1);
    queues.note_registered("a");
    assert_eq!(passed.load(Ordering::Relaxed), 2, "nobody waits");
}

#[tokio::test]
async fn a_grant_that_has_ended_without_a_release_has_the_first_waiter_ask() {
    let (queues, _) = queues();
    let (holder, id) = (queues.enter("a", false), grant());
    holder.granted(id);
    let first = queues.enter("a", false);
    drop(holder);
    let mut pause = pin!(first.pause(BootInstant::FAR_FUTURE));
    assert!(pause.as_mut().now_or_never().is_none(), "the lock is held");
    queues.ended("a", id);
    assert!(pause.now_or_never().is_some(), "nobody tells that it is free");
}

#[tokio::test]
async fn a_waiter_behind_the_first_is_as_patient_as_the_first_one_is_between_two_requests() {
    let (queues, _) = queues();
    let (first, second) = (queues.enter("a", false), queues.enter("a", false));
    let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
    attempt.patience = Duration::from_millis(1);
    first.first(&attempt, Deadline::NEVER).await.unwrap();
    first.answered(true);
    let within = Deadline::after(SystemClock.now(), AGAIN / 4);
    assert_eq!(second.first(&attempt, within).await.unwrap_err(), WaitEnded::Held, "nobody had asked again");
    first.asks();
    first.not_answered();
    assert_eq!(second.first(&attempt, Deadline::NEVER).await.unwrap_err(), WaitEnded::Unknown);
}

#[tokio::test]
async fn a_waiter_behind_the_first_ends_with_its_deadline_or_its_patience() {
    let (queues, _) = queues();
    let (first, second) = (queues.enter("a", false), queues.enter("a", false));
    let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
    first.first(&attempt, Deadline::NEVER).await.unwrap();
    let soon = || Deadline::after(SystemClock.now(), Duration::from_millis(5));
    assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Unknown, "nothing was answered yet");
    first.answered(true);
    assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Held);
    first.not_answered();
    assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Unknown);
    attempt.patience = Duration::from_millis(5);
    first.asks();
    assert_eq!(second.first(&attempt, Deadline::NEVER).await.unwrap_err(), WaitEnded::Unknown);
}

#[tokio::test]
async fn a_waiter_behind_others_that_are_not_polled_is_patient_until_it_asks_itself() {
    let (queues, _) = queues();
    let left = [(); 30].map(|()| queues.enter("a", false));
    let next = queues.enter("a", false);
    let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
    (attempt.op_timeout, attempt.patience) = (Duration::from_millis(10), Duration::from_millis(10));
    let mut waits = left.each_ref().map(|place| Box::pin(place.first(&attempt, Deadline::NEVER)));
    assert!(waits[0].as_mut().now_or_never().is_some(), "the first place is free");
    waits[1..].iter_mut().for_each(|wait| assert!(wait.as_mut().now_or_never().is_none()));
    let began = SystemClock.now();
    let silent_since = next.first(&attempt, Deadline::NEVER).await.unwrap();
    assert!(silent_since > began, "its patience begins when it asks");
}

#[tokio::test]
async fn a_waiter_behind_one_that_was_left_within_its_request_is_patient_until_it_asks_itself() {
    let (queues, _) = queues();
    let left = [(); 3].map(|()| queues.enter("a", false));
    let next = queues.enter("a", false);
    let mut attempt = attempt_of(Duration::from_millis(10));
    // Longer than a request counts, and shorter than those that are left are waited for.
    attempt.patience = UNASKED + 10 * attempt.op_timeout;
    left[0].first(&attempt, Deadline::NEVER).await.unwrap();
    left[0].asks();
    let began = SystemClock.now();
    let silent_since = next.first(&attempt, Deadline::NEVER).await.unwrap();
    assert!(silent_since > began, "its patience begins when it asks");
}

#[tokio::test]
async fn a_waiter_that_comes_when_nobody_has_asked_for_long_has_the_first_place_soon() {
    let (queues, _) = queues();
    let left = queues.enter("a", false);
    let attempt = attempt_of(Duration::from_secs(1));
    left.first(&attempt, Deadline::NEVER).await.unwrap();
    left.asks();
    left.answered(true);
    let unasked = UNASKED + attempt.op_timeout;
    SystemClock.sleep_until(SystemClock.now().plus(unasked)).await;
    let next = queues.enter("a", false);
    // Less than it would take for nobody to have asked for long since it came.
    let within = Deadline::after(SystemClock.now(), unasked - Duration::from_millis(100));
    next.first(&attempt, within).await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_is_polled_seldom_passes_over_one_that_is_not_polled() {
    let (queues, _) = queues();
    let (left, seldom) = (queues.enter("a", false), queues.enter("a", false));
    let attempt = attempt_of(Duration::from_millis(10));
    left.first(&attempt, Deadline::NEVER).await.unwrap();
    left.asks();
    left.answered(true);
    let mut waits = Box::pin(seldom.first(&attempt, Deadline::NEVER));
    // It sees that somebody else is the first, then that nobody asks, then that nobody has answered its call.
    for polls in 1.. {
        if (&mut waits).now_or_never().is_some() {
            break;
        }
        assert!(polls < 3, "each of its polls is taken for a standstill of everybody");
        SystemClock
            .sleep_until(SystemClock.now().plus(UNASKED + attempt.op_timeout + Duration::from_millis(600)))
            .await;
    }
}

#[tokio::test]
async fn a_call_whose_caller_has_gone_holds_up_nobody_who_comes_later() {
    let (queues, _) = queues();
    let left = queues.enter("a", false);
    let attempt = attempt_of(Duration::from_millis(10));
    left.first(&attempt, Deadline::NEVER).await.unwrap();
    left.asks();
    left.answered(true);
    let unasked = UNASKED + attempt.op_timeout;
    SystemClock.sleep_until(SystemClock.now().plus(unasked)).await;
    let hasty = queues.enter("a", false);
    let soon = Deadline::after(SystemClock.now(), ANSWERED / 3);
    hasty.first(&attempt, soon).await.unwrap_err();
    drop(hasty);
    // Longer than a timer may be late without a standstill.
    SystemClock.sleep_until(SystemClock.now().plus(Duration::from_secs(1))).await;
    let next = queues.enter("a", false);
    let within = Deadline::after(SystemClock.now(), unasked - Duration::from_millis(100));
    next.first(&attempt, within).await.unwrap();
}
