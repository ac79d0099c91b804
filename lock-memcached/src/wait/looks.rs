//! The looks of the first one in a queue after its first try, and its pauses between them, in which it can be handed the lock.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Grant, wait};
use tokio::sync::{OwnedMutexGuard, oneshot};

use super::turns::WaitLimits;
use super::{WaitQueue, Waiter};
use crate::acquire::{TryOutcome, WantedLock};
use crate::registry::Entry;

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The request of the first one to be handed the lock, while it pauses.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) entry: Arc<Entry>,
    pub(crate) ttl: Duration,
    granted: oneshot::Sender<Grant>,
    /// Held, so that whoever undoes the first one's attempt waits until the hand-over is through.
    _turn: OwnedMutexGuard<()>,
}

impl<W: WantedLock> Waiter<'_, W> {
    /// Looks as the first one in the queue, again and again.
    pub(super) async fn looks_again(&self, mut least: Duration) -> Result<Option<Grant>, Error> {
        let longest = self.waits.longest_pause;
        let mut pauses = wait::pauses(FIRST_PAUSE, longest);
        let share = self.waits.pace.share();
        loop {
            // The sequence is endless; the longest pause is its own last value.
            let mut pause = pauses.next().unwrap_or(longest);
            let by_pace = share.pause(self.wanted.take_looks());
            if pause < by_pace {
                pause = wait::pauses(by_pace, by_pace).next().unwrap_or(by_pace);
            }
            if let Some(grant) = self.pauses(pause.max(least)).await {
                return Ok(Some(grant));
            }
            match self.tries(pin!(self.looks_and_takes())).await {
                ControlFlow::Break(answer) => return answer,
                ControlFlow::Continue(pause) => least = pause,
            }
        }
    }

    /// A claim, if a look says that it has a chance; without a look if what is there may be this attempt's own, because a
    /// claim or a hand-over was not answered.
    async fn looks_and_takes(&self) -> Result<TryOutcome, Error> {
        let may_be_own = !self.wanted.entry().unsure().is_empty();
        if may_be_own || self.wanted.looks_free().await? { self.wanted.take().await } else { Ok(TryOutcome::Held) }
    }

    /// Pauses, ready to be handed the lock; until it is woken at the latest, or the deadline passes.
    async fn pauses(&self, pause: Duration) -> Option<Grant> {
        let until = self.queue.next_look(&self.limits, pause);
        let woken = async {
            tokio::select! {
                () = self.queue.wake.notified() => {}
                () = SystemClock.sleep_until(until) => {}
            }
            // Others may have their turn by now: a row has ended meanwhile, or the wake-up is from before the pause.
            let at = self.queue.next_look(&self.limits, Duration::ZERO);
            if at > SystemClock.now() {
                SystemClock.sleep_until(at).await;
            }
        };
        let mut woken = pin!(woken);
        if !self.wanted.can_receive() {
            woken.await;
            return None;
        }
        let entry = self.wanted.entry().clone();
        let (granted, mut handed) = oneshot::channel();
        // A request of its own that is under way has it; if that takes long, there is nothing to offer now.
        let turn = tokio::select! {
            biased;
            turn = entry.turn() => turn,
            () = &mut woken => return None,
        };
        let withdrawal = self.queue.offers(Offer { entry, ttl: self.attempt.ttl, granted, _turn: turn });
        tokio::select! {
            biased;
            grant = &mut handed => return grant.ok(),
            () = woken => {}
        }
        drop(withdrawal);
        // If a holder has taken the offer, it says what came of it; otherwise the channel is closed.
        handed.await.ok()
    }
}

impl WaitQueue {
    /// The instant of the next look, after a pause that begins now.
    fn next_look(&self, limits: &WaitLimits, pause: Duration) -> BootInstant {
        let mut state = self.state();
        let at = state.turns.next_look(SystemClock.now(), limits, pause);
        state.turns.pauses_until(at);
        at
    }

    /// The first one can be handed the lock, as long as the answer lives.
    fn offers(&self, offer: Offer) -> Withdrawal<'_> {
        self.state().turns.offers(offer);
        Withdrawal(self)
    }
}

/// Takes an offer back that nobody has taken.
struct Withdrawal<'a>(&'a WaitQueue);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        self.0.state().turns.withdraws();
    }
}

impl Offer {
    /// Tells the first one that the lock is its own.
    pub(crate) fn grant(self, grant: Grant) {
        // If it has gone, its attempt is undone as soon as this ends.
        let _ = self.granted.send(grant);
    }
}
