//! One request for several locks at once: may I have all of them now. A transaction claims each, or fails as a whole.
//!
//! A claim is that of a mutex without a queue: it deletes the lock's directory, which has to be empty for that, makes it anew, and
//! makes the attempt's node in it. So nothing is taken as long as anybody holds one of the locks or waits for it; clients in the
//! queue and whoever comes later meet a node as any other.

use std::sync::Arc;

use futures_util::future::join_all;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, SeveralOutcome};
use lock_core::{Error, ErrorKind, Phase};
use tokio::time::Instant;

use crate::client::{Claim, Failure, Fate, MOST_BYTES};
use crate::error::StepError;
use crate::registry::{Registration, Registry};
use crate::release::Releaser;
use crate::session::{Session, Sessions};
use crate::store::layout::{Layout, LockPaths};
use crate::store::node::HolderRecord;

/// The most locks that one transaction takes: the servers carry out nothing else meanwhile.
const MOST: usize = 64;

/// Asks for several locks at once.
#[derive(Debug)]
pub(crate) struct SeveralAcquirer {
    sessions: Arc<Sessions>,
    registry: Arc<Registry>,
    layout: Arc<Layout>,
    releaser: Releaser,
    has_transactions: bool,
}

impl SeveralAcquirer {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        registry: Arc<Registry>,
        layout: Arc<Layout>,
        releaser: Releaser,
        has_transactions: bool,
    ) -> Self {
        Self { sessions, registry, layout, releaser, has_transactions }
    }

    /// Takes all of them by one transaction, or none.
    ///
    /// [`SeveralOutcome::OneByOne`] at paths that are shared with other libraries, which count on their directories; where there are no transactions; if they
    /// are too many or too long; and if the servers refuse it: whoever asks for each by itself is told why.
    pub(crate) async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        let Some(first) = attempts.first().filter(|_| self.has_transactions && attempts.len() <= MOST) else {
            return Ok(SeveralOutcome::OneByOne);
        };
        let locks = attempts.iter().map(|attempt| LockPaths::of(&self.layout, &attempt.name, attempt.kind));
        let locks = locks.collect::<Result<Vec<_>, _>>()?;
        if locks.iter().any(LockPaths::is_shared) {
            return Ok(SeveralOutcome::OneByOne);
        }
        let ask = async |session: &Arc<Session>| {
            self.claim_in(session, attempts, locks).await.map_err(|failure| failure.error(Phase::Acquire))
        };
        let until = Instant::now() + first.op_timeout;
        match self.sessions.request(first, Phase::Acquire, ask).await {
            // Of a grant that cannot be: what was made is deleted.
            Err(mut error) if error.kind() != ErrorKind::Indeterminate => {
                for attempt in attempts {
                    error = self.releaser.cancel_refused(attempt, Phase::Acquire, error, until).await;
                }
                Err(error)
            }
            outcome => outcome,
        }
    }

    async fn claim_in(
        &self,
        session: &Arc<Session>,
        attempts: &[&Attempt],
        locks: Vec<LockPaths>,
    ) -> Result<SeveralOutcome, StepError> {
        let timeout = session.connection.timeout();
        let claim = |(attempt, lock): (&&Attempt, &LockPaths)| Claim {
            directory: lock.directory.clone(),
            path: lock.unnumbered(attempt.id),
            data: HolderRecord::new(attempt, timeout).to_bytes(),
        };
        let claims: Vec<_> = attempts.iter().zip(&locks).map(claim).collect();
        let bytes = claims.iter().map(|claim| claim.bytes(self.layout.access_bytes));
        if bytes.sum::<usize>() > MOST_BYTES {
            return Ok(SeveralOutcome::OneByOne);
        }
        let registered = attempts.iter().zip(locks);
        let registered = registered.map(|(attempt, lock)| self.registry.register(attempt.id, session, lock));
        let registered: Vec<_> = registered.collect();
        let (mut sent_at, mut claimed) = (SystemClock.now(), session.connection.claim_all(&claims).await);
        if claimed.as_ref().is_err_and(|failure| failure.fate == Fate::Missing) {
            if let Err(failure) = self.make_directories(&registered).await {
                return self.one_by_one_after(&registered, failure).await;
            }
            (sent_at, claimed) = (SystemClock.now(), session.connection.claim_all(&claims).await);
        }
        let nodes = match claimed {
            Ok(Some(nodes)) => nodes,
            Ok(None) => return Ok(self.left(&registered, SeveralOutcome::Held)),
            Err(failure) => return self.one_by_one_after(&registered, failure).await,
        };
        let mut grants = Vec::with_capacity(nodes.len());
        for ((attempt, registration), node) in attempts.iter().zip(&registered).zip(nodes) {
            let czxid = node.czxid;
            self.registry.set_node(registration, node);
            let what = "the session was suspended when the locks were granted";
            let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
            grants.push(session.grant(attempt, czxid, sent_at)?.ok_or_else(suspended)?);
        }
        Ok(SeveralOutcome::Granted(grants))
    }

    /// Makes the directory of each, all at once.
    async fn make_directories(&self, registered: &[Arc<Registration>]) -> Result<(), Failure> {
        let made = registered.iter().map(|one| one.session.connection.make_directory(&one.lock.directory));
        join_all(made).await.into_iter().collect()
    }

    /// The outcome after a failure. If there was no answer, nodes of all of them may be there: they are deleted first.
    async fn one_by_one_after(
        &self,
        registered: &[Arc<Registration>],
        failure: Failure,
    ) -> Result<SeveralOutcome, StepError> {
        match failure.fate {
            Fate::Ended => return Err(failure.into()),
            Fate::Unknown => self.releaser.clear_all(registered).await?,
            _ => {}
        }
        Ok(self.left(registered, SeveralOutcome::OneByOne))
    }

    /// The outcome of what left nothing.
    fn left(&self, registered: &[Arc<Registration>], outcome: SeveralOutcome) -> SeveralOutcome {
        registered.iter().for_each(|registration| self.registry.deregister(registration));
        outcome
    }
}
