//! The order and the pace in which clean-up is tried again: pure, without clock or I/O.
//!
//! A job whose request got no answer waits for the server. All such jobs of one [place](crate::driver::Backend::place)
//! share one pause ([`Lane`]): one of them is tried, and only an answer has the others follow, twice as many each time. So
//! an outage costs the same whatever it leaves to be done, and what is to be done elsewhere does not wait for it. Those that
//! were tried least come first, the latest of them before the others: a job of which the server could know is not kept
//! waiting by many that have been tried in vain.
//!
//! A job whose server answered that there is more to come waits for itself.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lane::{FIRST_PAUSE, LONGEST_PAUSE, Lane, WaitingJob, jittered, sweep};
use crate::clock::BootInstant;

/// The limit of lanes. While there are so many, a place that has none yet shares one of them.
const MOST_LANES: usize = 1024;

/// The most jobs, about, that wait for themselves and are tried in a second.
const EACH: Duration = Duration::from_millis(1);

/// Jobs that wait for their next try.
#[derive(Debug)]
pub(super) struct Backlog<J> {
    /// The jobs without an answer, by the number of a place. An idle lane is forgotten.
    lanes: BTreeMap<u64, Lane<J>>,
    later: BTreeMap<(BootInstant, u64), WaitingJob<J>>,
    /// The number that was given out last.
    number: u64,
    /// The instant at which jobs whose time is over are looked for.
    sweep_at: BootInstant,
}

impl<J> Default for Backlog<J> {
    fn default() -> Self {
        let sweep_at = BootInstant::from_origin(Duration::ZERO);
        Self { lanes: BTreeMap::new(), later: BTreeMap::new(), number: 0, sweep_at }
    }
}

impl<J> Backlog<J> {
    pub(super) fn len(&self) -> usize {
        self.lanes.values().map(Lane::len).sum::<usize>() + self.later.len()
    }

    /// A job that was tried so often got no answer from its place. It is given up after `until`.
    pub(super) fn unanswered(&mut self, now: BootInstant, place: u64, job: J, tries: u32, until: BootInstant) {
        let number = self.next_number(now);
        let lane = self.lanes.entry(self.lane_of(place)).or_insert_with(|| Lane::new(now));
        if tries <= 1 && lane.is_idle() {
            *lane = Lane::new(now);
        }
        lane.wait(tries, number, WaitingJob { job, until });
    }

    /// The lane that a job of this place waits in: its own, or that of the next place if it has none and there are too many.
    fn lane_of(&self, place: u64) -> u64 {
        if self.lanes.len() < MOST_LANES || self.lanes.contains_key(&place) {
            return place;
        }
        let next = self.lanes.range(place..).next().or_else(|| self.lanes.first_key_value());
        next.map_or(place, |(&lane, _)| lane)
    }

    /// A job was answered, and has to be tried again.
    pub(super) fn again(&mut self, now: BootInstant, job: J, tries: u32, until: BootInstant) {
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(tries.saturating_sub(1).min(10));
        let crowd = EACH * u32::try_from(self.later.len()).unwrap_or(u32::MAX);
        let due = now.plus(jittered(doubled.min(LONGEST_PAUSE).max(crowd)));
        let number = self.next_number(now);
        self.later.insert((due, number), WaitingJob { job, until });
    }

    /// Takes the result of trying an unanswered job of this lane again.
    pub(super) fn tried(&mut self, now: BootInstant, lane: u64, answered: bool) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.tried(now, answered);
        }
    }

    /// The jobs to be tried now; for each unanswered one its lane, to which the outcome is to be told by
    /// [`tried`](Backlog::tried).
    pub(super) fn due(&mut self, now: BootInstant) -> Vec<(J, Option<u64>)> {
        let mut due = Vec::new();
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            due.push((entry.remove().job, None));
        }
        self.lanes.retain(|_, lane| !lane.is_idle());
        for (&number, lane) in &mut self.lanes {
            while let Some(job) = lane.due(now) {
                due.push((job, Some(number)));
            }
        }
        due
    }

    /// The jobs whose time is over. They are looked for about once a second.
    pub(super) fn over(&mut self, now: BootInstant) -> Vec<J> {
        if now < self.sweep_at || self.len() == 0 {
            return Vec::new();
        }
        self.sweep_at = now.plus(LONGEST_PAUSE);
        let mut over = Vec::new();
        self.lanes.values_mut().for_each(|lane| lane.over(now, &mut over));
        sweep(&mut self.later, now, &mut over);
        over
    }

    /// The instant to come back at.
    pub(super) fn wake_at(&self) -> BootInstant {
        if self.len() == 0 {
            return BootInstant::FAR_FUTURE;
        }
        let later = self.later.first_key_value().map_or(BootInstant::FAR_FUTURE, |((due, _), _)| *due);
        let unanswered = self.lanes.values().map(Lane::wake_at).min();
        later.min(unanswered.unwrap_or(BootInstant::FAR_FUTURE)).min(self.sweep_at)
    }

    /// The number of a job that comes now.
    fn next_number(&mut self, now: BootInstant) -> u64 {
        if self.len() == 0 {
            self.sweep_at = now.plus(LONGEST_PAUSE);
        }
        self.number += 1;
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    fn outage(jobs: u32) -> Backlog<u32> {
        let mut backlog = Backlog::default();
        for job in 0..jobs {
            backlog.unanswered(at(0), 7, job, 1, at(60_000));
        }
        backlog
    }

    #[test]
    fn an_outage_costs_one_try_a_second_whatever_waits() {
        an_outage_costs_one_try_a_second(20_000);
        an_outage_costs_one_try_a_second(1);
    }

    fn an_outage_costs_one_try_a_second(jobs: u32) {
        let mut backlog = outage(jobs);
        let mut tries = 0;
        for ms in (0..60_000).step_by(10) {
            for (job, probe) in backlog.due(at(ms)) {
                assert_eq!(probe, Some(7));
                tries += 1;
                backlog.tried(at(ms), 7, false);
                backlog.unanswered(at(ms), 7, job, 2, at(60_000));
            }
        }
        assert!((30..=70).contains(&tries), "{tries} tries in a minute");
        assert_eq!(backlog.over(at(61_000)).len(), jobs as usize);
        assert_eq!((backlog.len(), backlog.wake_at()), (0, BootInstant::FAR_FUTURE));
    }

    #[test]
    fn an_answer_has_all_others_follow_in_growing_numbers() {
        let mut backlog = outage(20_000);
        let mut widths = Vec::new();
        for round in 0.. {
            let due = backlog.due(at(1000 + round));
            if due.is_empty() {
                break;
            }
            widths.push(due.len());
            due.iter().for_each(|_| backlog.tried(at(1000 + round), 7, true));
        }
        assert_eq!(widths[..4], [1, 2, 8, 1024]);
        assert_eq!(backlog.len(), 0);
    }

    #[test]
    fn a_place_without_answers_does_not_keep_the_others_waiting() {
        let mut backlog = Backlog::default();
        for job in 0..2_000 {
            backlog.unanswered(at(0), job % 2, job, 1, at(60_000));
        }
        let mut tries = [0, 0];
        for ms in 0..10_000 {
            for (job, probe) in backlog.due(at(ms)) {
                let place = job % 2;
                assert_eq!(probe, Some(place));
                tries[usize::from(place == 1)] += 1;
                backlog.tried(at(ms), place, place == 0);
                if place == 1 {
                    backlog.unanswered(at(ms), place, job, 2, at(60_000));
                }
            }
            if ms == 100 {
                assert_eq!(tries[0], 1_000, "by the first answer all others follow");
            }
        }
        assert!((5..=25).contains(&tries[1]), "{} tries of the other place in 10 s", tries[1]);
        assert_eq!((backlog.len(), backlog.lanes.len()), (1_000, 1), "what ends is forgotten");
    }

    #[test]
    fn places_that_differ_by_the_number_of_lanes_do_not_share_one() {
        let mut backlog = Backlog::default();
        for place in [5, 5 + 1024] {
            backlog.unanswered(at(0), place, place, 1, at(60_000));
        }
        assert_eq!(backlog.due(at(100)), [(5, Some(5)), (5 + 1024, Some(5 + 1024))]);
    }

    #[test]
    fn more_places_than_lanes_share_them() {
        let mut backlog = Backlog::default();
        for place in 0..10_000 {
            backlog.unanswered(at(0), place, place, 1, at(60_000));
        }
        let mut due = backlog.due(at(100));
        assert_eq!((due.len(), backlog.len()), (1_024, 10_000 - 1_024), "one at a time in each");
        let mut done = 0;
        while !due.is_empty() {
            for (_, lane) in due.drain(..) {
                backlog.tried(at(100), lane.unwrap(), true);
                done += 1;
            }
            due = backlog.due(at(100));
        }
        assert_eq!((done, backlog.len(), backlog.lanes.len()), (10_000, 0, 0), "each lane has heard of its answers");
    }

    #[test]
    fn the_least_tried_come_first_and_the_latest_of_them() {
        let mut backlog = Backlog::default();
        for (job, tries) in [(1, 7), (2, 1), (3, 1), (4, 2)] {
            backlog.unanswered(at(0), 7, job, tries, at(60_000));
        }
        let mut order = Vec::new();
        while let Some((job, _)) = backlog.due(at(60_000 - 1)).pop() {
            order.push(job);
            backlog.tried(at(0), 7, false);
        }
        assert_eq!(order, [3, 2, 4, 1]);
    }

    #[test]
    fn what_is_over_is_looked_for_once_a_second() {
        let mut backlog = Backlog::default();
        backlog.unanswered(at(0), 7, "first", 2, at(100));
        backlog.again(at(500), "second", 9, at(600));
        assert!(backlog.over(at(999)).is_empty());
        assert_eq!(backlog.over(at(1_000)), ["first", "second"]);
        backlog.again(at(1_100), "third", 9, at(1_100));
        assert!(backlog.over(at(2_099)).is_empty(), "a second from when it was the only one");
        assert_eq!(backlog.over(at(2_100)), ["third"]);
    }

    #[test]
    fn it_comes_back_when_something_may_be_tried() {
        let mut backlog = outage(2);
        let first = backlog.wake_at();
        assert!(first >= at(20) && first <= at(40), "{first:?}");
        assert_eq!(backlog.due(first).len(), 1);
        assert_eq!(backlog.wake_at(), at(1_000), "while one is tried the other waits: only the next sweep is due");
        backlog.tried(first, 7, false);
        let second = backlog.wake_at();
        assert!(second >= first.plus(2 * FIRST_PAUSE) && second <= first.plus(4 * FIRST_PAUSE), "{second:?}");
    }

    #[test]
    fn one_that_comes_later_does_not_hasten_the_others_and_a_new_outage_begins_anew() {
        let mut backlog = outage(1);
        let mut now = at(0);
        for _ in 0..10 {
            now = now.plus(3 * LONGEST_PAUSE);
            for (job, _) in backlog.due(now) {
                backlog.tried(now, 7, false);
                backlog.unanswered(now, 7, job, 2, at(60_000));
            }
        }
        backlog.unanswered(now, 7, 9, 1, at(60_000));
        assert!(backlog.due(now.plus(LONGEST_PAUSE / 2)).is_empty(), "sooner than the place is asked again");
        now = now.plus(3 * LONGEST_PAUSE);
        assert_eq!(backlog.due(now), [(9, Some(7))]);
        backlog.tried(now, 7, true);
        assert_eq!(backlog.due(now), [(0, Some(7))]);
        backlog.tried(now, 7, false);
        backlog.unanswered(now, 7, 10, 1, at(60_000));
        assert!(backlog.wake_at() <= now.plus(2 * FIRST_PAUSE), "the pause of the last outage");
    }

    #[test]
    fn the_pause_of_what_was_answered_doubles() {
        for (tries, pause) in [(1, 20), (2, 40), (3, 80), (4, 160), (20, 1_000)] {
            let mut backlog = Backlog::default();
            backlog.again(at(0), 0, 1, at(60_000));
            backlog.due(at(60_000));
            backlog.again(at(0), 1, tries, at(60_000));
            let due = backlog.later.first_key_value().unwrap().0.0;
            assert!(due >= at(pause) && due <= at(2 * pause), "{tries} tries: {due:?}");
        }
    }

    #[test]
    fn what_was_answered_waits_for_itself_and_a_crowd_for_longer() {
        let mut backlog = Backlog::default();
        backlog.again(at(0), 0, 1, at(60_000));
        assert!(backlog.wake_at() >= at(20) && backlog.wake_at() <= at(40), "{:?}", backlog.wake_at());
        assert_eq!(backlog.due(at(40)), [(0, None)]);
        for job in 0..10_000 {
            backlog.again(at(0), job, 20, at(60_000));
        }
        assert!(backlog.due(at(2_000)).len() < 3_000, "a thousand a second, and up to 1 s for the first of them");
    }
}
