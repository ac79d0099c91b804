//! The actions that can come next, and which of them can come in a state.

use super::attempt::Phase;
use super::client::Sender;
use super::{BatchedAttempts, MOST, State};

/// The actions that can come next; the number is an attempt's, or that of a task that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The attempt comes, and joins the batch.
    Come(usize),
    /// It comes, and those who wait are enough to be sent at once.
    ComeAsEnough(usize),
    /// Its future is dropped.
    GiveUp(usize),
    /// Its time is over.
    RunOut(usize),
    /// It finds that its time is over.
    TimeOut(usize),
    /// It is sent by itself.
    Ask(usize),
    /// It is released or cancelled.
    End(usize),
    /// The task that sends looks whether anybody waits, and for a connection.
    Look(usize),
    /// It takes a batch of so many at most: it has as many turns.
    Take(usize, usize),
    /// It has no turn: its connection was given up before, or there is none at once.
    Return(usize),
    /// It puts the batch into the connection's queue.
    Put(usize),
    /// It dies.
    Die(usize),
    /// The task dies that waits for the answer to this attempt's batch.
    Forsake(usize),
    /// The server carries out the next request.
    Serve,
    /// The server refuses it, or the next part of it.
    Refuse,
    /// The server carries it out, but for this attempt.
    RefuseOne(usize),
    /// The server carries out what was left in a broken connection.
    ServeFormer,
    /// Time passes: what was left there is never carried out any more, and what it took has expired.
    Expire,
    /// The answers that came there are not heard any more.
    LoseReplies,
    /// The client takes a reply.
    Hear,
    /// The client takes a reply that comes over a connection which it has given up.
    HearFormer,
    /// The connection breaks.
    Cut,
    /// The client gives the connection up.
    Doubt,
    /// There is a new one.
    Connect,
    /// The client sends a batch again, by a mistake.
    SendAgain,
}

impl BatchedAttempts {
    pub(super) fn attempt_actions(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let State { client, link, .. } = state;
        let attempt = &client.attempts[at];
        match attempt.phase {
            // They come in their order.
            Phase::Idle if client.attempts[..at].iter().all(|other| other.phase != Phase::Idle) => {
                actions.push(Action::Come(at));
                if self.hurries && client.has_waiting() {
                    actions.push(Action::ComeAsEnough(at));
                }
            }
            Phase::Alone if link.is_up && !attempt.is_late => actions.push(Action::Ask(at)),
            Phase::Holding | Phase::Undoing if link.is_up => actions.push(Action::End(at)),
            _ => {}
        }
        if attempt.is_late && client.may_leave(at, self.mutant) {
            actions.push(Action::TimeOut(at));
        }
        if state.late > 0 && attempt.waits() && !attempt.is_late {
            actions.push(Action::RunOut(at));
        }
        if state.gone > 0 && client.may_leave(at, self.mutant) {
            actions.push(Action::GiveUp(at));
        }
    }

    pub(super) fn sender_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { client, link, .. } = state;
        for (number, sender) in client.senders.iter().enumerate() {
            match sender {
                Sender::Looking => actions.push(Action::Look(number)),
                // It ends where there is no turn at once.
                Sender::AtOnce => actions.extend([Action::Look(number), Action::Return(number)]),
                Sender::Waiting { over } => {
                    // Whoever takes has the lock `sending`.
                    if client.taken().is_empty() {
                        actions.extend((1..=MOST).map(|most| Action::Take(number, most)));
                    }
                    if !link.is_present(*over) {
                        actions.push(Action::Return(number));
                    }
                }
                Sender::ReadyAtOnce { .. } => {
                    if client.taken().is_empty() {
                        actions.extend((1..=MOST).map(|most| Action::Take(number, most)));
                    }
                }
                Sender::Sending { .. } | Sender::SendingAtOnce { .. } => actions.push(Action::Put(number)),
            }
            if state.deaths > 0 {
                actions.push(Action::Die(number));
            }
        }
    }

    pub(super) fn link_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { client, link, .. } = state;
        if let Some(next) = link.requests.first() {
            actions.push(Action::Serve);
            if state.refusals > 0 && !next.left().is_empty() {
                actions.push(Action::Refuse);
                if !self.is_pipeline && next.left().len() > 1 {
                    actions.extend(next.left().iter().copied().map(Action::RefuseOne));
                }
            }
        }
        if !link.former.is_empty() {
            actions.push(Action::ServeFormer);
        }
        // The turns of a connection end with it, long before.
        let is_sent_there = client.send_over().any(|over| !link.is_present(over));
        if !self.kills && !link.is_over && !is_sent_there {
            actions.push(Action::Expire);
        }
        if link.awaits_former() {
            actions.push(Action::LoseReplies);
        }
        if !link.replies.is_empty() {
            actions.push(Action::Hear);
        }
        if !link.former_replies.is_empty() {
            actions.push(Action::HearFormer);
        }
        if state.deaths > 0 {
            actions.extend(link.batches().map(|sent| Action::Forsake(sent.request.attempts()[0])));
        }
        if !link.is_up {
            actions.push(Action::Connect);
            return;
        }
        if state.cuts > 0 && !state.is_done() {
            actions.push(Action::Cut);
        }
        if state.doubts > 0 && !state.is_done() {
            actions.push(Action::Doubt);
        }
        if !client.again.is_empty() {
            actions.push(Action::SendAgain);
        }
    }
}
