//! The end of a hold: released, refused, or lost by a notice.

use super::*;

#[test]
fn after_a_release_nothing_is_signalled_or_renewed() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(10), Event::Release);
    assert!(!lease.is_held(at(11)));
    let notice = Event::Notice { lost_by: at(5000), reason: LossReason::Taken };
    for event in [Event::Tick, notice, answer(5, Answer::Lost(LossReason::Taken))] {
        assert_eq!(lease.step(at(5000), event), Actions::default());
    }
}

#[test]
fn a_notice_of_what_was_lost_before_the_grant_was_asked_for_is_not_heard() {
    let grant = Grant::new(None, at(50), TTL);
    let mut lease = LeaseState::new(&grant, at(60), LeaseOptions::new(TTL), Duration::from_millis(2));
    let notice = |ms| Event::Notice { lost_by: at(ms), reason: LossReason::SessionExpired };
    assert_eq!(lease.step(at(70), notice(49)).lost, None);
    assert!(lease.is_held(at(70)));
    // It may be lost before the answer with the grant has come.
    assert_eq!(lease.step(at(70), notice(50)).lost, Some(LossReason::SessionExpired));
}

#[test]
fn only_a_release_can_find_that_nothing_was_held() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(10), Event::NotHeld(LossReason::Taken)), Actions::default());
    assert!(lease.is_held(at(11)) && lease.loss().is_none());
}

#[test]
fn a_lease_whose_holder_is_refused_is_lost_and_given_up_at_the_server() {
    let mut refused = lease(LeaseOptions::new(TTL));
    let actions = refused.step(at(500), Event::Refused);
    assert_eq!((actions.lost, actions.discard), (Some(LossReason::Taken), true));
    let mut released = lease(LeaseOptions::new(TTL));
    released.step(at(500), Event::Release);
    assert_eq!(released.step(at(600), Event::Refused), Actions::default());
}
