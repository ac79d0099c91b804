//! The room in a semaphore. Whoever is first in the line of `locks` may make nodes in `leases`, and nobody else, so it alone
//! counts them and waits until there are few enough. It takes all its permits and leaves the line by one transaction,
//! which fails if it is not in line any more.
//!
//! Curator's clients take their permits one by one, and stand in line for each. So one that has some and needs more would
//! wait for us, if we need several, while we wait for it: as long as one stands behind us that may be of this kind, we give up
//! our place now and then, at growing intervals. Who needs a single permit never does: each one that is given back is its own.
//!
//! They make a permit first and count then, and one that stood still for longer than its session makes it without a place in
//! line. So at a shared path we count once more behind our permits: those that were made before ours may be held, those behind
//! them wait.

use std::collections::HashSet;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind};
use lock_core::{ErrorKind, Phase};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::Shared;
use crate::card::Card;
use crate::client::{Change, Fate, Fault, Node};
use crate::error;
use crate::line::{LOOKS_EVERY, Look};
use crate::queue::granted;
use crate::seats::Seat;
use crate::session::Looking;
use crate::trouble::{FIRST_PAUSE, Trouble, patiently};

/// For how long the first in line waits for clients of other libraries before it lets others go first: at first, and at most.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(8);
/// How many permits, and how many of those in line, are looked at for their limit and their library. All of ours have the
/// same limit.
const LOOKED_AT: usize = 100;
/// Which part of the operation timeout a try spends behind one place in line.
const PART_FOR_ONE_PLACE: u32 = 8;

/// For how long one waiter keeps its place, first in line, before those of other libraries.
#[derive(Debug)]
pub(crate) struct GivesWay {
    after: Duration,
}

impl Default for GivesWay {
    fn default() -> Self {
        Self { after: FIRST_PATIENCE }
    }
}

impl GivesWay {
    /// It has given way once more.
    fn gave(&mut self) {
        self.after = (self.after * 2).min(LONGEST_PATIENCE);
    }
}

impl Shared {
    /// One try of somebody who stands in line: not before those who came earlier, unless there is room for all of them. If one
    /// of these stands still, the try is refused.
    pub(crate) async fn try_permits(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        mut look: Look,
    ) -> Result<Option<Grant>, Trouble> {
        let asked = asked(attempt);
        let until = Instant::now() + attempt.op_timeout / 2;
        loop {
            let left = match &look {
                Look::First(_) => patiently(|| self.left(attempt, seat)).await?,
                Look::Behind(_) => patiently(|| self.left_behind_others(attempt, seat)).await?,
                Look::Gone => 0,
            };
            match &look {
                // The end of a session takes its seats away here; its nodes stay until the servers think so, too.
                Look::Gone if seat.session.is_over() => return Err(error::out_of_time(Phase::Acquire).into()),
                _ if left < asked => return self.refuse(seat).await,
                Look::Behind(path) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let moves_within = left.min(attempt.op_timeout / PART_FOR_ONE_PLACE);
                    match timeout(moves_within, self.wait_for(seat, path)).await {
                        Ok(news) => {
                            news?;
                        }
                        Err(_) => return self.refuse(seat).await,
                    }
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
        gives_way: &mut GivesWay,
    ) -> Result<Option<Grant>, Trouble> {
        let needs_several = seat.place.is_shared() && asked(attempt) > 1;
        let woken_at = tokio::select! {
            biased;
            woken_at = self.until_room(attempt, seat, refused) => woken_at?,
            stands = self.stands_in_the_way(attempt, seat, gives_way.after), if needs_several => {
                stands?;
                gives_way.gave();
                return self.refuse(seat).await;
            }
        };
        let granted = self.take(attempt, seat).await?;
        Ok(granted.map(|granted| woken_at.map_or(granted, |at| granted.woken_at(at))))
    }

    /// Waits until there is room; when news of it came, if they did.
    async fn until_room(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        refused: &watch::Sender<bool>,
    ) -> Result<Option<BootInstant>, Trouble> {
        let (mut woken_at, looking) = (None, seat.session.looks.begin());
        while patiently(|| self.left(attempt, seat)).await? < asked(attempt) {
            refused.send_replace(true);
            let Some(_kept) = seat.session.room_to_watch(seat.place.leases(), &looking).await else { continue };
            let (left, change) = patiently(|| self.watched_left(attempt, seat)).await?;
            if left >= asked(attempt) {
                break;
            }
            tokio::select! {
                biased;
                () = change => woken_at = Some(SystemClock.now()),
                // What was to wake us may have been lost.
                has = self.has_room(attempt, seat, &looking) => has?,
            }
        }
        Ok(woken_at)
    }

    /// Looks now and then until there is room.
    async fn has_room(&self, attempt: &Attempt, seat: &Seat, looking: &Looking<'_>) -> Result<(), Trouble> {
        loop {
            sleep(looking.pause(LOOKS_EVERY)).await;
            if patiently(|| self.left(attempt, seat)).await? >= asked(attempt) {
                return Ok(());
            }
        }
    }

    /// Looks after every such interval until a client of another library that has permits stands behind us, and could have one
    /// more if we did not wait for several.
    async fn stands_in_the_way(&self, attempt: &Attempt, seat: &Seat, every: Duration) -> Result<(), Trouble> {
        loop {
            sleep(every).await;
            if patiently(|| self.left(attempt, seat)).await? > 0 && patiently(|| self.is_waited_for(seat)).await? {
                return Ok(());
            }
        }
    }

    /// Whether a session of another library's client has permits and a place behind us.
    async fn is_waited_for(&self, seat: &Seat) -> Result<bool, Trouble> {
        let leases = self.names(seat, seat.place.leases()).await?;
        let leases: Vec<_> = leases.iter().take(LOOKED_AT).map(|name| seat.place.lease(name)).collect();
        let holders: HashSet<_> = self.foreign(seat, &leases).await?.iter().map(|node| node.session).collect();
        if holders.is_empty() {
            return Ok(false);
        }
        let line = seat.place.line(self.names(seat, &seat.place.directory).await?)?;
        let line = line.iter().map(|contender| seat.place.path(&contender.name));
        let mine = seat.node().map(|node| node.path);
        let behind: Vec<_> = line.skip_while(|path| Some(path) != mine.as_ref()).skip(1).take(LOOKED_AT).collect();
        Ok(self.foreign(seat, &behind).await?.iter().any(|node| holders.contains(&node.session)))
    }

    /// Those of these nodes that clients of other libraries have made.
    async fn foreign(&self, seat: &Seat, paths: &[String]) -> Result<Vec<Node>, Fault> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let nodes = seat.session.connection.read_all(paths).await?;
        Ok(nodes.into_iter().flatten().filter(|node| Card::read(node).is_none()).collect())
    }

    /// The names in a directory; none if there is no such directory.
    async fn names(&self, seat: &Seat, directory: &str) -> Result<Vec<String>, Fault> {
        match seat.session.connection.children(directory).await {
            Err(fault) if fault.fate == Fate::Missing => Ok(Vec::new()),
            names => names,
        }
    }

    /// Takes the permits, however often answers are lost. `None` if that was in vain: the place in line is lost.
    async fn take(&self, attempt: &Attempt, seat: &Seat) -> Result<Option<Grant>, Trouble> {
        let sent_at = SystemClock.now();
        let entered = match self.enter(attempt, seat).await {
            Err(trouble) if trouble.is(Fate::Unknown) => patiently(|| self.find_permits(seat)).await?,
            entered => entered?,
        };
        let Some(czxid) = entered else { return Ok(None) };
        if seat.place.is_shared() && !patiently(|| self.is_within_limit(attempt, seat)).await? {
            return self.refuse(seat).await;
        }
        loop {
            if let Some(granted) = granted(attempt, &seat.session, czxid, sent_at)? {
                return Ok(Some(granted));
            }
            // No server is reached. Whoever calls gives up when the session ends.
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Whether our permits are within the limit when all that were made before them are counted, whoever has made them.
    async fn is_within_limit(&self, attempt: &Attempt, seat: &Seat) -> Result<bool, Trouble> {
        let held = seat.place.held(self.names(seat, seat.place.leases()).await?)?;
        let mut of_ours = held.iter().filter(|lease| lease.is_of(seat.grant)).map(|lease| lease.number);
        let Some(first) = of_ours.next() else { return Ok(false) };
        let last = of_ours.fold(first, |last, number| if number.wrapping_sub(last) > 0 { number } else { last });
        // The numbers wrap; a semaphore has far fewer permits than half their range.
        let before = held.iter().filter(|lease| last.wrapping_sub(lease.number) >= 0);
        let counted = before.fold(0_u32, |counted, lease| counted.saturating_add(lease.permits));
        Ok(counted <= limit(attempt))
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

    /// How many permits are left.
    async fn left(&self, attempt: &Attempt, seat: &Seat) -> Result<u32, Trouble> {
        let names = self.names(seat, seat.place.leases()).await?;
        self.count(attempt, seat, names).await
    }

    /// The same, and a watch for the next change.
    async fn watched_left(&self, attempt: &Attempt, seat: &Seat) -> Result<(u32, Change), Trouble> {
        match seat.session.connection.watch_children(seat.place.leases()).await {
            Ok((names, change)) => Ok((self.count(attempt, seat, names).await?, change)),
            Err(fault) if fault.fate == Fate::Missing => Ok((limit(attempt), Box::pin(std::future::ready(())))),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn count(&self, attempt: &Attempt, seat: &Seat, names: Vec<String>) -> Result<u32, Trouble> {
        let held = seat.place.held(names)?;
        let paths: Vec<_> = held.iter().take(LOOKED_AT).map(|lease| seat.place.lease(&lease.name)).collect();
        if !paths.is_empty() {
            for node in seat.session.connection.read_all(&paths).await?.into_iter().flatten() {
                let permits = Card::read(&node).and_then(|card| card.permits());
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

    /// How many permits are left when everybody before us has got his; none if somebody before us has to wait.
    async fn left_behind_others(&self, attempt: &Attempt, seat: &Seat) -> Result<u32, Trouble> {
        let connection = &seat.session.connection;
        let names = self.names(seat, &seat.place.directory).await?;
        let line = seat.place.line(names)?.into_iter().map(|contender| seat.place.path(&contender.name));
        let mine = seat.node().map(|node| node.path);
        let before: Vec<_> = line.take_while(|path| Some(path) != mine.as_ref()).collect();
        let nodes = if before.is_empty() { Vec::new() } else { connection.read_all(&before).await? };
        // Clients of other libraries take one at a time.
        let theirs = nodes.iter().flatten().map(|node| Card::read(node).and_then(|card| card.permits()));
        let theirs = theirs.map(|permits| permits.map_or(1, |permits| permits.asked));
        let left = self.left(attempt, seat).await?;
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
    use crate::client::Crate;
    use crate::config::ZkConfig;

    const UUID: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

    /// Curator's client has one of two permits and wants the other one, while ours waits for both and may watch nothing.
    #[tokio::test]
    async fn who_waits_for_several_without_a_watch_gives_way_too() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let shared = ZkBackend::connect(&ZkConfig::new(server.url()), Crate::Kezhuw).await.unwrap().shared;
        let foreign = server.client().await.unwrap();
        let make = async |stem: &str| {
            let made = foreign.create(&format!("/api/{stem}"), b"10.0.0.1", NodeKind::EphemeralSequential).await;
            made.unwrap().unwrap()
        };
        foreign.create_all("/api/leases").await.unwrap();
        foreign.create_all("/api/locks").await.unwrap();
        make(&format!("leases/{UUID}-lease-")).await;
        let session = shared.sessions.current().await;
        let looking = session.looks.begin();
        let all = "x".repeat(crate::session::WATCHABLE);
        let _taken = session.room_to_watch(&all, &looking).await.unwrap();
        let (name, kind) = (LockName::at_key("/api").unwrap(), Kind::Permits { permits: 2, limit: 2 });
        let attempt = Attempt::new(name, kind, Owner::new(), Duration::from_secs(10)).unwrap();
        let waiting = shared.wait_in_line(&attempt, Deadline::NEVER);
        let line = async || foreign.children("/api/locks").await.unwrap().unwrap_or_default();
        let theirs_is_first = async {
            eventually("ours is first in line", PROMPTLY, async || line().await.len() == 1).await;
            let place = make(&format!("locks/{UUID}-lock-")).await;
            eventually("theirs is first in line", PROMPTLY, async || {
                let mut line = line().await;
                line.sort_by_key(|name| name[name.len() - 10..].to_owned());
                line.first().is_some_and(|first| place.ends_with(first.as_str()))
            })
            .await;
        };
        tokio::select! {
            granted = waiting => panic!("ours has both permits: {granted:?}"),
            () = theirs_is_first => {}
        }
    }
}
