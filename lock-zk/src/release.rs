//! Releases and cancellations: the deletion of whatever an attempt has at the servers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Cancelled, Grant, Released, wait};
use lock_core::{Error, ErrorKind, LossReason, Phase};
use tokio::time::{Instant, timeout_at};

use crate::client::{Connection, Failure, Fate, NewNode};
use crate::error::{self, StepError, retry_unanswered};
use crate::registry::permits::Recipient;
use crate::registry::{Registration, Registry};
use crate::store::force_release::ForceReleases;

/// Releases what attempts hold, and cancels what they have asked for.
#[derive(Debug, Clone)]
pub(crate) struct Releaser {
    registry: Arc<Registry>,
    force_releases: ForceReleases,
}

impl Releaser {
    pub(crate) fn new(registry: Arc<Registry>, force_releases: ForceReleases) -> Self {
        Self { registry, force_releases }
    }

    /// Releases a grant, as often as answers are lost, within the operation timeout.
    pub(crate) async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let Some(registration) = self.registry.get(attempt.id) else {
            // What a session held goes with it.
            return Ok(Released::NotHeld(Some(LossReason::SessionExpired)));
        };
        // Pinned here: handed on by value, it would be part of this future twice.
        let released = pin!(async {
            tokio::select! {
                biased;
                released = self.delete_held(&registration) => released,
                // By our clock. The servers may have the node for a while yet: nobody has said that it is gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Release)),
            }
        });
        wait::within(&SystemClock, attempt, Phase::Release, released).await
    }

    /// Releases some of the permits, so that this many are kept.
    pub(crate) async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Err(no_permits(attempt)) };
        let is_half_done = AtomicBool::new(false);
        let shrunk = async {
            tokio::select! {
                biased;
                shrunk = retry_unanswered(|| self.keep(attempt, &registration, keep, &is_half_done)) => match shrunk {
                    // An earlier request may have done it, or a part of it.
                    Err(StepError::Failure(failure))
                        if registration.is_changing() || is_half_done.load(Ordering::Relaxed) =>
                    {
                        Err(error::unsettled(failure, Phase::Release))
                    }
                    shrunk => shrunk.map_err(|failure| failure.error(Phase::Release)),
                },
                // By our clock: nobody has said that they are gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Release)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Release, shrunk).await
    }

    /// Releases what is more than this, by one transaction. What is there is looked for each time: an earlier sending may
    /// have done it, and its answer been lost; without transactions it may have done a part of it, which is noted.
    async fn keep(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        keep: u32,
        is_half_done: &AtomicBool,
    ) -> Result<(), StepError> {
        // A call that was dropped is finished in the background, while the next one may come.
        let _turn = registration.changes.lock().await;
        let (mut left, mut kept, mut given) = (0_u32, Vec::new(), Vec::new());
        let mut data = Vec::new();
        for (lease, node) in registration.own_nodes(registration.lock.permit_directory()).await? {
            let path = registration.lock.permit_path(&lease.name);
            if lease.permits <= keep - left.min(keep) {
                left += lease.permits;
                kept.push(path);
            } else {
                given.push(path);
            }
            data = node.data;
        }
        if kept.is_empty() && given.is_empty() {
            return Err(no_permits(attempt).into());
        }
        if given.is_empty() {
            self.registry.set_permits(registration, kept);
            return Ok(());
        }
        if registration.paths().len() > kept.len() + given.len() {
            is_half_done.store(true, Ordering::Relaxed);
        }
        // Behind a `sync`: an earlier sending has not done it.
        self.registry.set_permits(registration, kept.iter().chain(&given).cloned().collect());
        // One node for many permits: one for fewer takes its place.
        let fewer = (left < keep).then(|| {
            registration.lock.permit_path(&registration.lock.dialect.stem_of_many(registration.grant, keep - left))
        });
        let fewer: Vec<_> = fewer.into_iter().map(NewNode::Sequential).collect();
        match registration.exchange(&given, &fewer, &data).await {
            Ok(new) => {
                kept.extend(new);
                self.registry.set_permits(registration, kept);
                Ok(())
            }
            Err(failure) if failure.fate == Fate::Missing => Err(no_permits(attempt).into()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Cancels an attempt, however much of it is at the servers.
    pub(crate) async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Ok(Cancelled::Settled) };
        let cleared = async {
            tokio::select! {
                biased;
                cleared = clear(&self.registry, &registration) => match cleared {
                    Err(failure) if failure.fate != Fate::Ended => Err(error::of_request(failure, Phase::Cancel)),
                    _ => Ok(()),
                },
                () = registration.session.ended() => Ok(()),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Cancel, cleared).await?;
        self.registry.deregister(&registration);
        Ok(Cancelled::Settled)
    }

    /// Cancels an attempt that was refused, and returns its error. If it does not become known until then that nothing of it is
    /// left, a node of it may be in the queue, and the outcome is not known.
    pub(crate) async fn cancel_refused(&self, attempt: &Attempt, phase: Phase, error: Error, until: Instant) -> Error {
        let Some(registration) = self.registry.get(attempt.id) else { return error };
        let cleared = async {
            tokio::select! {
                biased;
                cleared = retry_unanswered(async || Ok(clear(&self.registry, &registration).await?)) => cleared.is_ok(),
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

    /// Deletes whatever several attempts have at the servers, as often as answers are lost.
    pub(crate) async fn clear_all(&self, registered: &[Arc<Registration>]) -> Result<(), StepError> {
        let cleared = registered.iter().map(|one| retry_unanswered(async || Ok(clear(&self.registry, one).await?)));
        join_all(cleared).await.into_iter().collect()
    }

    /// Ends a try in vain: deletes its nodes, and returns that it has no grant.
    pub(crate) async fn withdraw(&self, registration: &Registration) -> Result<Option<Grant>, StepError> {
        retry_unanswered(async || Ok(self.delete_known(registration).await?)).await?;
        Ok(None)
    }

    /// Deletes the nodes that are known of a registration, once.
    async fn delete_known(&self, registration: &Registration) -> Result<(), Failure> {
        self.registry.node_may_go(registration);
        let paths = registration.paths();
        if !paths.is_empty() {
            delete_all(&*registration.session.connection, &paths).await?;
        }
        self.registry.deregister(registration);
        Ok(())
    }

    /// Deletes a holder's nodes, as often as answers are lost.
    async fn delete_held(&self, registration: &Registration) -> Result<Released, Error> {
        let paths = registration.paths();
        if paths.is_empty() {
            return Ok(Released::NotHeld(None));
        }
        self.registry.node_may_go(registration);
        let mut unanswered = match self.hand_over(registration).await {
            Ok(true) => return Ok(Released::Done),
            Ok(false) => None,
            Err(failure) => Some(failure),
        };
        for pause in error::pauses() {
            match delete_with_exchanged(registration, &paths).await {
                Ok(was_there) => {
                    self.registry.deregister(registration);
                    return match (was_there, unanswered) {
                        (true, _) => Ok(Released::Done),
                        (false, None) => {
                            let connection = &*registration.session.connection;
                            // Boxed, since it is rare, and would be in the future of every release.
                            let grant = [registration.grant];
                            let reasons = Box::pin(self.force_releases.loss_reasons(connection, &grant));
                            Ok(Released::NotHeld(reasons.await.pop()))
                        }
                        // Either an earlier request of this release has done it, or the grant was lost before.
                        (false, Some(failure)) => Err(error::of_request(failure, Phase::Release)),
                    };
                }
                Err(failure) if failure.fate == Fate::Unknown => {
                    unanswered = Some(failure);
                    tokio::time::sleep(pause).await;
                }
                Err(failure) if failure.fate == Fate::Ended => break,
                // What was not answered may have been done.
                Err(failure) if unanswered.is_some() => return Err(error::unsettled(failure, Phase::Release)),
                Err(failure) => return Err(error::of_request(failure, Phase::Release)),
            }
        }
        // The pauses have no end; the session has, by the servers' word or by ours.
        self.registry.deregister(registration);
        Err(error::out_of_time(Phase::Release))
    }

    /// Deletes a holder's nodes for the next in the queue, if that is one of this process and is still there, and returns whether
    /// it did. If not, nothing is said of the holder's nodes. A failure if the answer is lost.
    async fn hand_over(&self, registration: &Registration) -> Result<bool, Failure> {
        if let Some(successor) = self.registry.recipient_of(registration) {
            return self.hand_permits_over(registration, successor).await;
        }
        let (Some(node), Some((grant, next))) = (registration.node(), self.registry.next_in_queue(registration)) else {
            return Ok(false);
        };
        let sent_at = SystemClock.now();
        match registration.session.connection.hand_over(&node.path, &next).await {
            Ok(()) => {
                self.registry.handed_over(registration, grant, sent_at);
                Ok(true)
            }
            Err(failure) if failure.fate == Fate::Unknown => Err(failure),
            Err(_) => Ok(false),
        }
    }

    async fn hand_permits_over(&self, registration: &Registration, successor: Recipient) -> Result<bool, Failure> {
        match registration.hand_permits_over(successor).await {
            Ok(()) => {
                self.registry.deregister(registration);
                Ok(true)
            }
            Err(failure) if failure.fate == Fate::Unknown => Err(failure),
            Err(_) => Ok(false),
        }
    }
}

/// Deletes these nodes of a holder, and those that an exchange has put in their place meanwhile; returns whether it had any.
async fn delete_with_exchanged(registration: &Registration, paths: &[String]) -> Result<bool, Failure> {
    let were_there = delete_all(&*registration.session.connection, paths).await?;
    if were_there && !registration.is_changing() {
        return Ok(true);
    }
    // An exchange may have been carried out before the deletion, and its answer have come, too: then nothing is changing any more.
    // Boxed as well.
    Ok(Box::pin(clear_unknown(registration)).await? || were_there)
}

/// Deletes whatever an attempt has at the servers, whether its answers came or not.
async fn clear(registry: &Registry, registration: &Registration) -> Result<(), Failure> {
    registry.node_may_go(registration);
    let paths = registration.paths();
    if paths.is_empty() && registration.never_left() {
        return Ok(());
    }
    let connection = &*registration.session.connection;
    if !paths.is_empty() && delete_all(connection, &paths).await? && !registration.is_changing() {
        return Ok(());
    }
    Box::pin(clear_unknown(registration)).await.map(drop)
}

/// Deletes nodes of an attempt whose answers were lost, and returns whether there were any.
async fn clear_unknown(registration: &Registration) -> Result<bool, Failure> {
    let (connection, mut were_there) = (&*registration.session.connection, false);
    for directory in registration.lock.directories() {
        let paths: Vec<_> =
            registration.nodes_in(directory).await?.iter().map(|node| format!("{directory}/{}", node.name)).collect();
        // There may be a thousand.
        let deleted = join_all(paths.iter().map(|path| connection.delete(path))).await;
        were_there |= deleted.iter().any(|was_there| matches!(was_there, Ok(true)));
        together(deleted)?;
    }
    Ok(were_there)
}

/// Deletes these nodes, with one round trip, and returns whether all were there. A failure is a refusal of all of them, or
/// unknown.
pub(crate) async fn delete_all(connection: &dyn Connection, paths: &[String]) -> Result<bool, Failure> {
    let deleted: Vec<_> = paths.iter().map(|path| connection.delete(path)).collect();
    together(join_all(deleted).await)
}

/// Deletes these nodes as [`delete_all`] does, and returns whether any was there.
pub(crate) async fn delete_any(connection: &dyn Connection, paths: &[String]) -> Result<bool, Failure> {
    let outcomes = join_all(paths.iter().map(|path| connection.delete(path))).await;
    let any = outcomes.iter().any(|was_there| matches!(was_there, Ok(true)));
    together(outcomes).map(|_| any)
}

/// Deletes a node if it belongs to this session. One whose making was not answered may be on its way to this server.
pub(crate) async fn delete_own(connection: &dyn Connection, path: &str) -> Result<(), Failure> {
    let paths = [path.to_owned()];
    let (synced, read) = (connection.sync(path), connection.read_all(&paths));
    synced.await?;
    let read = read.await?;
    let is_own = read.into_iter().flatten().any(|node| node.session == connection.id());
    if is_own { connection.delete(path).await.map(drop) } else { Ok(()) }
}

/// Returns the outcome of several deletions: one that was refused says nothing of another that was carried out, or may have been.
fn together(outcomes: Vec<Result<bool, Failure>>) -> Result<bool, Failure> {
    let done = |outcome: &Result<bool, Failure>| match outcome {
        Ok(was_there) => *was_there,
        Err(failure) => failure.fate == Fate::Unknown,
    };
    let may_be_done = outcomes.iter().any(done);
    let all = outcomes.into_iter().try_fold(true, |all, was_there| Ok(was_there? && all));
    all.map_err(|failure: Failure| match failure.fate {
        Fate::Ended => failure,
        _ if may_be_done => Failure { fate: Fate::Unknown, ..failure },
        _ => failure,
    })
}

fn no_permits(attempt: &Attempt) -> Error {
    attempt.error(ErrorKind::NotHeld, Phase::Release, "the servers have no such permits (any more)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(fate: Fate) -> Result<bool, Failure> {
        Err(Failure { fate, source: "a test's".into() })
    }

    #[test]
    fn a_refusal_is_told_as_one_only_if_nothing_was_deleted() {
        let fate = |outcomes| together(outcomes).unwrap_err().fate;
        assert_eq!(fate(vec![Ok(false), failure(Fate::Denied)]), Fate::Denied);
        assert_eq!(fate(vec![Ok(true), failure(Fate::Denied)]), Fate::Unknown);
        assert_eq!(fate(vec![failure(Fate::Denied), failure(Fate::Unknown)]), Fate::Unknown);
        assert_eq!(fate(vec![Ok(true), failure(Fate::Ended)]), Fate::Ended);
        assert!(together(vec![Ok(true), Ok(true)]).unwrap() && !together(vec![Ok(true), Ok(false)]).unwrap());
    }
}
