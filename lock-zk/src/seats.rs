//! The nodes of this process: what each attempt has at the servers, and who waits for whom without asking them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::BootInstant;
use lock_core::driver::Notices;
use lock_core::{GrantId, LossReason};
use tokio::sync::{mpsc, watch};

use crate::client::{Created, Fate, Fault, Wanted};
use crate::contender::Role;
use crate::layout::Place;
use crate::session::Session;

/// The nodes that one attempt has at the servers, or may have: taken before its node is asked for.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) grant: GrantId,
    pub(crate) session: Arc<Session>,
    pub(crate) place: Place,
    /// The node in line, once it is known to be there.
    node: Mutex<Option<Created>>,
    /// The nodes of its permits, once they are known to be there; then it has none in line.
    permits: Mutex<Vec<String>>,
    /// Whether its nodes were to be exchanged, and it is not known here yet which ones it has now.
    is_changing: AtomicBool,
}

impl Seat {
    /// Puts nodes of this seat in the place of others, as a whole. Until the answer has come, and whoever calls has said which
    /// nodes it has now, nobody knows all of them.
    pub(crate) async fn exchange(&self, old: &[String], new: &[Wanted], data: &[u8]) -> Result<Vec<String>, Fault> {
        let was_changing = self.is_changing.swap(true, Ordering::AcqRel);
        let outcome = self.session.connection.exchange(old, new, data).await;
        // A refusal says nothing of an earlier exchange whose answer was lost.
        if !was_changing && outcome.as_ref().is_err_and(|fault| fault.fate != Fate::Unknown) {
            self.is_changing.store(false, Ordering::Release);
        }
        outcome
    }

    /// Whether it may have nodes of which nobody knows.
    pub(crate) fn is_changing(&self) -> bool {
        self.is_changing.load(Ordering::Acquire)
    }

    pub(crate) fn node(&self) -> Option<Created> {
        locked(&self.node).clone()
    }

    /// Every node that is known to be there.
    pub(crate) fn paths(&self) -> Vec<String> {
        let node = locked(&self.node).as_ref().map(|node| node.path.clone());
        node.into_iter().chain(locked(&self.permits).iter().cloned()).collect()
    }
}

/// Every seat of a client.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    room: Mutex<Room>,
    notices: Mutex<Option<mpsc::UnboundedSender<(GrantId, LossReason)>>>,
}

#[derive(Debug, Default)]
struct Room {
    seats: HashMap<GrantId, Arc<Seat>>,
    /// By a node's path; dropped when the node is gone, which wakes whoever waits for it here.
    present: HashMap<String, Presence>,
}

impl Room {
    /// Whether this is the seat that its attempt has now.
    fn has(&self, seat: &Seat) -> bool {
        self.seats.get(&seat.grant).is_some_and(|present| std::ptr::eq(&**present, seat))
    }
}

/// A node of this process that is at the servers.
#[derive(Debug, Default)]
struct Presence {
    /// When the request was sent whose answer tells who waits that he is first now.
    handed_over: watch::Sender<Option<BootInstant>>,
    /// The attempt that waits right behind it, in this process.
    next: Option<GrantId>,
}

impl Seats {
    /// A seat without a node yet.
    pub(crate) fn take(&self, grant: GrantId, session: &Arc<Session>, place: Place) -> Arc<Seat> {
        let seat = Arc::new(Seat {
            grant,
            session: session.clone(),
            place,
            node: Mutex::default(),
            permits: Mutex::default(),
            is_changing: AtomicBool::new(false),
        });

        // Bound first: the room must be left before it is entered again.
        let before = self.room().seats.insert(grant, seat.clone());
        if let Some(before) = before {
            self.forget_node(&before);
        }
        seat
    }

    /// The seat's node is there now, or is another one than before. Nothing is noted of a seat that was left meanwhile: nobody
    /// would ever take that away.
    pub(crate) fn has_node(&self, seat: &Seat, node: Created) {
        let mut room = self.room();
        if !room.has(seat) {
            return;
        }
        let path = node.path.clone();
        if let Some(before) = locked(&seat.node).replace(node) {
            room.present.remove(&before.path);
        }
        room.present.entry(path).or_default();
        seat.is_changing.store(false, Ordering::Release);
    }

    /// The seat has permits now, and is not in line any more.
    pub(crate) fn has_permits(&self, seat: &Seat, paths: Vec<String>) {
        let mut room = self.room();
        if !room.has(seat) {
            return;
        }
        if let Some(before) = locked(&seat.node).take() {
            room.present.remove(&before.path);
        }
        *locked(&seat.permits) = paths;
        seat.is_changing.store(false, Ordering::Release);
    }

    pub(crate) fn of(&self, grant: GrantId) -> Option<Arc<Seat>> {
        self.room().seats.get(&grant).cloned()
    }

    /// Resolves when the node at this path is gone, if it is one of this process. If it was handed over to the seat that waits,
    /// with the instant at which that was asked of the servers.
    pub(crate) fn leaving(
        &self,
        path: &str,
        waiter: GrantId,
    ) -> Option<impl Future<Output = Option<BootInstant>> + Send + use<>> {
        let mut room = self.room();
        let presence = room.present.get_mut(path)?;
        presence.next = Some(waiter);
        let mut handed_over = presence.handed_over.subscribe();
        Some(async move {
            while handed_over.changed().await.is_ok() {}
            *handed_over.borrow()
        })
    }

    /// The node right behind this seat's in its line, if it is one of the same session. Only where one waits for one: whoever
    /// holds a lock that has no readers is followed by whoever waits for it.
    pub(crate) fn next_in_line(&self, seat: &Seat) -> Option<String> {
        let (room, node) = (self.room(), seat.node()?);
        if seat.place.role != Role::Lock {
            return None;
        }
        let next = room.seats.get(&room.present.get(&node.path)?.next?)?;
        if !Arc::ptr_eq(&next.session, &seat.session) {
            return None;
        }
        next.node().map(|node| node.path)
    }

    /// The seat's node is gone, and the servers had the next one's when it went, by a request that was sent at this instant.
    pub(crate) fn hand_over(&self, seat: &Seat, sent_at: BootInstant) {
        if let Some(node) = seat.node()
            && let Some(presence) = self.room().present.get(&node.path)
        {
            presence.handed_over.send_replace(Some(sent_at));
        }
        self.leave(seat);
    }

    /// Nothing of the attempt is at the servers any more.
    pub(crate) fn leave(&self, seat: &Seat) {
        let mut room = self.room();
        // The attempt may have another seat by now, in another session.
        if room.has(seat) {
            room.seats.remove(&seat.grant);
        }
        drop(room);
        self.forget_node(seat);
    }

    /// Somebody else may have deleted the seat's node: it is searched for.
    pub(crate) fn lose_node(&self, seat: &Seat) {
        self.forget_node(seat);
    }

    /// The seat's node was deleted by somebody else; its holder does not know yet.
    pub(crate) fn vacate(&self, seat: &Seat) {
        if let Some(node) = seat.node() {
            self.room().present.remove(&node.path);
        }
    }

    /// Tells every holder of a session that ended. Whoever still waits finds out by itself.
    pub(crate) fn end(&self, session: &Arc<Session>) {
        let gone: Vec<_> =
            self.room().seats.values().filter(|seat| Arc::ptr_eq(&seat.session, session)).cloned().collect();
        for seat in gone {
            self.leave(&seat);
            if let Some(notices) = &*locked(&self.notices) {
                // A client without a keeper has no guards to tell.
                let _ = notices.send((seat.grant, LossReason::SessionExpired));
            }
        }
    }

    /// The channel on which losses are announced from now on.
    pub(crate) fn notices(&self) -> Notices {
        let (sender, receiver) = mpsc::unbounded_channel();
        *locked(&self.notices) = Some(sender);
        receiver
    }

    fn forget_node(&self, seat: &Seat) {
        locked(&seat.permits).clear();
        // Taken before the room is entered: elsewhere a seat is looked at from within it.
        let node = locked(&seat.node).take();
        if let Some(node) = node {
            self.room().present.remove(&node.path);
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        locked(&self.room)
    }
}

/// A panic elsewhere is not passed on: every critical section here leaves the data valid.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use lock_core::driver::Kind;
    use lock_testkit::servers::zookeeper::ZooKeeperServer;
    use lock_testkit::testing::installed;

    use super::*;
    use crate::backend::ZkBackend;
    use crate::client::Crate;
    use crate::config::ZkConfig;

    #[tokio::test]
    async fn a_seat_in_another_session_takes_the_place_of_the_one_before() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let shared = ZkBackend::connect(&ZkConfig::new(server.url()), Crate::Kezhuw).await.unwrap().shared;
        let shared = Arc::new(shared);
        let (session, grant) = (shared.sessions.current().await, GrantId::random().unwrap());
        let place = || Place::of(&shared.layout, &"again".into(), Kind::Mutex).unwrap();
        let path = place().path("again");
        let before = shared.seats.take(grant, &session, place());
        shared.seats.has_node(&before, Created { path: path.clone(), czxid: 1 });
        let (told, taken) = std::sync::mpsc::channel();
        let again = (shared.clone(), session, place());
        std::thread::spawn(move || told.send(again.0.seats.take(grant, &again.1, again.2)));
        let taken = tokio::task::spawn_blocking(move || taken.recv_timeout(std::time::Duration::from_secs(5)));
        assert!(taken.await.unwrap().is_ok_and(|seat| seat.node().is_none()), "a deadlock");
        assert!(before.node().is_none() && shared.seats.leaving(&path, grant).is_none());
    }

    #[tokio::test]
    async fn a_node_that_becomes_known_behind_the_end_of_its_session_is_not_noted() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let shared = ZkBackend::connect(&ZkConfig::new(server.url()), Crate::Kezhuw).await.unwrap().shared;
        let (session, grant) = (shared.sessions.current().await, GrantId::random().unwrap());
        let place = Place::of(&shared.layout, &"late".into(), Kind::Mutex).unwrap();
        let path = place.path("late");
        let seat = shared.seats.take(grant, &session, place);
        let node = || Created { path: path.clone(), czxid: 1 };
        shared.seats.has_node(&seat, node());
        assert!(shared.seats.leaving(&path, grant).is_some());
        shared.seats.end(&session);
        shared.seats.has_node(&seat, node());
        assert!(shared.seats.leaving(&path, grant).is_none(), "whoever stands behind it would wait for ever");
    }
}
