//! The room in a semaphore. Whoever is first in the queue of `locks` may make nodes in `leases`, and nobody else, so it alone
//! counts them and waits until there are few enough. It takes all its permits and leaves the queue by one transaction,
//! which fails if it is not in the queue any more.
//!
//! Curator's clients take their permits one by one, and wait in the queue for each. So one that has some and needs more would
//! wait for us, if we need several, while we wait for it: as long as one stands behind us that may be of this kind, we give up
//! our place now and then, at growing intervals. Who needs a single permit never does: each one that is given back is its own.
//!
//! They make a permit first and count then, and one that stood still for longer than its session makes it without a place in the
//! queue. So at a shared path we count once more behind our permits: those that were made before ours may be held, those behind
//! them wait.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{ErrorKind, Phase};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::queue::{Queue, granted};
use super::{POLL_INTERVAL, QueuePosition};
use crate::client::{Fate, Fault, Node, NodeChange};
use crate::error::{self, FIRST_PAUSE, StepError, retry_unanswered};
use crate::registry::{Registration, Registry};
use crate::release::Releaser;
use crate::session::Poller;
use crate::store::record::HolderRecord;

/// The time for which the first in the queue waits for clients of other libraries before it lets others go first: at first, and at
/// most.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(8);
/// The number of permits, and of those in the queue, that are looked at for their limit and their library. All of ours have the
/// same limit.
const LOOKED_AT: usize = 100;
/// The part of the operation timeout that a try spends behind one place in the queue.
const PART_FOR_ONE_PLACE: u32 = 8;

/// The growing time for which one waiter keeps its place, first in the queue, before those of other libraries.
#[derive(Debug)]
pub(crate) struct QueueYield {
    after: Duration,
}

impl Default for QueueYield {
    fn default() -> Self {
        Self { after: FIRST_PATIENCE }
    }
}

impl QueueYield {
    /// It has given way once more.
    fn gave(&mut self) {
        self.after = (self.after * 2).min(LONGEST_PATIENCE);
    }
}

/// The permits of semaphores.
#[derive(Debug)]
pub(crate) struct Permits {
    queue: Queue,
    registry: Arc<Registry>,
    releaser: Releaser,
}

impl Permits {
    pub(crate) fn new(queue: Queue, registry: Arc<Registry>, releaser: Releaser) -> Self {
        Self { queue, registry, releaser }
    }

    /// One try of somebody who waits in the queue: not before those who came earlier, unless there is room for all of them. If one
    /// of these stands still, the try is refused.
    pub(crate) async fn try_acquire(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        mut position: QueuePosition,
    ) -> Result<Option<Grant>, StepError> {
        let asked = asked(attempt);
        let until = Instant::now() + attempt.op_timeout / 2;
        loop {
            let left = match &position {
                QueuePosition::First(_) => retry_unanswered(|| self.left(attempt, registration)).await?,
                QueuePosition::Behind(_) => retry_unanswered(|| self.left_behind_others(attempt, registration)).await?,
                QueuePosition::Missing => 0,
            };
            match &position {
                // The end of a session takes its registrations away here; its nodes stay until the servers think so, too.
                QueuePosition::Missing if registration.session.is_over() => {
                    return Err(error::out_of_time(Phase::Acquire).into());
                }
                _ if left < asked => return self.releaser.withdraw(registration).await,
                QueuePosition::Behind(path) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let moves_within = left.min(attempt.op_timeout / PART_FOR_ONE_PLACE);
                    match timeout(moves_within, self.queue.wait_for_node(registration, path)).await {
                        Ok(news) => {
                            news?;
                        }
                        Err(_) => return self.releaser.withdraw(registration).await,
                    }
                }
                _ => {
                    if let Some(granted) = self.take(attempt, registration).await? {
                        return Ok(Some(granted));
                    }
                }
            }
            position = retry_unanswered(|| self.queue.position(registration)).await?;
        }
    }

    /// Waits, first in the queue, until there is room, and takes it; `None` if the place in the queue is lost meanwhile.
    pub(crate) async fn acquire(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        refused: &watch::Sender<bool>,
        queue_yield: &mut QueueYield,
    ) -> Result<Option<Grant>, StepError> {
        let needs_several = registration.lock.is_shared() && asked(attempt) > 1;
        let woken_at = tokio::select! {
            biased;
            woken_at = self.until_free(attempt, registration, refused) => woken_at?,
            stands = self.stands_in_the_way(attempt, registration, queue_yield.after), if needs_several => {
                stands?;
                queue_yield.gave();
                return self.releaser.withdraw(registration).await;
            }
        };
        let granted = self.take(attempt, registration).await?;
        Ok(granted.map(|granted| woken_at.map_or(granted, |at| granted.woken_at(at))))
    }

    /// Waits until there is room; when news of it came, if they did.
    async fn until_free(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        refused: &watch::Sender<bool>,
    ) -> Result<Option<BootInstant>, StepError> {
        let (mut woken_at, poller) = (None, registration.session.pollers.begin());
        while retry_unanswered(|| self.left(attempt, registration)).await? < asked(attempt) {
            refused.send_replace(true);
            let Some(_kept) = registration.session.watch_budget(registration.lock.permit_directory(), &poller).await
            else {
                continue;
            };
            let (left, change) = retry_unanswered(|| self.watched_left(attempt, registration)).await?;
            if left >= asked(attempt) {
                break;
            }
            tokio::select! {
                biased;
                () = change => woken_at = Some(SystemClock.now()),
                // What was to wake us may have been lost.
                has = self.poll_until_free(attempt, registration, &poller) => has?,
            }
        }
        Ok(woken_at)
    }

    /// Looks now and then until there is room.
    async fn poll_until_free(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        poller: &Poller<'_>,
    ) -> Result<(), StepError> {
        loop {
            sleep(poller.pause(POLL_INTERVAL)).await;
            if retry_unanswered(|| self.left(attempt, registration)).await? >= asked(attempt) {
                return Ok(());
            }
        }
    }

    /// Looks after every such interval until a client of another library that has permits stands behind us, and could have one
    /// more if we did not wait for several.
    async fn stands_in_the_way(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        every: Duration,
    ) -> Result<(), StepError> {
        loop {
            sleep(every).await;
            if retry_unanswered(|| self.left(attempt, registration)).await? > 0
                && retry_unanswered(|| self.is_waited_for(registration)).await?
            {
                return Ok(());
            }
        }
    }

    /// Whether a session of another library's client has permits and a place behind us.
    async fn is_waited_for(&self, registration: &Registration) -> Result<bool, StepError> {
        let leases = self.names(registration, registration.lock.permit_directory()).await?;
        let leases: Vec<_> = leases.iter().take(LOOKED_AT).map(|name| registration.lock.permit_path(name)).collect();
        let holders: HashSet<_> = self.foreign(registration, &leases).await?.iter().map(|node| node.session).collect();
        if holders.is_empty() {
            return Ok(false);
        }
        let queue = registration.lock.queue(self.names(registration, &registration.lock.directory).await?)?;
        let queue = queue.iter().map(|contender| registration.lock.queue_path(&contender.name));
        let mine = registration.node().map(|node| node.path);
        let behind: Vec<_> = queue.skip_while(|path| Some(path) != mine.as_ref()).skip(1).take(LOOKED_AT).collect();
        Ok(self.foreign(registration, &behind).await?.iter().any(|node| holders.contains(&node.session)))
    }

    /// Those of these nodes that clients of other libraries have made.
    async fn foreign(&self, registration: &Registration, paths: &[String]) -> Result<Vec<Node>, Fault> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let nodes = registration.session.connection.read_all(paths).await?;
        Ok(nodes.into_iter().flatten().filter(|node| HolderRecord::parse(node).is_none()).collect())
    }

    /// The names in a directory; none if there is no such directory.
    async fn names(&self, registration: &Registration, directory: &str) -> Result<Vec<String>, Fault> {
        match registration.session.connection.children(directory).await {
            Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
            names => names,
        }
    }

    /// Takes the permits, however often answers are lost. `None` if that was in vain: the place in the queue is lost.
    async fn take(&self, attempt: &Attempt, registration: &Registration) -> Result<Option<Grant>, StepError> {
        let sent_at = SystemClock.now();
        let entered = match self.enter(attempt, registration).await {
            Err(trouble) if trouble.is(Fate::Unknown) => retry_unanswered(|| self.find_permits(registration)).await?,
            entered => entered?,
        };
        let Some(czxid) = entered else { return Ok(None) };
        if registration.lock.is_shared() && !retry_unanswered(|| self.is_within_limit(attempt, registration)).await? {
            return self.releaser.withdraw(registration).await;
        }
        loop {
            if let Some(granted) = granted(attempt, &registration.session, czxid, sent_at)? {
                return Ok(Some(granted));
            }
            // No server is reached. Whoever calls gives up when the session ends.
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Whether our permits are within the limit when all that were made before them are counted, whoever has made them.
    async fn is_within_limit(&self, attempt: &Attempt, registration: &Registration) -> Result<bool, StepError> {
        let held = registration.lock.held(self.names(registration, registration.lock.permit_directory()).await?)?;
        let mut of_ours = held.iter().filter(|lease| lease.is_of(registration.grant)).map(|lease| lease.number);
        let Some(first) = of_ours.next() else { return Ok(false) };
        let last = of_ours.fold(first, |last, number| if number.wrapping_sub(last) > 0 { number } else { last });
        // The numbers wrap; a semaphore has far fewer permits than half their range.
        let before = held.iter().filter(|lease| last.wrapping_sub(lease.number) >= 0);
        let counted = before.fold(0_u32, |counted, lease| counted.saturating_add(lease.permits));
        Ok(counted <= limit(attempt))
    }

    /// Leaves the queue with the permits; the transaction that made the place in the queue, whose number is the token. `None` if
    /// there is no such place any more.
    async fn enter(&self, attempt: &Attempt, registration: &Registration) -> Result<Option<i64>, StepError> {
        let Some(node) = registration.node() else { return Ok(None) };
        let record =
            HolderRecord::new(attempt, registration.session.connection.timeout()).with_token(node.czxid).to_bytes();
        let wanted = registration.lock.permits(registration.grant, asked(attempt), record.len())?;
        let place = [node.path];
        for _ in 0..2 {
            match registration.exchange(&place, &wanted, &record).await {
                Ok(paths) => {
                    self.registry.set_permits(registration, paths);
                    return Ok(Some(node.czxid));
                }
                // Either of them: there is no directory for permits as long as nobody has had one.
                Err(fault) if fault.fate == Fate::Missing => {
                    registration.session.connection.make_directory(registration.lock.permit_directory()).await?;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(None)
    }

    /// Searches for permits of which the answer was lost.
    async fn find_permits(&self, registration: &Registration) -> Result<Option<i64>, StepError> {
        let Some(node) = registration.node() else { return Ok(None) };
        let found = registration.own_nodes(registration.lock.permit_directory()).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let paths = found.into_iter().map(|(contender, _)| registration.lock.permit_path(&contender.name));
        self.registry.set_permits(registration, paths.collect());
        Ok(Some(node.czxid))
    }

    /// Returns the number of permits that are left.
    async fn left(&self, attempt: &Attempt, registration: &Registration) -> Result<u32, StepError> {
        let names = self.names(registration, registration.lock.permit_directory()).await?;
        self.count(attempt, registration, names).await
    }

    /// Returns the number of permits that are left, and a watch for the next change.
    async fn watched_left(
        &self,
        attempt: &Attempt,
        registration: &Registration,
    ) -> Result<(u32, NodeChange), StepError> {
        match registration.session.connection.watch_children(registration.lock.permit_directory()).await {
            Ok((names, change)) => Ok((self.count(attempt, registration, names).await?, change)),
            Err(fault) if fault.fate == Fate::Missing => Ok((limit(attempt), Box::pin(std::future::ready(())))),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn count(
        &self,
        attempt: &Attempt,
        registration: &Registration,
        names: Vec<String>,
    ) -> Result<u32, StepError> {
        let held = registration.lock.held(names)?;
        let paths: Vec<_> =
            held.iter().take(LOOKED_AT).map(|lease| registration.lock.permit_path(&lease.name)).collect();
        if !paths.is_empty() {
            for node in registration.session.connection.read_all(&paths).await?.into_iter().flatten() {
                let permits = HolderRecord::parse(&node).and_then(|record| record.permits());
                if let Some(theirs) = permits.map(|permits| permits.limit).filter(|theirs| *theirs != limit(attempt)) {
                    let what =
                        format!("the permits in use were asked for with a limit of {theirs}, not {}", limit(attempt));
                    return Err(attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what).into());
                }
            }
        }
        let used = held.iter().fold(0_u32, |used, lease| used.saturating_add(lease.permits));
        Ok(limit(attempt).saturating_sub(used))
    }

    /// Returns the number of permits that are left when everybody before us has got his; none if somebody before us has to wait.
    async fn left_behind_others(&self, attempt: &Attempt, registration: &Registration) -> Result<u32, StepError> {
        let connection = &registration.session.connection;
        let names = self.names(registration, &registration.lock.directory).await?;
        let queue =
            registration.lock.queue(names)?.into_iter().map(|contender| registration.lock.queue_path(&contender.name));
        let mine = registration.node().map(|node| node.path);
        let before: Vec<_> = queue.take_while(|path| Some(path) != mine.as_ref()).collect();
        let nodes = if before.is_empty() { Vec::new() } else { connection.read_all(&before).await? };
        // Clients of other libraries take one at a time.
        let theirs = nodes.iter().flatten().map(|node| HolderRecord::parse(node).and_then(|record| record.permits()));
        let theirs = theirs.map(|permits| permits.map_or(1, |permits| permits.asked));
        let left = self.left(attempt, registration).await?;
        Ok(theirs.into_iter().try_fold(left, u32::checked_sub).unwrap_or(0))
    }
}

fn asked(attempt: &Attempt) -> u32 {
    match attempt.kind {
        Kind::Permits { permits, .. } => permits,
        _ => 1,
    }
}

fn limit(attempt: &Attempt) -> u32 {
    match attempt.kind {
        Kind::Permits { limit, .. } => limit,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use lock_core::clock::Deadline;
    use lock_core::{LockName, Owner};
    use lock_testkit::servers::zookeeper::{NodeKind, ZooKeeperServer};
    use lock_testkit::testing::{PROMPTLY, eventually, installed};

    use super::*;
    use crate::backend::ZkBackend;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;

    const UUID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

    /// Curator's client has one of two permits and wants the other one, while ours waits for both and may watch nothing.
    #[tokio::test]
    async fn who_waits_for_several_without_a_watch_gives_way_too() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = ZkBackend::connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let foreign = server.client().await.unwrap();
        let make = async |stem: &str| {
            let made = foreign.create(&format!("/api/{stem}"), b"10.0.0.1", NodeKind::EphemeralSequential).await;
            made.unwrap().unwrap()
        };
        foreign.create_all("/api/leases").await.unwrap();
        foreign.create_all("/api/locks").await.unwrap();
        make(&format!("leases/{UUID}-lease-")).await;
        let session = backend.sessions.current().await;
        let poller = session.pollers.begin();
        let all = "x".repeat(crate::session::WATCHABLE);
        let _taken = session.watch_budget(&all, &poller).await.unwrap();
        let (name, kind) = (LockName::at_key("/api").unwrap(), Kind::Permits { permits: 2, limit: 2 });
        let attempt = Attempt::new(name, kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let waiting = backend.acquirer.wait(&attempt, Deadline::NEVER);
        let queue = async || foreign.children("/api/locks").await.unwrap().unwrap_or_default();
        let theirs_is_first = async {
            eventually("ours is first in the queue", PROMPTLY, async || queue().await.len() == 1).await;
            let place = make(&format!("locks/{UUID}-lock-")).await;
            eventually("theirs is first in the queue", PROMPTLY, async || {
                let mut queue = queue().await;
                queue.sort_by_key(|name| name[name.len() - 10..].to_owned());
                queue.first().is_some_and(|first| place.ends_with(first.as_str()))
            })
            .await;
        };
        tokio::select! {
            granted = waiting => panic!("ours has both permits: {granted:?}"),
            () = theirs_is_first => {}
        }
    }
}
