//! The queues of a client's locks: the places of its attempts in them, and the wait for one node.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use super::POLL_INTERVAL;
use super::contention::{Event, Way};
use crate::client::{Created, Failure, Fate};
use crate::registry::{Registration, Registry};
use crate::session::{Poller, Session};
use crate::store::contender::Contender;
use crate::store::layout::Layout;

/// The events of a queue at the servers.
pub(crate) type QueueEvent = Event<Created, Contender>;

/// The queues of a client's locks.
#[derive(Debug, Clone)]
pub(crate) struct LockQueues {
    pub(super) registry: Arc<Registry>,
    pub(super) layout: Arc<Layout>,
    unfair_mutex: bool,
}

impl LockQueues {
    pub(crate) fn new(registry: Arc<Registry>, layout: Arc<Layout>, unfair_mutex: bool) -> Self {
        Self { registry, layout, unfair_mutex }
    }

    /// Returns the way of an attempt. At a path that is shared with clients of other libraries everybody is in the queue.
    pub(super) fn way(&self, attempt: &Attempt) -> Way {
        let claims = self.unfair_mutex && attempt.kind == Kind::Mutex && !attempt.name.is_key();
        if claims { Way::Claim } else { Way::Append }
    }

    /// Waits until this node of the queue may have gone, and returns what to make of it; with the instant at which it came, if it
    /// came as news. One of this process tells; of another one's the servers tell, and are asked now and then. They are asked once of one of
    /// this process that was not listed: somebody else may have deleted it.
    pub(super) async fn wait_for_node(
        &self,
        registration: &Registration,
        node: &Contender,
        is_unlisted: bool,
    ) -> Result<(Option<BootInstant>, QueueEvent), Failure> {
        let path = &*registration.lock.queue_path(&node.name);
        if let Some(leaving) = self.registry.until_gone(path, registration.grant) {
            let handed_over = tokio::select! {
                biased;
                handed_over = leaving => handed_over,
                was_gone = was_gone(registration, path), if is_unlisted => return was_gone.map(|()| (None, Event::Look)),
            };
            return Ok((Some(SystemClock.now()), handed_over.map_or(Event::Look, Event::HandedOver)));
        }
        let poller = registration.session.pollers.begin();
        let Some(_kept) = registration.session.watch_budget(path, &poller).await else {
            return Ok((None, Event::Look));
        };
        match registration.session.connection.watch(path).await {
            Ok(Some(change)) => tokio::select! {
                biased;
                () = change => Ok((Some(SystemClock.now()), Event::Look)),
                gone = is_gone(registration, path, &poller) => gone.map(|()| (None, Event::Look)),
            },
            // The listing that follows is repeated until it is answered.
            Err(failure) if failure.fate != Fate::Unknown => Err(failure),
            _ => Ok((None, Event::Look)),
        }
    }
}

/// Looks at one node once, after a while, and resolves if it is gone.
async fn was_gone(registration: &Registration, path: &str) -> Result<(), Failure> {
    let poller = registration.session.pollers.begin();
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        match registration.session.connection.is_there(path).await {
            Ok(false) => return Ok(()),
            Ok(true) => break,
            Err(failure) if failure.fate != Fate::Unknown => return Err(failure),
            Err(_) => {}
        }
    }
    drop(poller);
    std::future::pending().await
}

/// Looks at one node now and then, until it is gone.
async fn is_gone(registration: &Registration, path: &str, poller: &Poller<'_>) -> Result<(), Failure> {
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        match registration.session.connection.is_there(path).await {
            Ok(false) => return Ok(()),
            Err(failure) if failure.fate != Fate::Unknown => return Err(failure),
            _ => {}
        }
    }
}

/// Returns the grant that the answer to a request sent at this instant proves, with the token of this transaction.
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

/// Whether the answer took so long that next to nothing is left of the grant: the connection was lost meanwhile, say.
pub(crate) fn is_spent(grant: &Grant) -> bool {
    SystemClock.now().since(grant.sent_at) >= grant.valid_for / 10 * 9
}
