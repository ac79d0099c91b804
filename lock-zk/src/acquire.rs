//! The recipe: a node in the queue, and the wait until nobody that matters is before it.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us. A wait
//!    whose client's node came last, as far as it knows, lists only if that is not the one right before.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node. Who wants
//!    permits of a semaphore takes them now ([`permits`](crate::wait::permits)).
//! 3. Otherwise the nearest that matters is waited for: within this process without asking the servers, else by a watch.
//!    Then the directory is listed again: news may save a wait, never make a grant. Only a holder of this process hands
//!    over by itself: it deletes its node provided that the next one's is there, by one transaction, whose answer proves
//!    the next grant.
//!
//! A lost answer has the directory read, behind a `sync`, and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, Phase};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Fate;
use crate::error::{self, FIRST_PAUSE, StepError};
use crate::release::Releaser;
use crate::session::{Session, Sessions, is_spent};
use crate::wait::contention::{Event, QueuePosition};
use crate::wait::entry::LockQueues;
use crate::wait::permits::{Permits, QueueYield};

/// Acquires locks of any kind.
#[derive(Debug)]
pub(crate) struct Acquirer {
    sessions: Arc<Sessions>,
    queues: LockQueues,
    permits: Permits,
    releaser: Releaser,
}

impl Acquirer {
    pub(crate) fn new(sessions: Arc<Sessions>, queues: LockQueues, permits: Permits, releaser: Releaser) -> Self {
        Self { sessions, queues, permits, releaser }
    }

    /// Tries once: a node in the queue, and away with it unless it is the first.
    pub(crate) async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let until = Instant::now() + attempt.op_timeout;
        let answer = async |session: &Arc<Session>| {
            self.try_in(session, attempt).await.map_err(|failure| failure.error(Phase::Acquire))
        };
        match self.sessions.request(attempt, Phase::Acquire, answer).await {
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                Err(self.releaser.cancel_refused(attempt, Phase::Acquire, error, until).await)
            }
            tried => tried,
        }
    }

    async fn try_in(&self, session: &Arc<Session>, attempt: &Attempt) -> Result<Option<Grant>, StepError> {
        let mut entry = self.queues.register(attempt, session, false).await?;
        let position = entry.settle(Event::Begin).await?;
        if let Kind::Permits { .. } = attempt.kind {
            return self.permits.try_acquire(attempt, &mut entry, position).await;
        }
        match position {
            // The end of a session takes its registrations away here; its nodes stay until the servers think so, too.
            QueuePosition::Missing if session.is_over() => Err(error::out_of_time(Phase::Acquire).into()),
            QueuePosition::First(sent_at) => {
                let what = "the session was suspended when the lock was granted";
                let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
                Ok(Some(entry.grant(sent_at)?.ok_or_else(suspended)?))
            }
            _ => self.releaser.withdraw(&entry.registration).await,
        }
    }

    /// Waits in the queue; `Ok(None)` at the deadline if somebody was before us until then.
    pub(crate) async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let (refused, mut refusals) = watch::channel(false);
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
        };
        match outcome {
            Err(error) if error.kind() != ErrorKind::Indeterminate => Err(self
                .releaser
                .cancel_refused(attempt, Phase::Wait, error, Instant::now() + attempt.op_timeout)
                .await),
            waited => waited,
        }
    }

    fn unanswered(&self, attempt: &Attempt, asked: &AtomicBool) -> Error {
        if asked.load(Ordering::Acquire) {
            // A node was asked for, and may be there: also one of a session that is over by our clock only.
            let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, "the servers do not answer");
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
        refused: &watch::Sender<bool>,
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
        refused: &watch::Sender<bool>,
    ) -> Result<Grant, StepError> {
        let mut entry = self.queues.register(attempt, session, true).await?;
        if let Kind::Permits { .. } = attempt.kind
            && let Some(granted) = self.permits.claim(attempt, &mut entry).await?
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
                            self.permits.acquire(attempt, &entry.registration, refused, &mut queue_yield).await?
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
                    tokio::time::sleep(FIRST_PAUSE).await;
                    Event::Look
                }
                QueuePosition::Behind(node) => {
                    refused.send_replace(true);
                    if let Kind::Permits { .. } = attempt.kind {
                        self.permits.found_held(&entry.registration);
                    }
                    let news;
                    (woken_at, news) = entry.wait_for_node(&node).await?;
                    news
                }
                QueuePosition::Missing => Event::Rejoin,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use lock_core::Owner;
    use lock_testkit::testing::{PROMPTLY, eventually, installed};
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use super::*;
    use crate::backend::ZkBackend;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;

    /// The session ends by our clock when the node was asked for; its answer comes all the same.
    #[tokio::test]
    async fn a_try_whose_session_ends_before_the_answer_does_not_know() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        for kind in [Kind::Mutex, Kind::Permits { permits: 1, limit: 1 }] {
            let mut rounds = 0;
            // The session's task may find it over before the answer comes: then the request has ended with the session.
            let answered = eventually("an answer behind the end", PROMPTLY * 3, async || {
                rounds += 1;
                let failure = cut_short(server.url(), &format!("late-{rounds}"), kind).await;
                (!failure.is(Fate::Ended)).then(|| failure.error(Phase::Acquire))
            });
            let error = answered.await;
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{kind:?}: {error}");
        }
    }

    /// The outcome of a try whose session is given up once its node is asked for.
    async fn cut_short(url: &str, name: &str, kind: Kind) -> StepError {
        let backend = ZkBackend::connect(&ZkConfig::new(url), ClientCrate::ZookeeperClient).await.unwrap();
        let attempt = || Attempt::new(name.into(), kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let (first, attempt) = (attempt(), attempt());
        let session = backend.sessions.current().await;
        // From here on the lock has its directories.
        assert!(backend.acquirer.try_in(&session, &first).await.unwrap().is_some());
        backend.releaser.release(&first).await.unwrap();
        let mut trying = Box::pin(backend.acquirer.try_in(&session, &attempt));
        assert!((&mut trying).now_or_never().is_none());
        session.give_up();
        backend.registry.end_session(&session);
        trying.await.unwrap_err()
    }
}
