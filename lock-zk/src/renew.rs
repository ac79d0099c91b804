//! Renewals: whether the nodes by which grants hold are still there. Nothing at the servers has to be extended, since the
//! session's heartbeats do that for all of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Renewal, Renewed};
use lock_core::{Error, LossReason, Phase};
use tokio::time::{Instant, timeout_at};

use crate::client::{Failure, Node};
use crate::registry::{Registration, Registry};
use crate::session::Session;
use crate::store::force_release::ForceReleases;

/// The nodes of a grant that are asked for: those that its registration had then.
struct HeldNodes {
    registration: Arc<Registration>,
    paths: Vec<String>,
}

impl HeldNodes {
    fn of(registration: Arc<Registration>) -> Self {
        let paths = registration.paths();
        Self { registration, paths }
    }

    /// Whether every node was seen, and is of its session.
    fn is_there(&self, seen: &NodeAnswers) -> bool {
        let session = self.registration.session.connection.id();
        let mut nodes = self.paths.iter().map(|path| seen.nodes.get(path).and_then(Option::as_ref));
        !self.paths.is_empty() && nodes.all(|node| node.is_some_and(|node| node.session == session))
    }

    /// Whether there is an answer for every node.
    fn is_answered(&self, seen: &NodeAnswers) -> bool {
        self.paths.iter().all(|path| seen.nodes.contains_key(path))
    }

    /// Whether others have taken, or are about to take, the place of the nodes that were asked for.
    fn has_changed(&self) -> bool {
        self.registration.is_changing() || self.registration.paths() != self.paths
    }
}

/// The answers that the servers have given in time.
#[derive(Default)]
struct NodeAnswers {
    nodes: HashMap<String, Option<Node>>,
    /// The failure for which the answers about others are missing.
    failure: Option<Failure>,
}

/// Looks whether grants still have the nodes by which they hold.
#[derive(Debug)]
pub(crate) struct Renewer {
    registry: Arc<Registry>,
    force_releases: ForceReleases,
}

impl Renewer {
    pub(crate) fn new(registry: Arc<Registry>, force_releases: ForceReleases) -> Self {
        Self { registry, force_releases }
    }

    /// Looks, by few requests, whether these grants' nodes are still there.
    pub(crate) async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        // An answer counts as long as the lease that it extends would last; the core asks again meanwhile. All answers come over one
        // connection: if that hangs, a short lease's answer may come only after the longest limit, when the core has ended that lease.
        let limits = batch.iter().map(|renewal| renewal.attempt.op_timeout.min(renewal.ttl));
        let limit = limits.max().unwrap_or_default();
        self.verify(batch, limit).await
    }

    /// Looks whether these grants' nodes are still there. What is not answered within this time is unknown.
    pub(crate) async fn verify(&self, batch: &[Renewal<'_>], limit: Duration) -> Vec<Renewed> {
        let (now, until) = (SystemClock.now(), Instant::now() + limit);
        let asked: Vec<_> =
            batch.iter().map(|renewal| self.registry.get(renewal.attempt.id).map(HeldNodes::of)).collect();
        let mut sessions = asked.iter().flatten().map(|asked| &asked.registration.session);
        let present = sessions.find(|session| !session.is_over()).cloned();
        let seen = match &present {
            Some(session) => look_at(session, &asked, until).await,
            None => NodeAnswers::default(),
        };
        // The others of the batch have their answers by now: the reason of a loss is waited for only as long as these count.
        let least = batch.iter().map(|renewal| renewal.ttl / 3).min().filter(|_| batch.len() > 1);
        let until = least.map_or(until, |least| until.min(Instant::now() + least));
        let mut lost = Vec::new();
        let answer = |(renewal, asked): (&Renewal<'_>, &Option<HeldNodes>)| {
            let asked = asked.as_ref().map(|asked| (asked.registration.session.left(now), asked));
            match asked {
                Some((Some(left), asked)) if asked.is_there(&seen) => Renewed::For(left.min(renewal.ttl)),
                Some((Some(_), asked)) if !asked.is_answered(&seen) => unanswered(seen.failure.as_ref()),
                Some((Some(_), asked)) if asked.has_changed() => unknown("the grant's nodes were being exchanged"),
                Some((Some(_), asked)) => {
                    lost.push(asked.registration.clone());
                    Renewed::Lost(LossReason::Taken)
                }
                _ => Renewed::Lost(LossReason::SessionExpired),
            }
        };
        let mut answers: Vec<_> = batch.iter().zip(&asked).map(answer).collect();
        let reasons = self.give_up(&lost, until).await;
        let given_up = answers.iter_mut().filter(|answer| matches!(answer, Renewed::Lost(LossReason::Taken)));
        for (answer, reason) in given_up.zip(reasons) {
            *answer = Renewed::Lost(reason);
        }
        answers
    }

    /// Gives up grants of which a node is gone; why each is gone, if that is answered until then. Their registrations stay until the rest
    /// of their nodes is deleted: the core cancels a lost grant until it is settled (`Backend::is_settled`).
    async fn give_up(&self, lost: &[Arc<Registration>], until: Instant) -> Vec<LossReason> {
        // All of them are of the session that has answered.
        let Some(first) = lost.first() else { return Vec::new() };
        let grants: Vec<_> = lost.iter().map(|registration| registration.grant).collect();
        let reasons = self.force_releases.loss_reasons(&*first.session.connection, &grants);
        let reasons = timeout_at(until, reasons).await.unwrap_or_default();
        // Whoever waits in this process behind one that is gone looks again.
        lost.iter().for_each(|registration| self.registry.disown_node(registration));
        reasons
    }
}

/// Reads the nodes that are asked for in this session, as far as they are answered until then.
async fn look_at(session: &Arc<Session>, asked: &[Option<HeldNodes>], until: Instant) -> NodeAnswers {
    let of_session = asked.iter().flatten().filter(|asked| Arc::ptr_eq(session, &asked.registration.session));
    let paths: Vec<_> = of_session.flat_map(|asked| asked.paths.clone()).collect();
    let answers = session.connection.read_held(&paths).into_iter().map(|answer| timeout_at(until, answer));
    let mut seen = NodeAnswers::default();
    for answer in join_all(answers).await {
        match answer {
            Ok(Ok(found)) => {
                for (path, read) in found {
                    match read {
                        Ok(node) => drop(seen.nodes.insert(path, node)),
                        // Of this grant nothing is known; the others have their answers.
                        Err(failure) => seen.failure = Some(failure),
                    }
                }
            }
            Ok(Err(failure)) => seen.failure = Some(failure),
            Err(_) => {}
        }
    }
    seen
}

fn unanswered(failure: Option<&Failure>) -> Renewed {
    match failure {
        Some(failure) => unknown(format!("the servers did not answer: {}", failure.source)),
        None => unknown("no answer in time"),
    }
}

fn unknown(what: impl Into<Cow<'static, str>>) -> Renewed {
    Renewed::Unknown(Error::indeterminate(Phase::Renew, what).with_backend(crate::guarantees::NAME))
}
