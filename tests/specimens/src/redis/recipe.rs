//! The recipes by name.

use std::time::Duration;

use super::recipes::{
    GetSetTimestamp, GetThenDelete, Incr, OrphanedTask, PlainDelete, SetnxThenExpire, WatchWithoutLook,
};
use super::steps::{Reference, Steps};
use super::troubled::{
    BlindRenewal, CancelsNothing, DeadlineFromReply, Impatient, LoadedOnce, LostAtOnce, OneAtATime, Pinned,
    SilenceIsConsent, Unrecognised, WaitsForEachReply,
};

/// A way to acquire and release a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recipe {
    /// `SET NX PX` with a nonce that is recognised; release and renewal compare and act in one script. Sound as far as the
    /// cases here go.
    Reference,
    /// `INCR` as a lock, with an expiry that everybody sets.
    Incr,
    /// `SETNX`, then `EXPIRE`.
    SetnxThenExpire,
    /// `SETNX` of a client's timestamp, taken over by `GETSET`.
    GetSetTimestamp,
    /// `SET NX PX`, released by a plain `DEL`.
    PlainDelete,
    /// Released by `GET`, a comparison in the client, then `DEL`.
    GetThenDelete,
    /// Released by `WATCH`, `MULTI`, `DEL`, `EXEC`, without looking at the value.
    WatchWithoutLook,
    /// Waits in a spawned task, which tries on when its waiter is gone.
    OrphanedTask,
    /// Counts its lease from the answer instead of from the request.
    DeadlineFromReply,
    /// Takes a renewal for done that was not answered.
    SilenceIsConsent,
    /// Takes a renewal for refused that was not answered.
    LostAtOnce,
    /// Does not recognise its own entry after a lost reply.
    Unrecognised,
    /// Stays with the server that led at the beginning.
    Pinned,
    /// Renews whatever is there.
    BlindRenewal,
    /// Calls its scripts by digests that the server may have forgotten.
    LoadedOnce,
    /// Repeats a renewal at once until it is answered.
    Impatient,
    /// Does nothing about an acquisition that was given up.
    CancelsNothing,
    /// Sends a request when the one before has been answered, or not in time.
    OneAtATime,
    /// Gives each reply of a wait a whole operation timeout.
    WaitsForEachReply,
}

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "the sound reference",
            Self::Incr => "INCR as a lock",
            Self::SetnxThenExpire => "SETNX, then EXPIRE",
            Self::GetSetTimestamp => "SETNX with GETSET of a client's timestamp",
            Self::PlainDelete => "SET NX PX with a plain DEL",
            Self::GetThenDelete => "GET, compare, then DEL",
            Self::WatchWithoutLook => "WATCH and MULTI without the look",
            Self::OrphanedTask => "a task that tries on",
            Self::DeadlineFromReply => "a deadline that counts from the reply",
            Self::SilenceIsConsent => "silence taken for a renewal",
            Self::LostAtOnce => "silence taken for a loss",
            Self::Unrecognised => "SET NX that does not recognise its own nonce",
            Self::Pinned => "a server that is asked for once",
            Self::BlindRenewal => "a renewal by SET",
            Self::LoadedOnce => "scripts that are loaded once",
            Self::Impatient => "a renewal that is repeated at once",
            Self::CancelsNothing => "a cancellation that does nothing",
            Self::OneAtATime => "one request at a time",
            Self::WaitsForEachReply => "a wait that waits for each reply",
        }
    }

    /// The recipe's steps, on a machine whose wall clock is this far ahead.
    pub(super) fn steps(self, ahead: Duration) -> Box<dyn Steps> {
        match self {
            Self::Reference => Box::new(Reference),
            Self::Incr => Box::new(Incr),
            Self::SetnxThenExpire => Box::new(SetnxThenExpire),
            Self::GetSetTimestamp => Box::new(GetSetTimestamp::ahead(ahead)),
            Self::PlainDelete => Box::new(PlainDelete),
            Self::GetThenDelete => Box::new(GetThenDelete),
            Self::WatchWithoutLook => Box::new(WatchWithoutLook),
            Self::OrphanedTask => Box::new(OrphanedTask),
            Self::DeadlineFromReply => Box::new(DeadlineFromReply),
            Self::SilenceIsConsent => Box::new(SilenceIsConsent),
            Self::LostAtOnce => Box::new(LostAtOnce),
            Self::Unrecognised => Box::new(Unrecognised),
            Self::Pinned => Box::new(Pinned),
            Self::BlindRenewal => Box::new(BlindRenewal),
            Self::LoadedOnce => Box::new(LoadedOnce::default()),
            Self::Impatient => Box::new(Impatient),
            Self::CancelsNothing => Box::new(CancelsNothing),
            Self::OneAtATime => Box::new(OneAtATime::default()),
            Self::WaitsForEachReply => Box::new(WaitsForEachReply),
        }
    }
}
