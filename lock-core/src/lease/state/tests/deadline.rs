//! The deadline: until when a holder believes in its lock, and how much is left at least.

use super::*;

#[test]
fn the_margin_is_one_per_cent_and_the_granularity() {
    assert_eq!(lease(LeaseOptions::new(TTL)).deadline(), at(3000 - 30 - 2));
}

#[test]
fn the_least_that_is_left_is_that_at_the_next_renewal_less_the_margin() {
    let options = LeaseOptions::new(TTL);
    assert_eq!(lease(options).least_left(), Duration::from_millis(3000 - 30 - 2 - 1000));
    assert_eq!(lease(options.with_auto_renew(false)).least_left(), Duration::from_millis(3000 - 30 - 2));
}

#[test]
fn a_passed_deadline_is_final_and_told_once() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    assert!(!lease.is_held(at(2968)));
    let late = lease.step(at(2968), answer(1000, Answer::Renewed(TTL)));
    assert_eq!((late.lost, late.discard), (Some(LossReason::Expired), true));
    let again = lease.step(at(2969), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(again, Actions::default());
    assert!(!lease.is_held(at(2970)));
}

#[test]
fn a_release_at_the_deadline_finds_the_loss_and_a_second_one_nothing() {
    let mut late = lease(LeaseOptions::new(TTL));
    let told = late.step(at(2968), Event::Release);
    assert_eq!((told.lost, told.discard), (Some(LossReason::Expired), true));
    assert_eq!((late.is_released(), late.loss()), (false, Some(&LossReason::Expired)));
    assert_eq!(late.step(at(2969), Event::Release), Actions::default());
    assert_eq!(late.step(at(2969), Event::NotHeld(LossReason::Taken)), Actions::default(), "told already");

    let mut in_time = lease(LeaseOptions::new(TTL));
    assert_eq!(in_time.step(at(2967), Event::Release), Actions::default());
    assert_eq!((in_time.is_released(), in_time.loss(), in_time.wake_at()), (true, None, None));
    assert_eq!(in_time.step(at(9000), Event::Release), Actions::default());
    let gone = in_time.step(at(9001), Event::NotHeld(LossReason::Taken));
    assert_eq!((gone.lost, gone.discard), (Some(LossReason::Taken), false));
}

#[test]
fn the_longest_hold_counts_from_the_holders_beginning() {
    // A waiter was handed the lock by an answer to a question of 600 ms before.
    let grant = Grant::new(None, at(0), Duration::from_secs(2)).with_claim();
    let options = LeaseOptions::new(TTL).with_max_hold(Duration::from_millis(500));
    let mut lease = LeaseState::new(&grant, at(600), options, Duration::from_millis(2));
    assert!(lease.is_held(at(1099)) && !lease.is_held(at(1100)));
    assert_eq!(lease.step(at(619), Event::Tick).renew, None, "a release may come before");
    assert_eq!(lease.step(at(620), Event::Tick).renew, Some(TTL), "it is claimed all the same");
}

#[test]
fn the_longest_hold_stops_renewals() {
    let mut lease = lease(LeaseOptions::new(TTL).with_max_hold(Duration::from_secs(4)));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1001), answer(1000, Answer::Renewed(TTL)));
    lease.step(at(2000), Event::Tick);
    lease.step(at(2001), answer(2000, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), at(4000));
    assert_eq!(lease.step(at(4000), Event::Tick).lost, Some(LossReason::Expired));
}
