//! The permits that attempts of this process have, and their hand-over from a holder to a waiter.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};

use super::incoming::{HandedOver, Incoming, PermitNodes};
use super::{Registration, Registry, Waiter, locked};
use crate::client::{Created, Failure, Names, NewNode, Response};

/// The nodes of permits that one transaction hands over, at most.
pub(crate) const MOST_HANDED_OVER: usize = 32;

/// The outcome of a [claim](Registration::claim): the permits, unless somebody is in the queue.
type Claimed = Result<Option<Vec<Created>>, Failure>;

/// A waiter to which a holder is about to hand its permits over.
pub(crate) struct Recipient {
    pub(super) registration: Arc<Registration>,
    /// The path of its node in the queue.
    place: String,
    /// The holder's permits. They are enough.
    pub(super) released: Vec<String>,
    nodes: PermitNodes,
    /// The waiter right behind it.
    next: Option<Waiter>,
}

impl Registry {
    /// Returns the limit in which this client believes for a grant of its own, of a semaphore.
    pub(crate) fn limit_of(&self, grant: GrantId) -> Option<u32> {
        self.entries().registrations.get(&grant)?.lock.limit
    }

    /// Returns the waiter to which this holder of permits hands them over, if there is one that they are enough for. No other holder can from
    /// then on.
    pub(crate) fn recipient_of(&self, holder: &Registration) -> Option<Recipient> {
        let lock = &holder.lock;
        let entries = self.entries();
        let waiter = *entries.successors.get(&lock.directory)?.waiter()?;
        let registration = entries.registrations.get(&waiter.grant)?.clone();
        let place = registration.node().filter(|place| place.czxid == waiter.place)?;
        // Each of them is named in the transaction, which fails if one has gone. A holder that is none any more has no permits here.
        let released = locked(&holder.permits).clone();
        let is_known = holder.may_hand_over() && released.len() <= MOST_HANDED_OVER;
        if !is_known || !Arc::ptr_eq(&registration.session, &holder.session) || registration.lock.limit != lock.limit {
            return None;
        }
        let next = entries.waiter_behind(&place);
        let nodes = registration.incoming().take(holder.number_of(&released))?;
        if let Some(local_node) = entries.local_nodes.get(&place.path) {
            local_node.may_go();
        }
        drop(entries);
        Some(Recipient { registration, place: place.path, released, nodes, next })
    }

    /// Notes that the registration, the first in a semaphore's queue, has permits in place of its node since a request sent at this
    /// instant. `next` waited right behind it by then, and is the first now.
    pub(crate) fn moved_on(
        &self,
        registration: &Registration,
        paths: Vec<String>,
        next: Option<Waiter>,
        sent_at: BootInstant,
    ) {
        if let Some(next) = next {
            self.left_queue(registration, next.grant, sent_at);
        }
        let lock = &registration.lock;
        let mut entries = self.entries();
        if entries.has(registration) && !lock.is_shared() && registration.session.connection.hands_permits_over() {
            // One that has left its place meanwhile would be forgotten by nobody.
            match next.filter(|next| entries.has_place(next)) {
                next @ Some(_) => entries.successors.entry(lock.directory.clone()).or_default().moved_on(next),
                None => drop(entries.successors.remove(&lock.directory)),
            }
        }
        drop(entries);
        self.set_permits(registration, paths);
    }

    /// Notes that the registration has permits now, and is not in the queue any more.
    pub(crate) fn set_permits(&self, registration: &Registration, paths: Vec<String>) {
        let mut entries = self.entries();
        if !entries.has(registration) {
            return;
        }
        if let Some(before) = locked(&registration.node).take() {
            entries.remove_node(registration.grant, &before);
        }
        *locked(&registration.permits) = paths;
        registration.settled();
    }
}

impl Registration {
    /// Makes permits for this registration while nobody is in the queue, as a whole; `None` if somebody is. Lists all permits right behind
    /// it. Nobody knows all of its nodes until then, as with an [`exchange`](Registration::exchange).
    pub(crate) fn claim(
        &self,
        new: &[NewNode],
        data: &[u8],
    ) -> (impl Future<Output = Claimed>, Response<'static, Names>) {
        let was_changing = self.begin_change();
        let (queue, permits) = (&self.lock.directory, self.lock.permit_directory());
        let (claimed, listed) = self.session.connection.claim_beside(queue, new, data, permits);
        (self.end_change(was_changing, claimed), listed)
    }

    /// Whether its permits may be handed over: it is known which ones it has, and it was not tried before.
    fn may_hand_over(&self) -> bool {
        !self.is_changing() && !self.has_handed_over.load(Ordering::Acquire)
    }

    /// Returns the number of permits for which these nodes of the registration stand.
    fn number_of(&self, permits: &[String]) -> u32 {
        let directory = self.lock.permit_directory();
        let names = permits.iter().filter_map(|path| path.strip_prefix(directory)?.strip_prefix('/'));
        let held = names.filter_map(|name| self.lock.contender(directory, name.to_owned()));
        held.map(|contender| contender.permits).sum()
    }

    /// Returns the permits that it may be handed.
    pub(crate) fn incoming(&self) -> &Incoming {
        self.incoming.get_or_init(Incoming::default)
    }

    /// Puts the permits of a waiter in the place of this registration's, and of that waiter's node in the queue, as a whole. The waiter is told
    /// the outcome.
    pub(crate) fn hand_permits_over(&self, successor: Recipient) -> Response<'static, ()> {
        let Recipient { registration: successor, place, released, nodes, next } = successor;
        self.has_handed_over.store(true, Ordering::Release);
        let was_changing = successor.begin_change();
        let sent_at = SystemClock.now();
        let (released, made) = self.session.connection.hand_permits_over(&released, &place, &nodes.new, &nodes.record);
        successor.incoming().grant(HandedOver { made, was_changing, sent_at, next });
        released
    }

    /// Waits for the outcome of what was handed over to this registration.
    pub(crate) async fn received(
        &self,
        made: Response<'static, Vec<String>>,
        was_changing: bool,
    ) -> Result<Vec<String>, Failure> {
        self.end_change(was_changing, made).await
    }
}
