//! The places of a client's attempts in the queues of its locks: makes the requests that an attempt's [`Contention`] asks for.

use std::sync::Arc;

use lock_core::Error;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, log};

use super::contention::{Action, Contention, Event, Member, QueuePosition, Request, Way, waits_for_neighbour};
use super::listings::Listings;
use super::shared_path::check_dialect;
use super::watch::wait_for_node;
use crate::client::{Created, Failure, Fate, Names};
use crate::error::{FIRST_PAUSE, StepError, pauses, retry_unanswered};
use crate::registry::{Registration, Registry};
use crate::session::Session;
use crate::store::dialect::{Contender, Role};
use crate::store::layout::{Layout, LockPaths};
use crate::store::record::HolderRecord;

/// The events of a queue at the servers.
pub(crate) type QueueEvent = Event<Created, Contender>;

impl Member<Created> for Contender {
    fn role(&self) -> Role {
        self.role
    }

    fn is_node(&self, node: &Created) -> bool {
        node.path.ends_with(&self.name)
    }
}

/// The queues of a client's locks.
#[derive(Debug)]
pub(crate) struct LockQueues {
    registry: Arc<Registry>,
    layout: Arc<Layout>,
    unfair_mutex: bool,
    listings: Listings,
}

impl LockQueues {
    pub(crate) fn new(registry: Arc<Registry>, layout: Arc<Layout>, unfair_mutex: bool) -> Self {
        Self { registry, layout, unfair_mutex, listings: Listings::default() }
    }

    /// Registers an attempt, once it is known that others speak the dialect of its node. It has to begin then. A try does not wait:
    /// it is to know how the queue is at the servers.
    pub(crate) async fn register<'a>(
        &'a self,
        attempt: &'a Attempt,
        session: &Arc<Session>,
        waits: bool,
    ) -> Result<QueueEntry<'a>, StepError> {
        let lock = LockPaths::of(&self.layout, &attempt.name, attempt.kind)?;
        if lock.is_shared() {
            // Boxed, since it is rare, and would be in the future of every acquisition.
            Box::pin(retry_unanswered(|| check_dialect(session, &lock))).await?;
        }
        Ok(QueueEntry {
            registry: &self.registry,
            listings: &self.listings,
            attempt,
            registration: self.registry.register(attempt.id, session, lock),
            contention: Contention::new(self.way(attempt)),
            is_fresh: true,
            waits,
            is_unlisted: false,
        })
    }

    /// Returns the way of an attempt. At a path that is shared with clients of other libraries everybody is in the queue.
    fn way(&self, attempt: &Attempt) -> Way {
        let claims = self.unfair_mutex && attempt.kind == Kind::Mutex && !attempt.name.is_key();
        if claims { Way::Claim } else { Way::Append }
    }
}

/// One attempt in the queue of its lock, in one session.
pub(crate) struct QueueEntry<'a> {
    registry: &'a Registry,
    listings: &'a Listings,
    attempt: &'a Attempt,
    pub(crate) registration: Arc<Registration>,
    contention: Contention<Created>,
    /// Whether nothing was asked for yet that the registration could have.
    is_fresh: bool,
    /// Whether the attempt waits.
    waits: bool,
    /// Whether it waits for a node that was not listed.
    is_unlisted: bool,
}

impl Drop for QueueEntry<'_> {
    /// Nobody hands permits over to an attempt that has ended.
    fn drop(&mut self) {
        self.registration.incoming.close();
    }
}

impl QueueEntry<'_> {
    /// Notes that something was asked for: whatever the attempt asks for from now on is of a registration of its own.
    pub(super) fn has_asked(&mut self) {
        self.is_fresh = false;
    }

    /// Makes requests until they say no more of the attempt's position, however often answers are lost.
    pub(crate) async fn settle(&mut self, mut event: QueueEvent) -> Result<QueuePosition<Contender>, StepError> {
        let mut pauses = pauses();
        loop {
            let asked = match self.contention.step(event) {
                Action::Stand(position) => return Ok(position),
                Action::Ask(Request::Append) => self.append().await,
                Action::Ask(Request::Claim) => self.claim().await,
                Action::Ask(Request::List) => self.list().await,
                // Boxed, since they are rare, and would be in the future of every acquisition.
                Action::Ask(Request::Find) => Box::pin(self.find()).await,
                Action::Ask(Request::MakeDirectory) => Box::pin(self.make_directory()).await,
            };
            event = match asked {
                Err(error) if error.is(Fate::Unknown) => {
                    log(|| tracing::debug!(?error, "no answer; asking again"));
                    // The sequence is endless.
                    tokio::time::sleep(pauses.next().unwrap_or(FIRST_PAUSE)).await;
                    Event::Unanswered
                }
                asked => asked?,
            };
        }
    }

    /// Takes the place at the end of the queue, and looks around.
    async fn append(&mut self) -> Result<QueueEvent, StepError> {
        let record = self.prepare().await?;
        let registration = self.registration.clone();
        let stem = registration.lock.stem(registration.grant);
        let sent_at = SystemClock.now();
        let connection = &registration.session.connection;
        let last = self.registry.last_role(&registration.lock);
        if self.waits && last.is_some_and(|last| waits_for_neighbour(registration.lock.role, last)) {
            return match connection.enqueue(&stem, &record, &registration.lock.directory).await {
                Ok(node) => Ok(self.enqueued(&registration, node, sent_at)),
                Err(failure) => self.not_made(failure),
            };
        }
        let (created, listed) = connection.append(&stem, &record, &registration.lock.directory);
        match created.await {
            Ok(node) => {
                self.registry.set_node(&registration, node.clone());
                // It asks for the listing, which is on its way.
                let _ = self.contention.step::<Contender>(Event::Created(node, sent_at));
                self.listed(listed.await, sent_at)
            }
            Err(failure) => self.not_made(failure),
        }
    }

    /// Notes the attempt's node, and returns the node of this process right before it, if that is the one to wait for.
    fn enqueued(&mut self, registration: &Registration, node: Created, sent_at: BootInstant) -> QueueEvent {
        let before = self.registry.set_node_behind(registration, node.clone());
        // It asks for the listing, which may not be needed.
        let _ = self.contention.step::<Contender>(Event::Created(node, sent_at));
        let before = before.filter(|before| waits_for_neighbour(registration.lock.role, before.role));
        self.is_unlisted = before.is_some();
        before.map_or(Event::Look, Event::Follows)
    }

    /// Claims the lock by one transaction, which deletes its directory, makes it anew, and makes a node in it. A directory with
    /// anything in it cannot be deleted, so the claim fails as a whole while somebody holds the lock or waits in the queue for it.
    ///
    /// The node has the name that it would have in the queue, and the number 0, so that everything else knows it: renewal,
    /// release, cancellation, inspection, and whoever does wait in the queue. Nobody else ever makes a node of this name, so a
    /// late release frees nobody else.
    async fn claim(&mut self) -> Result<QueueEvent, StepError> {
        let record = self.prepare().await?;
        let registration = &self.registration;
        let path = registration.lock.unnumbered(registration.grant);
        let sent_at = SystemClock.now();
        match registration.session.connection.claim(&registration.lock.directory, &path, &record).await {
            Ok(Some(node)) => {
                self.registry.set_node(registration, node.clone());
                Ok(Event::Created(node, sent_at))
            }
            Ok(None) => Ok(Event::Taken),
            Err(failure) => self.not_made(failure),
        }
    }

    /// Returns the record of a node that is to be made, and registers the attempt anew unless nothing was asked for yet.
    async fn prepare(&mut self) -> Result<Vec<u8>, StepError> {
        if !std::mem::take(&mut self.is_fresh) {
            let (session, lock) = (self.registration.session.clone(), self.registration.lock.clone());
            if lock.is_shared() {
                Box::pin(check_dialect(&session, &lock)).await?;
            }
            self.registration = self.registry.register(self.attempt.id, &session, lock);
        }
        let timeout = self.registration.session.connection.timeout();
        Ok(HolderRecord::new(self.attempt, timeout).to_bytes())
    }

    fn not_made(&self, failure: Failure) -> Result<QueueEvent, StepError> {
        match failure.fate {
            Fate::Missing => Ok(Event::NoDirectory),
            _ => Err(self.registry.refused_node(&self.registration, failure).into()),
        }
    }

    async fn make_directory(&mut self) -> Result<QueueEvent, StepError> {
        let registration = &self.registration;
        let made = registration.session.connection.make_directory(&registration.lock.directory).await;
        made.map_err(|failure| self.registry.refused_node(registration, failure))?;
        self.is_fresh = true;
        Ok(Event::DirectoryMade)
    }

    /// Searches for a node whose answer was lost, or that was not listed.
    async fn find(&self) -> Result<QueueEvent, StepError> {
        let registration = &self.registration;
        self.registry.forget_node(registration);
        let found = registration.own_nodes(&registration.lock.directory).await?.into_iter().next();
        Ok(Event::Found(found.map(|(contender, node)| {
            let node = Created { path: registration.lock.queue_path(&contender.name), czxid: node.czxid };
            self.registry.set_node(registration, node.clone());
            node
        })))
    }

    async fn list(&self) -> Result<QueueEvent, StepError> {
        if self.is_withdrawn() {
            return Ok(Event::Withdrawn);
        }
        let sent_at = SystemClock.now();
        let listed = self.registration.session.connection.children(&self.registration.lock.directory).await;
        self.listed(listed, sent_at)
    }

    fn listed(&self, listed: Result<Names, Failure>, sent_at: BootInstant) -> Result<QueueEvent, StepError> {
        let names = match listed {
            Err(failure) if failure.fate == Fate::Missing => Names::default(),
            listed => listed?,
        };
        let queue = self.listings.queue(&self.registration.lock, names)?;
        Ok(if self.is_withdrawn() { Event::Withdrawn } else { Event::Listed(queue, sent_at) })
    }

    /// Waits until the node before may have gone, and returns what to make of it; with the instant at which it came, if it came as news.
    pub(crate) async fn wait_for_node(
        &mut self,
        node: &Contender,
    ) -> Result<(Option<BootInstant>, QueueEvent), Failure> {
        let is_unlisted = std::mem::take(&mut self.is_unlisted);
        let news = wait_for_node(self.registry, &self.registration, node, is_unlisted).await?;
        Ok((news.came_at, news.handed_over.map_or(Event::Look, Event::HandedOver)))
    }

    /// Whether this client itself has taken the node away: with the end of its session, or because the attempt gave way.
    fn is_withdrawn(&self) -> bool {
        self.contention.node().is_some() && !self.registration.has_node()
    }

    /// Returns the grant of an attempt that was found first in the queue by a request sent at this instant; `None` while no
    /// server is reached, or if the session is over.
    pub(crate) fn grant(&self, sent_at: BootInstant) -> Result<Option<Grant>, Error> {
        match self.contention.node() {
            Some(node) if !self.is_withdrawn() => self.registration.session.grant(self.attempt, node.czxid, sent_at),
            _ => Ok(None),
        }
    }
}
