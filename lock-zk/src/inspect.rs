//! The operator's side: who holds, who waits, and freeing a grant by force.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lock_core::backend::{Kind, Operator};
use lock_core::{Error, GrantId, Holder, Inspection, LockName, Owner, Phase, Waiter};

use crate::backend::ZkBackend;
use crate::card::Card;
use crate::client::{Fate, Fault, Node};
use crate::error;
use crate::forced;
use crate::layout::{self, Contender, Place, Role, waits_for};
use crate::session::Session;

/// How many nodes are read by one request.
const CHUNK: usize = 100;

#[async_trait]
impl Operator for ZkBackend {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let place = Place::of(&self.shared.prefix, name, kind)?;
        self.in_time(async {
            let session = self.shared.sessions.current().await;
            let line = line(&session, &place).await?;
            let nodes = nodes(&session, &place, &line).await.map_err(of_request)?;
            Ok(inspection(&line, &nodes))
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
        let place = Place::of(&self.shared.prefix, name, kind)?;
        self.in_time(async {
            let session = self.shared.sessions.current().await;
            let line = line(&session, &place).await?;
            let holds = |(index, node): &(usize, &Contender)| node.is_of(grant) && waits_for(&line, *index).is_none();
            let Some((_, holder)) = line.iter().enumerate().find(holds) else { return Ok(false) };
            self.free(&session, place.path(&holder.name), grant, by, why).await.map_err(of_request)
        })
        .await
    }
}

impl ZkBackend {
    async fn in_time<T>(&self, look: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        tokio::time::timeout(self.shared.op_timeout, look).await.unwrap_or_else(|_| {
            let what = "no answer within the operation timeout";
            Err(Error::indeterminate(Phase::Inspect, what).with_backend(crate::NAME))
        })
    }

    /// Deletes a holder's node; whether it was there.
    async fn free(
        &self,
        session: &Arc<Session>,
        path: String,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Fault> {
        let (connection, prefix) = (&session.connection, &self.shared.prefix);
        let node = connection.read_all(std::slice::from_ref(&path)).await?.pop().flatten();
        let ttl = node.as_ref().and_then(Card::read).map(|card| card.ttl());
        forced::leave_reason(&**connection, prefix, grant, by.to_string(), why.to_owned()).await?;
        let was_there = connection.delete(&path).await?;
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

/// Everybody in line, as the leader knows it.
async fn line(session: &Session, place: &Place) -> Result<Vec<Contender>, Error> {
    let synced = session.connection.sync(&place.directory);
    let listed = session.connection.children(&place.directory);
    synced.await.map_err(of_request)?;
    match listed.await {
        Ok(names) => place.line(names),
        Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
        Err(fault) => Err(of_request(fault)),
    }
}

/// What their nodes say, in the same order; `None` for one that has gone meanwhile.
async fn nodes(session: &Session, place: &Place, line: &[Contender]) -> Result<Vec<Option<Node>>, Fault> {
    let mut nodes = Vec::with_capacity(line.len());
    for chunk in line.chunks(CHUNK) {
        let paths: Vec<_> = chunk.iter().map(|contender| place.path(&contender.name)).collect();
        nodes.extend(session.connection.read_all(&paths).await?);
    }
    Ok(nodes)
}

fn inspection(line: &[Contender], nodes: &[Option<Node>]) -> Inspection {
    let mut inspection = Inspection::default();
    for (index, (contender, node)) in line.iter().zip(nodes).enumerate() {
        let Some(node) = node else { continue };
        if waits_for(line, index).is_none() {
            inspection.holders.push(holder(contender, node));
        } else if let Some(attempt) = contender.grant {
            let mut waiter = Waiter::new(attempt);
            waiter.owner = Card::read(node).map(|card| card.owner);
            waiter.waiting_for = since(node);
            inspection.waiters.push(waiter);
        }
    }
    inspection
}

fn holder(contender: &Contender, node: &Node) -> Holder {
    let card = Card::read(node);
    let mut holder = Holder::unknown();
    holder.grant = contender.grant;
    holder.token = Card::token(card.as_ref(), node);
    holder.shared = contender.role == Role::Read;
    holder.held_for = since(node);
    holder.expires_in = card.as_ref().map(Card::session_timeout);
    holder.owner = card.map(|card| card.owner);
    holder
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
