//! Renewals: whether the nodes by which grants hold are still there. Nothing at the servers has to be extended, since the
//! session's beats do that for all of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Renewal, Renewed};
use lock_core::{Error, LossReason, Phase};
use tokio::time::{Instant, timeout_at};

use crate::backend::Shared;
use crate::client::{Fault, Node};
use crate::seats::Seat;
use crate::session::Session;

/// What is asked for a grant: its seat, and the nodes that this had then.
struct Asked {
    seat: Arc<Seat>,
    paths: Vec<String>,
}

impl Asked {
    fn of(seat: Arc<Seat>) -> Self {
        let paths = seat.paths();
        Self { seat, paths }
    }

    /// Whether every node was seen, and is of its session.
    fn is_there(&self, seen: &Seen) -> bool {
        let session = self.seat.session.connection.id();
        let mut nodes = self.paths.iter().map(|path| seen.nodes.get(path).and_then(Option::as_ref));
        !self.paths.is_empty() && nodes.all(|node| node.is_some_and(|node| node.session == session))
    }

    /// Whether there is an answer for every node.
    fn is_answered(&self, seen: &Seen) -> bool {
        self.paths.iter().all(|path| seen.nodes.contains_key(path))
    }

    /// Whether others have taken, or are about to take, the place of the nodes that were asked for.
    fn has_changed(&self) -> bool {
        self.seat.is_changing() || self.seat.paths() != self.paths
    }
}

/// What the servers have answered in time.
#[derive(Default)]
struct Seen {
    nodes: HashMap<String, Option<Node>>,
    /// Why the answer about others is missing.
    fault: Option<Fault>,
}

impl Shared {
    /// Looks, by few requests, whether these grants' nodes are still there. What is not answered within this time is unknown.
    pub(crate) async fn verify(&self, batch: &[Renewal<'_>], limit: Duration) -> Vec<Renewed> {
        let (now, until) = (SystemClock.now(), Instant::now() + limit);
        let asked: Vec<_> = batch.iter().map(|renewal| self.seats.of(renewal.attempt.id).map(Asked::of)).collect();
        let mut sessions = asked.iter().flatten().map(|asked| &asked.seat.session);
        let present = sessions.find(|session| !session.is_over()).cloned();
        let seen = match &present {
            Some(session) => look_at(session, &asked, until).await,
            None => Seen::default(),
        };
        let mut answers = Vec::with_capacity(batch.len());
        for (renewal, asked) in batch.iter().zip(&asked) {
            answers.push(match asked.as_ref().map(|asked| (asked.seat.session.left(now), asked)) {
                Some((Some(left), asked)) if asked.is_there(&seen) => Renewed::For(left.min(renewal.ttl)),
                Some((Some(_), asked)) if !asked.is_answered(&seen) => unanswered(seen.fault.as_ref()),
                Some((Some(_), asked)) if asked.has_changed() => unknown("the grant's nodes were being exchanged"),
                Some((Some(_), asked)) => match timeout_at(until, self.give_up(&asked.seat)).await {
                    Ok(reason) => Renewed::Lost(reason),
                    Err(_) => unanswered(None),
                },
                _ => Renewed::Lost(LossReason::SessionExpired),
            });
        }
        answers
    }

    /// Leaves a grant of which a node is gone, and what is left of it; why it is gone.
    async fn give_up(&self, seat: &Seat) -> LossReason {
        let reason = self.why_gone(seat).await;
        for path in seat.paths() {
            // Enqueued now; if it fails, the session's end does the same.
            drop(seat.session.connection.delete(&path));
        }
        self.seats.leave(seat);
        reason
    }
}

/// What becomes known until then of the nodes that were asked for in this session.
async fn look_at(session: &Arc<Session>, asked: &[Option<Asked>], until: Instant) -> Seen {
    let of_session = asked.iter().flatten().filter(|asked| Arc::ptr_eq(session, &asked.seat.session));
    let paths: Vec<_> = of_session.flat_map(|asked| asked.paths.clone()).collect();
    let answers = session.connection.read_held(&paths).into_iter().map(|answer| timeout_at(until, answer));
    let mut seen = Seen::default();
    for answer in join_all(answers).await {
        match answer {
            Ok(Ok(found)) => {
                for (path, read) in found {
                    match read {
                        Ok(node) => drop(seen.nodes.insert(path, node)),
                        // Of this grant nothing is known; the others have their answers.
                        Err(fault) => seen.fault = Some(fault),
                    }
                }
            }
            Ok(Err(fault)) => seen.fault = Some(fault),
            Err(_) => {}
        }
    }
    seen
}

fn unanswered(fault: Option<&Fault>) -> Renewed {
    match fault {
        Some(fault) => unknown(format!("the servers did not answer: {}", fault.source)),
        None => unknown("no answer in time"),
    }
}

fn unknown(what: impl Into<Cow<'static, str>>) -> Renewed {
    Renewed::Unknown(Error::indeterminate(Phase::Renew, what).with_backend(crate::NAME))
}
