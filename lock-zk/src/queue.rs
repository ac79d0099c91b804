//! The recipe: a node in line, and the wait until nobody that matters is before it.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node.
//! 3. Otherwise the nearest that matters is waited for: within this process without asking the servers, else by a watch.
//!    Then the directory is listed again: news may save a wait, never make a grant.
//!
//! When an answer is lost, the directory is read behind a `sync` and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Attempt, Grant};
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, Phase, wait};
use tokio::sync::watch;

use crate::backend::Shared;
use crate::card::Card;
use crate::client::{Created, Fate, Fault};
use crate::error;
use crate::layout::{Contender, Place, waits_for};
use crate::seats::Seat;
use crate::session::Session;

/// Pauses after a lost answer: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a listing says of a seat.
enum Look {
    /// Nobody that matters is before it; the listing was asked for at this instant.
    First(BootInstant),
    /// This path is to go first.
    Behind(String),
    /// The seat has no node any more: somebody has deleted it.
    Gone,
}

/// Why a step could not be taken.
#[derive(Debug)]
enum Trouble {
    Fault(Fault),
    Error(Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Trouble {
    fn is(&self, fate: Fate) -> bool {
        matches!(self, Self::Fault(fault) if fault.fate == fate)
    }

    fn error(self, phase: Phase) -> Error {
        match self {
            Self::Fault(fault) => error::of_request(fault, phase),
            Self::Error(error) => error,
        }
    }
}

impl Shared {
    /// One try: a node in line, and away with it unless it is the first.
    pub(crate) async fn try_now(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let session = self.session(attempt, Phase::Acquire).await?;
        let trying = async {
            let (seat, look) = self.sit(attempt, &session).await.map_err(|trouble| trouble.error(Phase::Acquire))?;
            if let Look::First(sent_at) = look {
                let what = "the session was suspended when the lock was granted";
                let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
                return grant(attempt, &seat, sent_at)?.ok_or_else(suspended).map(Some);
            }
            self.remove(&seat, Phase::Acquire).await.map(|_| None)
        };
        let answer = async {
            tokio::select! {
                biased;
                answer = trying => answer,
                () = session.ended() => Err(error::no_session(Phase::Acquire)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Acquire, answer).await
    }

    /// Waits in line; `Ok(None)` at the deadline if somebody was before us until then.
    pub(crate) async fn wait_in_line(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let (refused, mut refusals) = watch::channel(false);
        let ran_out = async {
            SystemClock.sleep_until(deadline.instant()).await;
            // The first answer may be on its way; one operation timeout is what K7 allows for it.
            let answered = refusals.wait_for(|refused| *refused);
            tokio::time::timeout(attempt.op_timeout, answered).await.is_ok()
        };
        tokio::select! {
            biased;
            granted = self.stand(attempt, &refused) => granted.map(Some),
            was_refused = ran_out => if was_refused { Ok(None) } else { Err(self.unanswered(attempt)) },
            () = self.sessions.silence(attempt.patience) => Err(self.unanswered(attempt)),
        }
    }

    fn unanswered(&self, attempt: &Attempt) -> Error {
        match self.seats.of(attempt.id) {
            Some(_) => attempt.error(ErrorKind::Unavailable, Phase::Wait, "the servers do not answer"),
            None => error::no_session(Phase::Wait),
        }
    }

    /// Stands in line until granted, in as many sessions as that takes.
    async fn stand(&self, attempt: &Attempt, refused: &watch::Sender<bool>) -> Result<Grant, Error> {
        loop {
            let session = self.sessions.current().await;
            let outcome = tokio::select! {
                biased;
                outcome = self.stand_in(&session, attempt, refused) => outcome,
                () = session.ended() => continue,
            };
            match outcome {
                Err(trouble) if trouble.is(Fate::Ended) => session.ended().await,
                outcome => return outcome.map_err(|trouble| trouble.error(Phase::Wait)),
            }
        }
    }

    async fn stand_in(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &watch::Sender<bool>,
    ) -> Result<Grant, Trouble> {
        let (mut seat, mut look) = patiently(|| self.sit(attempt, session)).await?;
        let mut woken_at = None;
        loop {
            match look {
                Look::First(sent_at) => {
                    if let Some(granted) = grant(attempt, &seat, sent_at).map_err(Trouble::Error)? {
                        return Ok(woken_at.map_or(granted, |at| granted.woken_at(at)));
                    }
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
                Look::Behind(path) => {
                    refused.send_replace(true);
                    woken_at = self.wait_for(&seat, &path).await?;
                }
                Look::Gone => {
                    self.seats.leave(&seat);
                    (seat, look) = patiently(|| self.sit(attempt, session)).await?;
                    continue;
                }
            }
            look = patiently(|| self.look(&seat)).await?;
        }
    }

    /// Takes a place in line, or finds the one that an earlier call has taken, and looks around.
    async fn sit(&self, attempt: &Attempt, session: &Arc<Session>) -> Result<(Arc<Seat>, Look), Trouble> {
        let place = Place::of(&self.prefix, &attempt.name, attempt.kind).map_err(Trouble::Error)?;
        if let Some(seat) = self.seats.of(attempt.id)
            && Arc::ptr_eq(&seat.session, session)
            && (seat.node().is_some() || self.find(&seat).await?)
        {
            let look = self.look(&seat).await?;
            return Ok((seat, look));
        }
        let (stem, card) = (place.stem(attempt.id), Card::of(attempt, session).to_bytes());
        let seat = self.seats.take(attempt.id, session, place);
        loop {
            let sent_at = SystemClock.now();
            let created = session.connection.create_in_line(&stem, &card);
            let listed = session.connection.children(&seat.place.directory);
            match created.await {
                Ok(node) => {
                    self.seats.has_node(&seat, node);
                    let look = judge(&seat, listed.await?, sent_at)?;
                    return Ok((seat, look));
                }
                Err(fault) if fault.fate == Fate::Missing => {
                    session.connection.make_directory(&seat.place.directory).await?;
                }
                Err(fault) => {
                    if !matches!(fault.fate, Fate::Unknown | Fate::Ended) {
                        self.seats.leave(&seat);
                    }
                    return Err(fault.into());
                }
            }
        }
    }

    /// Searches for the node of a seat whose answer was lost; whether it is there.
    async fn find(&self, seat: &Seat) -> Result<bool, Fault> {
        let connection = &seat.session.connection;
        for contender in self.nodes_of(seat).await? {
            let path = seat.place.path(&contender.name);
            let node = connection.read_all(std::slice::from_ref(&path)).await?.pop().flatten();
            if let Some(node) = node
                && node.session == connection.id()
            {
                self.seats.has_node(seat, Created { path, czxid: node.czxid });
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every node of this attempt that the leader knows, of whatever session.
    pub(crate) async fn nodes_of(&self, seat: &Seat) -> Result<Vec<Contender>, Fault> {
        let (connection, directory) = (&seat.session.connection, &seat.place.directory);
        let synced = connection.sync(directory);
        let listed = connection.children(directory);
        synced.await?;
        match listed.await {
            Ok(names) => {
                Ok(names.into_iter().filter_map(Contender::of_any).filter(|node| node.is_of(seat.grant)).collect())
            }
            Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }

    async fn look(&self, seat: &Seat) -> Result<Look, Trouble> {
        let sent_at = SystemClock.now();
        match seat.session.connection.children(&seat.place.directory).await {
            Ok(names) => judge(seat, names, sent_at),
            Err(fault) if fault.fate == Fate::Missing => Ok(Look::Gone),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Waits until the node at this path may have gone; the instant of the news, if it came as such.
    async fn wait_for(&self, seat: &Seat, path: &str) -> Result<Option<BootInstant>, Fault> {
        if let Some(leaving) = self.seats.leaving(path) {
            leaving.await;
            return Ok(Some(SystemClock.now()));
        }
        match seat.session.connection.watch(path).await {
            Ok(Some(change)) => {
                change.await;
                Ok(Some(SystemClock.now()))
            }
            Ok(None) => Ok(None),
            // The listing that follows is repeated until it is answered.
            Err(fault) if fault.fate == Fate::Unknown => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

fn judge(seat: &Seat, names: Vec<String>, sent_at: BootInstant) -> Result<Look, Trouble> {
    let line = seat.place.line(names).map_err(Trouble::Error)?;
    let node = seat.node();
    let mine = |contender: &Contender| node.as_ref().is_some_and(|node| node.path.ends_with(&contender.name));
    let Some(index) = line.iter().position(mine) else { return Ok(Look::Gone) };
    Ok(match waits_for(&line, index) {
        None => Look::First(sent_at),
        Some(before) => Look::Behind(seat.place.path(&before.name)),
    })
}

/// The grant of a seat that was found first in line by a listing sent at this instant; `None` while no server is reached,
/// or if the session is over.
fn grant(attempt: &Attempt, seat: &Seat, sent_at: BootInstant) -> Result<Option<Grant>, Error> {
    let valid_for = seat.session.is_connected().then(|| seat.session.lasts_from(sent_at)).flatten();
    let (Some(valid_for), Some(node)) = (valid_for, seat.node()) else { return Ok(None) };
    let token = u64::try_from(node.czxid).ok().and_then(FencingToken::new).ok_or_else(|| {
        let what = format!("the transaction {:#x} is no fencing token: it exceeds 2^53", node.czxid);
        attempt.error(ErrorKind::Protocol, Phase::Acquire, what)
    })?;
    Ok(Some(Grant::new(Some(token), sent_at, valid_for.min(attempt.ttl))))
}

/// Repeats a step whose answer was lost, with growing pauses. Whoever calls gives up at its deadline, or when the session
/// ends.
async fn patiently<T, F>(mut step: impl FnMut() -> F) -> Result<T, Trouble>
where
    F: Future<Output = Result<T, Trouble>>,
{
    let mut pauses = wait::pauses(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match step().await {
            Err(trouble) if trouble.is(Fate::Unknown) => {
                tracing::debug!(?trouble, "no answer; asking again");
                // The iterator is endless; the longest pause is its own last value.
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            outcome => return outcome,
        }
    }
}
