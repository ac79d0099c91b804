//! Waiting, for a server that neither queues nor pushes.
//!
//! The waiters of one client for one lock stand in a queue, first come first served. Only the first one asks the server: a claim
//! when it comes, and then one cheap read, after pauses that grow to about 25 ms (longer if there is much to look at, see
//! [`crate::wait::pace`]), and a claim when the lock seems free. A
//! holder in the same process does not let the first one find out by itself: it turns its item into that one's, in one command,
//! or else wakes it. Waiters of other clients get their turn because a client has a lock only a few times in a row.

pub(crate) mod hand_over;
pub(crate) mod pace;
pub(crate) mod queue;
pub(crate) mod turns;

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, Phase, driver::wait};
use tokio::sync::oneshot;

use crate::acquire::{TryOutcome, WantedLock, may_pass};
use crate::items::record::HolderRecords;
use crate::wait::pace::Pace;
use crate::wait::queue::{Offer, WaitQueue, WaitQueues};
use crate::wait::turns::{AfterTry, Standing, Tried, WaitLimits};

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Waits of one client.
pub(crate) struct Waits {
    queues: Arc<WaitQueues>,
    records: Arc<HolderRecords>,
    pace: Pace,
    longest_pause: Duration,
}

impl Waits {
    pub(crate) fn new(queues: &Arc<WaitQueues>, records: &Arc<HolderRecords>, longest_pause: Duration) -> Self {
        Self { queues: queues.clone(), records: records.clone(), pace: Pace::default(), longest_pause }
    }

    /// Waits in the queue until the lock is granted, or the deadline passes.
    pub(crate) async fn wait<W: WantedLock>(
        &self,
        wanted: &W,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let mut ticket = self.queues.join(wanted.queue());
        let (queue, turn) = ticket.queue();
        let limits = WaitLimits {
            since: SystemClock.now(),
            deadline,
            patience: attempt.patience,
            op_timeout: attempt.op_timeout,
            longest_pause: self.longest_pause,
        };
        let waiter = Waiter { waits: self, wanted, attempt, queue, limits };
        // What most waits end before is boxed: they need not carry it about.
        let granted = async {
            match turn {
                None => match waiter.first_try().await {
                    ControlFlow::Break(answer) => answer,
                    ControlFlow::Continue(pause) => Box::pin(waiter.looks_again(pause)).await,
                },
                Some(turn) => Box::pin(waiter.waits_its_turn(turn)).await,
            }
        };
        // However many requests are under way one after the other.
        let late = deadline.instant().plus(attempt.op_timeout);
        let Some(granted) = wait::before(&SystemClock, |_| late, pin!(granted)).await else {
            let what = "no answer within the operation timeout after the deadline";
            return Err(attempt.error(ErrorKind::Indeterminate, Phase::Wait, what));
        };
        let granted = granted?;
        Ok(self.records.described(attempt, wanted.entry(), granted))
    }
}

/// One waiter.
struct Waiter<'a, W> {
    waits: &'a Waits,
    wanted: &'a W,
    attempt: &'a Attempt,
    queue: &'a WaitQueue,
    limits: WaitLimits,
}

/// Answer of a wait, or the least pause before the next look.
type Step = ControlFlow<Result<Option<Grant>, Error>, Duration>;

impl<W: WantedLock> Waiter<'_, W> {
    /// Stands in the queue until it is the first one, and asks then.
    async fn waits_its_turn(&self, turn: &mut oneshot::Receiver<()>) -> Result<Option<Grant>, Error> {
        loop {
            let until = match self.queue.stands(&self.limits) {
                Standing::Until(until) => until,
                Standing::Over => return Ok(None),
                Standing::Silent(patience) => {
                    let what = format!("the server has not answered for {patience:?}");
                    return Err(self.attempt.error(ErrorKind::Unavailable, Phase::Wait, what));
                }
            };
            tokio::select! {
                biased;
                _ = &mut *turn => break,
                () = SystemClock.sleep_until(until) => {}
            }
        }
        // Who was before it has the lock now, or has released it already: too soon for it to be handed over.
        match self.first_try().await {
            ControlFlow::Break(answer) => answer,
            ControlFlow::Continue(pause) => self.looks_again(pause).await,
        }
    }

    /// Tries as the first one in the queue. If others want the lock too, it has to have been left to them now and then.
    async fn first_try(&self) -> Step {
        if let Some(at) = self.queue.first_try_at(&self.limits) {
            SystemClock.sleep_until(at).await;
        }
        self.tries(pin!(self.wanted.take())).await
    }

    /// Looks as the first one in the queue, again and again.
    async fn looks_again(&self, mut least: Duration) -> Result<Option<Grant>, Error> {
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

    /// Tries once, and tells the queue.
    async fn tries(&self, attempt: impl Future<Output = Result<TryOutcome, Error>>) -> Step {
        let was_ours = self.queue.is_held_here();
        let outcome = attempt.await;
        let tried = match &outcome {
            Ok(TryOutcome::Granted(_)) => Tried::Granted,
            Ok(TryOutcome::Held) => Tried::Held,
            Ok(TryOutcome::NotNow(why)) => Tried::NotNow(why.pause()),
            Err(error) => Tried::Failed { may_pass: may_pass(error) },
        };
        match self.queue.tried(&self.limits, tried, was_ours, self.wanted.entry()) {
            AfterTry::Ends => {
                let ended = outcome.and_then(|outcome| outcome.answer(Phase::Wait));
                ControlFlow::Break(ended.map_err(|error| self.ended_by(error)))
            }
            AfterTry::Pauses(pause) => ControlFlow::Continue(pause),
        }
    }

    /// The error of a wait. It is not definite while a key of the attempt may be at the server, such as that of a writer that
    /// waits for readers.
    fn ended_by(&self, error: Error) -> Error {
        if !error.is_definite() || self.wanted.entry().is_empty() {
            return error;
        }
        let what = "the wait ended, and what it has at the server may keep others out until it is removed";
        self.attempt.error(ErrorKind::Indeterminate, Phase::Wait, what).with_source(error)
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
        let withdrawal = self.queue.offers(Offer::new(entry, self.attempt.ttl, granted, turn));
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
