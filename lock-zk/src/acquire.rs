//! The recipe: a node in the queue, and the wait until nobody that matters is before it.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node. Who wants
//!    permits of a semaphore takes them now ([`permits`](crate::wait::permits)).
//! 3. Otherwise the nearest that matters is waited for: within this process without asking the servers, else by a watch.
//!    Then the directory is listed again: news may save a wait, never make a grant. Only a holder of this process hands
//!    over by itself: it deletes its node provided that the next one's is there, by one transaction, whose answer proves
//!    the next grant.
//!
//! When an answer is lost, the directory is read behind a `sync` and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, FencingToken, Phase};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::backend::Shared;
use crate::client::Fate;
use crate::error;
use crate::error::{FIRST_PAUSE, StepError, retry_unanswered};
use crate::registry::Registration;
use crate::session::Session;
use crate::wait::permits::QueueYield;
use crate::wait::queue::QueuePosition;

impl Shared {
    /// One try: a node in the queue, and away with it unless it is the first.
    pub(crate) async fn try_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let until = Instant::now() + attempt.op_timeout;
        let answer = async |session: &Arc<Session>| match self.try_in(session, attempt).await {
            // By its crate's word. A node that was asked for may be there until the servers think so, too.
            Err(trouble) if trouble.is(Fate::Ended) => Err(error::out_of_time(Phase::Acquire)),
            tried => tried.map_err(|trouble| trouble.error(Phase::Acquire)),
        };
        match self.in_session(attempt, Phase::Acquire, answer).await {
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                Err(self.cancel_refused(attempt, Phase::Acquire, error, until).await)
            }
            tried => tried,
        }
    }

    async fn try_in(&self, session: &Arc<Session>, attempt: &Attempt) -> Result<Option<Grant>, StepError> {
        let (registration, position) = retry_unanswered(|| self.enqueue(attempt, session)).await?;
        if let Kind::Permits { .. } = attempt.kind {
            return self.try_permits(attempt, &registration, position).await;
        }
        match position {
            // The end of a session takes its registrations away here; its nodes stay until the servers think so, too.
            QueuePosition::Missing if session.is_over() => Err(error::out_of_time(Phase::Acquire).into()),
            QueuePosition::First(sent_at) => {
                let what = "the session was suspended when the lock was granted";
                let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
                Ok(Some(grant(attempt, &registration, sent_at)?.ok_or_else(suspended)?))
            }
            _ => self.withdraw(&registration).await,
        }
    }

    /// The error of an attempt that was refused, when nothing of it is left. If that does not become known until then, a node of
    /// it may wait in the queue, and the outcome is not known.
    async fn cancel_refused(&self, attempt: &Attempt, phase: Phase, error: Error, until: Instant) -> Error {
        let Some(registration) = self.registry.get(attempt.id) else { return error };
        let cleared = async {
            tokio::select! {
                biased;
                cleared = retry_unanswered(async || Ok(self.clear(&registration).await?)) => cleared.is_ok(),
                () = registration.session.ended() => false,
            }
        };
        if let Ok(true) = timeout_at(until, cleared).await {
            self.registry.deregister(&registration);
            return error;
        }
        let what = "a request was refused, and what had been made could not be deleted";
        attempt.error(ErrorKind::Indeterminate, phase, what).with_source(error)
    }

    /// The end of a try in vain.
    pub(crate) async fn withdraw(&self, registration: &Registration) -> Result<Option<Grant>, StepError> {
        retry_unanswered(async || Ok(self.remove(registration).await?)).await?;
        Ok(None)
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
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                Err(self.cancel_refused(attempt, Phase::Wait, error, Instant::now() + attempt.op_timeout).await)
            }
            waited => waited,
        }
    }

    fn unanswered(&self, attempt: &Attempt, asked: &AtomicBool) -> Error {
        if asked.load(Ordering::Acquire) {
            // A node was asked for, and may be there: also one of a session that is over by our clock only.
            return attempt.error(ErrorKind::Indeterminate, Phase::Wait, "the servers do not answer");
        }
        self.no_session(Phase::Wait).with_name(&attempt.name)
    }

    /// Stands in the queue until granted, in as many sessions as that takes. Notes when something may have been asked for.
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
            let stood_before = asked.swap(true, Ordering::AcqRel);
            let outcome = tokio::select! {
                biased;
                outcome = self.wait_in_session(&session, attempt, refused) => outcome,
                () = session.ended() => continue,
            };
            match outcome {
                Err(trouble) if trouble.is(Fate::Ended) => session.ended().await,
                Err(trouble) if stood_before => {
                    let what = "a session ended while it waited, and the next one was refused";
                    let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, what);
                    return Err(error.with_source(trouble.error(Phase::Wait)));
                }
                outcome => return outcome.map_err(|trouble| trouble.error(Phase::Wait)),
            }
        }
    }

    async fn wait_in_session(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &watch::Sender<bool>,
    ) -> Result<Grant, StepError> {
        let (mut registration, mut position) = retry_unanswered(|| self.enqueue(attempt, session)).await?;
        let (mut woken_at, mut queue_yield) = (None, QueueYield::default());
        loop {
            match position {
                QueuePosition::First(sent_at) => {
                    let granted = match attempt.kind {
                        Kind::Permits { .. } => {
                            self.wait_for_permits(attempt, &registration, refused, &mut queue_yield).await?
                        }
                        _ => grant(attempt, &registration, sent_at)?,
                    };
                    if let Some(granted) = granted {
                        let woken_at = granted.woken_at.or(woken_at);
                        return Ok(woken_at.map_or(granted, |at| granted.woken_at(at)));
                    }
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
                QueuePosition::Behind(path) => {
                    refused.send_replace(true);
                    let news = self.wait_for_node(&registration, &path).await?;
                    woken_at = news.came_at;
                    if let Some(sent_at) = news.first_since {
                        position = QueuePosition::First(sent_at);
                        continue;
                    }
                }
                QueuePosition::Missing => {
                    if registration.node().is_some() {
                        // The server may lag behind: what it does not know yet is searched for behind a `sync`.
                        self.registry.forget_node(&registration);
                    } else {
                        self.registry.deregister(&registration);
                    }
                    (registration, position) = retry_unanswered(|| self.enqueue(attempt, session)).await?;
                    continue;
                }
            }
            position = retry_unanswered(|| self.position(&registration)).await?;
        }
    }
}

/// The grant of a registration that was found first in the queue by a listing sent at this instant; `None` while no server is reached,
/// or if the session is over.
fn grant(attempt: &Attempt, registration: &Registration, sent_at: BootInstant) -> Result<Option<Grant>, Error> {
    let Some(node) = registration.node() else { return Ok(None) };
    granted(attempt, &registration.session, node.czxid, sent_at)
}

/// The grant that the answer to a request sent at this instant proves, with the token of this transaction.
pub(crate) fn granted(
    attempt: &Attempt,
    session: &Session,
    czxid: i64,
    sent_at: BootInstant,
) -> Result<Option<Grant>, Error> {
    let valid_for = session.is_connected().then(|| session.lasts_from(sent_at)).flatten();
    let Some(valid_for) = valid_for else { return Ok(None) };
    let token = u64::try_from(czxid).ok().and_then(FencingToken::new).ok_or_else(|| {
        let what = format!("the transaction {czxid:#x} is no fencing token: it exceeds 2^53");
        attempt.error(ErrorKind::Protocol, Phase::Acquire, what)
    })?;
    Ok(Some(Grant::new(Some(token), sent_at, valid_for.min(attempt.ttl))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use lock_core::Owner;
    use lock_testkit::servers::zookeeper::ZooKeeperServer;
    use lock_testkit::testing::{PROMPTLY, eventually, installed};

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
                let trouble = cut_short(server.url(), &format!("late-{rounds}"), kind).await;
                (!trouble.is(Fate::Ended)).then(|| trouble.error(Phase::Acquire))
            });
            let error = answered.await;
            assert_eq!(error.kind(), ErrorKind::Indeterminate, "{kind:?}: {error}");
        }
    }

    /// The outcome of a try whose session is given up once its node is asked for.
    async fn cut_short(url: &str, name: &str, kind: Kind) -> StepError {
        let shared = ZkBackend::connect(&ZkConfig::new(url), ClientCrate::ZookeeperClient).await.unwrap().shared;
        let attempt = || Attempt::new(name.into(), kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let (first, attempt) = (attempt(), attempt());
        let session = shared.sessions.current().await;
        // From here on the lock has its directories.
        assert!(shared.try_in(&session, &first).await.unwrap().is_some());
        shared.remove(&shared.registry.get(first.id).unwrap()).await.unwrap();
        let mut trying = Box::pin(shared.try_in(&session, &attempt));
        assert!((&mut trying).now_or_never().is_none());
        session.give_up();
        shared.registry.end_session(&session);
        trying.await.unwrap_err()
    }
}
