//! The nodes of this process: what each attempt has at the servers, and who waits for whom without asking them.
//!
//! An attempt is registered before its node is asked for. So a cancellation knows at any instant where to look: by path if the answer has
//! come, by id behind a `sync` if not, and nowhere if its place in the queue was never sent. A waiter behind a node of this process is woken
//! when that node is deregistered, without a watch. Unless the lock was handed over to it, it lists the directory then, as everybody does.
//! Before a request is sent that ends the node, it is told that the node [may go](Registry::node_may_go): whoever sent that may be kept
//! without being polled, and deregister nothing.

pub(crate) mod incoming;
mod local_node;
pub(crate) mod permits;
pub(crate) mod successor;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{IdMap, Notice, NoticeSource, Notices};
use lock_core::{GrantId, LossReason};

use self::incoming::Incoming;
use self::local_node::{LocalNode, NodeAhead};
use self::successor::Successor;
use crate::client::departure::Departure;
use crate::client::{Created, Failure, Fate, NewNode, Node, Response};
use crate::session::Session;
use crate::store::layout::LockPaths;
use crate::store::node::{Contender, Role};

/// Every registration of a client.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: Mutex<Entries>,
    notices: NoticeSource,
}

#[derive(Debug, Default)]
struct Entries {
    registrations: IdMap<GrantId, Arc<Registration>>,
    /// By a node's path; dropped when the node is gone, which wakes whoever waits for it here.
    local_nodes: HashMap<String, LocalNode>,
    /// The node of this process that was noted last of each queue, until it is gone, by the queue's directory.
    last_nodes: HashMap<String, String>,
    /// The successors of semaphores, by the queue's directory.
    successors: HashMap<String, Successor<Waiter>>,
}

/// A waiter in one place of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) grant: GrantId,
    /// The transaction that made the place.
    place: i64,
}

impl Entries {
    /// Returns the attempt that waits right behind this node, where it has a place.
    fn waiter_behind(&self, node: &Created) -> Option<Waiter> {
        let grant = self.local_nodes.get(&node.path)?.next?;
        Some(Waiter { grant, place: self.registrations.get(&grant)?.node()?.czxid })
    }

    /// Whether a waiter has this place still, as far as is known.
    fn has_place(&self, waiter: &Waiter) -> bool {
        let node = self.registrations.get(&waiter.grant).and_then(|registration| registration.node());
        node.is_some_and(|node| node.czxid == waiter.place)
    }

    /// Whether this is the registration that its attempt has now.
    fn has(&self, registration: &Registration) -> bool {
        self.registrations.get(&registration.grant).is_some_and(|present| std::ptr::eq(&**present, registration))
    }

    /// Notes that an attempt's node is gone, and wakes whoever waits for it.
    fn remove_node(&mut self, grant: GrantId, node: &Created) {
        let directory = parent(&node.path);
        self.remove_path(&node.path);
        if let Some(successor) = self.successors.get_mut(directory) {
            successor.left(&Waiter { grant, place: node.czxid });
            if successor.waiter().is_none() {
                self.successors.remove(directory);
            }
        }
    }

    /// Notes that there is no node of this process at a path any more, and wakes whoever waits for it.
    fn remove_path(&mut self, path: &str) {
        self.local_nodes.remove(path);
        let directory = parent(path);
        if self.last_nodes.get(directory).is_some_and(|last| last == path) {
            self.last_nodes.remove(directory);
        }
    }
}

/// Returns a node of this lock's queue by its path.
fn contender(lock: &LockPaths, path: &str) -> Option<Contender> {
    lock.contender(&lock.directory, path.rsplit_once('/')?.1.to_owned())
}

/// Returns the directory of a node.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

impl Registry {
    /// Registers an attempt, which has no node yet, in the place of what it had before.
    pub(crate) fn register(&self, grant: GrantId, session: &Arc<Session>, lock: LockPaths) -> Arc<Registration> {
        let registration = Arc::new(Registration::new(grant, session, lock));
        // Bound first: the lock on the entries must be released before it is taken again.
        let before = self.entries().registrations.insert(grant, registration.clone());
        if let Some(before) = before {
            // Of what was asked for before a node may be there.
            registration.departure().leave();
            self.forget_node(&before);
        }
        registration
    }

    /// Notes that the registration's node is there now, or has changed. Notes nothing for a registration that was deregistered meanwhile:
    /// nobody would ever remove the entry.
    pub(crate) fn set_node(&self, registration: &Registration, node: Created) {
        let mut entries = self.entries();
        if !entries.has(registration) {
            return;
        }
        let path = node.path.clone();
        if let Some(before) = locked(&registration.node).replace(node) {
            entries.remove_node(registration.grant, &before);
        }
        entries.last_nodes.insert(parent(&path).to_owned(), path.clone());
        entries.local_nodes.entry(path).or_default();
        registration.settled();
    }

    /// Returns the role of the node of this process that was noted last of a queue, if it is there as far as the client knows.
    pub(crate) fn last_role(&self, lock: &LockPaths) -> Option<Role> {
        let entries = self.entries();
        Some(contender(lock, entries.last_nodes.get(&lock.directory)?)?.role)
    }

    /// Notes that the registration's node is there now, as [`set_node`](Registry::set_node) does. Returns the node of this process with
    /// the number before, if there is one. While that is there nobody can come between them; if it is gone, the directory may have been
    /// made anew, and the numbers with it.
    pub(crate) fn set_node_behind(&self, registration: &Registration, node: Created) -> Option<Contender> {
        let lock = &registration.lock;
        let last = self.entries().last_nodes.get(&lock.directory).and_then(|path| contender(lock, path));
        let number = contender(lock, &node.path).map(|contender| contender.number);
        self.set_node(registration, node);
        last.filter(|last| number.and_then(|number| number.checked_sub(1)) == Some(last.number))
    }

    /// Deregisters what got no node because of this failure, and returns the failure. A node may be there nevertheless unless
    /// the failure is a refusal.
    pub(crate) fn refused_node(&self, registration: &Registration, failure: Failure) -> Failure {
        if !matches!(failure.fate, Fate::Unknown | Fate::Ended) {
            self.deregister(registration);
        }
        failure
    }

    /// Returns the attempt of this process that waits right behind the registration's node in the queue.
    ///
    /// To be called before the node is deleted: a waiter that comes later may have a number of a directory that was made anew since.
    pub(crate) fn waiter_behind(&self, registration: &Registration) -> Option<Waiter> {
        self.entries().waiter_behind(&registration.node()?)
    }

    /// Tells the attempt right behind it that the registration has left the queue as its first one, by a request that was sent at this
    /// instant, while that attempt waited: so now it is the first, if its node is there.
    fn left_queue(&self, registration: &Registration, next: GrantId, sent_at: BootInstant) {
        if let Some(node) = registration.node()
            && let Some(local_node) = self.entries().local_nodes.get(&node.path)
        {
            local_node.hand_over(next, sent_at);
        }
    }

    /// Returns what an attempt has at the servers, as far as it may have anything.
    pub(crate) fn get(&self, grant: GrantId) -> Option<Arc<Registration>> {
        self.entries().registrations.get(&grant).cloned()
    }

    /// Whether an attempt has a node whose session goes on: it stays however long nobody could delete it.
    pub(crate) fn may_remain(&self, grant: GrantId) -> bool {
        self.get(grant).is_some_and(|registration| !registration.session.is_over())
    }

    /// Returns the news of this process's node at this path for an attempt that waits right behind it; `None` if the node is not its own.
    pub(crate) fn node_ahead(&self, path: &str, waiter: GrantId) -> Option<NodeAhead> {
        Some(self.entries().local_nodes.get_mut(path)?.wait_behind(waiter))
    }

    /// Tells whoever waits here for the registration's node that a request is about to be sent which ends it. The call that sends it may be
    /// kept without being polled: from now on the waiter asks the servers, too. If the request is refused, it goes on to ask.
    pub(crate) fn node_may_go(&self, registration: &Registration) {
        if let Some(node) = registration.node()
            && let Some(local_node) = self.entries().local_nodes.get(&node.path)
        {
            local_node.may_go();
        }
    }

    /// Returns the node right behind this registration's in its queue, if it is one of the same session. Only where one waits
    /// for one: whoever holds a mutex or a write lock is followed by the mutex or the writer that waits for it. (A reader that does so
    /// may be one of many.)
    pub(crate) fn next_in_queue(&self, registration: &Registration) -> Option<(GrantId, String)> {
        let (entries, node) = (self.entries(), registration.node()?);
        let grant = entries.local_nodes.get(&node.path)?.next?;
        let next = entries.registrations.get(&grant)?;
        let alone = |role| matches!(role, Role::Lock | Role::Write);
        let are_alone = alone(registration.lock.role) && alone(next.lock.role);
        if !are_alone || !Arc::ptr_eq(&next.session, &registration.session) {
            return None;
        }
        next.node().map(|node| (grant, node.path))
    }

    /// Deregisters a holder that has handed over: a request sent at this instant deleted its node while the next one's was there.
    pub(crate) fn handed_over(&self, registration: &Registration, next: GrantId, sent_at: BootInstant) {
        self.left_queue(registration, next, sent_at);
        self.deregister(registration);
    }

    /// Deregisters an attempt that has nothing at the servers any more.
    pub(crate) fn deregister(&self, registration: &Registration) {
        let mut entries = self.entries();
        // The attempt may have another registration by now, in another session.
        if entries.has(registration) {
            entries.registrations.remove(&registration.grant);
        }
        drop(entries);
        self.forget_node(registration);
    }

    /// Deregisters whatever an attempt has.
    pub(crate) fn forget(&self, grant: GrantId) {
        if let Some(registration) = self.get(grant) {
            self.deregister(&registration);
        }
    }

    /// Treats the registration's node as a stranger's from now on: somebody else has deleted it and its holder does not know yet, or it was
    /// left, and nobody here would hear of its deletion. Whoever waits for it lists the queue again, and watches it if it is there.
    pub(crate) fn disown_node(&self, registration: &Registration) {
        if let Some(node) = registration.node() {
            self.entries().remove_node(registration.grant, &node);
        }
    }

    /// Treats a node of this process as a stranger's from now on, since a server was asked and has none at this path: whoever waits for it here
    /// need not ask, too. Lists and watches follow; so nothing comes of it if that server was behind.
    pub(crate) fn found_gone(&self, path: &str) {
        self.entries().remove_path(path);
    }

    /// Tells every holder of a session that ended. Whoever still waits finds out by itself.
    pub(crate) fn end_session(&self, session: &Arc<Session>) {
        let (gone, lost_by): (Vec<_>, _) = {
            let entries = self.entries();
            let gone =
                entries.registrations.values().filter(|registration| Arc::ptr_eq(&registration.session, session));
            // Read while the entries are locked: a waiter among them asks for the lock in the next session, under the same id, once it
            // has registered there, which is later than this.
            (gone.cloned().collect(), SystemClock.now())
        };
        for registration in gone {
            self.deregister(&registration);
            self.notices.announce(Notice::new(registration.grant, LossReason::SessionExpired, lost_by));
        }
    }

    /// Returns the losses that are announced from now on.
    pub(crate) fn notices(&self) -> Notices {
        self.notices.subscribe()
    }

    /// Forgets which nodes it has: somebody else may have deleted them, and they are searched for.
    pub(crate) fn forget_node(&self, registration: &Registration) {
        locked(&registration.permits).clear();
        // Taken before the entries are locked: elsewhere a registration is looked at from within it.
        let node = locked(&registration.node).take();
        if let Some(node) = node {
            self.entries().remove_node(registration.grant, &node);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        locked(&self.entries)
    }
}

/// The nodes that one attempt has at the servers, or may have: taken before its node is asked for.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) grant: GrantId,
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockPaths,
    /// The node in the queue, once it is known to be there.
    node: Mutex<Option<Created>>,
    /// The nodes of its permits, once they are known to be there; then it has none in the queue.
    permits: Mutex<Vec<String>>,
    /// Whether its nodes were to be exchanged, and it is not known here yet which ones it has now.
    is_changing: AtomicBool,
    /// Whether its permits were to be handed over once: whoever releases it again deletes its nodes.
    has_handed_over: AtomicBool,
    /// The departure of its place in the queue, once that is asked for: nobody asks for a node of it otherwise until there is an answer.
    departure: OnceLock<Departure>,
    /// The permits that it may be handed, once somebody asks: of a semaphore only.
    incoming: OnceLock<Incoming>,
    /// The turn of whoever looks which nodes it has, and changes them then.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl Registration {
    /// An attempt without any node.
    fn new(grant: GrantId, session: &Arc<Session>, lock: LockPaths) -> Self {
        Self {
            grant,
            session: session.clone(),
            lock,
            node: Mutex::default(),
            permits: Mutex::default(),
            is_changing: AtomicBool::new(false),
            has_handed_over: AtomicBool::new(false),
            departure: OnceLock::new(),
            incoming: OnceLock::new(),
            changes: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the departure of its place in the queue.
    pub(crate) fn departure(&self) -> &Departure {
        self.departure.get_or_init(Departure::default)
    }

    /// Whether its place in the queue is all that was asked for, and was never sent. Then it never will be: it is given up.
    pub(crate) fn never_left(&self) -> bool {
        self.departure.get().is_some_and(Departure::give_up)
    }

    /// Notes that it is known which nodes it has.
    fn settled(&self) {
        self.is_changing.store(false, Ordering::Release);
    }

    /// Puts nodes of this registration in the place of others, as a whole. Until the answer has come, and whoever calls has
    /// said which nodes it has now, nobody knows all of them.
    pub(crate) fn exchange(
        &self,
        old: &[String],
        new: &[NewNode],
        data: &[u8],
    ) -> impl Future<Output = Result<Vec<String>, Failure>> {
        let was_changing = self.begin_change();
        self.end_change(was_changing, self.session.connection.exchange(self.grant, old, new, data))
    }

    /// Notes that its nodes are to change, before anything is sent: whoever finds one gone meanwhile does not take that for a loss. Returns
    /// whether they were changing already.
    fn begin_change(&self) -> bool {
        self.is_changing.swap(true, Ordering::AcqRel)
    }

    async fn end_change<T>(&self, was_changing: bool, asked: Response<'_, T>) -> Result<T, Failure> {
        let outcome = asked.await;
        // A refusal says nothing of an earlier exchange whose answer was lost.
        let is_refused = |failure: &Failure| !matches!(failure.fate, Fate::Unknown | Fate::Ended);
        if !was_changing && outcome.as_ref().is_err_and(is_refused) {
            self.is_changing.store(false, Ordering::Release);
        }
        outcome
    }

    /// Whether it may have nodes of which nobody knows.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    pub(crate) fn node(&self) -> Option<Created> {
        locked(&self.node).clone()
    }

    /// Whether it is known to have a node in the queue.
    pub(crate) fn has_node(&self) -> bool {
        locked(&self.node).is_some()
    }

    /// Has nobody hand permits over to it any more: its attempt has ended.
    pub(crate) fn close_to_permits(&self) {
        if let Some(incoming) = self.incoming.get() {
            incoming.close();
        }
    }

    /// Every node that is known to be there.
    pub(crate) fn paths(&self) -> Vec<String> {
        let node = locked(&self.node).as_ref().map(|node| node.path.clone());
        node.into_iter().chain(locked(&self.permits).iter().cloned()).collect()
    }

    /// Returns its nodes in this directory that the leader knows, of its present session, with what they say.
    pub(crate) async fn own_nodes(&self, directory: &str) -> Result<Vec<(Contender, Node)>, Failure> {
        let connection = &self.session.connection;
        let contenders = self.nodes_in(directory).await?;
        let paths: Vec<_> = contenders.iter().map(|contender| format!("{directory}/{}", contender.name)).collect();
        let nodes = if paths.is_empty() { Vec::new() } else { connection.read_all(&paths).await? };
        let own = contenders.into_iter().zip(nodes).filter_map(|(contender, node)| Some((contender, node?)));
        Ok(own.filter(|(_, node)| node.session == connection.id()).collect())
    }

    /// Returns every node of its attempt in this directory that the leader knows, of whatever session.
    pub(crate) async fn nodes_in(&self, directory: &str) -> Result<Vec<Contender>, Failure> {
        let connection = &self.session.connection;
        connection.exchanged(self.grant).await;
        let synced = connection.sync(directory);
        let listed = connection.children_proven(directory);
        synced.await?;
        match listed.await {
            Ok(names) => {
                // Of ten thousand names at most a few are read.
                let beginning = self.lock.dialect.beginning(self.grant);
                let own = names.iter().filter(|name| name.starts_with(&beginning));
                let contenders = own.filter_map(|name| self.lock.contender(directory, name.clone()));
                Ok(contenders.filter(|contender| contender.is_of(self.grant)).collect())
            }
            Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }
}

/// A panic elsewhere is not passed on: every critical section here leaves the data valid.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
