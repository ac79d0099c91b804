//! The operator's side: who holds, who waits, and freeing a grant by force.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::join_all;
use lock_core::backend::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};

use tokio::time::{Instant, timeout_at};

use crate::backend::{ZkBackend, delete_all};
use crate::card::Card;
use crate::client::{Fate, Fault, Node};
use crate::contender::{Contender, Role, waits_for};
use crate::error;
use crate::forced;
use crate::layout::{self, Place};
use crate::session::Session;

#[async_trait]
impl Operator for ZkBackend {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let place = Place::of(&self.shared.layout, name, kind)?;
        self.in_time(async |session| {
            let lock = Seen::of(&session, &place, kind, Inspection::MOST).await?;
            Ok(lock.inspection())
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
        let place = Place::of(&self.shared.layout, name, kind)?;
        self.in_time(async |session| {
            let paths = Seen::of(&session, &place, kind, usize::MAX).await?.paths_of(grant);
            if paths.is_empty() {
                return Ok(false);
            }
            self.free(&session, &paths, grant, by, why).await.map_err(of_deletion)
        })
        .await
    }
}

impl ZkBackend {
    /// What is found by the present session, or the next one if there is none: all within one operation timeout.
    async fn in_time<T>(&self, look: impl AsyncFnOnce(Arc<Session>) -> Result<T, Error>) -> Result<T, Error> {
        let until = Instant::now() + self.shared.op_timeout;
        let session = self.shared.session_by(until, Phase::Inspect).await?;
        timeout_at(until, look(session)).await.unwrap_or_else(|_| {
            let what = "no answer within the operation timeout";
            Err(Error::indeterminate(Phase::Inspect, what).with_backend(crate::NAME))
        })
    }

    /// The number of a semaphore's permits that are held, by the names of their nodes.
    pub(crate) async fn count(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let place = Place::of(&self.shared.layout, name, Kind::Permits { permits: 1, limit })?;
        self.in_time(async |session| {
            let held = place.held(names(&session, place.leases()).await?)?;
            Ok(held.iter().map(|contender| u64::from(contender.permits)).sum())
        })
        .await
    }

    /// Deletes a holder's nodes; whether they were there.
    async fn free(
        &self,
        session: &Arc<Session>,
        paths: &[String],
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Fault> {
        let (connection, prefix) = (&session.connection, &self.shared.layout.prefix);
        let node = connection.read_all(&paths[..paths.len().min(1)]).await?.pop().flatten();
        let ttl = node.as_ref().and_then(Card::read).map(|card| card.ttl());
        forced::leave_reason(&**connection, prefix, grant, by.to_string(), why.to_owned()).await?;
        let was_there = delete_all(&**connection, paths).await?;
        if let Some(seat) = self.shared.seats.of(grant) {
            // The holder is a client of ours: its neighbours in line wait for it without asking the servers.
            self.shared.seats.vacate(&seat);
        }
        let (session, reason) = (session.clone(), layout::forced(prefix, grant));
        tokio::spawn(async move {
            tokio::select! {
                () = session.ended() => {}
                () = tokio::time::sleep(if was_there { forced::keeps_for(ttl) } else { Duration::ZERO }) => {
                    drop(session.connection.delete(&reason).await);
                }
            }
        });
        Ok(was_there)
    }
}

/// Somebody who holds or waits, and what his node says, if it may be read.
type Known = (Contender, Option<Node>);

/// A lock as the leader knows it.
struct Seen<'a> {
    place: &'a Place,
    holders: Vec<Known>,
    waiters: Vec<Known>,
    /// The numbers of those whose nodes were not read.
    more_holders: usize,
    more_waiters: usize,
}

impl<'a> Seen<'a> {
    /// Reads the nodes of so many holders and waiters at most.
    async fn of(session: &Session, place: &'a Place, kind: Kind, most: usize) -> Result<Self, Error> {
        let line = place.line(names(session, &place.directory).await?)?;
        let is_semaphore = matches!(kind, Kind::Permits { .. });
        let holds: Vec<_> = (0..line.len()).map(|index| !is_semaphore && waits_for(&line, index).is_none()).collect();
        let (mut holding, mut waiting) = (Vec::new(), Vec::new());
        for (holds, contender) in holds.into_iter().zip(line) {
            if holds { &mut holding } else { &mut waiting }.push(contender);
        }
        if is_semaphore {
            holding = place.held(names(session, place.leases()).await?)?;
        }
        let (more_holders, more_waiters) = (cut(&mut holding, most), cut(&mut waiting, most));
        let nodes = if is_semaphore { place.leases() } else { &*place.directory };
        let holders = known(session, nodes, holding).await?.into_iter().flatten().collect();
        let waiters = known(session, &place.directory, waiting).await?.into_iter().flatten().collect();
        Ok(Self { place, holders, waiters, more_holders, more_waiters })
    }

    /// The nodes by which this grant holds.
    fn paths_of(&self, grant: GrantId) -> Vec<String> {
        let of_grant = self.holders.iter().filter(|(contender, _)| contender.is_of(grant));
        of_grant.map(|(contender, _)| self.place.lease(&contender.name)).collect()
    }

    fn inspection(&self) -> Inspection {
        let mut inspection = Inspection::default();
        (inspection.more_holders, inspection.more_waiters) = (self.more_holders as u64, self.more_waiters as u64);
        for (contender, node) in &self.holders {
            let grants = &mut inspection.holders;
            match grants.iter_mut().find(|seen| contender.grant.is_some() && seen.grant == contender.grant) {
                Some(seen) => seen.permits = seen.permits.saturating_add(contender.permits),
                None => grants.push(holder(contender, node.as_ref())),
            }
        }
        for (contender, node) in &self.waiters {
            if let Some(attempt) = contender.grant {
                inspection.waiters.push(waiter(attempt, node.as_ref()));
            }
        }
        inspection
    }
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
        Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
        names => names.map_err(of_request),
    }
}

/// What the nodes of these say, in the same order; `None` for one that has gone meanwhile.
async fn known(session: &Session, directory: &str, all: Vec<Contender>) -> Result<Vec<Option<Known>>, Error> {
    let paths: Vec<_> = all.iter().map(|contender| format!("{directory}/{}", contender.name)).collect();
    let nodes = match session.connection.read_all(&paths).await {
        Ok(nodes) => nodes.into_iter().map(|node| Some(Some(node?))).collect(),
        Err(fault) if fault.fate == Fate::Denied => one_by_one(session, &paths).await?,
        Err(fault) => return Err(of_request(fault)),
    };
    Ok(all.into_iter().zip(nodes).map(|(contender, node)| Some((contender, node?))).collect())
}

/// What each of these nodes says; of one that may not be read, that it is there.
async fn one_by_one(session: &Session, paths: &[String]) -> Result<Vec<Option<Option<Node>>>, Error> {
    let reads: Vec<_> = paths.iter().map(|path| session.connection.read_all(std::slice::from_ref(path))).collect();
    let read = |outcome: Result<Vec<_>, Fault>| match outcome {
        Ok(mut nodes) => Ok(nodes.pop().flatten().map(Some)),
        Err(fault) if fault.fate == Fate::Denied => Ok(Some(None)),
        Err(fault) => Err(of_request(fault)),
    };
    join_all(reads).await.into_iter().map(read).collect()
}

fn holder(contender: &Contender, node: Option<&Node>) -> Holder {
    let card = node.and_then(Card::read);
    let mut holder = Holder::unknown();
    holder.grant = contender.grant;
    holder.token = node.and_then(|node| Card::token(card.as_ref(), node));
    holder.permits = contender.permits;
    holder.shared = matches!(contender.role, Role::Read | Role::Lease);
    holder.held_for = node.and_then(since);
    holder.expires_in = card.as_ref().map(Card::session_timeout);
    holder.owner = card.map(|card| card.owner);
    holder
}

fn waiter(attempt: GrantId, node: Option<&Node>) -> Waiter {
    let card = node.and_then(Card::read);
    let mut waiter = Waiter::new(attempt);
    waiter.permits = card.as_ref().and_then(Card::permits).map_or(1, |permits| permits.asked);
    waiter.waiting_for = node.and_then(since);
    waiter.owner = card.map(|card| card.owner);
    waiter
}

/// Since when the node stands in line, by the servers' clock and ours.
fn since(node: &Node) -> Option<Duration> {
    let made_at = Duration::from_millis(u64::try_from(node.made_at).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(made_at))
}

fn of_request(fault: Fault) -> Error {
    error::of_request(fault, Phase::Inspect)
}

/// Somebody else's node does not go with our session: it may have been deleted.
fn of_deletion(mut fault: Fault) -> Error {
    if fault.fate == Fate::Ended {
        fault.fate = Fate::Unknown;
    }
    of_request(fault)
}
