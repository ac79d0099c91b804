//! A client and its attempts: `client/link/batches.rs`, `client/links/` and `release.rs` of `lock-redis` around the machine that ships.

mod sender;

use lock_core::driver::{Batch, BatchPlace, Joined};

use super::Mutant;
use super::attempt::{Attempt, Outcome, Phase};
use super::wire::{Answer, Link, Request, Sent};

pub(super) use sender::Sender;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) attempts: Vec<Attempt>,
    /// The machine has attempts by their position.
    batch: Batch<usize>,
    /// The tasks that send. Beside the one that sees to all who wait there are others that send one batch at once.
    pub(super) senders: Vec<Sender>,
    /// Batches that are to be sent again, by a mistake.
    pub(super) again: Vec<Vec<usize>>,
    /// Whether an attempt was ever told a second outcome.
    pub(super) told_twice: bool,
    /// Whether an attempt ever failed, or was left without an outcome, with which nothing had gone wrong.
    pub(super) failed_for_others: bool,
}

impl Client {
    /// A client with so many attempts, none of which has come.
    pub(super) fn new(attempts: usize) -> Self {
        Self {
            attempts: vec![Attempt::new(); attempts],
            batch: Batch::default(),
            senders: Vec::new(),
            again: Vec::new(),
            told_twice: false,
            failed_for_others: false,
        }
    }

    /// Whether somebody waits to be sent.
    pub(super) fn has_waiting(&self) -> bool {
        !self.batch.is_empty()
    }

    fn waits_in_batch(&self, place: BatchPlace) -> bool {
        self.batch.clone().leave(place).is_some()
    }

    /// An attempt joins the batch, which may be enough then to be sent at once.
    pub(super) fn comes(&mut self, at: usize, is_enough: bool) {
        let Joined { place, sees_to_it, .. } = self.batch.join(at, 1);
        self.attempts[at].phase = Phase::Together(place);
        if sees_to_it {
            self.senders.push(Sender::Looking);
        } else if is_enough {
            self.senders.push(Sender::AtOnce);
        }
    }

    /// Whether an attempt can leave now: after the taking of a batch it waits until that is in the connection's queue.
    pub(super) fn may_leave(&self, at: usize, mutant: Option<Mutant>) -> bool {
        match self.attempts[at].phase {
            Phase::Together(place) => {
                let waits_for_sending = !self.taken().is_empty() && !self.waits_in_batch(place);
                !waits_for_sending || mutant == Some(Mutant::CancelHurries)
            }
            _ => self.attempts[at].waits(),
        }
    }

    /// Leaves the batch, if the attempt is in one: `Stay::drop`.
    fn leaves(&mut self, at: usize, place: BatchPlace, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::HoleCounted) && self.waits_in_batch(place) {
            return;
        }
        if self.batch.leave(place).is_none() && mutant != Some(Mutant::LeftIsUnsent) {
            self.attempts[at].leaves_batch();
        }
    }

    /// The future of an attempt is dropped.
    pub(super) fn gives_up(&mut self, at: usize, mutant: Option<Mutant>) {
        if let Phase::Together(place) = self.attempts[at].phase {
            self.leaves(at, place, mutant);
        }
        self.attempts[at].is_undone();
        if mutant == Some(Mutant::NoUndo) {
            self.attempts[at].ends(Outcome::Ended);
        }
    }

    /// An attempt finds that its time is over.
    pub(super) fn is_timed_out(&mut self, at: usize, mutant: Option<Mutant>) {
        let attempt = &self.attempts[at];
        let was_sent = match attempt.phase {
            Phase::Together(place) => {
                self.leaves(at, place, mutant);
                self.attempts[at].sent_over.is_some()
            }
            Phase::Alone => attempt.is_unknown,
            _ => true,
        };
        if was_sent {
            self.has_no_outcome(at);
        } else {
            self.fails(at, Outcome::NotSent);
        }
    }

    /// An attempt is sent by itself: again only if nothing that was sent of it before can still be carried out.
    pub(super) fn asks(&mut self, at: usize, link: &mut Link, kills: bool, mutant: Option<Mutant>) {
        let attempt = &mut self.attempts[at];
        let may_ask = !attempt.is_unknown || link.is_settled(attempt.first_sent, kills);
        if !may_ask && mutant != Some(Mutant::RepeatsUnsettled) {
            return self.has_no_outcome(at);
        }
        attempt.is_sent_over(link.number);
        attempt.phase = Phase::Asking;
        link.send(Request::Acquire(at));
    }

    /// A holder releases its lock, or what an attempt may have is cancelled.
    pub(super) fn ends(&mut self, at: usize, link: &mut Link) {
        self.attempts[at].phase = Phase::Ending;
        link.send(Request::End(at));
    }

    /// A request is not answered any more: those that wait for it find out whether they may ask again.
    pub(super) fn loses(&mut self, request: &Request, mutant: Option<Mutant>) {
        let is_forgotten = mutant == Some(Mutant::LostIsRefused) && matches!(request, Request::Batch(_));
        for at in request.attempts() {
            let attempt = &mut self.attempts[*at];
            if attempt.waits() {
                attempt.goes_on();
                (attempt.is_hit, attempt.is_unknown) = (true, !is_forgotten);
            }
        }
        if let Request::End(at) = request {
            self.attempts[*at].phase = Phase::Undoing;
        }
    }

    /// The connection breaks.
    pub(super) fn is_cut_off(&mut self, lost: Vec<Request>, mutant: Option<Mutant>) {
        for request in lost {
            match request {
                Request::Batch(batch) if mutant == Some(Mutant::SentAgain) => self.again.push(batch),
                request => self.loses(&request, mutant),
            }
        }
    }

    pub(super) fn hears(&mut self, sent: &Sent, link: &mut Link, kills: bool, mutant: Option<Mutant>) {
        match &sent.request {
            Request::Batch(batch) => self.hears_batch(batch, &sent.answers, link, mutant),
            Request::Acquire(at) if self.attempts[*at].phase == Phase::Asking => {
                sent.answers.iter().for_each(|answer| self.hears_alone(*at, *answer, mutant));
            }
            Request::End(at) => {
                let attempt = &mut self.attempts[*at];
                if link.is_settled(attempt.first_sent, kills) || mutant == Some(Mutant::SettledAtOnce) {
                    attempt.ends(Outcome::Ended);
                } else {
                    // Again.
                    attempt.phase = Phase::Undoing;
                }
            }
            Request::Acquire(_) | Request::Kill => {}
        }
    }

    /// Gives everybody in a batch its part of the reply.
    fn hears_batch(&mut self, batch: &[usize], answers: &[Answer], link: &mut Link, mutant: Option<Mutant>) {
        let (mut batch, mut answers) = (batch.to_vec(), answers.to_vec());
        let refused = answers.iter().filter(|answer| **answer == Answer::Refused).count();
        match mutant {
            Some(Mutant::WrongOrder) => batch.retain(|at| self.attempts[*at].waits()),
            Some(Mutant::RefusedIsGranted) if refused == batch.len() => answers.fill(Answer::Granted),
            Some(Mutant::RefusedIsForgotten) if refused == batch.len() => return,
            Some(Mutant::RefusedSentAgain) if refused == batch.len() => return link.send(Request::Batch(batch)),
            Some(Mutant::FailsWithNeighbour) if (1..batch.len()).contains(&refused) => {
                batch.retain(|at| self.attempts[*at].waits());
                return batch.into_iter().for_each(|at| self.hears_alone(at, Answer::Refused, mutant));
            }
            _ => {}
        }
        for (at, answer) in batch.into_iter().zip(answers) {
            let attempt = &mut self.attempts[at];
            match (attempt.phase, answer) {
                (Phase::Together(_), Answer::Refused) => attempt.goes_on(),
                (Phase::Together(_), _) => {
                    attempt.leaves_batch();
                    self.hears_alone(at, answer, mutant);
                }
                // It has gone away.
                (Phase::Undoing | Phase::Ending | Phase::Done(Outcome::Left | Outcome::Ended), _) => {}
                _ => self.told_twice = true,
            }
        }
    }

    fn hears_alone(&mut self, at: usize, answer: Answer, mutant: Option<Mutant>) {
        match answer {
            Answer::Granted => self.attempts[at].holds(),
            Answer::Held => self.attempts[at].ends(Outcome::Held),
            // Whatever it says of this sending, an earlier one may have been carried out.
            Answer::Refused if self.attempts[at].is_unknown && mutant != Some(Mutant::UnknownForgotten) => {
                self.has_no_outcome(at);
            }
            Answer::Refused => self.fails(at, Outcome::Refused),
        }
    }

    /// An attempt is told that its outcome is unknown.
    fn has_no_outcome(&mut self, at: usize) {
        self.failed_for_others |= !self.attempts[at].is_hit;
        self.attempts[at].is_undone();
    }

    /// An attempt is told for certain that it does not have the lock, and will not.
    fn fails(&mut self, at: usize, outcome: Outcome) {
        self.failed_for_others |= !self.attempts[at].is_hit;
        self.attempts[at].ends(outcome);
    }
}
