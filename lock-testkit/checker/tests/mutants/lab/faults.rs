//! The faults that befall the clients.

use lock_testkit_checker::history::event::FaultPhase;

use super::{CLIENTS, FAULTS_UNTIL, Lab, Turn};
use crate::flaw::Flaw;
use crate::store::TTL;

impl Lab {
    pub(super) fn begin_fault(&mut self) {
        if self.now > FAULTS_UNTIL {
            return;
        }
        let fault = self.now;
        let client = usize::try_from(self.rng.below(CLIENTS as u64)).unwrap_or(0);
        let length = self.rng.one_of(&[TTL / 4, TTL * 9 / 10, TTL * 11 / 10, TTL * 3 / 2]);
        let crashed = self.clients.iter().filter(|client| client.dead || client.doomed).count();
        let until = self.now + length;
        let name = match self.rng.below(4) {
            0 => {
                self.clients[client].paused_until = until;
                "sigstop"
            }
            1 if crashed < 2 => {
                self.clients[client].doomed = true;
                "sigkill"
            }
            kind => {
                self.clients[client].cut_until = until;
                self.clients[client].cut_both = self.rng.below(2) == 0;
                if kind == 3 && self.is(Flaw::WallClockDeadline) {
                    self.set_clock_back(client);
                }
                "blackhole"
            }
        };
        let target = self.clients[client].name.clone();
        self.pen.fault(self.now, &format!("f{fault}"), FaultPhase::Start, name, &target);
        self.plan(length, Turn::Healed(client, fault));
        let next = 300 + self.rng.below(900);
        self.plan(length.min(600) + next, Turn::Fault);
    }

    /// A deadline by the wall clock comes later by as much.
    fn set_clock_back(&mut self, client: usize) {
        if let Some(claim) = &mut self.clients[client].claim {
            claim.deadline += 5_000;
        }
    }
}
