//! The faults of a run, and their times.

use std::time::Duration;

use lock_testkit_checker::history::Recorder;
use lock_testkit_checker::history::event::{self, FaultPhase, What};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::Sim;

/// The server's name.
pub(crate) const SERVER: &str = "memcached";
/// The number of hosts with clients.
pub(crate) const CLIENTS: usize = 3;

/// After this nothing goes wrong any more.
pub(crate) const LAST: Duration = Duration::from_secs(24);
/// The beginning of faults: the first epoch is open by then.
const FIRST: u64 = 6_000;

/// An instant of the run, as a history tells it.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The name of a client's host.
pub(crate) fn host(client: usize) -> String {
    format!("client-{client}")
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Nothing comes through.
    Partition(usize),
    /// The client's messages do not come through.
    Mute(usize),
    /// The server's messages do not come through.
    Deaf(usize),
    /// Everything is kept back, and comes through at the end: a stall, or a pause of the client.
    Hold(usize),
    /// The server is killed, and comes back without its data.
    Restart,
    /// An operator has the server forget everything.
    Flush,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: Kind,
    begins: Duration,
    ends: Duration,
}

impl Kind {
    /// The beginning or the end of the fault, as a history tells of it.
    fn event(self, begins: bool) -> event::Fault {
        let (target, on_links) = match self {
            Self::Partition(client) | Self::Mute(client) | Self::Deaf(client) | Self::Hold(client) => {
                (host(client), true)
            }
            Self::Restart | Self::Flush => (SERVER.to_owned(), false),
        };
        let name = format!("{self:?}");
        event::Fault {
            id: name.clone().into(),
            phase: if begins { FaultPhase::Start } else { FaultPhase::Heal },
            name: name.into(),
            target: target.into(),
            on_links,
            proof: None,
        }
    }
}

/// The faults of a run.
#[derive(Debug)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Those of a seed. One in eight has none.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        Self((0..rng.random_range(0..8)).map(|_| Fault::any(&mut rng)).collect())
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their beginnings and ends, the last one first.
    pub(crate) fn changes(&self) -> Changes {
        let both = |fault: &Fault| [(fault.begins, fault.kind, true), (fault.ends, fault.kind, false)];
        let mut changes: Vec<_> = self.0.iter().flat_map(both).collect();
        changes.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        Changes(changes)
    }
}

impl Fault {
    fn any(rng: &mut StdRng) -> Self {
        let begins = Duration::from_millis(rng.random_range(FIRST..20_000));
        let ends = begins + Duration::from_millis(rng.random_range(1..3000));
        let client = rng.random_range(0..CLIENTS);
        let kind = match rng.random_range(0..11) {
            0..=2 => Kind::Partition(client),
            3 => Kind::Mute(client),
            4 | 5 => Kind::Deaf(client),
            6..=8 => Kind::Hold(client),
            9 => Kind::Restart,
            _ => Kind::Flush,
        };
        Self { kind, begins, ends }
    }
}

/// The changes that are still to come, the last one first.
pub(crate) struct Changes(Vec<(Duration, Kind, bool)>);

impl Changes {
    /// Applies what is due, and writes it down; everything is forgotten by `flush`.
    pub(crate) fn apply(&mut self, sim: &mut Sim<'_>, recorder: &Recorder, flush: impl Fn()) {
        while let Some((_, kind, begins)) = self.0.pop_if(|(at, ..)| *at <= sim.elapsed()) {
            recorder.record_at(nanos(sim.elapsed()), What::Fault(kind.event(begins)));
            match (kind, begins) {
                (Kind::Partition(client), true) => sim.partition(host(client), SERVER),
                (Kind::Mute(client), true) => sim.partition_oneway(host(client), SERVER),
                (Kind::Deaf(client), true) => sim.partition_oneway(SERVER, host(client)),
                (Kind::Hold(client), true) => sim.hold(host(client), SERVER),
                (Kind::Hold(client), false) => sim.release(host(client), SERVER),
                (Kind::Partition(client) | Kind::Mute(client) | Kind::Deaf(client), false) => {
                    sim.repair(host(client), SERVER);
                }
                (Kind::Restart, true) => sim.crash(SERVER),
                (Kind::Restart, false) => sim.bounce(SERVER),
                (Kind::Flush, true) => flush(),
                (Kind::Flush, false) => {}
            }
        }
    }
}
