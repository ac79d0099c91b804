//! The steps of the recipe: taking a place in the queue, finding it again, looking around, waiting for one node.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use super::claim::claim;
use super::{POLL_INTERVAL, QueuePosition};
use crate::client::{Created, Failure, Fate};
use crate::error::StepError;
use crate::registry::{Registration, Registry};
use crate::session::{Poller, Session};
use crate::store::contender::{Contender, Role};
use crate::store::layout::{Layout, LockPaths};
use crate::store::record::HolderRecord;

/// The outcome of a wait.
pub(crate) struct WakeUp {
    /// The instant at which it came, if it came as news.
    pub(crate) came_at: Option<BootInstant>,
    /// The holder before has handed over: when that was asked of the servers, which knew of our node then.
    pub(crate) first_since: Option<BootInstant>,
}

impl WakeUp {
    const NONE: Self = Self { came_at: None, first_since: None };
}

/// The queues of a client's locks.
#[derive(Debug, Clone)]
pub(crate) struct LockQueues {
    registry: Arc<Registry>,
    layout: Arc<Layout>,
    unfair_mutex: bool,
}

impl LockQueues {
    pub(crate) fn new(registry: Arc<Registry>, layout: Arc<Layout>, unfair_mutex: bool) -> Self {
        Self { registry, layout, unfair_mutex }
    }

    /// Takes a place in the queue, or finds the one that an earlier call has taken, and looks around.
    pub(crate) async fn enqueue(
        &self,
        attempt: &Attempt,
        session: &Arc<Session>,
    ) -> Result<(Arc<Registration>, QueuePosition), StepError> {
        let lock = LockPaths::of(&self.layout, &attempt.name, attempt.kind)?;
        if let Some(registration) = self.registry.get(attempt.id)
            && Arc::ptr_eq(&registration.session, session)
            && (registration.node().is_some() || self.find_node(&registration).await?)
        {
            let position = self.position(&registration).await?;
            return Ok((registration, position));
        }
        if lock.is_shared() {
            check_dialect(session, &lock).await?;
        }
        let record = HolderRecord::new(attempt, session.connection.timeout()).to_bytes();
        let registration = self.registry.register(attempt.id, session, lock);
        let position = if self.is_unfair(attempt) {
            claim(&self.registry, &registration, &record).await?
        } else {
            self.append(&registration, &record).await?
        };
        Ok((registration, position))
    }

    /// Takes the place at the end of the queue, and looks around.
    async fn append(&self, registration: &Registration, record: &[u8]) -> Result<QueuePosition, StepError> {
        let connection = &registration.session.connection;
        let stem = registration.lock.stem(registration.grant);
        loop {
            let sent_at = SystemClock.now();
            let created = connection.create_sequential(&stem, record);
            let listed = connection.children(&registration.lock.directory);
            match created.await {
                Ok(node) => {
                    self.registry.set_node(registration, node);
                    return position_of(registration, listed.await?, sent_at);
                }
                Err(failure) if failure.fate == Fate::Missing => self.registry.make_directory(registration).await?,
                Err(failure) => return Err(self.registry.refused_node(registration, failure).into()),
            }
        }
    }

    /// Searches for the node of a registration whose answer was lost; whether it is there.
    async fn find_node(&self, registration: &Registration) -> Result<bool, Failure> {
        let Some((contender, node)) = registration.own_nodes(&registration.lock.directory).await?.into_iter().next()
        else {
            return Ok(false);
        };
        self.registry
            .set_node(registration, Created { path: registration.lock.queue_path(&contender.name), czxid: node.czxid });
        Ok(true)
    }

    /// Returns the position of a registration by a listing of its queue.
    pub(crate) async fn position(&self, registration: &Registration) -> Result<QueuePosition, StepError> {
        if registration.node().is_none() {
            return Ok(QueuePosition::Missing);
        }
        let sent_at = SystemClock.now();
        match registration.session.connection.children(&registration.lock.directory).await {
            Ok(names) => position_of(registration, names, sent_at),
            Err(failure) if failure.fate == Fate::Missing => Ok(QueuePosition::Missing),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Notes that the node of a registration was not listed.
    pub(crate) fn lost_node(&self, registration: &Registration) {
        if registration.node().is_some() {
            // The server may lag behind: what it does not know yet is searched for behind a `sync`.
            self.registry.forget_node(registration);
        } else {
            self.registry.deregister(registration);
        }
    }

    /// Whether this attempt claims. At a path that is shared with clients of other libraries everybody is in the queue.
    fn is_unfair(&self, attempt: &Attempt) -> bool {
        self.unfair_mutex && attempt.kind == Kind::Mutex && !attempt.name.is_at_key()
    }

    /// Waits until the node at this path may have gone. One of this process tells; of another one's the servers tell, and
    /// are asked now and then.
    pub(crate) async fn wait_for_node(&self, registration: &Registration, path: &str) -> Result<WakeUp, Failure> {
        if let Some(leaving) = self.registry.until_gone(path, registration.grant) {
            let first_since = leaving.await;
            return Ok(WakeUp { came_at: Some(SystemClock.now()), first_since });
        }
        let poller = registration.session.pollers.begin();
        let Some(_kept) = registration.session.watch_budget(path, &poller).await else { return Ok(WakeUp::NONE) };
        match registration.session.connection.watch(path).await {
            Ok(Some(change)) => tokio::select! {
                biased;
                () = change => Ok(WakeUp { came_at: Some(SystemClock.now()), first_since: None }),
                gone = is_gone(registration, path, &poller) => gone.map(|()| WakeUp::NONE),
            },
            Ok(None) => Ok(WakeUp::NONE),
            // The listing that follows is repeated until it is answered.
            Err(failure) if failure.fate == Fate::Unknown => Ok(WakeUp::NONE),
            Err(failure) => Err(failure),
        }
    }
}

/// Looks at one node now and then, until it is gone.
async fn is_gone(registration: &Registration, path: &str, poller: &Poller<'_>) -> Result<(), Failure> {
    let path = [path.to_owned()];
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        match registration.session.connection.read_all(&path).await {
            Ok(nodes) if nodes.iter().any(Option::is_none) => return Ok(()),
            Err(failure) if failure.fate != Fate::Unknown => return Err(failure),
            _ => {}
        }
    }
}

/// Whether everybody at a shared path speaks our dialect. Asked before anything is made there: whoever speaks another one would
/// fail because of us, as long as our node is there.
async fn check_dialect(session: &Session, lock: &LockPaths) -> Result<(), StepError> {
    match session.connection.children(&lock.directory).await {
        Ok(names) => Ok(lock.queue(names).map(drop)?),
        Err(failure) if failure.fate == Fate::Missing => Ok(()),
        Err(failure) => Err(failure.into()),
    }
}

/// Returns the position of a registration by a listing of its queue that was asked for at this instant.
fn position_of(
    registration: &Registration,
    names: Vec<String>,
    sent_at: BootInstant,
) -> Result<QueuePosition, StepError> {
    let node = registration.node();
    Ok(position_among(&registration.lock, node.as_ref().map(|node| &*node.path), names, sent_at)?)
}

/// Decides what a listing of a queue means for the node at this path, if there is one: whether it is first, or which node it
/// waits for.
fn position_among(
    lock: &LockPaths,
    path: Option<&str>,
    names: Vec<String>,
    sent_at: BootInstant,
) -> Result<QueuePosition, Error> {
    let queue = lock.queue(names)?;
    let is_own = |contender: &Contender| path.is_some_and(|path| path.ends_with(&contender.name));
    let Some(index) = queue.iter().position(is_own) else { return Ok(QueuePosition::Missing) };
    Ok(match waits_for(&queue, index) {
        None => QueuePosition::First(sent_at),
        Some(before) => QueuePosition::Behind(lock.queue_path(&before.name)),
    })
}

/// Returns the contender for whom the one at this index of a queue waits; `None` if it is granted.
///
/// Only the nearest that matters is watched, so that a release wakes one: a mutex and a writer wait for whoever is
/// before them, a reader for the nearest writer before it.
pub(crate) fn waits_for(queue: &[Contender], index: usize) -> Option<&Contender> {
    let mut before = queue[..index].iter().rev();
    match queue[index].role {
        Role::Lock | Role::Write => before.next(),
        Role::Read => before.find(|contender| contender.role == Role::Write),
        Role::Permit => None,
    }
}

/// Returns the grant of a registration that was found first in the queue by a listing sent at this instant; `None` while no
/// server is reached, or if the session is over.
pub(crate) fn grant(
    attempt: &Attempt,
    registration: &Registration,
    sent_at: BootInstant,
) -> Result<Option<Grant>, Error> {
    let Some(node) = registration.node() else { return Ok(None) };
    granted(attempt, &registration.session, node.czxid, sent_at)
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

#[cfg(test)]
mod tests {
    use lock_core::LockName;

    use super::*;

    const ID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e-";

    /// The position of the node of this name among the others; `None` if it is not listed.
    fn position(kind: Kind, name: &str, listed: &[&str]) -> Option<String> {
        let layout = Layout { prefix: "lock".to_owned(), dialects: Vec::new() };
        let lock = LockPaths::of(&layout, &LockName::from("a"), kind).unwrap();
        let path = lock.queue_path(&format!("{ID}{name}"));
        let names = listed.iter().map(|name| format!("{ID}{name}")).collect();
        match position_among(&lock, Some(&path), names, SystemClock.now()).unwrap() {
            QueuePosition::First(_) => Some("first".to_owned()),
            QueuePosition::Behind(path) => path.rsplit_once(ID).map(|(_, name)| name.to_owned()),
            QueuePosition::Missing => None,
        }
    }

    #[test]
    fn a_mutex_waits_for_the_node_right_before_its_own() {
        let listed = ["lock-0000000003", "lock-0000000001", "lock-0000000002"];
        assert_eq!(position(Kind::Mutex, "lock-0000000001", &listed).unwrap(), "first");
        assert_eq!(position(Kind::Mutex, "lock-0000000003", &listed).unwrap(), "lock-0000000002");
        assert_eq!(position(Kind::Mutex, "lock-0000000004", &listed), None, "it is not there any more");
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_before_it() {
        let listed = ["__WRIT__0000000001", "__READ__0000000002", "__READ__0000000003"];
        assert_eq!(position(Kind::Read, "__READ__0000000003", &listed).unwrap(), "__WRIT__0000000001");
        assert_eq!(position(Kind::Read, "__READ__0000000003", &listed[1..]).unwrap(), "first");
    }
}
