//! What goes wrong in a run, and when.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use turmoil::Sim;

use crate::world::{CLIENTS, SERVER, host};

/// After this nothing goes wrong any more.
pub(crate) const LAST: Duration = Duration::from_secs(12);

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Nothing comes through.
    Partition(usize),
    /// What the client sends does not come through.
    Mute(usize),
    /// What the server sends does not come through.
    Deaf(usize),
    /// Everything is kept back, and comes through at the end: a stall, or a pause of the client.
    Hold(usize),
    /// The server is killed, and comes back with its data.
    Restart,
}

/// Faults by the time at which they begin or end.
pub(crate) struct Faults(Vec<(Duration, Fault, bool)>);

impl Faults {
    /// Those of a seed, the latest first.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut changes = Vec::new();
        for _ in 0..dice.random_range(0..8) {
            let begins = Duration::from_millis(dice.random_range(100..9000));
            let lasts = Duration::from_millis(dice.random_range(1..3000));
            let client = dice.random_range(0..CLIENTS);
            let fault = match dice.random_range(0..10) {
                0..=2 => Fault::Partition(client),
                3 => Fault::Mute(client),
                4 | 5 => Fault::Deaf(client),
                6..=8 => Fault::Hold(client),
                _ => Fault::Restart,
            };
            changes.extend([(begins, fault, true), (begins + lasts, fault, false)]);
        }
        changes.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        Self(changes)
    }

    /// Applies what is due; tells of it.
    pub(crate) fn apply(&mut self, sim: &mut Sim<'_>, mut tell: impl FnMut(String)) {
        while let Some((_, fault, begins)) = self.0.pop_if(|(at, ..)| *at <= sim.elapsed()) {
            tell(format!("{:?} {fault:?} {}", sim.elapsed(), if begins { "begins" } else { "ends" }));
            match (fault, begins) {
                (Fault::Partition(client), true) => sim.partition(host(client), SERVER),
                (Fault::Mute(client), true) => sim.partition_oneway(host(client), SERVER),
                (Fault::Deaf(client), true) => sim.partition_oneway(SERVER, host(client)),
                (Fault::Hold(client), true) => sim.hold(host(client), SERVER),
                (Fault::Hold(client), false) => sim.release(host(client), SERVER),
                (Fault::Partition(client) | Fault::Mute(client) | Fault::Deaf(client), false) => {
                    sim.repair(host(client), SERVER);
                }
                (Fault::Restart, true) => sim.crash(SERVER),
                (Fault::Restart, false) => sim.bounce(SERVER),
            }
        }
    }
}
