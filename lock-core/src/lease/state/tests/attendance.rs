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
    let again = lease.step(at(2500), Event::Unattend);
    assert_eq!(again.wake_at, Some(at(2200)), "renewed by itself again, as it was due");
}

/// One after the other, without a pause between them in which the keeper would run; alone, and beside one that nobody polls.
#[test]
fn short_calls_that_attend_a_lease_do_not_keep_it_from_being_renewed() {
    for beside in [0, 1] {
        let (mut lease, mut renewals) = (lease(LeaseOptions::new(TTL)), 0);
        (0..beside).for_each(|_| drop(lease.step(at(5), Event::Attend)));
        for now in (10..30_000).step_by(20) {
            let _ = lease.step(at(now), Event::Attend);
            if lease.step(at(now), Event::Tick).renew.is_some() {
                renewals += 1;
                let _ = lease.step(at(now + 10), answer(now, Answer::Renewed(TTL)));
            }
            assert!(lease.is_held(at(now + 20)), "at {now}");
            let _ = lease.step(at(now + 20), Event::Unattend);
        }
        assert!((29..=31).contains(&renewals), "{renewals} in 30 s");
    }
}

#[test]
fn a_lease_that_several_calls_attend_is_renewed_by_itself_when_the_last_of_them_is_over() {
    let mut lease = lease(LeaseOptions::new(TTL));
    (0..3).for_each(|_| drop(lease.step(at(10), Event::Attend)));
    let asked = lease.step(at(1000), Event::Tick).renew.unwrap();
    lease.step(at(1001), answer(1000, Answer::Renewed(asked)));
    for now in [1100, 1200] {
        assert_eq!(lease.step(at(now), Event::Unattend).wake_at, Some(lease.deadline()), "no further renewal");
        assert!(lease.is_attended());
    }
    assert_eq!(lease.step(at(1300), Event::Prolong).wake_at, Some(at(1300)), "the last one goes on to ask");
    assert_eq!(lease.step(at(1300), Event::Tick).renew, Some(TTL));
    lease.step(at(1301), answer(1300, Answer::Renewed(TTL)));
    assert_eq!(lease.step(at(1400), Event::Unattend).wake_at, Some(at(2300)));
    assert_eq!(lease.step(at(2300), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_lease_that_is_not_renewed_by_choice_is_not_after_it_was_attended() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    lease.step(at(10), Event::Attend);
    assert!(!lease.is_attended(), "it is the holder's to extend it");
    lease.step(at(20), Event::Unattend);
    assert_eq!(lease.step(at(2900), Event::Tick).renew, None);
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

#[test]
fn what_a_call_wanted_that_attended_a_lease_makes_no_part_of_it() {
    let options = LeaseOptions::new(TTL).with_renew_every(TTL / 2);
    let mut lease = lease(options);
    let least = lease.least_left();
    assert_eq!(least, Duration::from_millis(1468));
    lease.step(at(10), Event::Attend);
    assert_eq!(lease.least_left(), least, "while it is attended");
    lease.step(at(20), Event::Unattend);
    assert_eq!(lease.least_left(), least, "afterwards");
    assert_eq!(lease.step(at(1500), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.wake_at(), Some(lease.deadline()), "its answer is waited for as before, for an interval");
}

#[test]
fn an_extension_by_hand_is_kept_in_parts_after_the_call_that_attended_the_lease() {
    let mut lease = lease(LeaseOptions::new(TTL).with_renew_every(TTL / 2));
    lease.step(at(10), Event::Attend);
    lease.step(at(15), answer(15, Answer::Part { valid_for: TTL, asked: 3 * TTL }));
    assert_eq!(lease.step(at(20), Event::Unattend).wake_at, Some(at(15 + 1000)));
    assert_eq!(lease.least_left(), Duration::from_millis(3000 - 30 - 2 - 1000));
}
