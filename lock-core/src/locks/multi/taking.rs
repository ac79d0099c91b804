//! Several locks while they are being taken.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::guard::MultiGuard;
use super::one_guard::OneGuard;
use super::one_step::Certainty;
use crate::acquire::CANCEL_GRACE;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Phase};

/// The locks that a call has so far.
pub(super) struct Taking {
    taken: MultiGuard,
    /// The losses of what is taken, each of which is waited for once, however many locks are taken after it.
    losses: FuturesUnordered<BoxFuture<'static, Error>>,
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
        let losses = FuturesUnordered::new();
        Self { taken: MultiGuard::none(), losses, clock, op_timeout, quickest: None, before }
    }

    /// Asks for one lock more, for as long as the others are held; whether it was granted.
    pub(super) async fn one(
        &mut self,
        ask: impl Future<Output = Result<Option<OneGuard>, Error>>,
    ) -> Result<bool, Error> {
        let began = self.clock.now();
        let granted = tokio::select! {
            biased;
            // A request that is cut short by a loss may have taken its lock, which is given back in the background.
            Some(lost) = self.losses.next() => return Err(lost.ended_early()),
            granted = ask => granted?,
        };
        let Some(guard) = granted else { return Ok(false) };
        let took = self.clock.now().since(began);
        self.quickest = Some(self.quickest.map_or(took, |quickest| quickest.min(took)));
        self.losses.push(loss_of(&guard));
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

/// The loss of this lock, as an error.
fn loss_of(guard: &OneGuard) -> BoxFuture<'static, Error> {
    let (lost, name, backend) = (guard.lost(), guard.name().clone(), guard.keeper.backend_name);
    async move { Error::lost(Phase::Hold, lost.await).with_name(&name).with_backend(backend) }.boxed()
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
