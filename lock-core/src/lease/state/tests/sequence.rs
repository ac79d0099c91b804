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
        Event::Notice { lost_by: at(0), reason: LossReason::Taken },
        Event::Refused,
        Event::Suspect,
        Event::Require(LeaseOptions::new(2 * TTL)),
        Event::Attend,
        Event::Unattend,
        Event::Prolong,
        Event::Release,
    ];
    let begun = Course { lease: lease(LeaseOptions::new(TTL)), sequence: Vec::new(), losses: 0, ended: false };
    begun.go_on(&[0, 1000, 2967, 2968, 3900, 9000], &events);
}

/// A lease after some events.
#[derive(Clone)]
struct Course {
    lease: LeaseState,
    /// The events until now, by their places in the list.
    sequence: Vec<usize>,
    losses: u32,
    ended: bool,
}

impl Course {
    /// Takes every one of the events at the next instant, and goes on from there.
    fn go_on(&self, times: &[u64], events: &[Event]) {
        let Some((now, later)) = times.split_first() else { return };
        for (place, event) in events.iter().enumerate() {
            let mut next = self.clone();
            next.sequence.push(place);
            next.take(*now, event.clone());
            next.go_on(later, events);
        }
    }

    fn take(&mut self, now: u64, event: Event) {
        self.losses += u32::from(self.lease.step(at(now), event).lost.is_some());
        let held = self.lease.is_held(at(now));
        assert!(!(self.ended && held), "revived by sequence {:?}", self.sequence);
        assert!(!held || now < 900 + 2968, "held past every deadline by sequence {:?}", self.sequence);
        assert!(self.losses <= 1, "told {} times by sequence {:?}", self.losses, self.sequence);
        self.ended |= !held;
    }
}
