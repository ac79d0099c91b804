//! Waiting for a lock: a node in its queue, and the wait until nobody that matters is before it.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us. A wait
//!    whose client's node came last, as far as it knows, lists only if that is not the one right before.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node. Who wants
//!    permits of a semaphore takes them now ([`permits`]).
//! 3. Otherwise the nearest that matters is waited for: within this process without asking the servers, else by a watch.
//!    Then the directory is listed again: news may save a wait, never make a grant. Only a holder of this process hands
//!    over by itself: it deletes its node provided that the next one's is there, by one transaction, whose answer proves
//!    the next grant.
//!
//! A lost answer has the directory read, behind a `sync`, and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

pub(crate) mod contention;
pub(crate) mod entry;
mod free_permits;
mod listings;
mod permit_taking;
pub(crate) mod permits;
mod shared_path;
pub(crate) mod taking;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, Phase};
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

use self::contention::{Event, QueuePosition};
use self::entry::LockQueues;
use self::permits::{Permits, QueueYield};
use crate::client::Fate;
use crate::error::{FIRST_PAUSE, StepError};
use crate::release::Releaser;
use crate::session::{Session, Sessions, is_spent};

/// The pause between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been
/// lost, and is late by less than a second then.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The waits of one client for locks.
#[derive(Debug)]
pub(crate) struct Waits {
    sessions: Arc<Sessions>,
    queues: Arc<LockQueues>,
    permits: Arc<Permits>,
    releaser: Releaser,
}

impl Waits {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        queues: Arc<LockQueues>,
        permits: Arc<Permits>,
        releaser: Releaser,
    ) -> Self {
        Self { sessions, queues, permits, releaser }
    }

    /// Waits in the queue; `Ok(None)` at the deadline if somebody was before us until then.
    pub(crate) async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let (refused, mut refusals) = channel(false);
        let asked = AtomicBool::new(false);
        let ran_out = async {
            SystemClock.sleep_until(deadline.instant()).await;
            // The first answer may be on its way; one operation timeout is what K7 allows for it.
            let answered = refusals.wait_for(|refused| *refused);
            tokio::time::timeout(attempt.op_timeout, answered).await.is_ok()
        };
        let outcome = tokio::select! {
            biased;
            granted = self.wait_granted(attempt, &asked, &refused) => granted.map(Some),
            was_refused = ran_out => if was_refused { Ok(None) } else { Err(self.unanswered(attempt, &asked)) },
            () = self.sessions.silence(attempt.patience) => Err(self.unanswered(attempt, &asked)),
            // Nobody will say that the session has ended, nor open another one.
            () = self.sessions.closed() => Err(self.unanswered(attempt, &asked)),
        };
        match outcome {
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                let until = Instant::now() + attempt.op_timeout;
                Err(self.releaser.cancel_refused(attempt, Phase::Wait, error, until).await)
            }
            waited => waited,
        }
    }

    fn unanswered(&self, attempt: &Attempt, asked: &AtomicBool) -> Error {
        if asked.load(Ordering::Acquire) {
            // A node was asked for, and may be there: also one of a session that is over by our clock only.
            let is_closed = self.sessions.closed().now_or_never().is_some();
            let what = if is_closed { "the client's session is closed" } else { "the servers do not answer" };
            let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, what);
            return self.sessions.because_of_refusal(error);
        }
        self.sessions.no_session(Phase::Wait).with_name(&attempt.name)
    }

    /// Waits in the queue until granted, in as many sessions as that takes. Notes when something may have been asked for.
    ///
    /// A refusal is definite in the first of them only: the servers may have the node of a former one until they think that it is
    /// over, too.
    async fn wait_granted(
        &self,
        attempt: &Attempt,
        asked: &AtomicBool,
        refused: &Sender<bool>,
    ) -> Result<Grant, Error> {
        loop {
            let session = self.sessions.current().await;
            let waited_before = asked.swap(true, Ordering::AcqRel);
            let outcome = tokio::select! {
                biased;
                outcome = self.wait_in_session(&session, attempt, refused) => outcome,
                () = session.ended() => continue,
            };
            match outcome {
                Err(failure) if failure.is(Fate::Ended) => session.ended().await,
                Err(failure) if waited_before => {
                    let what = "a session ended while it waited, and the next one was refused";
                    let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, what);
                    return Err(error.with_source(failure.error(Phase::Wait)));
                }
                outcome => return outcome.map_err(|failure| failure.error(Phase::Wait)),
            }
        }
    }

    async fn wait_in_session(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &Sender<bool>,
    ) -> Result<Grant, StepError> {
        let mut entry = self.queues.register(attempt, session, true).await?;
        // Here and below: boxed, since the future of every other lock would have it in itself, too.
        if let Kind::Permits { .. } = attempt.kind
            && let Some(granted) = Box::pin(self.permits.claim(attempt, &mut entry)).await?
        {
            return Ok(granted);
        }
        let (mut woken_at, mut queue_yield, mut event) = (None, QueueYield::default(), Event::Begin);
        let mut was_spent = false;
        loop {
            event = match entry.settle(event).await? {
                QueuePosition::First(sent_at) => {
                    let granted = match attempt.kind {
                        Kind::Permits { .. } => {
                            let registration = &entry.registration;
                            Box::pin(self.permits.acquire(attempt, registration, refused, &mut queue_yield)).await?
                        }
                        // Looks again once only: with servers so far away that every answer comes too late, the place goes to the next.
                        _ => entry
                            .grant(sent_at)?
                            .filter(|granted| !is_spent(granted) || std::mem::replace(&mut was_spent, true)),
                    };
                    if let Some(granted) = granted {
                        let woken_at = granted.woken_at.or(woken_at);
                        return Ok(woken_at.map_or(granted, |at| granted.with_woken_at(at)));
                    }
                    if entry.registration.incoming.close() {
                        tokio::time::sleep(FIRST_PAUSE).await;
                    } else if let Some(granted) = Box::pin(self.permits.receive(attempt, &entry.registration)).await? {
                        return Ok(granted);
                    }
                    Event::Look
                }
                QueuePosition::Behind(node) => {
                    refused.send_replace(true);
                    if let Kind::Permits { .. } = attempt.kind {
                        self.permits.found_held(&entry.registration);
                        self.permits.open_to_permits(attempt, &entry.registration);
                    }
                    let news;
                    (woken_at, news) = entry.wait_for_node(&node).await?;
                    news
                }
                QueuePosition::Missing if entry.registration.incoming.close() => Event::Rejoin,
                // Its place goes for permits that are handed over to it.
                QueuePosition::Missing => {
                    if let Some(granted) = Box::pin(self.permits.receive(attempt, &entry.registration)).await? {
                        return Ok(granted);
                    }
                    Event::Look
                }
            };
        }
    }
}
