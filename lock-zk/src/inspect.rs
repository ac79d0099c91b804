//! The operator's side: who holds, who waits, and freeing a grant by force.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::driver::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::client::{Failure, Fate, Node, read_permitted};
use crate::error::{self, retry_unanswered};
use crate::registry::Registry;
use crate::release::{delete_any, delete_own};
use crate::session::{Session, Sessions};
use crate::store::force_release::{ForceReleases, keeps_for};
use crate::store::layout::{Layout, LockPaths};
use crate::store::node::{Contender, HolderRecord, Role};
use crate::wait::contention::are_granted;

/// Looks at locks for an operator, and frees grants by force.
#[derive(Debug)]
pub(crate) struct Inspector {
    sessions: Arc<Sessions>,
    registry: Arc<Registry>,
    layout: Arc<Layout>,
    force_releases: ForceReleases,
    op_timeout: Duration,
}

#[async_trait]
impl Operator for Inspector {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let lock = LockPaths::of(&self.layout, name, kind)?;
        self.in_time(async |session| {
            let snapshot = LockSnapshot::of(&session, &lock, kind, Inspection::MOST).await?;
            Ok(snapshot.inspection())
        })
        .await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        let lock = LockPaths::of(&self.layout, name, Kind::Mutex)?;
        self.in_time(async |session| {
            loop {
                let mut grants = by_grant(Contenders::of(&session, &lock, Kind::Mutex).await?.holding);
                if grants.is_empty() {
                    return Ok(None);
                }
                cut(&mut grants, 1);
                if let Some(held) = held(&session, &lock.directory, grants).await?.first() {
                    return Ok(holder(held));
                }
                // It has gone since it was listed: the next one has the lock, or nobody.
            }
        })
        .await
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        let lock = LockPaths::of(&self.layout, name, kind)?;
        self.in_time(async |session| {
            let holding = Contenders::of(&session, &lock, kind).await?.holding;
            let of_grant = holding.iter().filter(|node| node.is_of(grant));
            let paths: Vec<_> = of_grant.map(|node| lock.permit_path(&node.name)).collect();
            if paths.is_empty() {
                return Ok(false);
            }
            self.free(&session, &paths, grant, by, why).await.map_err(of_request)
        })
        .await
    }
}

impl Inspector {
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        registry: Arc<Registry>,
        layout: Arc<Layout>,
        force_releases: ForceReleases,
        op_timeout: Duration,
    ) -> Self {
        Self { sessions, registry, layout, force_releases, op_timeout }
    }

    /// Looks by the present session, or the next one if there is none: all within one operation timeout.
    async fn in_time<T>(&self, look: impl AsyncFnOnce(Arc<Session>) -> Result<T, Error>) -> Result<T, Error> {
        let until = Instant::now() + self.op_timeout;
        let session = self.sessions.current_by(until, Phase::Inspect).await?;
        timeout_at(until, look(session)).await.unwrap_or_else(|_| {
            let what = "no answer within the operation timeout";
            Err(Error::indeterminate(Phase::Inspect, what).with_backend(crate::guarantees::NAME))
        })
    }

    /// The number of a semaphore's permits that are held, by the names of their nodes.
    pub(crate) async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let lock = LockPaths::of(&self.layout, name, Kind::Permits { permits: 1, limit })?;
        self.in_time(async |session| {
            let held = lock.held(names(&session, lock.permit_directory()).await?)?;
            Ok(held.iter().map(|contender| u64::from(contender.permits)).sum())
        })
        .await
    }

    /// Deletes a holder's nodes; whether any was there.
    async fn free(
        &self,
        session: &Arc<Session>,
        paths: &[String],
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Failure> {
        let connection = &session.connection;
        let nodes = connection.read_all(paths).await?;
        let ttl = nodes.iter().flatten().find_map(HolderRecord::parse).map(|record| record.ttl());
        // Some of its permits may have been released meanwhile.
        let there = paths.iter().zip(&nodes).filter(|(_, node)| node.is_some());
        let paths: Vec<_> = there.map(|(path, _)| path.clone()).collect();
        if paths.is_empty() {
            return Ok(false);
        }
        let keeps = self.begin_reason(session, grant);
        let is_own = self.force_releases.leave_reason(&**connection, grant, by.to_string(), why.to_owned()).await?;
        // Until every holder who may have lost it has read it.
        keeps.send_replace(keeps_for(ttl));
        // If the holder is a client of ours, its neighbours in the queue wait for it without asking the servers.
        let holder = self.registry.get(grant);
        holder.iter().for_each(|holder| self.registry.node_may_go(holder));
        let deleted = delete_any(&**connection, &paths).await;
        if let Some(holder) = holder.filter(|_| deleted.is_ok()) {
            self.registry.disown_node(&holder);
        }
        // Another operator's is for a holder that this one did not free.
        if is_own && matches!(deleted, Ok(false) | Err(Failure { fate: Fate::Denied, .. })) {
            keeps.send_replace(Duration::ZERO);
        }
        deleted
    }

    /// Deletes the reason that is about to be left for this grant's holder, once the sender is dropped and the time that it sent last has
    /// passed. A call that is cut short drops the sender, too. Another client's reason stays: the call may have found it there.
    fn begin_reason(&self, session: &Arc<Session>, grant: GrantId) -> watch::Sender<Duration> {
        let (keeps, mut kept) = watch::channel(Duration::ZERO);
        let (session, reason) = (session.clone(), self.force_releases.path(grant));
        tokio::spawn(async move {
            while kept.changed().await.is_ok() {}
            let keeps = *kept.borrow();
            let deleted = async {
                tokio::time::sleep(keeps).await;
                retry_unanswered(async || Ok(delete_own(&*session.connection, &reason).await?)).await
            };
            tokio::select! {
                () = session.ended() => {}
                _ = deleted => {}
            }
        });
        keeps
    }
}

/// A node of a holder or waiter, and its contents, if they may be read.
type ContenderNode = (Contender, Option<Node>);

/// A grant: its nodes, and what one of them says, if it may be read.
struct HeldGrant {
    nodes: Vec<Contender>,
    said: Option<Node>,
}

/// The nodes of a lock as the leader knows them, by their names.
struct Contenders {
    holding: Vec<Contender>,
    waiting: Vec<Contender>,
}

impl Contenders {
    async fn of(session: &Session, lock: &LockPaths, kind: Kind) -> Result<Self, Error> {
        let queue = lock.queue(names(session, &lock.directory).await?)?;
        if let Kind::Permits { .. } = kind {
            let holding = lock.held(names(session, lock.permit_directory()).await?)?;
            return Ok(Self { holding, waiting: queue });
        }
        let holds = are_granted(&queue);
        let (mut holding, mut waiting) = (Vec::new(), Vec::new());
        for (holds, contender) in holds.into_iter().zip(queue) {
            if holds { &mut holding } else { &mut waiting }.push(contender);
        }
        Ok(Self { holding, waiting })
    }
}

/// A lock as the leader knows it.
struct LockSnapshot {
    holders: Vec<HeldGrant>,
    waiters: Vec<ContenderNode>,
    /// The numbers of those of whom no node was read.
    more_holders: usize,
    more_waiters: usize,
}

impl LockSnapshot {
    /// Reads one node of each of so many holders and waiters at most.
    async fn of(session: &Session, lock: &LockPaths, kind: Kind, most: usize) -> Result<Self, Error> {
        let Contenders { holding, mut waiting } = Contenders::of(session, lock, kind).await?;
        let mut grants = by_grant(holding);
        let (more_holders, more_waiters) = (cut(&mut grants, most), cut(&mut waiting, most));
        let holders = held(session, lock.permit_directory(), grants).await?;
        let waiters = known(session, &lock.directory, waiting).await?.into_iter().flatten().collect();
        Ok(Self { holders, waiters, more_holders, more_waiters })
    }

    fn inspection(&self) -> Inspection {
        let mut inspection = Inspection::default();
        (inspection.more_holders, inspection.more_waiters) = (self.more_holders as u64, self.more_waiters as u64);
        inspection.holders = self.holders.iter().filter_map(holder).collect();
        for (contender, node) in &self.waiters {
            if let Some(attempt) = contender.grant {
                inspection.waiters.push(waiter(attempt, node.as_ref()));
            }
        }
        inspection
    }
}

/// These nodes, those of one grant together.
fn by_grant(nodes: Vec<Contender>) -> Vec<Vec<Contender>> {
    let (mut grants, mut places) = (Vec::<Vec<_>>::new(), HashMap::new());
    for node in nodes {
        // Whoever made one without a grant holds by that one only.
        let place = node.grant.map_or(grants.len(), |grant| *places.entry(grant).or_insert(grants.len()));
        match grants.get_mut(place) {
            Some(of_grant) => of_grant.push(node),
            None => grants.push(vec![node]),
        }
    }
    grants
}

/// Shortens a list to so many, and returns by how much.
fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more
}

/// The names in a directory, as the leader knows them.
async fn names(session: &Session, directory: &str) -> Result<Vec<String>, Error> {
    let synced = session.connection.sync(directory);
    let listed = session.connection.children(directory);
    synced.await.map_err(of_request)?;
    match listed.await {
        Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
        names => names.map(Arc::unwrap_or_clone).map_err(of_request),
    }
}

/// Reads the nodes of these contenders, in the same order; `None` for one that has gone meanwhile.
async fn known(session: &Session, directory: &str, all: Vec<Contender>) -> Result<Vec<Option<ContenderNode>>, Error> {
    let paths: Vec<_> = all.iter().map(|contender| format!("{directory}/{}", contender.name)).collect();
    let nodes = read_permitted(&*session.connection, &paths).await.map_err(of_request)?;
    Ok(all.into_iter().zip(nodes).map(|(contender, node)| Some((contender, node?))).collect())
}

/// Returns those of these grants that are there, with what one node of each says.
async fn held(session: &Session, directory: &str, grants: Vec<Vec<Contender>>) -> Result<Vec<HeldGrant>, Error> {
    let firsts = grants.iter().filter_map(|nodes| nodes.first().cloned()).collect();
    let mut all = Vec::new();
    for (nodes, first) in grants.into_iter().zip(known(session, directory, firsts).await?) {
        if let Some((_, said)) = first {
            all.push(HeldGrant { nodes, said });
        } else if nodes.len() > 1 {
            // Some of its permits have been released meanwhile.
            let left = known(session, directory, nodes).await?.into_iter().flatten();
            let (nodes, mut said): (Vec<_>, Vec<_>) = left.unzip();
            all.push(HeldGrant { nodes, said: said.pop().flatten() });
        }
    }
    Ok(all)
}

/// The holder that is shown; `None` if none of its nodes is there any more.
fn holder(held: &HeldGrant) -> Option<Holder> {
    let (first, node) = (held.nodes.first()?, held.said.as_ref());
    let record = node.and_then(HolderRecord::parse);
    let mut holder = Holder::unknown();
    holder.grant = first.grant;
    holder.token = node.and_then(|node| HolderRecord::token(record.as_ref(), node));
    holder.permits = held.nodes.iter().fold(0, |permits, node| permits.saturating_add(node.permits));
    holder.shared = matches!(first.role, Role::Read | Role::Permit);
    holder.held_for = node.and_then(since);
    holder.expires_in = record.as_ref().map(HolderRecord::session_timeout);
    holder.owner = record.map(|record| record.owner);
    Some(holder)
}

fn waiter(attempt: GrantId, node: Option<&Node>) -> Waiter {
    let record = node.and_then(HolderRecord::parse);
    let mut waiter = Waiter::new(attempt);
    waiter.permits = record.as_ref().and_then(HolderRecord::permits).map_or(1, |permits| permits.asked);
    waiter.waiting_for = node.and_then(since);
    waiter.owner = record.map(|record| record.owner);
    waiter
}

/// Returns the time for which the node has been there, by the servers' clock and ours.
fn since(node: &Node) -> Option<Duration> {
    let made_at = Duration::from_millis(u64::try_from(node.made_at).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(made_at))
}

fn of_request(failure: Failure) -> Error {
    error::of_request(failure, Phase::Inspect)
}

#[cfg(test)]
mod tests {
    use lock_testkit::testing::installed;
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use crate::{ZkConfig, ZkLocks};

    #[tokio::test]
    async fn a_grant_of_more_nodes_than_are_listed_is_one_holder_with_all_its_permits() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let locks = ZkLocks::connect_with(ZkConfig::new(server.url())).await.unwrap();
        let many = locks.semaphore("many", 1_000);
        let held = many.acquire_many(600).await.unwrap();
        let other = many.acquire().await.unwrap();
        let seen = many.inspect().await.unwrap();
        let mut permits: Vec<_> = seen.holders.iter().map(|holder| (holder.permits, holder.grant)).collect();
        permits.sort_unstable_by_key(|(permits, _)| *permits);
        assert_eq!(permits, [(1, Some(other.grant_id())), (600, Some(held.grant_id()))]);
        assert_eq!((seen.more_holders, seen.holder_count()), (0, 2));
        assert!(many.force_release(held.grant_id(), "all of its nodes go").await.unwrap());
        assert_eq!(many.available().await.unwrap(), 999);
    }
}
