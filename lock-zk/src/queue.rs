//! The recipe: a node in line, and the wait until nobody that matters is before it.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node. Who wants
//!    permits of a semaphore takes them now ([`room`](crate::room)).
//! 3. Otherwise the nearest that matters is waited for: within this process without asking the servers, else by a watch.
//!    Then the directory is listed again: news may save a wait, never make a grant. Only a holder of this process hands
//!    over by itself: it deletes its node provided that the next one's is there, by one transaction, whose answer proves
//!    the next grant.
//!
//! When an answer is lost, the directory is read behind a `sync` and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

use std::sync::Arc;

use lock_core::backend::{Attempt, Grant, Kind};
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, Phase};
use tokio::sync::watch;

use crate::backend::Shared;
use crate::client::Fate;
use crate::line::Look;
use crate::seats::Seat;
use crate::session::Session;
use crate::trouble::{FIRST_PAUSE, Trouble, patiently};

impl Shared {
    /// One try: a node in line, and away with it unless it is the first.
    pub(crate) async fn try_now(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let answer = async |session: &Arc<Session>| {
            self.try_in(session, attempt).await.map_err(|trouble| trouble.error(Phase::Acquire))
        };
        self.in_session(attempt, Phase::Acquire, answer).await
    }

    async fn try_in(&self, session: &Arc<Session>, attempt: &Attempt) -> Result<Option<Grant>, Trouble> {
        let (seat, look) = patiently(|| self.sit(attempt, session)).await?;
        let tried = self.try_at(&seat, look, attempt).await;
        if let Err(Trouble::Error(_)) = tried {
            // An error that is an answer leaves nothing.
            self.refuse(&seat).await?;
        }
        tried
    }

    async fn try_at(&self, seat: &Seat, look: Look, attempt: &Attempt) -> Result<Option<Grant>, Trouble> {
        if let Kind::Permits { .. } = attempt.kind {
            return self.try_permits(attempt, seat, look).await;
        }
        match look {
            Look::First(sent_at) => {
                let what = "the session was suspended when the lock was granted";
                let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
                Ok(Some(grant(attempt, seat, sent_at)?.ok_or_else(suspended)?))
            }
            _ => self.refuse(seat).await,
        }
    }

    /// The end of a try in vain.
    pub(crate) async fn refuse(&self, seat: &Seat) -> Result<Option<Grant>, Trouble> {
        patiently(async || Ok(self.remove(seat).await?)).await?;
        Ok(None)
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
            // A node was asked for, and may be there.
            Some(_) => attempt.error(ErrorKind::Indeterminate, Phase::Wait, "the servers do not answer"),
            None => self.no_session(attempt, Phase::Wait),
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
                    let granted = match attempt.kind {
                        Kind::Permits { .. } => self.wait_for_room(attempt, &seat, refused).await?,
                        _ => grant(attempt, &seat, sent_at)?,
                    };
                    if let Some(granted) = granted {
                        let woken_at = granted.woken_at.or(woken_at);
                        return Ok(woken_at.map_or(granted, |at| granted.woken_at(at)));
                    }
                    tokio::time::sleep(FIRST_PAUSE).await;
                }
                Look::Behind(path) => {
                    refused.send_replace(true);
                    let news = self.wait_for(&seat, &path).await?;
                    woken_at = news.came_at;
                    if let Some(sent_at) = news.first_since {
                        look = Look::First(sent_at);
                        continue;
                    }
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
}

/// The grant of a seat that was found first in line by a listing sent at this instant; `None` while no server is reached,
/// or if the session is over.
fn grant(attempt: &Attempt, seat: &Seat, sent_at: BootInstant) -> Result<Option<Grant>, Error> {
    let Some(node) = seat.node() else { return Ok(None) };
    granted(attempt, &seat.session, node.czxid, sent_at)
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
