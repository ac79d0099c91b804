//! The steps of the recipe: taking a place in line, finding it again, looking around, waiting for one node.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Attempt;

use crate::backend::Shared;
use crate::card::Card;
use crate::client::{Created, Fate, Fault, Node};
use crate::contender::{Contender, waits_for};
use crate::layout::Place;
use crate::seats::Seat;
use crate::session::{Looking, Session};
use crate::trouble::Trouble;

/// Between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been lost, and
/// is late by less than a second then.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The place of a seat by a listing.
pub(crate) enum Look {
    /// Nobody that matters is before it; the listing was asked for at this instant.
    First(BootInstant),
    /// The node at this path is to go first.
    Behind(String),
    /// The seat has no node: somebody has deleted it, or its claim was refused.
    Gone,
}

/// The outcome of a wait.
pub(crate) struct News {
    /// When it came, if it came as news.
    pub(crate) came_at: Option<BootInstant>,
    /// The holder before has handed over: when that was asked of the servers, which knew of our node then.
    pub(crate) first_since: Option<BootInstant>,
}

impl News {
    const NONE: Self = Self { came_at: None, first_since: None };
}

impl Shared {
    /// Takes a place in line, or finds the one that an earlier call has taken, and looks around.
    pub(crate) async fn sit(&self, attempt: &Attempt, session: &Arc<Session>) -> Result<(Arc<Seat>, Look), Trouble> {
        let place = Place::of(&self.layout, &attempt.name, attempt.kind)?;
        if let Some(seat) = self.seats.of(attempt.id)
            && Arc::ptr_eq(&seat.session, session)
            && (seat.node().is_some() || self.find(&seat).await?)
        {
            let look = self.look(&seat).await?;
            return Ok((seat, look));
        }
        if place.is_shared() {
            check(session, &place).await?;
        }
        let card = Card::of(attempt, session).to_bytes();
        let seat = self.seats.take(attempt.id, session, place);
        let look =
            if self.is_unfair(attempt) { self.claim(&seat, &card).await? } else { self.join(&seat, &card).await? };
        Ok((seat, look))
    }

    /// Takes the place at the end of the line, and looks around.
    async fn join(&self, seat: &Seat, card: &[u8]) -> Result<Look, Trouble> {
        let connection = &seat.session.connection;
        let stem = seat.place.stem(seat.grant);
        loop {
            let sent_at = SystemClock.now();
            let created = connection.create_in_line(&stem, card);
            let listed = connection.children(&seat.place.directory);
            match created.await {
                Ok(node) => {
                    self.seats.has_node(seat, node);
                    return judge(seat, listed.await?, sent_at);
                }
                Err(fault) if fault.fate == Fate::Missing => self.make_directory(seat).await?,
                Err(fault) => return Err(self.not_seated(seat, fault)),
            }
        }
    }

    /// Makes the directory of the line that this seat is to be in.
    pub(crate) async fn make_directory(&self, seat: &Seat) -> Result<(), Trouble> {
        let made = seat.session.connection.make_directory(&seat.place.directory).await;
        made.map_err(|fault| self.not_seated(seat, fault))
    }

    /// No node came of it; whether one is there nevertheless is known of a refusal only.
    pub(crate) fn not_seated(&self, seat: &Seat, fault: Fault) -> Trouble {
        if !matches!(fault.fate, Fate::Unknown | Fate::Ended) {
            self.seats.leave(seat);
        }
        fault.into()
    }

    /// Searches for the node of a seat whose answer was lost; whether it is there.
    async fn find(&self, seat: &Seat) -> Result<bool, Fault> {
        let Some((contender, node)) = self.own_nodes(seat, &seat.place.directory).await?.into_iter().next() else {
            return Ok(false);
        };
        self.seats.has_node(seat, Created { path: seat.place.path(&contender.name), czxid: node.czxid });
        Ok(true)
    }

    /// The nodes of this seat in this directory that the leader knows, of its present session.
    pub(crate) async fn own_nodes(&self, seat: &Seat, directory: &str) -> Result<Vec<(Contender, Node)>, Fault> {
        let connection = &seat.session.connection;
        let contenders = self.nodes_of(seat, directory).await?;
        let paths: Vec<_> = contenders.iter().map(|contender| format!("{directory}/{}", contender.name)).collect();
        let nodes = if paths.is_empty() { Vec::new() } else { connection.read_all(&paths).await? };
        let own = contenders.into_iter().zip(nodes).filter_map(|(contender, node)| Some((contender, node?)));
        Ok(own.filter(|(_, node)| node.session == connection.id()).collect())
    }

    /// Every node of this attempt in this directory that the leader knows, of whatever session.
    pub(crate) async fn nodes_of(&self, seat: &Seat, directory: &str) -> Result<Vec<Contender>, Fault> {
        let connection = &seat.session.connection;
        let synced = connection.sync(directory);
        let listed = connection.children(directory);
        synced.await?;
        match listed.await {
            Ok(names) => {
                let contenders = names.into_iter().filter_map(|name| seat.place.contender(directory, name));
                Ok(contenders.filter(|contender| contender.is_of(seat.grant)).collect())
            }
            Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }

    pub(crate) async fn look(&self, seat: &Seat) -> Result<Look, Trouble> {
        if seat.node().is_none() {
            return Ok(Look::Gone);
        }
        let sent_at = SystemClock.now();
        match seat.session.connection.children(&seat.place.directory).await {
            Ok(names) => judge(seat, names, sent_at),
            Err(fault) if fault.fate == Fate::Missing => Ok(Look::Gone),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Waits until the node at this path may have gone. One of this process tells; of another one's the servers tell, and
    /// are asked now and then.
    pub(crate) async fn wait_for(&self, seat: &Seat, path: &str) -> Result<News, Fault> {
        if let Some(leaving) = self.seats.leaving(path, seat.grant) {
            let first_since = leaving.await;
            return Ok(News { came_at: Some(SystemClock.now()), first_since });
        }
        let looking = seat.session.looks.begin();
        let Some(_kept) = seat.session.room_to_watch(path, &looking).await else { return Ok(News::NONE) };
        match seat.session.connection.watch(path).await {
            Ok(Some(change)) => tokio::select! {
                biased;
                () = change => Ok(News { came_at: Some(SystemClock.now()), first_since: None }),
                gone = is_gone(seat, path, &looking) => gone.map(|()| News::NONE),
            },
            Ok(None) => Ok(News::NONE),
            // The listing that follows is repeated until it is answered.
            Err(fault) if fault.fate == Fate::Unknown => Ok(News::NONE),
            Err(fault) => Err(fault),
        }
    }
}

/// Looks at one node now and then, until it is gone.
async fn is_gone(seat: &Seat, path: &str, looking: &Looking<'_>) -> Result<(), Fault> {
    let path = [path.to_owned()];
    loop {
        tokio::time::sleep(looking.pause(LOOKS_EVERY)).await;
        match seat.session.connection.read_all(&path).await {
            Ok(nodes) if nodes.iter().any(Option::is_none) => return Ok(()),
            Err(fault) if fault.fate != Fate::Unknown => return Err(fault),
            _ => {}
        }
    }
}

/// Whether everybody at a shared path speaks our dialect. Asked before anything is made there: whoever speaks another one would
/// fail because of us, as long as our node is there.
async fn check(session: &Session, place: &Place) -> Result<(), Trouble> {
    match session.connection.children(&place.directory).await {
        Ok(names) => Ok(place.line(names).map(drop)?),
        Err(fault) if fault.fate == Fate::Missing => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

fn judge(seat: &Seat, names: Vec<String>, sent_at: BootInstant) -> Result<Look, Trouble> {
    let line = seat.place.line(names)?;
    let node = seat.node();
    let mine = |contender: &Contender| node.as_ref().is_some_and(|node| node.path.ends_with(&contender.name));
    let Some(index) = line.iter().position(mine) else { return Ok(Look::Gone) };
    Ok(match waits_for(&line, index) {
        None => Look::First(sent_at),
        Some(before) => Look::Behind(seat.place.path(&before.name)),
    })
}
