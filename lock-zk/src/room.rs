//! The room in a semaphore. Whoever is first in the line of `locks` may make nodes in `leases`, and nobody else, so it alone
//! counts them and waits until there are few enough. It takes all its permits and leaves the line by one transaction,
//! which fails if it is not in line any more.
//!
//! Curator's clients take their permits one by one, and stand in line for each. So one that has some and needs more would
//! wait for us while we wait for it: as long as such permits are there, we give up our place now and then.

use std::time::Duration;

use lock_core::backend::{Attempt, Grant, Kind};
use lock_core::clock::{Clock, SystemClock};
use lock_core::{ErrorKind, Phase};
use tokio::sync::watch;

use crate::backend::Shared;
use crate::card::Card;
use crate::client::{Change, Fate};
use crate::line::Look;
use crate::queue::granted;
use crate::seats::Seat;
use crate::trouble::{FIRST_PAUSE, Trouble, patiently};

/// For how long the first in line waits for clients of other libraries before it lets others go first.
const GIVES_WAY_AFTER: Duration = Duration::from_millis(500);
/// How many permits are looked at for their limit and their library. All of ours have the same limit.
const LOOKED_AT: usize = 100;

/// What a listing of a semaphore's permits says.
struct Room {
    left: u32,
    /// Whether clients of other libraries have permits.
    is_shared: bool,
}

impl Shared {
    /// One try of somebody who stands in line: not before those who came earlier, unless there is room for all of them.
    pub(crate) async fn try_permits(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        mut look: Look,
    ) -> Result<Option<Grant>, Trouble> {
        let asked = asked(attempt);
        loop {
            let left = match &look {
                Look::First(_) => patiently(|| self.room(attempt, seat)).await?.left,
                Look::Behind(_) => patiently(|| self.left_behind_others(attempt, seat)).await?,
                Look::Gone => 0,
            };
            match &look {
                _ if left < asked => return self.refuse(seat).await,
                Look::Behind(path) => {
                    self.wait_for(seat, path).await?;
                }
                _ => {
                    if let Some(granted) = self.take(attempt, seat).await? {
                        return Ok(Some(granted));
                    }
                }
            }
            look = patiently(|| self.look(seat)).await?;
        }
    }

    /// Waits, first in line, until there is room, and takes it; `None` if the place in line is lost meanwhile.
    pub(crate) async fn wait_for_room(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        refused: &watch::Sender<bool>,
    ) -> Result<Option<Grant>, Trouble> {
        let mut room = patiently(|| self.room(attempt, seat)).await?;
        let mut woken_at = None;
        while room.left < asked(attempt) {
            refused.send_replace(true);
            let kept = seat.session.room_to_watch(seat.place.leases()).await;
            if kept.is_none() {
                room = patiently(|| self.room(attempt, seat)).await?;
                continue;
            }
            let (seen, change) = patiently(|| self.watched_room(attempt, seat)).await?;
            room = seen;
            if room.left >= asked(attempt) {
                break;
            }
            tokio::select! {
                () = change => woken_at = Some(SystemClock.now()),
                () = tokio::time::sleep(GIVES_WAY_AFTER), if room.is_shared => {
                    return self.refuse(seat).await;
                }
            }
            room = patiently(|| self.room(attempt, seat)).await?;
        }
        let granted = self.take(attempt, seat).await?;
        Ok(granted.map(|granted| woken_at.map_or(granted, |at| granted.woken_at(at))))
    }

    /// Takes the permits, however often answers are lost.
    async fn take(&self, attempt: &Attempt, seat: &Seat) -> Result<Option<Grant>, Trouble> {
        let sent_at = SystemClock.now();
        let entered = match self.enter(attempt, seat).await {
            Err(trouble) if trouble.is(Fate::Unknown) => patiently(|| self.find_permits(seat)).await?,
            entered => entered?,
        };
        let Some(czxid) = entered else { return Ok(None) };
        loop {
            if let Some(granted) = granted(attempt, &seat.session, czxid, sent_at)? {
                return Ok(Some(granted));
            }
            // No server is reached. Whoever calls gives up when the session ends.
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Leaves the line with the permits; the transaction that made the place in line, whose number is the token. `None` if
    /// there is no such place any more.
    async fn enter(&self, attempt: &Attempt, seat: &Seat) -> Result<Option<i64>, Trouble> {
        let Some(node) = seat.node() else { return Ok(None) };
        let card = Card::of(attempt, &seat.session).with_token(node.czxid).to_bytes();
        let wanted = seat.place.permits(seat.grant, asked(attempt), card.len())?;
        let place = [node.path];
        for _ in 0..2 {
            match seat.exchange(&place, &wanted, &card).await {
                Ok(paths) => {
                    self.seats.has_permits(seat, paths);
                    return Ok(Some(node.czxid));
                }
                // Either of them: there is no directory for permits as long as nobody has had one.
                Err(fault) if fault.fate == Fate::Missing => {
                    seat.session.connection.make_directory(seat.place.leases()).await?;
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(None)
    }

    /// Searches for permits of which the answer was lost.
    async fn find_permits(&self, seat: &Seat) -> Result<Option<i64>, Trouble> {
        let Some(node) = seat.node() else { return Ok(None) };
        let found = self.own_nodes(seat, seat.place.leases()).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let paths = found.into_iter().map(|(contender, _)| seat.place.lease(&contender.name));
        self.seats.has_permits(seat, paths.collect());
        Ok(Some(node.czxid))
    }

    async fn room(&self, attempt: &Attempt, seat: &Seat) -> Result<Room, Trouble> {
        match seat.session.connection.children(seat.place.leases()).await {
            Ok(names) => self.judge_room(attempt, seat, names).await,
            Err(fault) if fault.fate == Fate::Missing => Ok(Room { left: limit(attempt), is_shared: false }),
            Err(fault) => Err(fault.into()),
        }
    }

    /// The same, and a watch for the next change.
    async fn watched_room(&self, attempt: &Attempt, seat: &Seat) -> Result<(Room, Change), Trouble> {
        match seat.session.connection.watch_children(seat.place.leases()).await {
            Ok((names, change)) => Ok((self.judge_room(attempt, seat, names).await?, change)),
            Err(fault) if fault.fate == Fate::Missing => {
                let room = Room { left: limit(attempt), is_shared: false };
                Ok((room, Box::pin(std::future::ready(()))))
            }
            Err(fault) => Err(fault.into()),
        }
    }

    async fn judge_room(&self, attempt: &Attempt, seat: &Seat, names: Vec<String>) -> Result<Room, Trouble> {
        let held = seat.place.held(names)?;
        let paths: Vec<_> = held.iter().take(LOOKED_AT).map(|lease| seat.place.lease(&lease.name)).collect();
        let mut is_shared = false;
        if !paths.is_empty() {
            for node in seat.session.connection.read_all(&paths).await?.into_iter().flatten() {
                let permits = Card::read(&node).and_then(|card| card.permits());
                is_shared |= permits.is_none();
                if let Some(theirs) = permits.map(|permits| permits.limit).filter(|theirs| *theirs != limit(attempt)) {
                    let what =
                        format!("the permits in use were asked for with a limit of {theirs}, not {}", limit(attempt));
                    return Err(attempt.error(ErrorKind::LimitMismatch, Phase::Acquire, what).into());
                }
            }
        }
        let used = held.iter().fold(0_u32, |used, lease| used.saturating_add(lease.permits));
        Ok(Room { left: limit(attempt).saturating_sub(used), is_shared })
    }

    /// How many permits are left when everybody before us has got his; none if somebody before us has to wait.
    async fn left_behind_others(&self, attempt: &Attempt, seat: &Seat) -> Result<u32, Trouble> {
        let connection = &seat.session.connection;
        let names = match connection.children(&seat.place.directory).await {
            Ok(names) => names,
            Err(fault) if fault.fate == Fate::Missing => Vec::new(),
            Err(fault) => return Err(fault.into()),
        };
        let line = seat.place.line(names)?.into_iter().map(|contender| seat.place.path(&contender.name));
        let mine = seat.node().map(|node| node.path);
        let before: Vec<_> = line.take_while(|path| Some(path) != mine.as_ref()).collect();
        let nodes = if before.is_empty() { Vec::new() } else { connection.read_all(&before).await? };
        let theirs = nodes.iter().flatten().filter_map(Card::read).filter_map(|card| card.permits());
        let left = self.room(attempt, seat).await?.left;
        Ok(theirs.map(|permits| permits.asked).try_fold(left, u32::checked_sub).unwrap_or(0))
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
