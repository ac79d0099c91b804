//! Attendance: a lease that is renewed only as long as a call asks for it.

use super::*;

#[test]
fn a_lease_that_is_attended_is_renewed_when_it_is_due_and_then_once_for_each_time_that_its_holder_asks() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(10), Event::Attend).wake_at, Some(at(1000)), "as it was due");
    assert_eq!(
        lease.step(at(1000), Event::Tick).renew,
        Some(Duration::from_millis(2010)),
        "one TTL from the holder's word on"
    );
    let asked = Duration::from_millis(2010);
    assert_eq!(
        lease.step(at(1100), answer(1000, Answer::Renewed(asked))).wake_at,
        Some(lease.deadline()),
        "no further one"
    );
    assert_eq!(lease.step(at(1200), Event::Prolong).wake_at, Some(at(1200)));
    assert_eq!(lease.step(at(1200), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.step(at(1300), answer(1200, Answer::Renewed(TTL))).wake_at, Some(at(4168)));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
    let again = lease.step(at(2500), Event::Require(LeaseOptions::new(TTL)));
    assert_eq!(again.wake_at, Some(at(2200)), "renewed by itself again, as it was due");
}

/// One after the other, without a pause between them in which the keeper would run.
#[test]
fn short_calls_that_attend_a_lease_do_not_keep_it_from_being_renewed() {
    let (mut lease, mut renewals) = (lease(LeaseOptions::new(TTL)), 0);
    for now in (10..30_000).step_by(20) {
        let _ = lease.step(at(now), Event::Attend);
        if lease.step(at(now), Event::Tick).renew.is_some() {
            renewals += 1;
            let _ = lease.step(at(now + 10), answer(now, Answer::Renewed(TTL)));
        }
        assert!(lease.is_held(at(now + 20)), "at {now}");
        let _ = lease.step(at(now + 20), Event::Require(LeaseOptions::new(TTL)));
    }
    assert!((29..=31).contains(&renewals), "{renewals} in 30 s");
}

#[test]
fn an_attended_lease_lasts_as_long_at_least_as_one_that_is_renewed_by_itself() {
    let mut lease = lease(LeaseOptions::new(TTL));
    let least = lease.least_left();
    let _ = lease.step(at(10), Event::Attend);
    let _ = lease.step(at(1000), Event::Tick);
    let _ = lease.step(at(1001), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.least_left(), least);
}

#[test]
fn an_attended_lease_asks_again_without_an_answer_and_never_for_more_than_one_ttl_from_its_holders_word() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(10), Event::Attend);
    lease.step(at(1000), Event::Prolong);
    lease.step(at(1000), Event::Tick);
    assert_eq!(lease.step(at(1500), answer(1000, Answer::Unknown)).wake_at, Some(at(1550)));
    assert_eq!(lease.step(at(1550), Event::Tick).renew, Some(Duration::from_millis(2450)));
    let asked = Duration::from_millis(2450);
    assert_eq!(lease.step(at(1600), answer(1550, Answer::Renewed(asked))).wake_at, Some(lease.deadline()));
    assert!(lease.deadline() <= at(4000), "{:?}", lease.deadline());
}

#[test]
fn a_lease_that_was_extended_for_longer_than_its_holder_asks_for_is_not_renewed_all_the_time() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(0), answer(0, Answer::Renewed(DAY)));
    lease.step(at(10), Event::Attend);
    lease.step(at(1000), Event::Prolong);
    let asked = lease.step(at(1000), Event::Tick).renew.unwrap();
    assert_eq!(lease.step(at(1001), answer(1000, Answer::Renewed(asked))).wake_at, Some(lease.deadline()));
}
