//! The looks of the first one in a queue after its first try, and its pauses between them, in which it can be handed the lock.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Error;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Grant, wait};
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use super::turns::{Ticket, WaitLimits};
use super::{Step, WaitQueue, Waiter};
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
    /// Looks as the first one in the queue, again and again. Goes on with nothing when it was passed over while it was not polled, and has
    /// nothing at the server: then it has to return to its place.
    pub(super) async fn looks_again(&self, mut least: Duration) -> Step<()> {
        let longest = self.waits.longest_pause;
        let mut pauses = wait::pauses(FIRST_PAUSE, longest);
        let share = self.waits.pace.share();
        loop {
            // The sequence is endless; the longest pause is its own last value.
            let mut pause = pauses.next().unwrap_or(longest);
            let keeps = self.wanted.entry().has_pieces().then_some(self.attempt.ttl);
            let by_pace = share.pause(self.wanted.take_looks());
            let by_pace = self.queue.state().turns.pause_by_pace(&self.limits, keeps, by_pace);
            if pause < by_pace {
                pause = wait::pauses(by_pace, by_pace).next().unwrap_or(by_pace);
            }
            if let Some(grant) = self.pauses(pause.max(least)).await {
                return ControlFlow::Break(Ok(Some(grant)));
            }
            if self.queue.state().turns.is_passed_over(self.ticket) && self.wanted.entry().is_empty() {
                return ControlFlow::Continue(());
            }
            match self.tries(pin!(self.looks_and_takes())).await {
                ControlFlow::Break(answer) => return ControlFlow::Break(answer),
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
        let until = self.queue.next_look(&self.limits, pause, self.ticket);
        let Some(wake) = self.queue.wake_of(self.ticket) else {
            // It was passed over while it was not polled, and has something at the server.
            SystemClock.sleep_until(until).await;
            return None;
        };
        let woken = async {
            tokio::select! {
                () = wake.notified() => {}
                () = SystemClock.sleep_until(until) => {}
            }
            // Others may have their turn by now: a row has ended meanwhile, or the wake-up is from before the pause.
            let at = self.queue.next_look(&self.limits, Duration::ZERO, self.ticket);
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
        let offer = Offer { entry, ttl: self.attempt.ttl, granted, _turn: turn };
        let withdrawal = self.queue.offers(self.ticket, offer);
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
    fn next_look(&self, limits: &WaitLimits, pause: Duration, ticket: Ticket) -> BootInstant {
        let mut state = self.state();
        let at = state.turns.next_look(SystemClock.now(), limits, pause);
        state.turns.pauses_until(at, ticket);
        at
    }

    /// The wake-up of the first one; nothing for a waiter that was passed over.
    fn wake_of(&self, ticket: Ticket) -> Option<Arc<Notify>> {
        let mut state = self.state();
        state.turns.is_first(ticket).then(|| state.wake.get_or_insert_default().clone())
    }

    /// The first one can be handed the lock, as long as the answer lives.
    fn offers(&self, ticket: Ticket, offer: Offer) -> Withdrawal<'_> {
        self.state().turns.offers(ticket, offer);
        Withdrawal { queue: self, ticket }
    }
}

/// Takes an offer back that nobody has taken.
struct Withdrawal<'a> {
    queue: &'a WaitQueue,
    ticket: Ticket,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        let withdrawn = self.queue.state().turns.withdraws(self.ticket);
        // What it holds ends after the queue's mutex is free.
        drop(withdrawn);
    }
}

impl Offer {
    /// Tells the first one that the lock is its own.
    pub(crate) fn grant(self, grant: Grant) {
        // If it has gone, its attempt is undone as soon as this ends.
        let _ = self.granted.send(grant);
    }
}
