//! Waiting, for a server that neither queues nor pushes.
//!
//! The waiters of one client for one lock stand in a queue, first come first served. Only the first one asks the server: a claim
//! when it comes, and then one cheap read, after pauses that grow to about 25 ms (longer if there is much to look at, see
//! [`crate::wait::pace`]), and a claim when the lock seems free. A
//! holder in the same process does not let the first one find out by itself: it turns its item into that one's, in one command,
//! or else wakes it. Waiters of other clients get their turn because a client has a lock only a few times in a row.

pub(crate) mod fairness;
pub(crate) mod pace;
pub(crate) mod queue;

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, Phase, driver::wait};
use tokio::sync::oneshot;

use crate::acquire::{TryOutcome, WantedLock, may_pass};
use crate::locked::locked;
use crate::store::record::Records;
use crate::wait::pace::Pace;
use crate::wait::queue::{Offer, WaitQueue, WaitQueues};

/// The first pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Waits of one client.
pub(crate) struct Waits {
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) records: Arc<Records>,
    pub(crate) pace: Pace,
    pub(crate) longest_pause: Duration,
}

impl Waits {
    /// Waits in the queue until the lock is granted, or the deadline passes.
    pub(crate) async fn wait<W: WantedLock>(
        &self,
        wanted: &W,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let ticket = self.queues.join(wanted.queue());
        let queue = ticket.queue();
        let waiter = Waiter { waits: self, wanted, attempt, deadline, since: SystemClock.now() };
        // What most waits end before is boxed: they need not carry it about.
        let granted = async {
            match queue.first.try_acquire() {
                Ok(_first) => match waiter.first_try(queue).await {
                    Ok(TryOutcome::Granted(grant)) => Ok(Some(grant)),
                    outcome => Box::pin(waiter.polls(queue, outcome)).await,
                },
                Err(_) => Box::pin(waiter.waits_its_turn(queue)).await,
            }
        };
        // However many requests are under way one after the other.
        let late = deadline.instant().plus(attempt.op_timeout);
        let granted = tokio::select! {
            biased;
            granted = granted => granted?,
            () = SystemClock.sleep_until(late) => {
                let what = "no answer within the operation timeout after the deadline";
                return Err(attempt.error(ErrorKind::Indeterminate, Phase::Wait, what));
            }
        };
        Ok(self.records.described(attempt, wanted.entry(), granted))
    }
}

/// One waiter.
struct Waiter<'a, W> {
    waits: &'a Waits,
    wanted: &'a W,
    attempt: &'a Attempt,
    deadline: Deadline,
    since: BootInstant,
}

impl<W: WantedLock> Waiter<'_, W> {
    /// Tries as the first one in the queue. If others want the lock too, it has to have been left to them now and then.
    async fn first_try(&self, queue: &WaitQueue) -> Result<TryOutcome, Error> {
        // Not the instant at which it came: it may have stood in the queue since.
        let others_until = locked(&queue.fairness).yields_until(SystemClock.now());
        if let Some(others_until) = others_until {
            SystemClock.sleep_until(others_until.min(self.deadline.instant())).await;
        }
        let outcome = self.observes(queue, self.wanted.take()).await;
        if let Ok(TryOutcome::Granted(_)) = outcome {
            locked(&queue.fairness).claimed(SystemClock.now());
        }
        outcome
    }

    /// Learns from a try whether others want the lock: they do if it is refused while nobody of this client has had it.
    ///
    /// Only the first one in the queue tries, so nobody else of this client gets the lock meanwhile.
    async fn observes(
        &self,
        queue: &WaitQueue,
        attempt: impl Future<Output = Result<TryOutcome, Error>>,
    ) -> Result<TryOutcome, Error> {
        let was_ours = queue.is_held_here();
        let outcome = attempt.await;
        match outcome {
            Ok(TryOutcome::Granted(_)) => queue.held_by(self.wanted.entry()),
            Ok(TryOutcome::Held) if !was_ours => locked(&queue.fairness).refused(SystemClock.now()),
            _ => {}
        }
        outcome
    }

    /// Stands in the queue until it is the first one, and asks then.
    async fn waits_its_turn(&self, queue: &WaitQueue) -> Result<Option<Grant>, Error> {
        let patience = self.attempt.patience;
        let _first = loop {
            let silence = queue.silence(self.since, patience);
            tokio::select! {
                biased;
                first = queue.first.acquire() => break first,
                () = SystemClock.sleep_until(self.deadline.instant().min(silence)) => {}
            }
            let now = SystemClock.now();
            let is_over = self.deadline.has_passed(now);
            // Who asks, asks all the time: so long a silence at the end is no answer that somebody holds.
            let patience = if is_over { self.attempt.op_timeout.min(patience) } else { patience };
            if now >= queue.silence(self.since, patience) {
                let what = format!("the server has not answered for {patience:?}");
                return Err(self.attempt.error(ErrorKind::Unavailable, Phase::Wait, what));
            }
            if is_over {
                return Ok(None);
            }
        };
        // Who was before it has the lock now, or has given it back already: too soon for it to be handed over.
        match self.first_try(queue).await {
            Ok(TryOutcome::Granted(grant)) => Ok(Some(grant)),
            outcome => self.polls(queue, outcome).await,
        }
    }

    /// Asks as the first one in the queue; this is what its first try has come to.
    async fn polls(&self, queue: &WaitQueue, mut outcome: Result<TryOutcome, Error>) -> Result<Option<Grant>, Error> {
        let mut pauses = wait::pauses(FIRST_PAUSE, self.waits.longest_pause);
        let share = self.waits.pace.share();
        loop {
            // The sequence is endless; the longest pause is its own last value.
            let mut pause = pauses.next().unwrap_or(self.waits.longest_pause);
            let least = share.pause(self.wanted.keys());
            if pause < least {
                pause = wait::pauses(least, least).next().unwrap_or(least);
            }
            let refused = match outcome {
                Ok(TryOutcome::Granted(grant)) => {
                    locked(&queue.fairness).reset();
                    return Ok(Some(grant));
                }
                Ok(TryOutcome::Held) => None,
                Ok(TryOutcome::NotNow(why)) => {
                    pause = pause.max(why.pause());
                    Some(why.into_error(Phase::Wait))
                }
                Err(error) if may_pass(&error) => {
                    let now = SystemClock.now();
                    if self.deadline.has_passed(now) || now >= queue.silence(self.since, self.attempt.patience) {
                        return Err(error);
                    }
                    if let Some(grant) = self.pauses(queue, pause.max(self.waits.longest_pause)).await {
                        return Ok(Some(grant));
                    }
                    outcome = self.observes(queue, self.looks_and_tries()).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            queue.answered();
            if self.deadline.has_passed(SystemClock.now()) {
                return refused.map_or(Ok(None), Err);
            }
            if let Some(grant) = self.pauses(queue, pause).await {
                return Ok(Some(grant));
            }
            outcome = self.observes(queue, self.looks_and_tries()).await;
        }
    }

    /// A claim, if a look says that it has a chance; without a look if what is there may be this attempt's own, because a
    /// claim or a hand-over was not answered.
    async fn looks_and_tries(&self) -> Result<TryOutcome, Error> {
        let may_be_own = !self.wanted.entry().unsure().is_empty();
        if may_be_own || self.wanted.looks_free().await? { self.wanted.take().await } else { Ok(TryOutcome::Held) }
    }

    /// Pauses, ready to be handed the lock; until it is woken at the latest, or the deadline passes.
    async fn pauses(&self, queue: &WaitQueue, pause: Duration) -> Option<Grant> {
        let now = SystemClock.now();
        let others_until = locked(&queue.fairness).others_until();
        let until = now.plus(pause).max(others_until).min(self.deadline.instant());
        if !self.wanted.can_receive() {
            tokio::select! {
                () = queue.wake.notified() => {}
                () = SystemClock.sleep_until(until) => {}
            }
            return None;
        }
        let entry = self.wanted.entry().clone();
        let (granted, mut handed) = oneshot::channel();
        // A request of its own that is under way has it; if that takes long, there is nothing to offer now.
        let turn = tokio::select! {
            biased;
            turn = entry.turn() => turn,
            () = queue.wake.notified() => return None,
            () = SystemClock.sleep_until(until) => return None,
        };
        *locked(&queue.offer) = Some(Offer { entry, ttl: self.attempt.ttl, granted, _turn: turn });
        let withdrawal = Withdrawal(queue);
        tokio::select! {
            biased;
            grant = &mut handed => return grant.ok(),
            () = queue.wake.notified() => {}
            () = SystemClock.sleep_until(until) => {}
        }
        drop(withdrawal);
        // If a holder has taken the offer, it says what came of it; otherwise the channel is closed.
        handed.await.ok()
    }
}

/// Takes an offer back that nobody has taken.
struct Withdrawal<'a>(&'a WaitQueue);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        locked(&self.0.offer).take();
    }
}
