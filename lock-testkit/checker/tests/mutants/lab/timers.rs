//! The timers that a client has set.

use lock_testkit_checker::history::event::Kind;

use super::{Lab, OP_TIMEOUT, Turn};
use crate::client::{Request, State, Timer};
use crate::flaw::Flaw;
use crate::store::Entry;

impl Lab {
    pub(super) fn ring(&mut self, client: usize, grant: u64, timer: Timer) {
        if timer == Timer::CancelAgain {
            if self.clients[client].chores.contains(&grant) {
                self.send(client, Request::Cancel { grant });
                self.plan(100, Turn::Timer(client, grant, timer));
            }
            return;
        }
        let zombie = self.is(Flaw::RenewsAfterRelease) && timer == Timer::Renew;
        let Some(claim) = self.clients[client].claim.clone().filter(|claim| claim.grant == grant) else {
            if zombie {
                let wish = Entry { grant, client, kind: Kind::Mutex, permits: 1, expires: 0, token: 0 };
                self.send(client, Request::Renew { wish, sent: self.now });
            }
            return;
        };
        match (timer, claim.state) {
            (Timer::AskAgain, State::Asking) => self.ask_again(client, &claim),
            (Timer::GiveUp, State::Asking) => {
                if let Some(claim) = &mut self.clients[client].claim {
                    claim.state = State::GivingUp;
                }
                self.take_back(client, grant);
                self.set(client, OP_TIMEOUT, Timer::GiveUpAtLast);
            }
            (Timer::GiveUpAtLast, State::GivingUp) => {
                self.pen.unclear(self.now, &claim.id);
                self.rest(client);
            }
            (Timer::Renew, State::Held | State::Lost) => self.renew(client, &claim),
            (Timer::Deadline, State::Held) => self.look_at_deadline(client, &claim),
            (Timer::Check, State::Held | State::Lost) => {
                let sample = self.sample(client);
                self.pen.checked(self.now, &claim.id, sample);
                self.set(client, 10, Timer::Check);
            }
            (Timer::Read, State::Held | State::Lost) => self.read(client, &claim),
            (Timer::Write, State::Held | State::Lost) => self.write(&claim),
            (Timer::Enter, State::Held) => self.enter(client, &claim),
            (Timer::Leave, State::Held) => self.leave(client, &claim),
            (Timer::End, State::Held) => self.release(client, &claim),
            (Timer::End, State::Lost) => {
                self.pen.releases(self.now, &claim.id, false);
                self.pen.released(self.now, &claim.id, false);
                if self.is(Flaw::BlindDelete) {
                    self.send(client, Request::Release { grant });
                }
                self.rest(client);
            }
            (Timer::ReleaseAgain, State::Releasing) => {
                self.pen.release_is_unclear(self.now, &claim.id, "outcome_unknown");
                self.take_back(client, grant);
                self.rest(client);
            }
            _ => {}
        }
    }
}
