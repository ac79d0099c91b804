//! The permits of a semaphore. Whoever is first in the queue of `locks` may make nodes in `leases`, and nobody else, so it alone
//! counts them and waits until there are few enough. It takes all its permits and leaves the queue by one transaction,
//! which fails if it is not in the queue any more.
//!
//! While nobody is in the queue, a wait begins without a place there: one transaction, which fails if somebody is in the queue, makes the
//! permits, and those that were made before are counted behind it. If they are too many, the permits are released, and the attempt
//! goes into the queue. A try never does so: its permits, that are there for a moment and too many, would have another try refused.
//!
//! A holder of the same process may hand its permits over: one transaction puts those of the waiter in the place of the holder's, and of the
//! waiter's node in the queue. Nobody counts then ([`successor`](crate::registry::successor)).
//!
//! Curator's clients take their permits one by one, and wait in the queue for each. So one that has some and needs more would
//! wait for us, if we need several, while we wait for it: as long as one is behind us that may be of this kind, we yield our
//! place now and then, at growing intervals. Who needs a single permit never does: each one that is released is its own.
//!
//! They make a permit first and count then, and one that stood still for longer than its session makes it without a place in the
//! queue. So at a shared path we count once more behind our permits: those that were made before ours may be held, those behind
//! them wait.

mod free_permits;
mod permit_taking;
pub(crate) mod taking;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, BusyLocks, Grant};
use lock_core::{Error, Phase};
use tokio::sync::watch::Sender;
use tokio::time::{Instant, timeout};

use self::free_permits::FreePermits;
use self::permit_taking::{PermitTaking, permit_nodes};
use crate::acquire::{Acquirer, QueueEntry};
use crate::error::{self, FIRST_PAUSE, StepError, retry_unanswered};
use crate::registry::permits::MOST_HANDED_OVER;
use crate::registry::{Registration, Registry};
use crate::release::Releaser;
use crate::session::{Session, SessionAcquirer};
use crate::store::node::HolderRecord;
use crate::wait::contention::{Event, QueuePosition};

/// The time for which the first in the queue waits for clients of other libraries before it lets others go first: at first, and
/// at most.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(8);
/// The part of the operation timeout that a try spends behind one place in the queue.
const PART_FOR_ONE_PLACE: u32 = 8;

/// The growing time for which one waiter keeps its place, first in the queue, before those of other libraries.
#[derive(Debug)]
struct QueueYield {
    after: Duration,
}

impl Default for QueueYield {
    fn default() -> Self {
        Self { after: FIRST_PATIENCE }
    }
}

impl QueueYield {
    /// Notes that it has yielded once more.
    fn yielded(&mut self) {
        self.after = (self.after * 2).min(LONGEST_PATIENCE);
    }
}

/// The permits of semaphores.
#[derive(Debug)]
pub(crate) struct Permits {
    acquirer: Arc<Acquirer>,
    registry: Arc<Registry>,
    releaser: Releaser,
    /// Whether permits may be taken without a place in the queue.
    claims: bool,
    /// Semaphores, by the directories of their queues, for which somebody had to wait a moment ago.
    busy: Mutex<BusyLocks>,
}

impl Permits {
    pub(crate) fn new(acquirer: Arc<Acquirer>, registry: Arc<Registry>, releaser: Releaser, claims: bool) -> Self {
        Self { acquirer, registry, releaser, claims, busy: Mutex::default() }
    }

    /// Tries once: a node in the queue, and away with it unless there are enough permits for it and for all before it.
    pub(crate) fn try_acquire(&self, attempt: &Attempt) -> impl Future<Output = Result<Option<Grant>, Error>> + Send {
        self.acquirer.try_by(self, attempt)
    }

    /// Waits until there are enough permits; `Ok(None)` at the deadline if there were too few until then.
    pub(crate) fn acquire(
        &self,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> impl Future<Output = Result<Option<Grant>, Error>> + Send {
        self.acquirer.wait_by(self, attempt, deadline)
    }

    /// Takes permits without a place in the queue, if nobody is there and they are within the limit; `None` if not, and then nothing
    /// of the attempt is left.
    async fn claim(&self, attempt: &Attempt, entry: &mut QueueEntry<'_>) -> Result<Option<Grant>, StepError> {
        let registration = &*entry.registration.clone();
        let lock = &registration.lock;
        // Clients of other libraries do not expect that the directory of the queue is made anew.
        if !self.claims || lock.is_shared() || self.busy().contains(SystemClock.now(), &lock.directory) {
            return Ok(None);
        }
        if !self.has_a_node_each(attempt, registration) {
            return Ok(None);
        }
        entry.has_asked();
        let granted = PermitTaking::new(attempt, registration, &self.registry, None).run(&self.releaser).await?;
        if granted.is_none() {
            self.found_held(registration);
        }
        Ok(granted)
    }

    /// Whether each of the permits is to have a node. One for many is put into another one's place when some are released, and its record
    /// has to say the token by then.
    fn has_a_node_each(&self, attempt: &Attempt, registration: &Registration) -> bool {
        let asked = FreePermits::new(attempt, registration, &self.registry).asked();
        let record = || HolderRecord::new(attempt, registration.session.connection.timeout()).to_bytes();
        let nodes = |record: Vec<u8>| registration.lock.permits(registration.grant, asked, record.len());
        asked == 1 || nodes(record()).is_ok_and(|nodes| nodes.len() == asked as usize)
    }

    /// Notes that somebody has to wait for permits of this semaphore.
    fn found_held(&self, registration: &Registration) {
        self.busy().add(SystemClock.now(), &registration.lock.directory);
    }

    fn busy(&self) -> MutexGuard<'_, BusyLocks> {
        // Every critical section leaves it valid.
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, first in the queue, until there are enough permits, and takes them; `None` if the place in the queue is lost
    /// meanwhile, or a holder hands its own over: then they are to be [received](Permits::receive).
    async fn take_when_enough(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        refused: &Sender<bool>,
        queue_yield: &mut QueueYield,
    ) -> Result<Option<Grant>, StepError> {
        let free = FreePermits::new(attempt, registration, &self.registry);
        let needs_several = registration.lock.is_shared() && free.asked() > 1;
        self.open_to_permits(attempt, registration);
        let woken_at = tokio::select! {
            biased;
            () = registration.incoming().granted() => return Ok(None),
            woken_at = free.until_enough(refused) => woken_at?,
            needed = free.until_others_need_one(queue_yield.after), if needs_several => {
                needed?;
                queue_yield.yielded();
                return self.releaser.withdraw(registration).await;
            }
        };
        if *refused.borrow() {
            self.found_held(registration);
        }
        if !registration.incoming().close() {
            return Ok(None);
        }
        let granted = self.take_place(attempt, registration).await?;
        Ok(granted.map(|granted| woken_at.map_or(granted, |at| granted.with_woken_at(at))))
    }

    /// Lets a holder of this process hand its permits over to this waiter, whoever is before it now. At a shared path
    /// clients of other libraries make permits without a word to those in the queue: each waiter counts.
    fn open_to_permits(&self, attempt: &Attempt, registration: &Registration) {
        let asked = FreePermits::new(attempt, registration, &self.registry).asked();
        if let Some(place) = registration.node()
            && asked as usize <= MOST_HANDED_OVER
            && !registration.lock.is_shared()
            && registration.session.connection.hands_permits_over()
            && let Ok(nodes) = permit_nodes(attempt, registration, &place)
        {
            registration.incoming().open(nodes);
        }
    }

    /// Receives the permits that a holder of this process has begun to hand over; `None` if it could not.
    async fn receive(&self, attempt: &Attempt, registration: &Registration) -> Result<Option<Grant>, StepError> {
        let handed_over = registration.incoming().received().await;
        // Nothing is known of it that would be its place.
        let Some(place) = registration.node() else { return Ok(None) };
        self.found_held(registration);
        let taking = PermitTaking::new(attempt, registration, &self.registry, Some(&place));
        taking.receive(handed_over, &self.releaser).await
    }

    /// Makes the permits in the place of the node in the queue; `None` if that is lost.
    async fn take_place(&self, attempt: &Attempt, registration: &Registration) -> Result<Option<Grant>, StepError> {
        let Some(place) = registration.node() else { return Ok(None) };
        PermitTaking::new(attempt, registration, &self.registry, Some(&place)).run(&self.releaser).await
    }
}

impl SessionAcquirer for Permits {
    /// Tries once with a place in the queue: not before those who came earlier, unless there are enough for all of them.
    /// If one of these is stuck, the try is refused.
    async fn try_in(&self, session: &Arc<Session>, attempt: &Attempt) -> Result<Option<Grant>, StepError> {
        let mut entry = self.acquirer.register(attempt, session, false).await?;
        let mut position = entry.settle(Event::Begin).await?;
        let registration = &*entry.registration.clone();
        let free = FreePermits::new(attempt, registration, &self.registry);
        let until = Instant::now() + attempt.op_timeout / 2;
        loop {
            let left = match &position {
                QueuePosition::First(_) => retry_unanswered(|| free.count()).await?,
                QueuePosition::Behind(_) => retry_unanswered(|| free.count_behind_others()).await?,
                QueuePosition::Missing => 0,
            };
            match &position {
                // The end of a session takes its registrations away here; its nodes stay until the servers think so, too.
                QueuePosition::Missing if registration.session.is_over() => {
                    return Err(error::out_of_time(Phase::Acquire).into());
                }
                _ if left < free.asked() => return self.releaser.withdraw(registration).await,
                QueuePosition::Behind(node) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let moves_within = left.min(attempt.op_timeout / PART_FOR_ONE_PLACE);
                    match timeout(moves_within, entry.wait_for_node(node)).await {
                        Ok(news) => {
                            news?;
                        }
                        Err(_) => return self.releaser.withdraw(registration).await,
                    }
                }
                _ => {
                    if let Some(granted) = self.take_place(attempt, registration).await? {
                        return Ok(Some(granted));
                    }
                }
            }
            position = entry.settle(Event::Look).await?;
        }
    }

    async fn wait_in(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &Sender<bool>,
    ) -> Result<Grant, StepError> {
        let mut entry = self.acquirer.register(attempt, session, true).await?;
        if let Some(granted) = Box::pin(self.claim(attempt, &mut entry)).await? {
            return Ok(granted);
        }
        let (mut woken_at, mut queue_yield, mut event) = (None, QueueYield::default(), Event::Begin);
        loop {
            event = match entry.settle(event).await? {
                QueuePosition::First(_) => {
                    // Boxed, like what is handed over: whoever waits behind others would have it in itself.
                    let taken = self.take_when_enough(attempt, &entry.registration, refused, &mut queue_yield);
                    let granted = Box::pin(taken).await?;
                    if let Some(granted) = granted {
                        let woken_at = granted.woken_at.or(woken_at);
                        return Ok(woken_at.map_or(granted, |at| granted.with_woken_at(at)));
                    }
                    if entry.registration.incoming().close() {
                        tokio::time::sleep(FIRST_PAUSE).await;
                    } else if let Some(granted) = Box::pin(self.receive(attempt, &entry.registration)).await? {
                        return Ok(granted);
                    }
                    Event::Look
                }
                QueuePosition::Behind(node) => {
                    refused.send_replace(true);
                    self.found_held(&entry.registration);
                    self.open_to_permits(attempt, &entry.registration);
                    let news;
                    (woken_at, news) = entry.wait_for_node(&node).await?;
                    news
                }
                QueuePosition::Missing if entry.registration.incoming().close() => Event::Rejoin,
                // Its place goes for permits that are handed over to it.
                QueuePosition::Missing => {
                    if let Some(granted) = Box::pin(self.receive(attempt, &entry.registration)).await? {
                        return Ok(granted);
                    }
                    Event::Look
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;
    use lock_core::clock::Deadline;
    use lock_core::driver::Kind;
    use lock_core::{LockName, Owner};
    use lock_testkit::testing::{PROMPTLY, eventually, installed, soon};
    use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperServer};

    use super::*;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;
    use crate::connect::connect;
    use crate::wait::watch::wait_for_node;

    const UUID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

    /// There may be thousands that wait behind others.
    #[tokio::test]
    async fn who_waits_for_a_permit_has_little_more_in_itself_than_who_waits_for_a_mutex() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let (name, kind) = (LockName::from_key("/api").unwrap(), Kind::Permits { permits: 1, limit: 2 });
        let attempt = Attempt::new(name, kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let permit = size_of_val(&backend.permits.acquire(&attempt, Deadline::NEVER));
        let mutex = size_of_val(&backend.acquirer.acquire(&attempt, Deadline::NEVER));
        assert!(permit <= mutex + 512, "{permit} bytes, and {mutex} for a mutex");
    }

    #[tokio::test]
    async fn whoever_is_behind_goes_on_though_the_one_before_takes_its_permit_and_is_kept_without_being_polled() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        let kind = Kind::Permits { permits: 1, limit: 2 };
        let [made, first, second] =
            [(); 3].map(|()| Attempt::new("kept".into(), kind, Owner::new(), Duration::from_secs(10)).unwrap());
        // From here on the lock has its directories.
        assert!(backend.permits.try_in(&session, &made).await.unwrap().is_some());
        let mut entry = backend.acquirer.register(&first, &session, true).await.unwrap();
        let mut behind = backend.acquirer.register(&second, &session, true).await.unwrap();
        assert!(matches!(entry.settle(Event::Begin).await.unwrap(), QueuePosition::First(_)));
        let QueuePosition::Behind(node) = behind.settle(Event::Begin).await.unwrap() else { panic!("it is first") };
        // It has looked once, and does not again of its own accord.
        let mut waiting = pin!(wait_for_node(&backend.registry, &behind.registration, &node, false));
        assert!((&mut waiting).now_or_never().is_none());
        let mut taking = pin!(backend.permits.take_place(&first, &entry.registration));
        assert!((&mut taking).now_or_never().is_none());
        soon("it goes on", PROMPTLY, waiting).await.unwrap();
        assert!(taking.await.unwrap().is_some());
    }

    /// Curator's client has one of two permits and wants the other one, while ours waits for both and may watch nothing.
    #[tokio::test]
    async fn who_waits_for_several_without_a_watch_gives_way_too() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let foreign = server.client().await.unwrap();
        let make = async |stem: &str| {
            let made = foreign.create(&format!("/api/{stem}"), b"10.0.0.1", NodeKind::EphemeralSequential).await;
            made.unwrap().unwrap()
        };
        foreign.create_all("/api/leases").await.unwrap();
        foreign.create_all("/api/locks").await.unwrap();
        make(&format!("leases/{UUID}-lease-")).await;
        let session = backend.sessions.current().await;
        let all = "x".repeat(crate::session::WATCHABLE);
        let _taken = session.watch_budget(&all).await.unwrap();
        let (name, kind) = (LockName::from_key("/api").unwrap(), Kind::Permits { permits: 2, limit: 2 });
        let attempt = Attempt::new(name, kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let waiting = backend.permits.acquire(&attempt, Deadline::NEVER);
        let queue = async || foreign.children("/api/locks").await.unwrap().unwrap_or_default();
        let tsuccessors_is_first = async {
            eventually("ours is first in the queue", PROMPTLY, async || queue().await.len() == 1).await;
            let place = make(&format!("locks/{UUID}-lock-")).await;
            eventually("tsuccessors is first in the queue", PROMPTLY, async || {
                let mut queue = queue().await;
                queue.sort_by_key(|name| name[name.len() - 10..].to_owned());
                queue.first().is_some_and(|first| place.ends_with(first.as_str()))
            })
            .await;
        };
        tokio::select! {
            granted = waiting => panic!("ours has both permits: {granted:?}"),
            () = tsuccessors_is_first => {}
        }
    }
}
