//! Acquisition: may I have it now. A try and a wait begin alike: by a node at the end of the lock's queue or, where a mutex has none,
//! by a claim.
//!
//! 1. A sequential ephemeral node is asked for, whose name carries the attempt's id, and right behind it the listing of
//!    its directory. The servers answer the requests of one session in order, so the listing shows everybody before us. A wait
//!    whose client's node came last, as far as it knows, lists only if that is not the one right before.
//! 2. If nobody that matters is before us, the lock is ours; its token is the transaction that made the node.
//! 3. Otherwise a try deletes its node. A wait [waits](crate::wait) for the nearest that matters, and lists the directory again: news may
//!    save a wait, never make a grant. Only a holder of this process hands over by itself: it deletes its node provided that the next
//!    one's is there, by one transaction, whose answer proves the next grant.
//!
//! Permits of a semaphore are taken in [`permits`](crate::permits), from the first place in the queue or without one.
//!
//! A lost answer has the directory read, behind a `sync`, and searched for the attempt's id. A session that has
//! moved to another server can no longer write through the former one, so what is not there then never will be. A node of
//! an earlier session is no node of ours: the servers are about to remove it.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, log};
use lock_core::{Error, ErrorKind, Phase};
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

use crate::client::{Created, Failure, Fate, Names};
use crate::error::{self, FIRST_PAUSE, StepError, pauses, retry_unanswered};
use crate::registry::{Registration, Registry};
use crate::release::{Releaser, delete_all};
use crate::session::{Session, SessionAcquirer, Sessions, is_spent};
use crate::store::layout::{Layout, LockPaths};
use crate::store::node::{Contender, HolderRecord, Role, order};
use crate::wait::contention::{
    Action, Contention, Event, ListedQueue, Member, QueuePosition, Request, Way, position_by, waits_for_neighbour,
};
use crate::wait::listings::Listings;
use crate::wait::shared_path::check_dialect;
use crate::wait::watch::wait_for_node;

/// Asks for locks.
#[derive(Debug)]
pub(crate) struct Acquirer {
    sessions: Arc<Sessions>,
    registry: Arc<Registry>,
    layout: Arc<Layout>,
    releaser: Releaser,
    unfair_mutex: bool,
    listings: Listings,
}

impl Acquirer {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        registry: Arc<Registry>,
        layout: Arc<Layout>,
        releaser: Releaser,
        unfair_mutex: bool,
    ) -> Self {
        Self { sessions, registry, layout, releaser, unfair_mutex, listings: Listings::default() }
    }

    /// Tries once: a node in the queue, and away with it unless it is the first.
    pub(crate) fn try_acquire(&self, attempt: &Attempt) -> impl Future<Output = Result<Option<Grant>, Error>> + Send {
        self.try_by(self, attempt)
    }

    /// Waits in the queue; `Ok(None)` at the deadline if somebody was before us until then.
    pub(crate) fn acquire(
        &self,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<Grant>, Error>> + Send {
        self.wait_by(self, attempt, deadline)
    }

    /// Tries once, by this acquirer. Nothing is left of what was refused for an error.
    pub(crate) async fn try_by(
        &self,
        acquirer: &impl SessionAcquirer,
        attempt: &Attempt,
    ) -> Result<Option<Grant>, Error> {
        let until = Instant::now() + attempt.op_timeout;
        let answer = async |session: &Arc<Session>| {
            acquirer.try_in(session, attempt).await.map_err(|failure| failure.error(Phase::Acquire))
        };
        match self.sessions.request(attempt, Phase::Acquire, answer).await {
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                Err(self.releaser.cancel_refused(attempt, Phase::Acquire, error, until).await)
            }
            tried => tried,
        }
    }

    /// Waits, by this acquirer, in as many sessions as it takes; `Ok(None)` at the deadline if somebody was before us until then. Nothing is
    /// left of what was refused for an error.
    pub(crate) async fn wait_by(
        &self,
        acquirer: &impl SessionAcquirer,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let (refused, mut refusals) = channel(false);
        let (sessions, asked) = (&*self.sessions, AtomicBool::new(false));
        let ran_out = async {
            SystemClock.sleep_until(deadline.instant()).await;
            // The first answer may be on its way; one operation timeout is what K7 allows for it.
            let answered = refusals.wait_for(|refused| *refused);
            tokio::time::timeout(attempt.op_timeout, answered).await.is_ok()
        };
        let outcome = tokio::select! {
            biased;
            granted = sessions.wait_granted(attempt, acquirer, &asked, &refused) => granted.map(Some),
            was_refused = ran_out => if was_refused { Ok(None) } else { Err(sessions.unanswered(attempt, &asked)) },
            () = sessions.silence(attempt.patience) => Err(sessions.unanswered(attempt, &asked)),
            // Nobody will say that the session has ended, nor open another one.
            () = sessions.closed() => Err(sessions.unanswered(attempt, &asked)),
        };
        match outcome {
            Err(error) if error.kind() != ErrorKind::Indeterminate => {
                let until = Instant::now() + attempt.op_timeout;
                Err(self.releaser.cancel_refused(attempt, Phase::Wait, error, until).await)
            }
            waited => waited,
        }
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

impl SessionAcquirer for Acquirer {
    async fn try_in(&self, session: &Arc<Session>, attempt: &Attempt) -> Result<Option<Grant>, StepError> {
        let mut entry = self.register(attempt, session, false).await?;
        match entry.settle(Event::Begin).await? {
            // The end of a session takes its registrations away here; its nodes stay until the servers think so, too.
            QueuePosition::Missing if session.is_over() => Err(error::out_of_time(Phase::Acquire).into()),
            QueuePosition::First(sent_at) => {
                let what = "the session was suspended when the lock was granted";
                let suspended = || attempt.error(ErrorKind::Indeterminate, Phase::Acquire, what);
                Ok(Some(entry.grant(sent_at)?.ok_or_else(suspended)?))
            }
            _ => self.releaser.withdraw(&entry.registration).await,
        }
    }

    async fn wait_in(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &Sender<bool>,
    ) -> Result<Grant, StepError> {
        let mut entry = self.register(attempt, session, true).await?;
        let (mut woken_at, mut was_spent, mut event) = (None, false, Event::Begin);
        loop {
            event = match entry.settle(event).await? {
                QueuePosition::First(sent_at) => {
                    // Looks again once only: with servers so far away that every answer comes too late, the place goes to the next.
                    let granted = entry.grant(sent_at)?;
                    if let Some(granted) =
                        granted.filter(|granted| !is_spent(granted) || mem::replace(&mut was_spent, true))
                    {
                        return Ok(woken_at.map_or(granted, |at| granted.with_woken_at(at)));
                    }
                    tokio::time::sleep(FIRST_PAUSE).await;
                    Event::Look
                }
                QueuePosition::Behind(node) => {
                    refused.send_replace(true);
                    let news;
                    (woken_at, news) = entry.wait_for_node(&node).await?;
                    news
                }
                QueuePosition::Missing => Event::Rejoin,
            };
        }
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
        self.registration.close_to_permits();
    }
}

impl QueueEntry<'_> {
    /// Notes that something was asked for: whatever the attempt asks for from now on is of a registration of its own.
    pub(crate) fn has_asked(&mut self) {
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
        let (stem, departure) = (registration.lock.stem(registration.grant), registration.departure());
        let sent_at = SystemClock.now();
        let connection = &registration.session.connection;
        let last = self.registry.last_role(&registration.lock);
        if self.waits && last.is_some_and(|last| waits_for_neighbour(registration.lock.role, last)) {
            return match connection.enqueue(&stem, &record, &registration.lock.directory, departure).await {
                Ok(node) => self.enqueued(&registration, node, sent_at),
                Err(failure) => self.not_made(failure),
            };
        }
        let (created, listed) = connection.append(&stem, &record, &registration.lock.directory, departure);
        match created.await {
            Ok(node) => {
                self.registry.set_node(&registration, node.clone());
                self.check_number(&node)?;
                // It asks for the listing, which is on its way.
                let _ = self.contention.step::<Contender>(Event::Created(node, sent_at));
                self.listed(listed.await, sent_at)
            }
            Err(failure) => self.not_made(failure),
        }
    }

    /// Notes the attempt's node, and returns the node of this process right before it, if that is the one to wait for.
    fn enqueued(
        &mut self,
        registration: &Registration,
        node: Created,
        sent_at: BootInstant,
    ) -> Result<QueueEvent, StepError> {
        let before = self.registry.set_node_behind(registration, node.clone());
        self.check_number(&node)?;
        // It asks for the listing, which may not be needed.
        let _ = self.contention.step::<Contender>(Event::Created(node, sent_at));
        let before = before.filter(|before| waits_for_neighbour(registration.lock.role, before.role));
        self.is_unlisted = before.is_some();
        Ok(before.map_or(Event::Look, Event::Follows))
    }

    /// Refuses a place whose number says nothing of who came first. The place is given up, and an empty directory with it, as the servers
    /// would do by themselves: the numbers begin anew then. A shared path may be meant to stay.
    fn check_number(&self, node: &Created) -> Result<(), StepError> {
        let (connection, lock) = (&self.registration.session.connection, &self.registration.lock);
        let checked = lock.check_number(&node.path);
        if checked.is_err() && !lock.is_shared() {
            drop(connection.delete(&node.path));
            drop(connection.delete(&lock.directory));
        }
        Ok(checked?)
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
        if !mem::take(&mut self.is_fresh) {
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

    /// Searches for a node whose answer was lost, or that was not listed. One attempt has one place: of several nodes the first in the queue
    /// is kept, and the others are deleted.
    async fn find(&self) -> Result<QueueEvent, StepError> {
        let registration = &self.registration;
        self.registry.forget_node(registration);
        let mut found = registration.own_nodes(&registration.lock.directory).await?;
        found.sort_unstable_by_key(|(contender, _)| contender.order());
        let mut found = found.into_iter();
        let first = found.next();
        let others: Vec<_> = found.map(|(contender, _)| registration.lock.queue_path(&contender.name)).collect();
        if !others.is_empty() {
            delete_all(&*registration.session.connection, &others).await?;
        }
        let found = first.map(|(contender, node)| Created {
            path: registration.lock.queue_path(&contender.name),
            czxid: node.czxid,
        });
        if let Some(node) = &found {
            self.registry.set_node(registration, node.clone());
            self.check_number(node)?;
        }
        Ok(Event::Found(found))
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
        let mut names = match listed {
            Err(failure) if failure.fate == Fate::Missing => Names::default(),
            listed => listed?,
        };
        let lock = &self.registration.lock;
        let queue = match Arc::get_mut(&mut names) {
            // Nobody else has it now, and no reading of it is kept.
            Some(names) => Arc::new(ListedQueue::new(lock.queue(mem::take(names))?)),
            None => self.listings.queue(lock, names)?,
        };
        Ok(if self.is_withdrawn() { Event::Withdrawn } else { Event::Listed(queue, sent_at) })
    }

    /// Waits until the node before may have gone, and returns what to make of it; with the instant at which it came, if it came as news.
    pub(crate) async fn wait_for_node(
        &mut self,
        node: &Contender,
    ) -> Result<(Option<BootInstant>, QueueEvent), Failure> {
        let is_unlisted = mem::take(&mut self.is_unlisted);
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

/// The events of a queue at the servers.
pub(crate) type QueueEvent = Event<Created, Contender>;

impl Member<Created> for Contender {
    fn role(&self) -> Role {
        self.role
    }

    fn is_node(&self, node: &Created) -> bool {
        node.path.ends_with(&self.name)
    }

    /// Looks by the number at the end of its path, and at each node for one below zero.
    fn position(queue: &[Self], node: &Created) -> Option<usize> {
        let digits = node.path.len().checked_sub(10).and_then(|at| node.path.get(at..));
        let number = digits.and_then(|digits| digits.parse().ok()).map(order);
        let by_number = number.and_then(|place| position_by(queue, node, &place, Self::order));
        by_number.or_else(|| queue.iter().position(|member| member.is_node(node)))
    }
}

#[cfg(test)]
mod tests;
