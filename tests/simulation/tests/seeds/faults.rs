//! The faults of a run, and their times.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::Sim;

use crate::hosts::{CLIENTS, SERVERS, host};

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

/// The servers that a client needed for what it did not get.
#[derive(Debug)]
pub(crate) enum Needed {
    /// A majority of all servers.
    Majority,
    /// A majority of all servers, from among those that have its grant: a renewal takes nothing that another server refused.
    MajorityAmong(BTreeSet<usize>),
    /// Every server.
    All,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    kind: Kind,
    /// The number of the server that it hits, or to which it hits the way.
    server: usize,
    begins: Duration,
    ends: Duration,
}

/// The faults of a run.
#[derive(Debug)]
pub(crate) struct Faults {
    all: Vec<Fault>,
    /// The number of servers.
    servers: usize,
}

impl Faults {
    /// Those of a seed, with so many servers. One in eight has none.
    pub(crate) fn of(seed: u64, servers: usize) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let all = (0..rng.random_range(0..8)).map(|_| Fault::any(&mut rng, servers)).collect();
        Self { all, servers }
    }

    /// Whether they explain what happened to this client between these times: they leave too few of the servers that it needed.
    pub(crate) fn explain(&self, client: usize, since: Duration, until: Duration, needed: &Needed) -> bool {
        let hits = |fault: &&Fault| fault.hits(client) && fault.begins <= until && fault.ends + FELT >= since;
        let hit: BTreeSet<_> = self.all.iter().filter(hits).map(|fault| fault.server).collect();
        let left = |number| (0..number).filter(|server| !hit.contains(server)).count();
        let majority = self.servers / 2 + 1;
        match needed {
            Needed::Majority => left(self.servers) < majority,
            // A grant that never had a majority is explained by faults at a majority only.
            Needed::MajorityAmong(holders) if holders.len() >= majority => holders.difference(&hit).count() < majority,
            Needed::MajorityAmong(_) => left(self.servers) < majority,
            Needed::All => left(self.servers) < self.servers,
        }
    }

    /// Their beginnings and ends, the last one first.
    pub(crate) fn changes(&self) -> Changes {
        let both = |fault: &Fault| [(fault.begins, *fault, true), (fault.ends, *fault, false)];
        let mut changes: Vec<_> = self.all.iter().flat_map(both).collect();
        changes.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        Changes(changes)
    }
}

impl Fault {
    fn any(rng: &mut StdRng, servers: usize) -> Self {
        let begins = Duration::from_millis(rng.random_range(100..9000));
        let ends = begins + Duration::from_millis(rng.random_range(1..3000));
        let client = rng.random_range(0..CLIENTS);
        let kind = match rng.random_range(0..11) {
            0..=2 => Kind::Partition(client),
            3 => Kind::Mute(client),
            4 | 5 => Kind::Deaf(client),
            6..=8 => Kind::Hold(client),
            9 => Kind::Restart,
            _ if servers > 1 => Kind::Restart,
            _ => Kind::Usurp,
        };
        // A draw more would give the seeds of one server other faults.
        let server = if servers > 1 { rng.random_range(0..servers) } else { 0 };
        Self { kind, server, begins, ends }
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
pub(crate) struct Changes(Vec<(Duration, Fault, bool)>);

impl Changes {
    /// Applies what is due, and tells of it; the lock is taken away by `usurp`.
    pub(crate) fn apply(&mut self, sim: &mut Sim<'_>, mut tell: impl FnMut(String), usurp: impl Fn()) {
        while let Some((_, Fault { kind, server, .. }, begins)) = self.0.pop_if(|(at, ..)| *at <= sim.elapsed()) {
            let server = SERVERS[server];
            tell(format!("{:?} {kind:?} of {server} {}", sim.elapsed(), if begins { "begins" } else { "ends" }));
            match (kind, begins) {
                (Kind::Partition(client), true) => sim.partition(host(client), server),
                (Kind::Mute(client), true) => sim.partition_oneway(host(client), server),
                (Kind::Deaf(client), true) => sim.partition_oneway(server, host(client)),
                (Kind::Hold(client), true) => sim.hold(host(client), server),
                (Kind::Hold(client), false) => sim.release(host(client), server),
                (Kind::Partition(client) | Kind::Mute(client) | Kind::Deaf(client), false) => {
                    sim.repair(host(client), server);
                }
                (Kind::Restart, true) => sim.crash(server),
                (Kind::Restart, false) => sim.bounce(server),
                (Kind::Usurp, true) => usurp(),
                (Kind::Usurp, false) => {}
            }
        }
    }
}
