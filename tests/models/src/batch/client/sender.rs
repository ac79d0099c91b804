//! The tasks that send the batches: `Sender` and `send_at_once` of `client/link/batches.rs`. The number of one is its place among them.

use super::Client;
use crate::batch::Mutant;
use crate::batch::wire::{Link, Request};

/// The most bytes of a batch: more than there are.
const MOST_BYTES: usize = 64 * 1024;

/// A task that sends, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::batch) enum Sender {
    /// It looks whether anybody waits, and for a connection.
    Looking,
    /// It waits for its turn on the connection of this number.
    Waiting { over: u8 },
    /// It has taken a batch, and holds the lock `sending`.
    Sending { over: u8, batch: Vec<usize> },
    /// It sees to nobody: it sends one batch if it can at once, and ends.
    AtOnce,
    /// It has its turn on the connection of this number, and waits for the lock `sending`.
    ReadyAtOnce { over: u8 },
    /// It has taken that batch, and holds the lock `sending`.
    SendingAtOnce { over: u8, batch: Vec<usize> },
}

impl Sender {
    /// The batch that it has taken, and that is in no connection's queue yet.
    pub(in crate::batch) fn taken(&self) -> &[usize] {
        match self {
            Self::Sending { batch, .. } | Self::SendingAtOnce { batch, .. } => batch,
            Self::Looking | Self::Waiting { .. } | Self::AtOnce | Self::ReadyAtOnce { .. } => &[],
        }
    }

    /// Whether it sees to it that whoever waits is sent.
    pub(in crate::batch) fn sees_to_all(&self) -> bool {
        !matches!(self, Self::AtOnce | Self::ReadyAtOnce { .. } | Self::SendingAtOnce { .. })
    }
}

impl Client {
    /// The batch that was taken, and is in no connection's queue yet: one at most, as the lock `sending` is held.
    pub(in crate::batch) fn taken(&self) -> &[usize] {
        self.senders.iter().map(Sender::taken).find(|batch| !batch.is_empty()).unwrap_or_default()
    }

    /// The numbers of the connections that the tasks that send have chosen.
    pub(in crate::batch) fn send_over(&self) -> impl Iterator<Item = u8> {
        self.senders.iter().filter_map(|sender| match sender {
            Sender::Looking | Sender::AtOnce => None,
            Sender::Waiting { over }
            | Sender::Sending { over, .. }
            | Sender::ReadyAtOnce { over }
            | Sender::SendingAtOnce { over, .. } => Some(*over),
        })
    }

    /// Ends, or has a connection.
    pub(in crate::batch) fn looks(&mut self, sender: usize, link: &Link, mutant: Option<Mutant>) {
        if self.senders[sender] == Sender::AtOnce {
            if self.batch.is_empty() || !link.is_up {
                self.senders.remove(sender);
            } else {
                self.senders[sender] = Sender::ReadyAtOnce { over: link.number };
            }
        } else if self.batch.ends() && mutant != Some(Mutant::SendsOn) {
            self.senders.remove(sender);
        } else if link.is_up {
            self.senders[sender] = Sender::Waiting { over: link.number };
        } else {
            self.dies(sender, mutant);
        }
    }

    /// Takes the next batch: it has so many turns. A single request goes on by itself.
    pub(in crate::batch) fn takes(&mut self, sender: usize, most: usize, mutant: Option<Mutant>) {
        let (over, at_once) = match self.senders[sender] {
            Sender::Waiting { over } => (over, false),
            Sender::ReadyAtOnce { over } => (over, true),
            _ => return,
        };
        let taken = self.batch.take(most, MOST_BYTES);
        // Whoever has no time left is not sent, and finds that out by itself.
        let (late, batch): (Vec<_>, Vec<_>) = taken.into_iter().partition(|at| self.attempts[*at].is_late);
        self.go_on(&late);
        if batch.len() < 2 {
            if mutant != Some(Mutant::SingleIsForgotten) {
                self.go_on(&batch);
            }
            if at_once {
                self.senders.remove(sender);
            } else {
                self.senders[sender] = Sender::Looking;
            }
            return;
        }
        for at in &batch {
            self.attempts[*at].sent_over = Some(over);
        }
        self.senders[sender] =
            if at_once { Sender::SendingAtOnce { over, batch } } else { Sender::Sending { over, batch } };
    }

    /// Looks again, or ends if it sees to nobody.
    pub(in crate::batch) fn has_no_turn(&mut self, sender: usize) {
        if self.senders[sender].sees_to_all() {
            self.senders[sender] = Sender::Looking;
        } else {
            self.senders.remove(sender);
        }
    }

    /// Puts the batch into the connection's queue.
    pub(in crate::batch) fn puts(&mut self, sender: usize, link: &mut Link, mutant: Option<Mutant>) {
        let (over, batch) = match self.senders.remove(sender) {
            Sender::Sending { over, batch } => {
                if mutant != Some(Mutant::EndsUnasked) {
                    self.senders.insert(sender, Sender::Looking);
                }
                (over, batch)
            }
            Sender::SendingAtOnce { over, batch } => (over, batch),
            _ => return,
        };
        if mutant == Some(Mutant::CrossesReconnect) {
            batch.iter().for_each(|at| self.attempts[*at].sent_over = Some(link.number));
        }
        if !link.put(batch.clone(), over) {
            self.loses(&Request::Batch(batch), mutant);
        }
    }

    /// Ends before its work is done: by a panic, with its runtime, or without a connection.
    pub(in crate::batch) fn dies(&mut self, sender: usize, mutant: Option<Mutant>) {
        let sender = self.senders.remove(sender);
        let batch = sender.taken().to_vec();
        // Noted as sent, it counts as that.
        self.loses(&Request::Batch(batch), mutant);
        if sender.sees_to_all() && mutant != Some(Mutant::DeadSenderKeepsBatch) {
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
