//! The servers, as one: each request is one step, as whatever writes goes through the leader, and what only reads stands behind a
//! write or a `sync` of the same session.

use lock_zk::machine::{Member, Role, TakingEvent};

use super::Mutant;

/// One attempt of one client, as it stands in a node's name, and the permits that it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct AttemptId {
    pub(super) client: u8,
    pub(super) attempt: u8,
    pub(super) weight: u8,
}

/// A node in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) id: AttemptId,
    pub(super) zxid: u8,
    /// Begins anew with the directory.
    pub(super) number: u8,
}

impl Member<u8> for Place {
    fn role(&self) -> Role {
        Role::Lock
    }

    fn is_node(&self, zxid: &u8) -> bool {
        self.zxid == *zxid
    }
}

/// The permits of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) id: AttemptId,
    pub(super) number: i32,
    pub(super) token: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// Makes permits if nobody is in the queue.
    Claim(AttemptId),
    Append(AttemptId),
    ListQueue,
    FindPlace(AttemptId),
    /// Puts permits into the place of this node.
    Exchange(AttemptId, u8),
    /// Puts permits of a successor into the place of its node, and of a holder's permits.
    HandOver {
        holder: AttemptId,
        successor: AttemptId,
        place: u8,
    },
    ListLeases,
    FindLease(AttemptId),
    WatchPlace(u8),
    /// Lists the permits, and watches them.
    WatchLeases,
    /// Removes every node of an attempt.
    Remove(AttemptId),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Made,
    Missing,
    Occupied,
    Appended(Place),
    Queue(Vec<Place>),
    FoundPlace(Option<Place>),
    Leases(Vec<Lease>),
    FoundLease(bool),
    NoNode,
    /// The event, not an answer.
    Changed,
    /// The word of the same process that a place has gone, and whether it was the first and left by itself.
    Gone {
        is_first: bool,
    },
    /// The word of the same process on permits that were to be handed over to this attempt.
    HandedOver {
        successor: AttemptId,
        outcome: TakingEvent,
        next: Option<(AttemptId, u8)>,
    },
    /// Every node of this attempt is gone.
    Removed(AttemptId),
}

/// The servers' state.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Server {
    /// In the order of their numbers, as the permits are.
    pub(super) queue: Vec<Place>,
    pub(super) leases: Vec<Lease>,
    watched_places: Vec<(u8, u8)>,
    watching_leases: Vec<u8>,
    last_zxid: u8,
    /// The number of the last place since the directory of the queue was made anew.
    last_place: u8,
    last_number: i32,
    last_token: u8,
    pub(super) token_went_back: bool,
}

impl Server {
    /// Carries out a client's request; with the answer, who is to be told of a change.
    pub(super) fn carry_out(
        &mut self,
        client: u8,
        request: Request,
        mutant: Option<Mutant>,
    ) -> (Option<Reply>, Vec<u8>) {
        let reply = match request {
            Request::Claim(_) if !self.queue.is_empty() && mutant != Some(Mutant::ClaimsBesideQueue) => Reply::Occupied,
            Request::Claim(id) => {
                (self.last_zxid, self.last_place) = (self.last_zxid + 1, 0);
                return (Some(Reply::Made), self.make(id, self.last_zxid));
            }
            Request::Append(id) => {
                (self.last_zxid, self.last_place) = (self.last_zxid + 1, self.last_place + 1);
                let place = Place { id, zxid: self.last_zxid, number: self.last_place };
                self.queue.push(place);
                Reply::Appended(place)
            }
            Request::ListQueue => Reply::Queue(self.queue.clone()),
            Request::FindPlace(id) => Reply::FoundPlace(self.queue.iter().find(|place| place.id == id).copied()),
            Request::Exchange(_, zxid) if self.queue.iter().all(|place| place.zxid != zxid) => Reply::Missing,
            Request::Exchange(id, zxid) => {
                let mut told = self.remove(|place| place.zxid == zxid, |_| false);
                told.extend(self.make(id, zxid));
                return (Some(Reply::Made), told);
            }
            Request::HandOver { holder, successor, place } => {
                let has_place = self.queue.iter().any(|one| one.zxid == place);
                let is_held = self.leases.iter().any(|lease| lease.id == holder);
                if !is_held || !(has_place || mutant == Some(Mutant::HandsOverBesideQueue)) {
                    return (Some(Reply::Missing), Vec::new());
                }
                let mut told = self.remove(|one| one.zxid == place, |lease| lease.id == holder);
                told.extend(self.make(successor, place));
                return (Some(Reply::Made), told);
            }
            Request::ListLeases => Reply::Leases(self.leases.clone()),
            Request::FindLease(id) => Reply::FoundLease(self.leases.iter().any(|lease| lease.id == id)),
            Request::WatchPlace(zxid) if self.queue.iter().any(|place| place.zxid == zxid) => {
                self.watched_places.push((client, zxid));
                return (None, Vec::new());
            }
            Request::WatchPlace(_) => Reply::NoNode,
            Request::WatchLeases => {
                self.watching_leases.push(client);
                Reply::Leases(self.leases.clone())
            }
            Request::Remove(id) => {
                self.forget(client);
                return (Some(Reply::Removed(id)), self.remove(|place| place.id == id, |lease| lease.id == id));
            }
        };
        (Some(reply), Vec::new())
    }

    /// The session of a client ends; returns who is to be told of a change.
    pub(super) fn end(&mut self, client: u8) -> Vec<u8> {
        self.forget(client);
        self.remove(|place| place.id.client == client, |lease| lease.id.client == client)
    }

    /// Drops the watches of a client.
    pub(super) fn forget(&mut self, client: u8) {
        self.watched_places.retain(|(other, _)| *other != client);
        self.watching_leases.retain(|other| *other != client);
    }

    fn make(&mut self, id: AttemptId, token: u8) -> Vec<u8> {
        self.last_number += 1;
        self.token_went_back |= token <= self.last_token;
        self.last_token = token;
        self.leases.push(Lease { id, number: self.last_number, token });
        std::mem::take(&mut self.watching_leases)
    }

    fn remove(&mut self, place: impl Fn(&Place) -> bool, lease: impl Fn(&Lease) -> bool) -> Vec<u8> {
        let gone: Vec<_> = self.queue.iter().filter(|one| place(one)).map(|one| one.zxid).collect();
        self.queue.retain(|one| !place(one));
        let leases = self.leases.len();
        self.leases.retain(|one| !lease(one));
        let (fired, watched): (Vec<_>, Vec<_>) =
            self.watched_places.drain(..).partition(|(_, zxid)| gone.contains(zxid));
        self.watched_places = watched;
        let mut told: Vec<_> = fired.into_iter().map(|(client, _)| client).collect();
        if self.leases.len() != leases {
            told.append(&mut self.watching_leases);
        }
        told
    }
}
