//! The task that sends the batches: `Sender` of `client/link/batches.rs`.

use super::Client;
use crate::batch::Mutant;
use crate::batch::wire::{Link, Request};

/// The most bytes of a batch: more than there are.
const MOST_BYTES: usize = 64 * 1024;

/// The task that sends, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::batch) enum Sender {
    /// It looks whether anybody waits, and for a connection.
    Looking,
    /// It waits for its turn on the connection of this number.
    Waiting { over: u8 },
    /// It has taken a batch, and holds the lock `sending`.
    Sending { over: u8, batch: Vec<usize> },
}

impl Client {
    /// The batch that was taken, and is in no connection's queue yet.
    pub(in crate::batch) fn taken(&self) -> &[usize] {
        match &self.sender {
            Some(Sender::Sending { batch, .. }) => batch,
            _ => &[],
        }
    }

    /// The number of the connection that the task that sends has chosen.
    pub(in crate::batch) fn sends_over(&self) -> Option<u8> {
        match self.sender {
            Some(Sender::Waiting { over } | Sender::Sending { over, .. }) => Some(over),
            Some(Sender::Looking) | None => None,
        }
    }

    /// Ends, or has a connection.
    pub(in crate::batch) fn looks(&mut self, link: &Link, mutant: Option<Mutant>) {
        if self.batch.ends() && mutant != Some(Mutant::SendsOn) {
            self.sender = None;
        } else if link.is_up {
            self.sender = Some(Sender::Waiting { over: link.number });
        } else {
            self.dies(mutant);
        }
    }

    /// Takes the next batch: it has so many turns. A single request goes on by itself.
    pub(in crate::batch) fn takes(&mut self, most: usize, over: u8, mutant: Option<Mutant>) {
        let taken = self.batch.take(most, MOST_BYTES);
        // Whoever has no time left is not sent, and finds that out by itself.
        let (late, batch): (Vec<_>, Vec<_>) = taken.into_iter().partition(|at| self.attempts[*at].is_late);
        self.go_on(&late);
        if batch.len() < 2 {
            if mutant != Some(Mutant::SingleIsForgotten) {
                self.go_on(&batch);
            }
            self.sender = Some(Sender::Looking);
            return;
        }
        for at in &batch {
            self.attempts[*at].sent_over = Some(over);
        }
        self.sender = Some(Sender::Sending { over, batch });
    }

    /// Puts the batch into the connection's queue.
    pub(in crate::batch) fn puts(&mut self, link: &mut Link, mutant: Option<Mutant>) {
        let Some(Sender::Sending { over, batch }) = self.sender.take() else { return };
        self.sender = (mutant != Some(Mutant::EndsUnasked)).then_some(Sender::Looking);
        if mutant == Some(Mutant::CrossesReconnect) {
            batch.iter().for_each(|at| self.attempts[*at].sent_over = Some(link.number));
        }
        if !link.put(batch.clone(), over) {
            self.loses(&Request::Batch(batch), mutant);
        }
    }

    /// Ends before its work is done: by a panic, with its runtime, or without a connection.
    pub(in crate::batch) fn dies(&mut self, mutant: Option<Mutant>) {
        let batch = self.taken().to_vec();
        self.sender = None;
        // Noted as sent, it counts as that.
        self.loses(&Request::Batch(batch), mutant);
        if mutant != Some(Mutant::DeadSenderKeepsBatch) {
            let left = self.batch.give_up();
            self.go_on(&left);
        }
    }

    /// Tells these attempts that they were not sent, and go on by themselves.
    fn go_on(&mut self, these: &[usize]) {
        for at in these {
            if self.attempts[*at].waits() {
                self.attempts[*at].goes_on();
            }
        }
    }
}
