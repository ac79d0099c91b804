//! The stamps of events, and of the calls that they begin and end.

use crate::history::event::Failed;

/// An event, and when it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) t: u64,
    pub(super) event: usize,
}

/// The end of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallEnd<'h, T> {
    Pending,
    Ok(Mark, &'h T),
    Fail(Mark, &'h Failed),
    Info(Mark),
}

impl<'h, T> CallEnd<'h, T> {
    pub(super) fn mark(&self) -> Option<Mark> {
        match self {
            Self::Pending => None,
            Self::Ok(mark, _) | Self::Fail(mark, _) | Self::Info(mark) => Some(*mark),
        }
    }

    /// Returns when the answer came that the lock is not held any more. A call may fail for other reasons, which say nothing of that.
    pub(super) fn not_held(&self) -> Option<Mark> {
        match self {
            Self::Fail(mark, failed) if &*failed.err == "not_held" => Some(*mark),
            _ => None,
        }
    }

    pub(super) fn ok(&self) -> Option<(Mark, &'h T)> {
        match self {
            Self::Ok(mark, answer) => Some((*mark, answer)),
            _ => None,
        }
    }
}

/// A call that follows an acquisition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deed<'h, I, O> {
    pub(super) asked: Mark,
    pub(super) asks: &'h I,
    pub(super) outcome: CallEnd<'h, O>,
}
