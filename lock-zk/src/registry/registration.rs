//! The nodes of one attempt.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use lock_core::GrantId;
use lock_core::clock::{Clock, SystemClock};

use super::incoming::{HandedOver, Incoming};
use super::{Recipient, locked};
use crate::client::{Created, Failure, Fate, Names, NewNode, Node, Response};
use crate::session::Session;
use crate::store::dialect::Contender;
use crate::store::layout::LockPaths;

/// The outcome of a [claim](Registration::claim): the permits, unless somebody is in the queue.
type Claimed = Result<Option<Vec<Created>>, Failure>;

/// The nodes that one attempt has at the servers, or may have: taken before its node is asked for.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) grant: GrantId,
    pub(crate) session: Arc<Session>,
    pub(crate) lock: LockPaths,
    /// The node in the queue, once it is known to be there.
    pub(super) node: Mutex<Option<Created>>,
    /// The nodes of its permits, once they are known to be there; then it has none in the queue.
    pub(super) permits: Mutex<Vec<String>>,
    /// Whether its nodes were to be exchanged, and it is not known here yet which ones it has now.
    is_changing: AtomicBool,
    /// Whether its permits were to be handed over once: whoever releases it again deletes its nodes.
    has_handed_over: AtomicBool,
    /// The permits that it may be handed.
    pub(crate) incoming: Incoming,
    /// The turn of whoever looks which nodes it has, and changes them then.
    pub(crate) changes: tokio::sync::Mutex<()>,
}

impl Registration {
    /// An attempt without any node.
    pub(super) fn new(grant: GrantId, session: &Arc<Session>, lock: LockPaths) -> Self {
        Self {
            grant,
            session: session.clone(),
            lock,
            node: Mutex::default(),
            permits: Mutex::default(),
            is_changing: AtomicBool::new(false),
            has_handed_over: AtomicBool::new(false),
            incoming: Incoming::default(),
            changes: tokio::sync::Mutex::default(),
        }
    }

    /// Notes that it is known which nodes it has.
    pub(super) fn settled(&self) {
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
        self.end_change(was_changing, self.session.connection.exchange(old, new, data))
    }

    /// Makes permits for this registration while nobody is in the queue, as a whole; `None` if somebody is. Lists all permits right behind
    /// it. Nobody knows all of its nodes until then, as with an [`exchange`](Registration::exchange).
    pub(crate) fn claim(
        &self,
        new: &[NewNode],
        data: &[u8],
    ) -> (impl Future<Output = Claimed>, Response<'static, Names>) {
        let was_changing = self.begin_change();
        let (queue, permits) = (&self.lock.directory, self.lock.permit_directory());
        let (claimed, listed) = self.session.connection.claim_beside(queue, new, data, permits);
        (self.end_change(was_changing, claimed), listed)
    }

    /// Puts the permits of a waiter in the place of this registration's, and of that waiter's node in the queue, as a whole. The waiter is told
    /// the outcome.
    pub(crate) fn hand_permits_over(&self, successor: Recipient) -> Response<'static, ()> {
        let Recipient { registration: successor, place, released, nodes, next } = successor;
        self.has_handed_over.store(true, Ordering::Release);
        let was_changing = successor.begin_change();
        let sent_at = SystemClock.now();
        let (released, made) = self.session.connection.hand_permits_over(&released, &place, &nodes.new, &nodes.record);
        successor.incoming.grant(HandedOver { made, was_changing, sent_at, next });
        released
    }

    /// Waits for the outcome of what was handed over to this registration.
    pub(crate) async fn received(
        &self,
        made: Response<'static, Vec<String>>,
        was_changing: bool,
    ) -> Result<Vec<String>, Failure> {
        self.end_change(was_changing, made).await
    }

    /// Whether its permits may be handed over: it is known which ones it has, and it was not tried before.
    pub(super) fn may_hand_over(&self) -> bool {
        !self.is_changing() && !self.has_handed_over.load(Ordering::Acquire)
    }

    /// Returns the number of permits for which these nodes of the registration stand.
    pub(super) fn number_of(&self, permits: &[String]) -> u32 {
        let directory = self.lock.permit_directory();
        let names = permits.iter().filter_map(|path| path.strip_prefix(directory)?.strip_prefix('/'));
        let held = names.filter_map(|name| self.lock.contender(directory, name.to_owned()));
        held.map(|contender| contender.permits).sum()
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
        connection.exchanged().await;
        let synced = connection.sync(directory);
        let listed = connection.children_proven(directory);
        synced.await?;
        match listed.await {
            Ok(names) => {
                let contenders = names.into_iter().filter_map(|name| self.lock.contender(directory, name));
                Ok(contenders.filter(|contender| contender.is_of(self.grant)).collect())
            }
            Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
            Err(failure) => Err(failure),
        }
    }
}
