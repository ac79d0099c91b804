//! The backend: what all kinds share once a node is in line.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Attempt, Backend, Cancelled, Notices, Operator, Released, Renewal, Renewed};
use lock_core::clock::{Clock, SystemClock};
use lock_core::{Error, Guarantees, LossReason, Phase, wait};

use crate::client::{Fate, Fault};
use crate::config::ZkConfig;
use crate::error;
use crate::forced;
use crate::seats::{Seat, Seats};
use crate::session::{Session, SessionState, Sessions};

/// Pauses between two tries to release: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Locks on ZooKeeper, for [`Client`](lock_core::Client).
#[derive(Debug)]
pub struct ZkBackend {
    pub(crate) shared: Shared,
}

impl ZkBackend {
    pub(crate) async fn connect(config: &ZkConfig) -> Result<Self, Error> {
        let plan = config.check()?;
        let seats = Arc::<Seats>::default();
        let told = seats.clone();
        let sessions = Sessions::open(plan, Box::new(move |session| told.end(session))).await?;
        let (prefix, op_timeout) = (config.prefix.clone(), config.client.op_timeout);
        Ok(Self { shared: Shared { sessions, seats, prefix, op_timeout } })
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
    pub(crate) seats: Arc<Seats>,
    pub(crate) prefix: String,
    pub(crate) op_timeout: Duration,
}

impl Shared {
    /// The present session, if there is one within the operation timeout.
    pub(crate) async fn session(&self, attempt: &Attempt, phase: Phase) -> Result<Arc<Session>, Error> {
        let session = tokio::time::timeout(attempt.op_timeout, self.sessions.current()).await;
        session.map_err(|_| error::no_session(phase).with_name(&attempt.name))
    }

    /// Deletes a seat's node, once; whether it was there.
    pub(crate) async fn remove(&self, seat: &Seat, phase: Phase) -> Result<bool, Error> {
        let Some(node) = seat.node() else { return Ok(false) };
        let deleted = seat.session.connection.delete(&node.path).await;
        let was_there = deleted.map_err(|fault| error::of_request(fault, phase))?;
        self.seats.leave(seat);
        Ok(was_there)
    }

    /// Deletes a holder's node, as often as answers are lost.
    async fn give_back(&self, seat: &Seat) -> Result<Released, Error> {
        let Some(node) = seat.node() else { return Ok(Released::NotHeld(None)) };
        let mut unanswered = None;
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            match seat.session.connection.delete(&node.path).await {
                Ok(was_there) => {
                    self.seats.leave(seat);
                    return match (was_there, unanswered) {
                        (true, _) => Ok(Released::Done),
                        (false, None) => Ok(Released::NotHeld(Some(self.why_gone(seat).await))),
                        // Either an earlier sending of this release has done it, or the grant was lost before.
                        (false, Some(fault)) => Err(error::of_request(fault, Phase::Release)),
                    };
                }
                Err(fault) if fault.fate == Fate::Unknown => {
                    unanswered = Some(fault);
                    tokio::time::sleep(pause).await;
                }
                Err(fault) if fault.fate == Fate::Ended => break,
                Err(fault) => return Err(error::of_request(fault, Phase::Release)),
            }
        }
        // The pauses have no end; the session has.
        Ok(self.went_with_session(seat))
    }

    /// What a session held goes with it.
    fn went_with_session(&self, seat: &Seat) -> Released {
        self.seats.leave(seat);
        Released::NotHeld(Some(LossReason::SessionExpired))
    }

    /// Why a node that was held is not there any more.
    async fn why_gone(&self, seat: &Seat) -> LossReason {
        forced::take_reason(&*seat.session.connection, &self.prefix, seat.grant).await.unwrap_or(LossReason::Taken)
    }

    /// Deletes whatever an attempt has at the servers, whether its answers came or not.
    async fn clear(&self, seat: &Seat) -> Result<(), Fault> {
        let connection = &seat.session.connection;
        match seat.node() {
            Some(node) => drop(connection.delete(&node.path).await?),
            None => {
                for contender in self.nodes_of(seat).await? {
                    connection.delete(&seat.place.path(&contender.name)).await?;
                }
            }
        }
        Ok(())
    }

    /// Looks, by one request for each session, whether these grants' nodes are still there.
    async fn verify(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let now = SystemClock.now();
        let seats: Vec<_> = batch.iter().map(|renewal| self.seats.of(renewal.attempt.id)).collect();
        let present = seats.iter().flatten().find(|seat| !seat.session.is_over()).map(|seat| seat.session.clone());
        let is_asked = |seat: &Seat| present.as_ref().is_some_and(|session| Arc::ptr_eq(session, &seat.session));
        let paths: Vec<_> =
            seats.iter().flatten().filter(|seat| is_asked(seat)).filter_map(|seat| Some(seat.node()?.path)).collect();
        let mut nodes = match &present {
            Some(session) => match session.connection.read_all(&paths).await {
                Ok(nodes) => paths.into_iter().zip(nodes).collect::<std::collections::HashMap<_, _>>(),
                Err(fault) => return batch.iter().map(|_| unknown(&fault)).collect(),
            },
            None => std::collections::HashMap::new(),
        };
        let mut answers = Vec::with_capacity(batch.len());
        for (renewal, seat) in batch.iter().zip(seats) {
            let Some(seat) = seat else {
                answers.push(Renewed::Lost(LossReason::SessionExpired));
                continue;
            };
            let left = seat.session.left(now);
            let node = seat.node().and_then(|node| nodes.remove(&node.path)).flatten();
            answers.push(match (left, node) {
                (None, _) => Renewed::Lost(LossReason::SessionExpired),
                (Some(left), Some(node)) if node.session == seat.session.connection.id() => {
                    Renewed::For(left.min(renewal.ttl))
                }
                _ => {
                    let reason = self.why_gone(&seat).await;
                    self.seats.leave(&seat);
                    Renewed::Lost(reason)
                }
            });
        }
        answers
    }
}

fn unknown(fault: &Fault) -> Renewed {
    let what = format!("the servers did not answer: {}", fault.source);
    Renewed::Unknown(Error::indeterminate(Phase::Renew, what).with_backend(crate::NAME))
}

#[async_trait]
impl Backend for ZkBackend {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn guarantees(&self) -> Guarantees {
        crate::guarantees()
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.shared.seats.notices())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        // A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
        let limits = batch.iter().map(|renewal| renewal.attempt.op_timeout.min(renewal.attempt.ttl / 3));
        let limit = limits.min().unwrap_or_default();
        let Ok(answers) = tokio::time::timeout(limit, self.shared.verify(batch)).await else {
            let late = || Error::indeterminate(Phase::Renew, "no answer in time").with_backend(crate::NAME);
            return batch.iter().map(|_| Renewed::Unknown(late())).collect();
        };
        answers
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let Some(seat) = self.shared.seats.of(attempt.id) else {
            // What a session held goes with it.
            return Ok(Released::NotHeld(Some(LossReason::SessionExpired)));
        };
        let released = async {
            tokio::select! {
                biased;
                released = self.shared.give_back(&seat) => released,
                () = seat.session.ended() => Ok(self.shared.went_with_session(&seat)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Release, released).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(seat) = self.shared.seats.of(attempt.id) else { return Ok(Cancelled::Settled) };
        let cleared = async {
            tokio::select! {
                biased;
                cleared = self.shared.clear(&seat) => match cleared {
                    Err(fault) if fault.fate != Fate::Ended => Err(error::of_request(fault, Phase::Cancel)),
                    _ => Ok(()),
                },
                () = seat.session.ended() => Ok(()),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Cancel, cleared).await?;
        self.shared.seats.leave(&seat);
        Ok(Cancelled::Settled)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}
