//! Extensions by hand, beside the renewals.

use super::*;

#[test]
fn an_extension_by_hand_is_kept_in_parts_too() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    let (asked, valid_for) = (Duration::from_secs(9), TTL);
    lease.step(at(1000), answer(1000, Answer::Part { valid_for, asked }));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, Some(Duration::from_secs(8)));
}

#[test]
fn an_extension_by_hand_is_not_shortened_by_the_next_renewal() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(100), answer(100, Answer::Renewed(Duration::from_secs(60))));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
    let due = 100 + 57_000 + 1000;
    assert_eq!(lease.step(at(due), Event::Tick).renew, Some(TTL));
}

#[test]
fn short_extensions_by_hand_put_no_renewal_off() {
    let mut lease = lease(LeaseOptions::new(TTL));
    // Each asks for what is left, which is more than the second that the holder wants.
    for (now, left) in [(900, 2068), (1800, 1168), (2700, 268)] {
        lease.step(at(now), answer(now, Answer::Renewed(Duration::from_millis(left))));
        assert!(lease.wake_at() <= Some(at(1000)), "{:?} after {now} ms", lease.wake_at());
    }
    assert_eq!(lease.step(at(2900), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_long_extension_by_hand_is_followed_by_a_renewal_in_time() {
    // The margin grows with the extension.
    for seconds in [10, 60, 300, 3600, 86_400] {
        let mut lease = lease(LeaseOptions::new(TTL));
        let least = lease.least_left();
        lease.step(at(100), answer(100, Answer::Renewed(Duration::from_secs(seconds))));
        let due = lease.wake_at().unwrap();
        assert_eq!(lease.deadline().since(due), least, "after {seconds} s");
        assert_eq!(lease.step(due, Event::Tick).renew, Some(TTL));
    }
}

#[test]
fn short_extensions_by_hand_put_no_renewal_off_in_parts() {
    let (ttl, part) = (Duration::from_secs(60), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), LeaseOptions::new(ttl), Duration::ZERO);
    let least = lease.least_left();
    for now in (200..3000).step_by(200) {
        let left = lease.deadline().since(at(now)).max(Duration::from_secs(1));
        lease.step(at(now), answer(now, Answer::Renewed(left)));
        assert_eq!((lease.wake_at(), lease.least_left()), (Some(at(3000)), least), "after {now} ms");
    }
    assert_eq!(lease.step(at(3000), Event::Tick).renew, Some(ttl));
}

#[test]
fn an_extension_at_the_last_moment_is_followed_by_a_renewal() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(2800), Event::Tick);
    lease.step(at(2850), answer(2800, Answer::Unknown));
    lease.step(at(2900), answer(2890, Answer::Renewed(Duration::from_secs(1))));
    assert_eq!(lease.step(at(2900), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_failed_extension_by_hand_starts_no_renewals() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    lease.step(at(100), answer(100, Answer::Unknown));
    assert_eq!(lease.step(at(1500), Event::Tick).renew, None);
}

#[test]
fn a_renewal_that_was_overtaken_by_an_extension_takes_nothing_away() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1100), answer(1050, Answer::Renewed(Duration::from_secs(60))));
    let extended = lease.deadline();
    lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), extended);
}
