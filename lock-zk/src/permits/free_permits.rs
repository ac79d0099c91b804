//! The free permits of a semaphore: counting them, and waiting until they are enough.
//!
//! All of this only reads. Taking permits is the business of [`Permits`](super::Permits).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Kind};
use lock_core::{ErrorKind, GrantId, Phase};
use tokio::sync::watch;
use tokio::time::sleep;

use super::taking::{PermitNode, is_within, left_behind};
use crate::client::{Connection, Failure, Fate, Node, NodeChange, read_permitted};
use crate::error::{StepError, retry_unanswered};
use crate::registry::{Registration, Registry};
use crate::session::Poller;
use crate::store::layout::LockPaths;
use crate::store::node::{Contender, HolderRecord};
use crate::wait::POLL_INTERVAL;

/// The number of permits, and of those in the queue, that are looked at for their limit and their library. All of ours have the
/// same limit.
const LOOKED_AT: usize = 100;

/// The number of waiters whose records are read together, which one request can do.
const READ_TOGETHER: usize = 500;

/// The free permits of a semaphore, as one attempt counts them.
#[derive(Debug, Clone, Copy)]
pub(super) struct FreePermits<'a> {
    attempt: &'a Attempt,
    registration: &'a Registration,
    registry: &'a Registry,
}

impl<'a> FreePermits<'a> {
    pub(super) const fn new(attempt: &'a Attempt, registration: &'a Registration, registry: &'a Registry) -> Self {
        Self { attempt, registration, registry }
    }

    /// Returns the number of permits that the attempt asks for.
    pub(super) const fn asked(self) -> u32 {
        match self.attempt.kind {
            Kind::Permits { permits, .. } => permits,
            _ => 1,
        }
    }

    fn lock(self) -> &'a LockPaths {
        &self.registration.lock
    }

    fn connection(self) -> &'a dyn Connection {
        &*self.registration.session.connection
    }

    const fn limit(self) -> u32 {
        match self.attempt.kind {
            Kind::Permits { limit, .. } => limit,
            _ => 1,
        }
    }

    /// Returns the number of permits that are left.
    pub(super) async fn count(self) -> Result<u32, StepError> {
        self.free_beside(&self.held().await?).await
    }

    /// Returns the number of permits that are left, and a watch for the next change.
    async fn count_and_watch(self) -> Result<(u32, NodeChange), StepError> {
        match self.connection().watch_children(self.lock().permit_directory()).await {
            Ok((names, change)) => Ok((self.free_beside(&self.lock().held(names)?).await?, change)),
            Err(failure) if failure.fate == Fate::Missing => Ok((self.limit(), Box::pin(std::future::ready(())))),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Returns the number of permits that are left beside these.
    ///
    /// # Errors
    /// `LimitMismatch` if somebody else's client believes in another limit.
    async fn free_beside(self, held: &[Contender]) -> Result<u32, StepError> {
        self.check_limit(held.iter()).await?;
        let used = held.iter().fold(0_u32, |used, lease| used.saturating_add(lease.permits));
        Ok(self.limit().saturating_sub(used))
    }

    /// Compares the limit with that of whoever holds these permits.
    ///
    /// # Errors
    /// `LimitMismatch` if somebody else's client believes in another limit.
    async fn check_limit<'c>(self, held: impl Iterator<Item = &'c Contender>) -> Result<(), StepError> {
        let mut paths = Vec::new();
        for lease in held.take(LOOKED_AT) {
            // Of its own permits the client knows it.
            match lease.grant.and_then(|grant| self.registry.limit_of(grant)) {
                Some(theirs) => self.compare_limit(theirs)?,
                None => paths.push(self.lock().permit_path(&lease.name)),
            }
        }
        if paths.is_empty() {
            return Ok(());
        }
        // What others keep to themselves counts, and says nothing of its limit.
        for node in read_permitted(self.connection(), &paths).await?.into_iter().flatten().flatten() {
            if let Some(permits) = HolderRecord::parse(&node).and_then(|record| record.permits()) {
                self.compare_limit(permits.limit)?;
            }
        }
        Ok(())
    }

    fn compare_limit(self, theirs: u32) -> Result<(), StepError> {
        if theirs == self.limit() {
            return Ok(());
        }
        let what = format!("the permits in use were asked for with a limit of {theirs}, not {}", self.limit());
        Err(self.attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what).into())
    }

    /// Returns the number of permits that are left when everybody before us has got theirs; none if somebody before us has to
    /// wait.
    ///
    /// The queue is not read if there are too few permits anyhow; waiters are not read if there are more of them than permits, nor those
    /// behind the first that has to wait. Whoever is before us was there at the first look at the permits.
    ///
    /// The queue is read before the permits: a waiter that gets its permits in between is found in both, and counts once.
    pub(super) async fn count_behind_others(self) -> Result<u32, StepError> {
        let (free, holders) = self.count_and_name().await?;
        if free < self.asked() {
            return Ok(free);
        }
        let lock = self.lock();
        let queue = lock.queue(self.names(&lock.directory).await?)?;
        let ours = self.registration.node().map(|node| node.path);
        let is_ours = |contender: &Contender| Some(lock.queue_path(&contender.name)) == ours;
        let before: Vec<_> = queue.into_iter().take_while(|contender| !is_ours(contender)).collect();
        // Where there are no transactions, one has its permits a while before it has left the queue. Each of the others asks for one at least.
        let waiting = before.iter().filter(|contender| waits(contender.grant, &holders));
        let left = left_behind(free, waiting.map(|_| 1));
        if left < self.asked() {
            return Ok(left);
        }
        let mut waiting = Vec::new();
        for some in before.chunks(READ_TOGETHER) {
            let paths: Vec<_> = some.iter().map(|contender| lock.queue_path(&contender.name)).collect();
            let nodes = read_permitted(self.connection(), &paths).await?;
            let there = some.iter().zip(nodes).filter_map(|(contender, node)| Some((contender.grant, asked_by(node?))));
            waiting.extend(there);
            let left = left_beside(free, &holders, &waiting);
            if left < self.asked() {
                return Ok(left);
            }
        }
        let (free, holders) = self.count_and_name().await?;
        Ok(left_beside(free, &holders, &waiting))
    }

    /// Returns the number of permits that are left, and the grants that have the others.
    async fn count_and_name(self) -> Result<(u32, HashSet<GrantId>), StepError> {
        let held = self.held().await?;
        let holders = held.iter().filter_map(|lease| lease.grant).collect();
        Ok((self.free_beside(&held).await?, holders))
    }

    /// Whether our permits are within the limit when all that were made before them are counted, whoever has made them.
    pub(super) async fn is_within_limit(self) -> Result<bool, StepError> {
        Ok(self.are_within_limit(&self.held().await?))
    }

    /// Whether our permits are [within the limit](FreePermits::is_within_limit) among these, which were listed after ours were made. The
    /// limit is compared with that of others, which nobody has done before.
    ///
    /// # Errors
    /// `LimitMismatch` if somebody else's client believes in another limit.
    pub(super) async fn is_claim_within_limit(self, held: &[Contender]) -> Result<bool, StepError> {
        self.check_limit(held.iter().filter(|lease| !lease.is_of(self.registration.grant))).await?;
        Ok(self.are_within_limit(held))
    }

    fn are_within_limit(self, held: &[Contender]) -> bool {
        let nodes = held.iter().map(|lease| PermitNode {
            number: lease.number,
            permits: lease.permits,
            may_have_moved: lease.is_of_many,
            is_ours: lease.is_of(self.registration.grant),
        });
        is_within(self.limit(), nodes)
    }

    /// Returns all permits that somebody has.
    pub(super) async fn held(self) -> Result<Vec<Contender>, StepError> {
        Ok(self.lock().held(self.names(self.lock().permit_directory()).await?)?)
    }

    /// Waits until there are enough, and returns when news of it came, if they did.
    pub(super) async fn until_enough(self, refused: &watch::Sender<bool>) -> Result<Option<BootInstant>, StepError> {
        let (mut woken_at, poller) = (None, self.registration.session.pollers.begin());
        while retry_unanswered(|| self.count()).await? < self.asked() {
            refused.send_replace(true);
            let Some(_kept) = self.registration.session.watch_budget(self.lock().permit_directory()).await else {
                continue;
            };
            let (left, change) = retry_unanswered(|| self.count_and_watch()).await?;
            if left >= self.asked() {
                break;
            }
            tokio::select! {
                biased;
                () = change => woken_at = Some(SystemClock.now()),
                // What was to wake us may have been lost.
                has = self.poll(&poller) => has?,
            }
        }
        Ok(woken_at)
    }

    /// Looks now and then until there are enough.
    async fn poll(self, poller: &Poller<'_>) -> Result<(), StepError> {
        loop {
            sleep(poller.pause(POLL_INTERVAL)).await;
            if retry_unanswered(|| self.count()).await? >= self.asked() {
                return Ok(());
            }
        }
    }

    /// Looks after every such interval until a client of another library that has permits is behind us in the queue, and could
    /// have one more if we did not wait for several.
    pub(super) async fn until_others_need_one(self, every: Duration) -> Result<(), StepError> {
        loop {
            sleep(every).await;
            if retry_unanswered(|| self.count()).await? > 0 && retry_unanswered(|| self.is_waited_for()).await? {
                return Ok(());
            }
        }
    }

    /// Whether a session of another library's client has permits and a place behind us.
    async fn is_waited_for(self) -> Result<bool, StepError> {
        let leases = self.names(self.lock().permit_directory()).await?;
        let leases: Vec<_> = leases.iter().take(LOOKED_AT).map(|name| self.lock().permit_path(name)).collect();
        let holders: HashSet<_> = self.foreign(&leases).await?.iter().map(|node| node.session).collect();
        if holders.is_empty() {
            return Ok(false);
        }
        let queue = self.lock().queue(self.names(&self.lock().directory).await?)?;
        let queue = queue.iter().map(|contender| self.lock().queue_path(&contender.name));
        let mine = self.registration.node().map(|node| node.path);
        let behind: Vec<_> = queue.skip_while(|path| Some(path) != mine.as_ref()).skip(1).take(LOOKED_AT).collect();
        Ok(self.foreign(&behind).await?.iter().any(|node| holders.contains(&node.session)))
    }

    /// Reads these nodes, and returns those that clients of other libraries have made.
    async fn foreign(self, paths: &[String]) -> Result<Vec<Node>, Failure> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let nodes = read_permitted(self.connection(), paths).await?;
        Ok(nodes.into_iter().flatten().flatten().filter(|node| HolderRecord::parse(node).is_none()).collect())
    }

    /// Returns the names in a directory; none if there is no such directory.
    async fn names(self, directory: &str) -> Result<Vec<String>, Failure> {
        match self.connection().children_proven(directory).await {
            Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
            names => names.map(Arc::unwrap_or_clone),
        }
    }
}

/// Returns the number of permits that are left of these when each of those in the queue who is no holder has got as many as it asks for.
fn left_beside(free: u32, holders: &HashSet<GrantId>, queue: &[(Option<GrantId>, u32)]) -> u32 {
    let waiting = queue.iter().filter(|(grant, _)| waits(*grant, holders));
    left_behind(free, waiting.map(|(_, asked)| *asked))
}

/// Whether this grant, which was found in the queue, still waits beside those that have permits.
fn waits(grant: Option<GrantId>, holders: &HashSet<GrantId>) -> bool {
    grant.is_none_or(|grant| !holders.contains(&grant))
}

/// Returns the number of permits for which a waiter's node asks, which may not be readable.
fn asked_by(node: Option<Node>) -> u32 {
    let permits = node.and_then(|node| HolderRecord::parse(&node)?.permits());
    // Clients of other libraries take one at a time.
    permits.map_or(1, |permits| permits.asked)
}
