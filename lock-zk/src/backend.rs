//! The backend: what all kinds share once a node is in the queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Notices, Operator, Released, Renewal, Renewed};
use lock_core::{Error, ErrorKind, Guarantees, LockName, LossReason, Phase, driver::wait};
use tokio::time::{Instant, timeout_at};

use crate::client::{ClientCrate, Connection, Fate, Fault};
use crate::config::ZkConfig;
use crate::error;
use crate::registry::{Registration, Registry};
use crate::session::{Session, SessionState, Sessions};
use crate::store::force_release;
use crate::store::layout::{self, Layout};

/// Pauses between two tries to release: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Locks on ZooKeeper, for [`Client`](lock_core::Client).
#[derive(Debug)]
pub struct ZkBackend {
    pub(crate) shared: Shared,
}

impl ZkBackend {
    pub(crate) async fn connect(config: &ZkConfig, by: ClientCrate) -> Result<Self, Error> {
        let plan = config.check(by)?;
        let registry = Arc::<Registry>::default();
        let told = registry.clone();
        let sessions = Sessions::open(plan, Box::new(move |session| told.end_session(session))).await?;
        let (layout, unfair_mutex, op_timeout) = (config.layout(), config.unfair_mutex, config.client.op_timeout);
        Ok(Self { shared: Shared { sessions, registry, layout, unfair_mutex, op_timeout } })
    }

    /// Closes the session, with everything that is held by it.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let closed = tokio::time::timeout(self.shared.op_timeout, self.shared.sessions.close()).await;
        closed.map_err(|_| {
            let what = "no server has confirmed within the operation timeout that the session is closed";
            Error::indeterminate(Phase::Release, what).with_backend(crate::NAME)
        })
    }

    /// What the client's session is doing.
    pub(crate) fn state(&self) -> SessionState {
        self.shared.sessions.state()
    }
}

/// What all locks of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sessions: Sessions,
    pub(crate) registry: Arc<Registry>,
    pub(crate) layout: Layout,
    pub(crate) unfair_mutex: bool,
    pub(crate) op_timeout: Duration,
}

impl Shared {
    /// What the present session answers, or the next one if there is none: all within one operation timeout.
    ///
    /// # Errors
    /// As [`error::no_session`] if there was none in time: nothing was sent then.
    pub(crate) async fn in_session<T>(
        &self,
        attempt: &Attempt,
        phase: Phase,
        ask: impl AsyncFnOnce(&Arc<Session>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + attempt.op_timeout;
        let session = self.session_by(until, phase).await.map_err(|error| error.with_name(&attempt.name))?;
        let answer = async {
            tokio::select! {
                biased;
                answer = ask(&session) => answer,
                // By our clock: what was asked for may be there until the servers think so, too.
                () = session.ended() => Err(error::out_of_time(phase)),
            }
        };
        timeout_at(until, answer).await.unwrap_or_else(|_| {
            Err(attempt.error(ErrorKind::Indeterminate, phase, "no answer within the operation timeout"))
        })
    }

    /// The present session, or the next one if that comes before this instant.
    ///
    /// # Errors
    /// As [`no_session`](Shared::no_session).
    pub(crate) async fn session_by(&self, until: Instant, phase: Phase) -> Result<Arc<Session>, Error> {
        tokio::select! {
            biased;
            session = self.sessions.current() => Ok(session),
            () = self.sessions.closed() => Err(self.no_session(phase)),
            () = tokio::time::sleep_until(until) => Err(self.no_session(phase)),
        }
    }

    /// There is no session, and nothing was sent: why.
    pub(crate) fn no_session(&self, phase: Phase) -> Error {
        if self.sessions.closed().now_or_never().is_some() {
            let what = "the client's session is closed";
            return Error::new(ErrorKind::Closed, phase, what).with_backend(crate::NAME);
        }
        error::no_session(phase, self.sessions.refusal())
    }

    /// Deletes a registration's nodes, once; whether all of them were there.
    pub(crate) async fn remove(&self, registration: &Registration) -> Result<bool, Fault> {
        let paths = registration.paths();
        let were_there = !paths.is_empty() && delete_all(&*registration.session.connection, &paths).await?;
        self.registry.deregister(registration);
        Ok(were_there)
    }

    /// Deletes a holder's nodes, as often as answers are lost.
    async fn release(&self, registration: &Registration) -> Result<Released, Error> {
        let paths = registration.paths();
        if paths.is_empty() {
            return Ok(Released::NotHeld(None));
        }
        let mut unanswered = match self.hand_over(registration).await {
            Ok(true) => return Ok(Released::Done),
            Ok(false) => None,
            Err(fault) => Some(fault),
        };
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            match self.delete_known(registration, &paths).await {
                Ok(was_there) => {
                    self.registry.deregister(registration);
                    return match (was_there, unanswered) {
                        (true, _) => Ok(Released::Done),
                        (false, None) => Ok(Released::NotHeld(Some(self.loss_reason(registration).await))),
                        // Either an earlier request of this release has done it, or the grant was lost before.
                        (false, Some(fault)) => Err(error::of_request(fault, Phase::Release)),
                    };
                }
                Err(fault) if fault.fate == Fate::Unknown => {
                    unanswered = Some(fault);
                    tokio::time::sleep(pause).await;
                }
                Err(fault) if fault.fate == Fate::Ended => break,
                // What was not answered may have been done.
                Err(fault) if unanswered.is_some() => return Err(error::unsettled(fault, Phase::Release)),
                Err(fault) => return Err(error::of_request(fault, Phase::Release)),
            }
        }
        // The pauses have no end; the session has, by the servers' word or by ours.
        self.registry.deregister(registration);
        Err(error::out_of_time(Phase::Release))
    }

    /// Deletes a holder's nodes, and what a change of them may have left; whether all that were known were there.
    async fn delete_known(&self, registration: &Registration, paths: &[String]) -> Result<bool, Fault> {
        let were_there = delete_all(&*registration.session.connection, paths).await?;
        if registration.is_changing() {
            self.clear_unknown(registration).await?;
        }
        Ok(were_there)
    }

    /// Deletes a holder's node for the next in the queue, if that is one of this process and is still there; whether it did. If
    /// not, nothing is said of the holder's node. A fault if the answer is lost.
    async fn hand_over(&self, registration: &Registration) -> Result<bool, Fault> {
        let (Some(node), Some(next)) = (registration.node(), self.registry.next_in_queue(registration)) else {
            return Ok(false);
        };
        let sent_at = SystemClock.now();
        match registration.session.connection.hand_over(&node.path, &next).await {
            Ok(()) => {
                self.registry.handed_over(registration, sent_at);
                Ok(true)
            }
            Err(fault) if fault.fate == Fate::Unknown => Err(fault),
            Err(_) => Ok(false),
        }
    }

    /// Why a node that was held is not there any more.
    pub(crate) async fn loss_reason(&self, registration: &Registration) -> LossReason {
        force_release::take_reason(&*registration.session.connection, &self.layout.prefix, registration.grant)
            .await
            .unwrap_or(LossReason::Taken)
    }

    /// Deletes whatever an attempt has at the servers, whether its answers came or not.
    pub(crate) async fn clear(&self, registration: &Registration) -> Result<(), Fault> {
        let paths = registration.paths();
        if !paths.is_empty()
            && delete_all(&*registration.session.connection, &paths).await?
            && !registration.is_changing()
        {
            return Ok(());
        }
        self.clear_unknown(registration).await
    }

    /// Deletes nodes of an attempt whose answers were lost.
    async fn clear_unknown(&self, registration: &Registration) -> Result<(), Fault> {
        let connection = &registration.session.connection;
        for directory in registration.lock.directories() {
            for contender in self.nodes_of(registration, directory).await? {
                connection.delete(&format!("{directory}/{}", contender.name)).await?;
            }
        }
        Ok(())
    }
}

/// Deletes these nodes, with one round trip; whether all were there. A fault is a refusal of all of them, or unknown.
pub(crate) async fn delete_all(connection: &dyn Connection, paths: &[String]) -> Result<bool, Fault> {
    let deleted: Vec<_> = paths.iter().map(|path| connection.delete(path)).collect();
    together(join_all(deleted).await)
}

/// The outcome of several deletions: one that was refused says nothing of another that was carried out, or may have been.
fn together(outcomes: Vec<Result<bool, Fault>>) -> Result<bool, Fault> {
    let done = |outcome: &Result<bool, Fault>| match outcome {
        Ok(was_there) => *was_there,
        Err(fault) => fault.fate == Fate::Unknown,
    };
    let may_be_done = outcomes.iter().any(done);
    let all = outcomes.into_iter().try_fold(true, |all, was_there| Ok(was_there? && all));
    all.map_err(|fault: Fault| match fault.fate {
        Fate::Ended => fault,
        _ if may_be_done => Fault { fate: Fate::Unknown, ..fault },
        _ => fault,
    })
}

#[async_trait]
impl Backend for ZkBackend {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn guarantees(&self) -> Guarantees {
        crate::guarantees(self.shared.unfair_mutex)
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.shared.registry.notices())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        // A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
        let limits = batch.iter().map(|renewal| renewal.attempt.op_timeout.min(renewal.attempt.ttl / 3));
        let limit = limits.min().unwrap_or_default();
        self.shared.verify(batch, limit).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let Some(registration) = self.shared.registry.get(attempt.id) else {
            // What a session held goes with it.
            return Ok(Released::NotHeld(Some(LossReason::SessionExpired)));
        };
        let released = async {
            tokio::select! {
                biased;
                released = self.shared.release(&registration) => released,
                // By our clock. The servers may have the node for a while yet: nobody has said that it is gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Release)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Release, released).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(registration) = self.shared.registry.get(attempt.id) else { return Ok(Cancelled::Settled) };
        let cleared = async {
            tokio::select! {
                biased;
                cleared = self.shared.clear(&registration) => match cleared {
                    Err(fault) if fault.fate != Fate::Ended => Err(error::of_request(fault, Phase::Cancel)),
                    _ => Ok(()),
                },
                () = registration.session.ended() => Ok(()),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Cancel, cleared).await?;
        self.shared.registry.deregister(&registration);
        Ok(Cancelled::Settled)
    }

    /// A node lives as long as its session, however long nobody could delete it.
    fn may_remain(&self, attempt: &Attempt) -> bool {
        self.shared.registry.get(attempt.id).is_some_and(|registration| !registration.session.is_over())
    }

    fn forget(&self, attempt: &Attempt) {
        if let Some(registration) = self.shared.registry.get(attempt.id) {
            self.shared.registry.deregister(&registration);
        }
    }

    /// A shared path may be written with or without its first `/`.
    fn canonical(&self, name: LockName) -> LockName {
        layout::canonical(name)
    }

    /// What a session has goes with it, and not before.
    fn outlasts_lease(&self) -> Duration {
        self.shared.sessions.timeout()
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(fate: Fate) -> Result<bool, Fault> {
        Err(Fault { fate, source: "a test's".into() })
    }

    #[test]
    fn a_refusal_is_told_as_one_only_if_nothing_was_deleted() {
        let fate = |outcomes| together(outcomes).unwrap_err().fate;
        assert_eq!(fate(vec![Ok(false), fault(Fate::Denied)]), Fate::Denied);
        assert_eq!(fate(vec![Ok(true), fault(Fate::Denied)]), Fate::Unknown);
        assert_eq!(fate(vec![fault(Fate::Denied), fault(Fate::Unknown)]), Fate::Unknown);
        assert_eq!(fate(vec![Ok(true), fault(Fate::Ended)]), Fate::Ended);
        assert!(together(vec![Ok(true), Ok(true)]).unwrap() && !together(vec![Ok(true), Ok(false)]).unwrap());
    }
}
