//! Several locks while they are being taken.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::guard::MultiGuard;
use super::one_guard::OneGuard;
use super::one_step::Certainty;
use crate::acquire::{CANCEL_GRACE, Core};
use crate::clock::BootInstant;
use crate::error::{Error, Phase};
use crate::lease::Attended;

/// The locks that a call has so far.
pub(super) struct Taking {
    taken: MultiGuard,
    /// The losses of what is taken, each of which is waited for once, however many locks are taken after it.
    losses: FuturesUnordered<BoxFuture<'static, Error>>,
    /// The renewals of what is taken, for as long as the call is polled.
    renewals: FuturesUnordered<BoxFuture<'static, Infallible>>,
    core: Arc<Core>,
    /// No lease of theirs ends before this instant.
    ends_at: BootInstant,
    /// The time in which the quickest of them was taken. A release takes about as long at most: one request, of all at once. It may
    /// have been waited for, however, on a link that is quick.
    quickest: Option<Duration>,
    /// The certainty that what came before left nothing.
    before: Certainty,
}

impl Taking {
    /// Nothing yet.
    pub(super) fn begin(core: Arc<Core>, before: Certainty) -> Self {
        let (losses, renewals) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self {
            taken: MultiGuard::none(),
            losses,
            renewals,
            core,
            ends_at: BootInstant::FAR_FUTURE,
            quickest: None,
            before,
        }
    }

    /// Asks for one lock more, for as long as the others are held; whether it was granted.
    pub(super) async fn one(
        &mut self,
        ask: impl Future<Output = Result<Option<OneGuard>, Error>>,
    ) -> Result<bool, Error> {
        let began = self.core.keeper.clock.now();
        let granted = tokio::select! {
            biased;
            // A request that is cut short by a loss may have taken its lock, which is given back in the background.
            Some(lost) = self.losses.next() => return Err(self.failed(lost.ended_early())),
            Some(never) = self.renewals.next() => match never {},
            granted = ask => granted?,
        };
        let Some(guard) = granted else { return Ok(false) };
        let now = self.core.keeper.clock.now();
        let took = now.since(began);
        self.quickest = Some(self.quickest.map_or(took, |quickest| quickest.min(took)));
        self.losses.push(loss_of(&guard));
        let attended = Attended::of(&guard);
        self.renewals.push(async move { attended.renewed().await }.boxed());
        self.ends_at = self.ends_at.min(now.plus(guard.remaining()));
        self.taken.push(guard);
        // The end of a lease is told by a timer, which there may be none of outside of a runtime. A renewal has put it off.
        if now >= self.ends_at {
            self.taken.check(Phase::Hold).map_err(|lost| self.failed(lost))?;
            self.ends_at = now.plus(self.taken.remaining());
        }
        Ok(true)
    }

    /// Releases what a failed call had taken. What is not confirmed in time goes on in the background.
    pub(super) async fn put_back(self) -> PutBack {
        let (clock, op_timeout) = (&self.core.keeper.clock, self.core.options.op_timeout);
        let slow = self.quickest.unwrap_or_default().saturating_mul(2).min(op_timeout);
        let grace = CANCEL_GRACE.max(slow);
        let late = clock.sleep_until(clock.now().plus(grace));
        tokio::select! {
            biased;
            released = self.taken.release_each() => {
                let is_known = self.before == Certainty::Known && released.iter().all(Error::tells_that_it_is_gone);
                if is_known { PutBack::Confirmed } else { PutBack::Unconfirmed }
            },
            () = late => PutBack::Unconfirmed,
        }
    }

    /// All of them, if each is held by now. They are renewed by themselves from now on.
    pub(super) async fn checked(self) -> Result<MultiGuard, Error> {
        match self.taken.check(Phase::Acquire) {
            Ok(()) => Ok(self.taken),
            Err(lost) => {
                let lost = self.failed(lost);
                Err(self.put_back().await.after(lost))
            }
        }
    }

    /// Counts an error that no request of the call has told.
    fn failed(&self, error: Error) -> Error {
        self.core.keeper.meters.failed(error.kind());
        error
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
        match self {
            Self::Confirmed => error,
            Self::Unconfirmed => {
                error.in_doubt("what was taken before may still be held: its release is not confirmed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll};

    use futures_util::task::noop_waker;

    use super::*;
    use crate::ErrorKind;
    use crate::clock::VirtualClock;
    use crate::memory::MemoryStore;
    use crate::multi::lock_all;

    /// Outside of a runtime no timer tells of a loss.
    #[test]
    fn without_a_runtime_a_lock_that_is_over_ends_the_wait_when_the_next_one_is_granted() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (locks, other) = (store.connect(), store.connect());
        let held = ["b", "c"].map(|name| {
            let lock = other.mutex(name).with_ttl(Duration::from_secs(3600));
            lock.lock().now_or_never().unwrap().unwrap()
        });
        let all = ["a", "b", "c"].map(|name| locks.mutex(name).with_ttl(Duration::from_secs(1)));
        let waker = noop_waker();
        let (mut waiting, mut cx) = (pin!(lock_all(all)), Context::from_waker(&waker));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        clock.advance(Duration::from_secs(2));
        let [b, _c] = held;
        b.release().now_or_never().unwrap().unwrap();
        // What was taken is released first, which takes some polls.
        let told = (0..100).find_map(|_| match waiting.as_mut().poll(&mut cx) {
            Poll::Ready(outcome) => Some(outcome.unwrap_err()),
            Poll::Pending => None,
        });
        let told = told.expect("it goes on to wait for the last one");
        assert_eq!((told.kind(), told.name()), (ErrorKind::Lost, Some("a")), "{told}");
        assert!(!told.is_definite(), "nobody has asked the server whether it has ended: {told}");
    }
}
