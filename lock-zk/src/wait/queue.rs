//! The steps of the recipe: taking a place in the queue, finding it again, looking around, waiting for one node.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Attempt;

use crate::backend::Shared;
use crate::client::{Created, Fate, Fault, Node};
use crate::error::StepError;
use crate::registry::Registration;
use crate::session::{Poller, Session};
use crate::store::contender::{Contender, waits_for};
use crate::store::layout::LockPaths;
use crate::store::record::HolderRecord;

/// Between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been lost, and
/// is late by less than a second then.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The place of a registration by a listing.
pub(crate) enum QueuePosition {
    /// Nobody that matters is before it; the listing was asked for at this instant.
    First(BootInstant),
    /// The node at this path is to go first.
    Behind(String),
    /// The registration has no node: somebody has deleted it, or its claim was refused.
    Missing,
}

/// The outcome of a wait.
pub(crate) struct WakeUp {
    /// When it came, if it came as news.
    pub(crate) came_at: Option<BootInstant>,
    /// The holder before has handed over: when that was asked of the servers, which knew of our node then.
    pub(crate) first_since: Option<BootInstant>,
}

impl WakeUp {
    const NONE: Self = Self { came_at: None, first_since: None };
}

impl Shared {
    /// Takes a place in the queue, or finds the one that an earlier call has taken, and looks around.
    pub(crate) async fn enqueue(
        &self,
        attempt: &Attempt,
        session: &Arc<Session>,
    ) -> Result<(Arc<Registration>, QueuePosition), StepError> {
        let lock = LockPaths::of(&self.layout, &attempt.name, attempt.kind)?;
        if let Some(registration) = self.registry.get(attempt.id)
            && Arc::ptr_eq(&registration.session, session)
            && (registration.node().is_some() || self.find(&registration).await?)
        {
            let position = self.position(&registration).await?;
            return Ok((registration, position));
        }
        if lock.is_shared() {
            check(session, &lock).await?;
        }
        let record = HolderRecord::new(attempt, session).to_bytes();
        let registration = self.registry.register(attempt.id, session, lock);
        let position = if self.is_unfair(attempt) {
            self.claim(&registration, &record).await?
        } else {
            self.join(&registration, &record).await?
        };
        Ok((registration, position))
    }

    /// Takes the place at the end of the queue, and looks around.
    async fn join(&self, registration: &Registration, record: &[u8]) -> Result<QueuePosition, StepError> {
        let connection = &registration.session.connection;
        let stem = registration.lock.stem(registration.grant);
        loop {
            let sent_at = SystemClock.now();
            let created = connection.create_sequential(&stem, record);
            let listed = connection.children(&registration.lock.directory);
            match created.await {
                Ok(node) => {
                    self.registry.set_node(registration, node);
                    return judge(registration, listed.await?, sent_at);
                }
                Err(fault) if fault.fate == Fate::Missing => self.make_directory(registration).await?,
                Err(fault) => return Err(self.refused_node(registration, fault)),
            }
        }
    }

    /// Makes the directory of the queue that this registration is to be in.
    pub(crate) async fn make_directory(&self, registration: &Registration) -> Result<(), StepError> {
        let made = registration.session.connection.make_directory(&registration.lock.directory).await;
        made.map_err(|fault| self.refused_node(registration, fault))
    }

    /// No node came of it; whether one is there nevertheless is known of a refusal only.
    pub(crate) fn refused_node(&self, registration: &Registration, fault: Fault) -> StepError {
        if !matches!(fault.fate, Fate::Unknown | Fate::Ended) {
            self.registry.deregister(registration);
        }
        fault.into()
    }

    /// Searches for the node of a registration whose answer was lost; whether it is there.
    async fn find(&self, registration: &Registration) -> Result<bool, Fault> {
        let Some((contender, node)) =
            self.own_nodes(registration, &registration.lock.directory).await?.into_iter().next()
        else {
            return Ok(false);
        };
        self.registry
            .set_node(registration, Created { path: registration.lock.queue_path(&contender.name), czxid: node.czxid });
        Ok(true)
    }

    /// The nodes of this registration in this directory that the leader knows, of its present session.
    pub(crate) async fn own_nodes(
        &self,
        registration: &Registration,
        directory: &str,
    ) -> Result<Vec<(Contender, Node)>, Fault> {
        let connection = &registration.session.connection;
        let contenders = self.nodes_of(registration, directory).await?;
        let paths: Vec<_> = contenders.iter().map(|contender| format!("{directory}/{}", contender.name)).collect();
        let nodes = if paths.is_empty() { Vec::new() } else { connection.read_all(&paths).await? };
        let own = contenders.into_iter().zip(nodes).filter_map(|(contender, node)| Some((contender, node?)));
        Ok(own.filter(|(_, node)| node.session == connection.id()).collect())
    }

    /// Every node of this attempt in this directory that the leader knows, of whatever session.
    pub(crate) async fn nodes_of(&self, registration: &Registration, directory: &str) -> Result<Vec<Contender>, Fault> {
        let connection = &registration.session.connection;
        let synced = connection.sync(directory);
        let listed = connection.children(directory);
        synced.await?;
        match listed.await {
            Ok(names) => {
                let contenders = names.into_iter().filter_map(|name| registration.lock.contender(directory, name));
                Ok(contenders.filter(|contender| contender.is_of(registration.grant)).collect())
            }
            Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }

    pub(crate) async fn position(&self, registration: &Registration) -> Result<QueuePosition, StepError> {
        if registration.node().is_none() {
            return Ok(QueuePosition::Missing);
        }
        let sent_at = SystemClock.now();
        match registration.session.connection.children(&registration.lock.directory).await {
            Ok(names) => judge(registration, names, sent_at),
            Err(fault) if fault.fate == Fate::Missing => Ok(QueuePosition::Missing),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Waits until the node at this path may have gone. One of this process tells; of another one's the servers tell, and
    /// are asked now and then.
    pub(crate) async fn wait_for_node(&self, registration: &Registration, path: &str) -> Result<WakeUp, Fault> {
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
            Err(fault) if fault.fate == Fate::Unknown => Ok(WakeUp::NONE),
            Err(fault) => Err(fault),
        }
    }
}

/// Looks at one node now and then, until it is gone.
async fn is_gone(registration: &Registration, path: &str, poller: &Poller<'_>) -> Result<(), Fault> {
    let path = [path.to_owned()];
    loop {
        tokio::time::sleep(poller.pause(POLL_INTERVAL)).await;
        match registration.session.connection.read_all(&path).await {
            Ok(nodes) if nodes.iter().any(Option::is_none) => return Ok(()),
            Err(fault) if fault.fate != Fate::Unknown => return Err(fault),
            _ => {}
        }
    }
}

/// Whether everybody at a shared path speaks our dialect. Asked before anything is made there: whoever speaks another one would
/// fail because of us, as long as our node is there.
async fn check(session: &Session, lock: &LockPaths) -> Result<(), StepError> {
    match session.connection.children(&lock.directory).await {
        Ok(names) => Ok(lock.queue(names).map(drop)?),
        Err(fault) if fault.fate == Fate::Missing => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

fn judge(registration: &Registration, names: Vec<String>, sent_at: BootInstant) -> Result<QueuePosition, StepError> {
    let queue = registration.lock.queue(names)?;
    let node = registration.node();
    let mine = |contender: &Contender| node.as_ref().is_some_and(|node| node.path.ends_with(&contender.name));
    let Some(index) = queue.iter().position(mine) else { return Ok(QueuePosition::Missing) };
    Ok(match waits_for(&queue, index) {
        None => QueuePosition::First(sent_at),
        Some(before) => QueuePosition::Behind(registration.lock.queue_path(&before.name)),
    })
}
