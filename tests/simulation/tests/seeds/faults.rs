//! The faults of a run, and their times.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::Sim;

use crate::hosts::{CLIENTS, SERVER, host};

/// After this nothing goes wrong any more.
pub(crate) const LAST: Duration = Duration::from_secs(12);
/// So long after its end a fault may still be felt: by a connection with a hole in it until it is given up, and by another
/// one until it is made.
const FELT: Duration = Duration::from_secs(4);

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
    /// The server is killed, and comes back with its data.
    Restart,
    /// An operator deletes what holds the lock, and a client of another library takes it.
    Usurp,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: Kind,
    begins: Duration,
    ends: Duration,
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

    /// Whether one of them explains that this client was refused something, or waited long, between these times.
    pub(crate) fn explain(&self, client: usize, since: Duration, until: Duration) -> bool {
        let hits = |fault: &Fault| fault.hits(client) && fault.begins <= until && fault.ends + FELT >= since;
        self.0.iter().any(hits)
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
        let begins = Duration::from_millis(rng.random_range(100..9000));
        let ends = begins + Duration::from_millis(rng.random_range(1..3000));
        let client = rng.random_range(0..CLIENTS);
        let kind = match rng.random_range(0..11) {
            0..=2 => Kind::Partition(client),
            3 => Kind::Mute(client),
            4 | 5 => Kind::Deaf(client),
            6..=8 => Kind::Hold(client),
            9 => Kind::Restart,
            _ => Kind::Usurp,
        };
        Self { kind, begins, ends }
    }

    fn hits(&self, client: usize) -> bool {
        match self.kind {
            Kind::Partition(hit) | Kind::Mute(hit) | Kind::Deaf(hit) | Kind::Hold(hit) => hit == client,
            Kind::Restart => true,
            // What it does is known, and looked at where it is felt.
            Kind::Usurp => false,
        }
    }
}

/// The changes that are still to come, the last one first.
pub(crate) struct Changes(Vec<(Duration, Kind, bool)>);

impl Changes {
    /// Applies what is due, and tells of it; the lock is taken away by `usurp`.
    pub(crate) fn apply(&mut self, sim: &mut Sim<'_>, mut tell: impl FnMut(String), usurp: impl Fn()) {
        while let Some((_, kind, begins)) = self.0.pop_if(|(at, ..)| *at <= sim.elapsed()) {
            tell(format!("{:?} {kind:?} {}", sim.elapsed(), if begins { "begins" } else { "ends" }));
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
                (Kind::Usurp, true) => usurp(),
                (Kind::Usurp, false) => {}
            }
        }
    }
}
