//! Doubts: a lease that the server may have forgotten is verified.

use super::*;

#[test]
fn a_suspicion_is_dispelled_only_by_a_renewal_that_was_sent_after_it() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1100), Event::Suspect);
    lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.step(at(1200), Event::Tick).renew, Some(TTL));
    let verified = lease.step(at(1210), answer(1200, Answer::Renewed(TTL)));
    assert_eq!(verified.wake_at, Some(at(2200)));
}

#[test]
fn a_lease_without_renewal_is_verified_once_after_a_suspicion_for_what_is_left_of_it() {
    let unrenewed = || lease(LeaseOptions::new(TTL).with_auto_renew(false));
    let left = TTL - Duration::from_millis(101);
    let mut kept = unrenewed();
    assert_eq!(kept.step(at(100), Event::Suspect).wake_at, Some(at(100)));
    assert_eq!(kept.step(at(101), Event::Tick).renew, Some(left));
    let confirmed = kept.step(at(110), answer(101, Answer::Renewed(left)));
    assert_eq!((confirmed.lost, confirmed.wake_at), (None, Some(kept.deadline())), "nothing more is asked");
    assert!(kept.deadline() <= at(3000), "it became longer than its holder has asked for");
    assert_eq!(kept.step(at(2000), Event::Tick).renew, None);

    let mut gone = unrenewed();
    gone.step(at(100), Event::Suspect);
    gone.step(at(101), Event::Tick);
    assert_eq!(gone.step(at(110), answer(101, Answer::Lost(LossReason::Taken))).lost, Some(LossReason::Taken));
}

/// The task of the first verification is gone, and a third of a day is too long to wait for its answer.
#[test]
fn a_newer_suspicion_is_not_held_back_by_a_verification_from_before_it() {
    let mut lease = LeaseState::new(
        &Grant::new(None, at(0), DAY),
        at(0),
        LeaseOptions::new(DAY).with_auto_renew(false),
        Duration::ZERO,
    );
    lease.step(at(100), Event::Suspect);
    assert!(lease.step(at(100), Event::Tick).renew.is_some());
    assert!(lease.step(at(5000), Event::Suspect).wake_at <= Some(at(5000)));
    assert!(lease.step(at(5000), Event::Tick).renew.is_some());
    assert!(lease.step(at(5001), Event::Tick).renew.is_none(), "one request for each suspicion");
    lease.step(at(5010), answer(5000, Answer::Renewed(DAY)));
    lease.step(at(5020), answer(100, Answer::Renewed(DAY)));
    assert!(lease.step(at(5020), Event::Tick).renew.is_none(), "a late answer raises no doubt again");
}

#[test]
fn a_lease_without_renewal_is_asked_for_until_an_answer_dispels_the_suspicion() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    lease.step(at(100), Event::Suspect);
    lease.step(at(100), Event::Tick);
    assert_eq!(lease.step(at(110), answer(100, Answer::Unknown)).wake_at, Some(at(160)));
    // An extension by hand that was answered by the server of before, for longer than what the next answer confirms.
    let long = Duration::from_secs(60);
    assert_eq!(lease.step(at(120), answer(90, Answer::Renewed(long))).wake_at, Some(at(120)));
    let wanted = at(90).plus(long).since(at(120));
    assert_eq!(lease.step(at(120), Event::Tick).renew, Some(wanted));
    // The answer to a short extension confirms too: the lease is not asked for again, and nothing is taken away from it.
    let deadline = lease.deadline();
    let confirmed = lease.step(at(130), answer(125, Answer::Renewed(TTL)));
    assert_eq!(confirmed.wake_at, Some(deadline));
}

#[test]
fn a_renewal_sent_at_the_instant_of_the_suspicion_dispels_it() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(500), Event::Suspect);
    assert_eq!(lease.step(at(500), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.step(at(510), answer(500, Answer::Renewed(TTL))).wake_at, Some(at(1500)));
}
