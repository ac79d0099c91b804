//! Claims between two looks at the epoch, with everything that may happen to the server meanwhile.

use std::time::Duration;

use lock_core::clock::BootInstant;

use crate::epoch::{CLOSED_FOR, Epoch, EpochWatch, GateVerdict, NotNow};

const NOW: Duration = Duration::from_secs(1_795_247_659);
const LONGEST: Duration = Duration::from_secs(30);
/// The end of the open epoch, by the server's clock.
const OPEN_UNTIL: i64 = 1_000_000;
/// The second at which the batch is sent, and the one at which it is answered.
const ASKED: u64 = 20;
const ANSWERED: u64 = 21;
/// A lease, and the TTL of its item.
const LEASE: i64 = 10;
const ITEM: i64 = LEASE + 6;
/// The time by which a clock that stood is behind, as often as it is.
const BEHIND: i64 = 8;

/// An event between two steps of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    Flush,
    /// Somebody puts the epoch back, closed.
    PutBack,
    /// Somebody opens it.
    Open,
    /// The clock notices how much time has passed.
    Tick,
}

const EVENTS: [Event; 4] = [Event::Flush, Event::PutBack, Event::Open, Event::Tick];

/// The steps of a batch: a look, two claims, a look.
const STEPS: usize = 4;

/// The server: its epoch with its end, the ends of two items, its clock.
struct Server {
    epoch: Option<(Epoch, i64)>,
    items: [Option<i64>; 2],
    second: i64,
}

impl Server {
    fn suffers(&mut self, event: Event) {
        match event {
            Event::Flush => (self.epoch, self.items) = (None, [None; 2]),
            Event::PutBack => {
                let closed = (Epoch::new(LONGEST, NOW + LONGEST), self.second + i64::from(CLOSED_FOR));
                self.epoch.get_or_insert(closed);
            }
            Event::Open => {
                if let Some((epoch, end)) = &mut self.epoch {
                    (epoch.open, *end) = (true, OPEN_UNTIL);
                }
            }
            Event::Tick => self.second = ASKED as i64,
        }
    }

    fn looked_at(&self, watch: &mut EpochWatch) -> GateVerdict {
        let Some((epoch, end)) = self.epoch else { return GateVerdict::No(NotNow::Missing) };
        let [asked, now] = [ASKED, ANSWERED].map(|second| BootInstant::from_origin(Duration::from_secs(second)));
        watch.judges(epoch, end - self.second, asked, now, || NOW)
    }
}

/// A client that has met a server with an open epoch.
fn watch(open: Epoch) -> EpochWatch {
    let (mut watch, begin) = (EpochWatch::default(), BootInstant::from_origin(Duration::ZERO));
    watch.set_met_anew(true);
    assert!(matches!(watch.judges(open, OPEN_UNTIL, begin, begin, || NOW), GateVerdict::Counts(_)));
    watch.set_met_anew(false);
    watch
}

/// Whether the claims count, and the ends of their items.
fn carried_out(stands: bool, events: &[(usize, Event)]) -> (bool, [Option<i64>; 2]) {
    let mut open = Epoch::new(LONGEST, NOW);
    open.open = true;
    let second = ASKED as i64 - if stands { BEHIND } else { 0 };
    let (mut server, mut watch) = (Server { epoch: Some((open, OPEN_UNTIL)), items: [None; 2], second }, watch(open));
    let mut looks = Vec::new();
    for step in 0..STEPS {
        events.iter().filter(|(before, _)| *before == step).for_each(|(_, event)| server.suffers(*event));
        match step {
            1 | 2 => server.items[step - 1] = Some(server.second + ITEM),
            _ => looks.push(server.looked_at(&mut watch)),
        }
    }
    (matches!(GateVerdict::between(looks[0], looks[1]), GateVerdict::Counts(_)), server.items)
}

#[test]
fn whatever_counts_between_two_looks_was_not_forgotten_and_has_its_whole_time() {
    let single = || (0..STEPS).flat_map(|step| EVENTS.map(|event| (step, event)));
    let (mut runs, mut counted) = (0, 0);
    for stands in [false, true] {
        for first in single() {
            for second in single() {
                for third in single() {
                    for fourth in single() {
                        let events = [first, second, third, fourth];
                        let (counts, items) = carried_out(stands, &events);
                        let lasts = |item: Option<i64>| item.is_some_and(|end| end >= ASKED as i64 + LEASE);
                        assert!(!counts || items.into_iter().all(lasts), "{stands} {events:?}: {items:?}");
                        (runs, counted) = (runs + 1, counted + usize::from(counts));
                    }
                }
            }
        }
    }
    assert_eq!((runs, carried_out(false, &[]).0, carried_out(true, &[]).0), (2 * 16_usize.pow(4), true, false));
    assert!(counted > 0);
}
