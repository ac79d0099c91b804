//! Sequences of events: the invariants that a holder relies on.

use super::*;

/// Every sequence of events of length six, at every order of instants: the invariants that a holder relies on.
#[test]
fn no_sequence_of_events_revives_a_lease_or_tells_a_loss_twice() {
    let events = [
        Event::Tick,
        answer(0, Answer::Renewed(TTL)),
        answer(900, Answer::Renewed(TTL)),
        answer(0, Answer::Unknown),
        answer(0, Answer::Lost(LossReason::Taken)),
        Event::Suspect,
        Event::Attend,
        Event::Prolong,
        Event::Release,
    ];
    let times = [0, 1000, 2967, 2968, 3900, 9000];
    for code in 0..events.len().pow(6) {
        let mut lease = lease(LeaseOptions::new(TTL));
        let (mut rest, mut losses, mut ended) = (code, 0, false);
        for now in times {
            lease.step(at(now), events[rest % events.len()].clone()).lost.iter().for_each(|_| losses += 1);
            rest /= events.len();
            let held = lease.is_held(at(now));
            assert!(!(ended && held), "revived by sequence {code}");
            assert!(!held || now < 900 + 2968, "held past every deadline by sequence {code}");
            ended |= !held;
        }
        assert!(losses <= 1, "told {losses} times by sequence {code}");
    }
}
