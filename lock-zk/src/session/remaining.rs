//! The figures that the README gives for `remaining()`, from the machines that compute it: a session's lease and a guard's.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::LeaseOptions;
use lock_core::clock::BootInstant;
use lock_core::driver::Grant;
use lock_core::lease_state::{Answer, Event, LeaseState};

use super::lease::SessionLease;

const TIMEOUT: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(10);
const GRANULARITY: Duration = Duration::from_millis(2);

/// The instant of the first grants: the session has its usual length by then.
const LATER: u64 = 30_000;

/// The least and the most of anything, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Span {
    least: u128,
    most: u128,
}

impl Span {
    const NONE: Self = Self { least: u128::MAX, most: 0 };

    fn add(&mut self, time: Duration) {
        self.least = self.least.min(time.as_millis());
        self.most = self.most.max(time.as_millis());
    }
}

const fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

/// The time that remains of the session and of a guard that was granted at this instant, looked at every millisecond for a minute.
/// Every request takes `trip`, and each heartbeat as long as `heartbeat_trip` says of its number.
fn remaining(granted_at: u64, trip: u64, heartbeat_trip: impl Fn(u32) -> u64) -> [Span; 2] {
    let mut session = SessionLease::new(at(0), TIMEOUT, TICK);
    let (mut guard, mut spans) = (None::<LeaseState>, [Span::NONE; 2]);
    let (mut heartbeats, mut number) = (VecDeque::new(), 0);
    let mut renewal = None;
    for now in 0..granted_at + 60_000 {
        let due = session.heartbeat_interval() * number;
        if at(now) >= at(0).plus(due) {
            heartbeats.push_back((at(now), now + heartbeat_trip(number)));
            number += 1;
        }
        // In the order of their sending, as a server answers them.
        while let Some((sent_at, _)) = heartbeats.front().copied().filter(|(_, answered)| *answered <= now) {
            heartbeats.pop_front();
            session.answered(sent_at, at(now));
        }
        if now == granted_at {
            let grant = Grant::new(None, at(now), session.end().since(at(now)).min(TTL));
            guard = Some(LeaseState::new(&grant, at(now), LeaseOptions::new(TTL), GRANULARITY));
        }
        let Some(guard) = &mut guard else { continue };
        if let Some((sent_at, ttl)) =
            renewal.filter(|(sent_at, _)| at(now) >= BootInstant::plus(*sent_at, Duration::from_millis(trip)))
        {
            let left = session.end().since(sent_at).min(ttl);
            guard.step(at(now), Event::Answer { sent_at, answer: Answer::kept(left, ttl) });
            renewal = None;
        }
        if let Some(ttl) = guard.step(at(now), Event::Tick).renew {
            renewal = Some((at(now), ttl));
        }
        spans[0].add(session.end().since(at(now)));
        spans[1].add(guard.deadline().since(at(now)));
    }
    spans
}

/// The spans over guards that are granted at every moment between two heartbeats, on links with these round trips. A heartbeat
/// takes longer if `longer` says so of its number.
fn of_all(trips: &[u64], longer: impl Fn(u32) -> u64) -> [Span; 2] {
    let mut all = [Span::NONE; 2];
    for trip in trips {
        for phase in (0..1250).step_by(50) {
            for (span, of_one) in
                all.iter_mut().zip(remaining(LATER + phase, *trip, |number| longer(number).max(*trip)))
            {
                (span.least, span.most) = (span.least.min(of_one.least), span.most.max(of_one.most));
            }
        }
    }
    all
}

/// Seconds with one digit, never more than the least.
fn least(span: Span) -> String {
    format!("{}.{}", span.least / 1000, span.least / 100 % 10)
}

/// Seconds with one digit, never less than the most.
fn most(span: Span) -> String {
    let tenths = span.most.div_ceil(100);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[test]
fn with_the_defaults_a_session_and_its_guards_last_as_long_as_the_readme_says() {
    let [session, _] = of_all(&[1], |_| 0);
    let [_, guard] = of_all(&[1, 125], |_| 0);
    let [_, with_one_late] = of_all(&[1, 125], |number| if number % 10 == 7 { 1000 } else { 0 });
    let readme = include_str!("../../README.md");
    for figures in [
        format!("for {} to {} s at any time on a healthy link", least(session), most(session)),
        format!("**{} to {} s**", least(guard), most(guard)),
        format!("{} s at least if one of them takes a second", least(with_one_late)),
    ] {
        assert!(readme.contains(&figures), "the README does not say: {figures}");
    }
    let figure = format!("{} s at least remain", least(guard));
    assert!(include_str!("../config.rs").contains(&figure), "the option does not say: {figure}");
}
