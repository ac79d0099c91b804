//! Several locks while they are being taken.

use std::convert::identity;
use std::sync::Arc;
use std::time::Duration;

use super::guard::MultiGuard;
use super::one_guard::OneGuard;
use super::one_step::Certainty;
use crate::acquire::CANCEL_GRACE;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::WorkError;

/// The locks that a call has so far.
pub(super) struct Taking {
    taken: MultiGuard,
    clock: Arc<dyn Clock>,
    op_timeout: Duration,
    /// The time in which the quickest of them was taken. A release takes about as long at most: one request, of all at once. It may
    /// have been waited for, however, on a link that is quick.
    quickest: Option<Duration>,
    /// The certainty that what came before left nothing.
    before: Certainty,
}

impl Taking {
    /// Nothing yet; a release is waited for by one operation timeout at most.
    pub(super) fn begin(clock: Arc<dyn Clock>, op_timeout: Duration, before: Certainty) -> Self {
        Self { taken: MultiGuard::none(), clock, op_timeout, quickest: None, before }
    }

    /// Asks for one lock more, for as long as the others are held; whether it was granted.
    pub(super) async fn one(
        &mut self,
        ask: impl Future<Output = Result<Option<OneGuard>, Error>>,
    ) -> Result<bool, Error> {
        let began = self.clock.now();
        // A request that is cut short by a loss may have taken its lock, which is given back in the background.
        let cut_short = |lost: WorkError<_>| lost.error.ended_early();
        let granted = self.taken.while_held(ask).await.map_err(cut_short).and_then(identity)?;
        let Some(guard) = granted else { return Ok(false) };
        let took = self.clock.now().since(began);
        self.quickest = Some(self.quickest.map_or(took, |quickest| quickest.min(took)));
        self.taken.push(guard);
        Ok(true)
    }

    /// Releases what a failed call had taken. What is not confirmed in time goes on in the background.
    pub(super) async fn put_back(self) -> PutBack {
        let slow = self.quickest.unwrap_or_default().saturating_mul(2).min(self.op_timeout);
        let grace = CANCEL_GRACE.max(slow);
        let late = self.clock.sleep_until(self.clock.now().plus(grace));
        tokio::select! {
            biased;
            released = self.taken.release() => match released {
                Err(error) if error.kind() != ErrorKind::NotHeld => PutBack::Unconfirmed,
                _ if self.before == Certainty::Unknown => PutBack::Unconfirmed,
                _ => PutBack::Confirmed,
            },
            () = late => PutBack::Unconfirmed,
        }
    }

    /// All of them, if each is held by now.
    pub(super) async fn checked(self) -> Result<MultiGuard, Error> {
        match self.taken.check(Phase::Acquire) {
            Ok(()) => Ok(self.taken),
            Err(error) => Err(self.put_back().await.after(error)),
        }
    }
}

/// Whether what a failed call had taken is known to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PutBack {
    Confirmed,
    /// The releases go on in the background.
    Unconfirmed,
}

impl PutBack {
    /// The error of the call, which took and changed nothing only if that is confirmed.
    pub(super) fn after(self, error: Error) -> Error {
        if self == Self::Confirmed || !error.is_definite() {
            return error;
        }
        let what = "what was taken before may still be held: its release is not confirmed";
        let unknown = Error::indeterminate(Phase::Acquire, what);
        unknown.with_source(error)
    }
}
