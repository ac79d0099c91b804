//! Parts: a server that keeps less than was asked for, or grants a short claim, is asked again in time.

use super::*;

#[test]
fn the_least_that_is_left_of_a_lease_in_parts_is_that_of_a_part() {
    let (asked, part) = (LeaseOptions::new(Duration::from_secs(60)), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), asked, Duration::from_millis(2));
    assert_eq!(lease.least_left(), Duration::from_millis(9000 - 90 - 2 - 3000));
    assert_eq!(lease.wake_at(), Some(at(3000)), "it is renewed when so much is left");
    lease.step(at(3000), Event::Tick);
    lease.step(at(3001), answer(3000, Answer::Part { valid_for: part / 2, asked: asked.ttl }));
    assert_eq!(lease.least_left(), Duration::from_millis(4500 - 45 - 2 - 1500));
}

#[test]
fn a_server_that_counts_in_coarser_units_keeps_all_of_it() {
    let unrenewed = LeaseOptions::new(TTL).with_auto_renew(false);
    let state = |ms| {
        LeaseState::new(&Grant::new(None, at(0), Duration::from_millis(ms)), at(0), unrenewed, Duration::from_millis(2))
    };
    assert_eq!(state(2998).wake_at(), Some(at(2998 - 29 - 2).minus(Duration::from_micros(980))));
    assert_eq!(state(2997).wake_at(), Some(at(999)), "a third of what it keeps");
}

#[test]
fn a_server_that_keeps_a_part_is_asked_again_in_time() {
    let part = |ms: u64, asked| Answer::Part { valid_for: Duration::from_millis(ms), asked };
    let grant = Grant::new(None, at(0), Duration::from_millis(900));
    let mut renewed = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL), Duration::ZERO);
    assert_eq!(renewed.wake_at(), Some(at(300)), "a third of the part, not of the TTL");
    assert_eq!(renewed.step(at(300), Event::Tick).renew, Some(TTL));
    assert_eq!(renewed.step(at(310), answer(300, part(1200, TTL))).wake_at, Some(at(300 + 400)));

    let mut unrenewed = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL).with_auto_renew(false), Duration::ZERO);
    assert_eq!(unrenewed.step(at(300), Event::Tick).renew, Some(Duration::from_millis(2700)), "what is left of it");
    unrenewed.step(at(310), answer(300, part(900, Duration::from_millis(2700))));
    assert_eq!(unrenewed.step(at(600), Event::Tick).renew, Some(Duration::from_millis(2400)));
    unrenewed.step(at(610), answer(600, Answer::Renewed(Duration::from_millis(2400))));
    assert_eq!(unrenewed.step(at(2900), Event::Tick).renew, None, "all of it is kept");
    assert_eq!(unrenewed.step(at(2976), Event::Tick).lost, Some(LossReason::Expired), "and no more");
}

#[test]
fn the_renewal_of_a_part_that_is_never_answered_is_sent_again_before_the_part_ends() {
    let grant = Grant::new(None, at(0), Duration::from_millis(900));
    let mut lease = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL), Duration::ZERO);
    assert_eq!(lease.step(at(300), Event::Tick).wake_at, Some(at(600)));
    assert_eq!(lease.step(at(600), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_claim_or_a_part_without_an_answer_is_asked_for_again_also_without_renewal() {
    let unrenewed = LeaseOptions::new(TTL).with_auto_renew(false);
    let part = Grant::new(None, at(0), Duration::from_millis(900));
    for (grant, due) in [(part, 300), (Grant::new(None, at(0), TTL).with_claim(), 20)] {
        let mut lease = LeaseState::new(&grant, at(0), unrenewed, Duration::ZERO);
        assert!(lease.step(at(due), Event::Tick).renew.is_some());
        assert_eq!(lease.step(at(due + 10), answer(due, Answer::Unknown)).wake_at, Some(at(due + 60)));
    }
}

#[test]
fn a_claim_is_due_almost_at_once_even_without_renewal() {
    let grant = Grant::new(None, at(0), Duration::from_secs(2)).with_claim();
    let mut lease = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL).with_auto_renew(false), Duration::ZERO);
    assert_eq!(lease.step(at(20), Event::Tick).renew, Some(TTL));
    lease.step(at(22), answer(21, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), at(21 + 2970));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
}

#[test]
fn a_wish_that_is_no_stronger_hastens_nothing_in_parts() {
    let (options, part) = (LeaseOptions::new(Duration::from_secs(60)), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), options, Duration::ZERO);
    assert_eq!(lease.step(at(500), Event::Require(options)).wake_at, Some(at(3000)));
}

#[test]
fn a_server_that_keeps_it_for_no_time_is_not_asked_all_the_time() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    let asked_again =
        lease.step(at(1000), answer(1000, Answer::Part { valid_for: Duration::ZERO, asked: TTL })).wake_at;
    assert!(asked_again > Some(at(1000)), "{asked_again:?}");
}
