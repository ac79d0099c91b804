//! A client: `Taking`, `Contention` and `is_within` of `lock-zk`, as they ship, and the connection between them and the servers. Of its
//! process it knows which place was noted last, and who waits for one (`process.rs`).

use std::sync::Arc;

use lock_core::clock::BootInstant;
use lock_zk::machine::{
    Action, Contention, Event, ListedQueue, PermitNode, QueuePosition, Request as Wanted, Taking, TakingAction,
    TakingEvent, Way, is_within,
};

use super::Mutant;
use super::process::{Process, Waiter};
use super::server::{AttemptId, Lease, Place, Reply, Request};

/// Time does not matter here.
const NOW: BootInstant = BootInstant::FAR_FUTURE;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) id: AttemptId,
    limit: u8,
    pub(super) phase: Phase,
    contention: Contention<u8>,
    /// The attempt of its process that waited for its place when permits were asked for in that.
    behind: Option<Waiter>,
    /// Its connection, which keeps its order.
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Reply>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Permits are taken, with a place in the queue or without one.
    Taking {
        taking: Taking,
        at: TakingAction,
        place: Option<u8>,
    },
    /// Permits that are too many are removed.
    GivingBack,
    /// The place in the queue is asked for.
    Contending,
    /// The node before is watched.
    Watching,
    /// The node before is of the same process, which tells.
    Following(u8),
    /// The permits are counted, first in the queue.
    Counting,
    /// The permits are watched.
    WatchingLeases,
    /// Permits are being handed over to it.
    Receiving,
    Holding,
    /// The permits are being handed over to this one.
    HandingOver {
        successor: AttemptId,
        next: Option<Waiter>,
    },
    /// Every node is being removed.
    Leaving,
    Done,
    Crashed,
}

impl Client {
    pub(super) fn new(id: AttemptId, limit: u8) -> Self {
        let contention = Contention::new(Way::Append);
        let (requests, replies) = (Vec::new(), Vec::new());
        Self { id, limit, phase: Phase::Idle, contention, behind: None, requests, replies }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Crashed)
    }

    pub(super) fn may_leave(&self) -> bool {
        !self.is_over() && !matches!(self.phase, Phase::Idle | Phase::Leaving | Phase::HandingOver { .. })
    }

    pub(super) fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching | Phase::WatchingLeases)
    }

    /// Whether this answer still tells it something.
    pub(super) fn awaits(&self, reply: &Reply) -> bool {
        match self.phase {
            Phase::Leaving | Phase::GivingBack => *reply == Reply::Removed(self.id),
            Phase::HandingOver { .. } => matches!(reply, Reply::Made | Reply::Missing),
            Phase::Idle | Phase::Done | Phase::Crashed => false,
            _ => true,
        }
    }

    /// An attempt begins without a place, or in the queue where the semaphore was found held a moment ago.
    pub(super) fn start(&mut self, claims: bool, process: &mut Process, mutant: Option<Mutant>) {
        if !claims {
            return self.contend(Event::Begin, process);
        }
        let taking = Taking::without_place();
        self.phase = Phase::Taking { taking, at: TakingAction::Make, place: None };
        let claim = [Request::Claim(self.id), Request::ListLeases];
        match mutant {
            Some(Mutant::CountsBefore) => self.requests.extend(claim.into_iter().rev()),
            _ => self.requests.extend(claim),
        }
    }

    fn contend(&mut self, event: Event<u8, Place>, process: &mut Process) {
        let action = self.contention.step(event);
        self.phase = Phase::Contending;
        match action {
            Action::Ask(Wanted::Append) => {
                self.requests.push(Request::Append(self.id));
                self.requests.extend((!process.knows_last()).then_some(Request::ListQueue));
            }
            Action::Ask(Wanted::Find) => {
                process.forget(self.id, None);
                self.requests.push(Request::FindPlace(self.id));
            }
            Action::Ask(Wanted::List) => self.requests.push(Request::ListQueue),
            Action::Stand(QueuePosition::First(_)) => {
                self.open_to_permits(process);
                self.phase = Phase::Counting;
                self.requests.push(Request::ListLeases);
            }
            Action::Stand(QueuePosition::Behind(place)) if process.wait(place.zxid, self.id) => {
                self.open_to_permits(process);
                self.phase = Phase::Following(place.zxid);
            }
            Action::Stand(QueuePosition::Behind(place)) => {
                self.open_to_permits(process);
                self.phase = Phase::Watching;
                self.requests.push(Request::WatchPlace(place.zxid));
            }
            Action::Stand(QueuePosition::Missing) if process.close(self.id) => {
                self.contend(Event::Rejoin, process);
            }
            // Permits are handed over to it: it is told.
            Action::Stand(QueuePosition::Missing) => self.phase = Phase::Receiving,
            // There is a directory, and a queue.
            Action::Ask(Wanted::Claim | Wanted::MakeDirectory) => {}
        }
    }

    fn take(
        &mut self,
        mut taking: Taking,
        place: Option<u8>,
        event: TakingEvent,
        process: &mut Process,
        mutant: Option<Mutant>,
    ) {
        let at = match (taking.step(event), mutant, event) {
            (TakingAction::Count, Some(Mutant::NoCount), _) => TakingAction::Taken,
            (TakingAction::Count, Some(Mutant::FoundIsTaken), TakingEvent::Found(_)) => TakingAction::Taken,
            (TakingAction::Find, Some(Mutant::NotLookedFor), _) if place.is_none() => TakingAction::InVain,
            (action, ..) => action,
        };
        self.phase = Phase::Taking { taking, at, place };
        match at {
            TakingAction::Make => self.exchange(place, process),
            // Behind a claim the listing is on its way.
            TakingAction::Count if event == TakingEvent::Made => {}
            TakingAction::Count => self.requests.push(Request::ListLeases),
            TakingAction::Find => self.requests.push(Request::FindLease(self.id)),
            TakingAction::Taken => self.phase = Phase::Holding,
            TakingAction::GiveBack if mutant == Some(Mutant::KeepsTooMany) => self.contend(Event::Begin, process),
            TakingAction::GiveBack => {
                self.phase = Phase::GivingBack;
                self.requests.push(Request::Remove(self.id));
            }
            TakingAction::InVain if place.is_none() => self.contend(Event::Begin, process),
            TakingAction::InVain => self.contend(Event::Look, process),
            // There is a directory.
            TakingAction::MakeDirectory => {}
        }
    }

    /// Puts permits into the place of the node.
    fn exchange(&mut self, place: Option<u8>, process: &Process) {
        self.behind = process.behind(self.id);
        self.requests.extend(place.map(|zxid| Request::Exchange(self.id, zxid)));
    }

    /// Goes on with what has come of permits that were to be handed over.
    fn receive(&mut self, outcome: TakingEvent, next: Option<Waiter>, process: &mut Process, mutant: Option<Mutant>) {
        let place = self.contention.node().copied();
        match outcome {
            TakingEvent::Made => {
                process.moved_on(self.id, next);
                self.take(Taking::in_place(false), place, outcome, process, mutant);
            }
            TakingEvent::Unanswered if mutant != Some(Mutant::LostIsRefused) => {
                self.take(Taking::in_place(false), place, outcome, process, mutant);
            }
            _ => self.contend(Event::Look, process),
        }
    }

    fn open_to_permits(&self, process: &mut Process) {
        if let Some(place) = self.contention.node() {
            process.open_to_permits((self.id, *place));
        }
    }

    /// Gives up, or releases the permits.
    pub(super) fn leave(&mut self, attempts: u8, process: &mut Process, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::NoUndo) && matches!(self.phase, Phase::Taking { place: None, .. }) {
            return self.end(attempts);
        }
        let successor = if self.phase == Phase::Holding { process.successor(self.id, mutant) } else { None };
        if let Some((successor, place)) = successor {
            self.phase = Phase::HandingOver { successor, next: process.behind(successor) };
            self.requests.push(Request::HandOver { holder: self.id, successor, place });
            return self.replies.clear();
        }
        process.close(self.id);
        self.phase = Phase::Leaving;
        self.requests.push(Request::Remove(self.id));
        // Answers that are still under way are not listened to.
        self.replies.clear();
    }

    fn end(&mut self, attempts: u8) {
        self.id.attempt += 1;
        self.contention = Contention::new(Way::Append);
        self.phase = if self.id.attempt == attempts { Phase::Done } else { Phase::Idle };
    }

    /// The connection broke: the session goes on with another server, which refuses what the former one still has.
    pub(super) fn reconnected(&mut self, process: &mut Process, mutant: Option<Mutant>) {
        self.requests.clear();
        // The word of its own process came over no connection.
        self.replies.retain(|reply| matches!(reply, Reply::Gone { .. } | Reply::HandedOver { .. }));
        match self.phase.clone() {
            Phase::Taking { taking, place, at: TakingAction::Count } => {
                self.phase = Phase::Taking { taking, at: TakingAction::Count, place };
                self.requests.push(Request::ListLeases);
            }
            Phase::Taking { taking, place, .. } => self.take(taking, place, TakingEvent::Unanswered, process, mutant),
            Phase::Contending => self.contend(Event::Unanswered, process),
            Phase::Watching | Phase::Counting | Phase::WatchingLeases => self.contend(Event::Look, process),
            Phase::HandingOver { successor, next } => {
                process.receive(successor, TakingEvent::Unanswered, next);
                self.phase = Phase::Leaving;
                self.requests.push(Request::Remove(self.id));
            }
            Phase::Leaving | Phase::GivingBack => self.requests.push(Request::Remove(self.id)),
            Phase::Idle | Phase::Receiving | Phase::Following(_) | Phase::Holding | Phase::Done | Phase::Crashed => {}
        }
    }

    pub(super) fn crash(&mut self) {
        *self = Self { phase: Phase::Crashed, ..Self::new(self.id, self.limit) };
    }

    fn is_enough(&self, leases: &[Lease]) -> bool {
        leases.iter().map(|lease| lease.id.weight).sum::<u8>() + self.id.weight <= self.limit
    }

    pub(super) fn hear(&mut self, reply: Reply, attempts: u8, process: &mut Process, mutant: Option<Mutant>) {
        match (reply, self.phase.clone()) {
            (Reply::Made, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                let late = mutant == Some(Mutant::TellsLatecomers);
                let next = if late { process.behind(self.id) } else { self.behind };
                match place {
                    Some(_) => process.moved_on(self.id, next),
                    None => process.forget(self.id, None),
                }
                self.take(taking, place, TakingEvent::Made, process, mutant);
                if let (Some(Mutant::CountsBefore), None) = (mutant, place) {
                    // It was heard before.
                    self.phase = Phase::Holding;
                }
            }
            (Reply::Missing, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                self.take(taking, place, TakingEvent::Missing, process, mutant);
            }
            (Reply::Occupied, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                self.take(taking, place, TakingEvent::Occupied, process, mutant);
            }
            (Reply::FoundLease(found), Phase::Taking { taking, at: TakingAction::Find, place }) => {
                if found {
                    process.forget(self.id, None);
                }
                self.take(taking, place, TakingEvent::Found(found), process, mutant);
            }
            (Reply::Leases(leases), Phase::Taking { at: TakingAction::Make, .. })
                if mutant == Some(Mutant::CountsBefore) && !self.is_enough(&leases) =>
            {
                self.requests.clear();
                self.contend(Event::Begin, process);
            }
            (Reply::Leases(leases), Phase::Taking { taking, at: TakingAction::Count, place }) => {
                let nodes = leases.iter().map(|lease| PermitNode {
                    number: lease.number,
                    permits: lease.id.weight.into(),
                    may_have_moved: false,
                    is_ours: lease.id == self.id,
                });
                let is_within = is_within(self.limit.into(), nodes);
                self.take(taking, place, TakingEvent::Counted(is_within), process, mutant);
            }
            (Reply::Appended(place), Phase::Contending) => {
                let listed = self.requests.contains(&Request::ListQueue) || self.replies.iter().any(is_listing);
                let before = process.note(place);
                // It asks for the listing, which may be on its way, or not be needed.
                let _ = self.contention.step::<Place>(Event::Created(place.zxid, NOW));
                if !listed {
                    self.contend(before.map_or(Event::Look, Event::Follows), process);
                }
            }
            (Reply::Queue(queue), Phase::Contending) => {
                self.contend(Event::Listed(Arc::new(ListedQueue::new(queue)), NOW), process)
            }
            (Reply::FoundPlace(place), Phase::Contending) => {
                if let Some(place) = place {
                    process.note(place);
                }
                self.contend(Event::Found(place.map(|place| place.zxid)), process);
            }
            (Reply::Gone { is_first: true }, Phase::Following(_)) => self.contend(Event::HandedOver(NOW), process),
            (Reply::Gone { is_first: false }, Phase::Following(_)) => self.contend(Event::Look, process),
            (Reply::Changed | Reply::NoNode, Phase::Watching) => self.contend(Event::Look, process),
            (Reply::Leases(leases), Phase::Counting | Phase::WatchingLeases) => match self.contention.node() {
                // Permits are handed over to it: it is told.
                Some(_) if self.is_enough(&leases) && !process.close(self.id) && mutant != Some(Mutant::TakesBoth) => {
                    self.phase = Phase::Receiving;
                }
                Some(zxid) if self.is_enough(&leases) => {
                    let (taking, zxid) = (Taking::in_place(false), *zxid);
                    self.phase = Phase::Taking { taking, at: TakingAction::Make, place: Some(zxid) };
                    self.exchange(Some(zxid), process);
                }
                _ if self.phase == Phase::Counting => {
                    self.phase = Phase::WatchingLeases;
                    self.requests.push(Request::WatchLeases);
                }
                _ => {}
            },
            (Reply::Changed, Phase::WatchingLeases) => {
                self.phase = Phase::Counting;
                self.requests.push(Request::ListLeases);
            }
            (Reply::Made, Phase::HandingOver { successor, next }) => {
                process.receive(successor, TakingEvent::Made, next);
                self.end(attempts);
            }
            (Reply::Missing, Phase::HandingOver { successor, next }) => {
                process.receive(successor, TakingEvent::Missing, next);
                self.phase = Phase::Leaving;
                self.requests.push(Request::Remove(self.id));
            }
            (Reply::HandedOver { successor, outcome, next }, phase) if successor == self.id && phase.may_receive() => {
                process.heard(successor);
                self.receive(outcome, next, process, mutant);
            }
            (Reply::Removed(_), Phase::GivingBack) => self.contend(Event::Begin, process),
            (Reply::Removed(_), Phase::Leaving) => {
                process.forget(self.id, None);
                self.end(attempts);
            }
            // Answers to what is no longer asked.
            _ => {}
        }
    }
}

impl Phase {
    /// Whether permits may be handed over to a client.
    const fn may_receive(&self) -> bool {
        matches!(self, Self::Contending | Self::Counting | Self::WatchingLeases | Self::Receiving)
    }
}

fn is_listing(reply: &Reply) -> bool {
    matches!(reply, Reply::Queue(_))
}
