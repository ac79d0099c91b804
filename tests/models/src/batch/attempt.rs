//! One attempt of the client, and where it stands.

use lock_core::driver::BatchPlace;

/// An attempt to get a lock, which is asked for together with others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// The number of the connection over which its batch was sent: `BatchableRequest::sent_over`.
    pub(super) sent_over: Option<u8>,
    /// The smallest number of a connection over which it may have been sent: `Attempt::first_sent`.
    pub(super) first_sent: Option<u8>,
    /// Whether an earlier sending of it may have been carried out.
    pub(super) is_unknown: bool,
    /// Whether its time is over.
    pub(super) is_late: bool,
    /// Whether something went wrong with itself, and not with a neighbour.
    pub(super) is_hit: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It has not come yet.
    Idle,
    /// In a batch: it waits to be taken, or for its answer.
    Together(BatchPlace),
    /// It goes on by itself, and is to be sent.
    Alone,
    /// It was sent by itself.
    Asking,
    Holding,
    /// It may have the lock, and nobody wants that any more: its cancellation is to be sent.
    Undoing,
    /// Its cancellation was sent, or its release.
    Ending,
    Done(Outcome),
}

/// The end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// It gave up before anything was sent.
    Left,
    /// It was told that nothing was sent, as its time is over.
    NotSent,
    /// It was told that somebody else has the lock.
    Held,
    /// It was told that the server refuses it.
    Refused,
    /// It was released or cancelled, and that is settled.
    Ended,
}

impl Attempt {
    /// An attempt that has not come yet.
    pub(super) fn new() -> Self {
        let (sent_over, first_sent) = (None, None);
        Self { phase: Phase::Idle, sent_over, first_sent, is_unknown: false, is_late: false, is_hit: false }
    }

    /// Whether somebody waits for its outcome.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Together(_) | Phase::Alone | Phase::Asking)
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done(_))
    }

    /// Notes that it was sent over this connection.
    pub(super) fn is_sent_over(&mut self, number: u8) {
        self.first_sent = Some(self.first_sent.map_or(number, |first| first.min(number)));
    }

    /// Leaves its batch, which was taken: notes over which connection it was sent, if it was.
    pub(super) fn leaves_batch(&mut self) {
        if let Some(number) = self.sent_over {
            self.is_sent_over(number);
        }
    }

    /// Goes on by itself.
    pub(super) fn goes_on(&mut self) {
        self.leaves_batch();
        self.phase = Phase::Alone;
    }

    /// Has the lock.
    pub(super) fn holds(&mut self) {
        self.is_past(Phase::Holding);
    }

    /// Gives up, or has no outcome: what it may have is to be taken back, if anything was sent.
    pub(super) fn is_undone(&mut self) {
        match self.first_sent {
            Some(_) => self.is_past(Phase::Undoing),
            None => self.ends(Outcome::Left),
        }
    }

    /// Ends; nothing of its past counts any more.
    pub(super) fn ends(&mut self, outcome: Outcome) {
        *self = Self { phase: Phase::Done(outcome), ..Self::new() };
    }

    /// Comes to where of its past only that counts over which connections it was sent.
    fn is_past(&mut self, phase: Phase) {
        *self = Self { phase, first_sent: self.first_sent, ..Self::new() };
    }
}
