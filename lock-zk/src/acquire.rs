//! One try for a lock of any kind: may I have it now. Makes a node in the queue, and deletes it unless it is the first, or unless a
//! semaphore has enough permits for it and for all before it.

use std::sync::Arc;

use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, Phase};
use tokio::time::Instant;

use crate::error::{self, StepError};
use crate::release::Releaser;
use crate::session::{Session, Sessions};
use crate::wait::contention::{Event, QueuePosition};
use crate::wait::entry::LockQueues;
use crate::wait::permits::Permits;

/// Asks for locks.
#[derive(Debug)]
pub(crate) struct Acquirer {
    sessions: Arc<Sessions>,
    queues: Arc<LockQueues>,
    permits: Arc<Permits>,
    releaser: Releaser,
}

impl Acquirer {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        queues: Arc<LockQueues>,
        permits: Arc<Permits>,
        releaser: Releaser,
    ) -> Self {
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
            // Boxed, since the future of every other lock would have it in itself, too.
            return Box::pin(self.permits.try_acquire(attempt, &mut entry, position)).await;
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
    use crate::client::{ClientCrate, Fate};
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
