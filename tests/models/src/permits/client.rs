//! A client: `Taking`, `Contention` and `is_within` of `lock-zk`, as they ship, and the connection between them and the servers.

use lock_core::clock::BootInstant;
use lock_zk::machine::{
    Action, Contention, Event, QueuePosition, Request as Wanted, Taking, TakingAction, TakingEvent, Way, is_within,
};

use super::Mutant;
use super::server::{Lease, Place, Reply, Request, Seat};

/// Time does not matter here.
const NOW: BootInstant = BootInstant::FAR_FUTURE;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) seat: Seat,
    limit: u8,
    pub(super) phase: Phase,
    contention: Contention<u8>,
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
    /// The permits are counted, first in the queue.
    Counting,
    /// The permits are watched.
    WatchingLeases,
    Holding,
    /// Every node is being removed.
    Leaving,
    Done,
    Crashed,
}

impl Client {
    pub(super) fn new(seat: Seat, limit: u8) -> Self {
        let contention = Contention::new(Way::Append);
        Self { seat, limit, phase: Phase::Idle, contention, requests: Vec::new(), replies: Vec::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Crashed)
    }

    pub(super) fn may_leave(&self) -> bool {
        !self.is_over() && !matches!(self.phase, Phase::Idle | Phase::Leaving)
    }

    pub(super) fn is_watching(&self) -> bool {
        matches!(self.phase, Phase::Watching | Phase::WatchingLeases)
    }

    /// Whether this answer still tells it something.
    pub(super) fn awaits(&self, reply: &Reply) -> bool {
        match self.phase {
            Phase::Leaving | Phase::GivingBack => *reply == Reply::Removed(self.seat),
            Phase::Idle | Phase::Done | Phase::Crashed => false,
            _ => true,
        }
    }

    /// An attempt begins without a place, or in the queue where the semaphore was found held a moment ago.
    pub(super) fn start(&mut self, claims: bool, mutant: Option<Mutant>) {
        if !claims {
            return self.contend(Event::Begin);
        }
        let taking = Taking::without_place();
        self.phase = Phase::Taking { taking, at: TakingAction::Make, place: None };
        let claim = [Request::Claim(self.seat), Request::ListLeases];
        match mutant {
            Some(Mutant::CountsBefore) => self.requests.extend(claim.into_iter().rev()),
            _ => self.requests.extend(claim),
        }
    }

    fn contend(&mut self, event: Event<u8, Place>) {
        let action = self.contention.step(event);
        self.phase = Phase::Contending;
        match action {
            Action::Ask(Wanted::Append) => self.requests.extend([Request::Append(self.seat), Request::ListQueue]),
            Action::Ask(Wanted::Find) => self.requests.push(Request::FindPlace(self.seat)),
            Action::Ask(Wanted::List) => self.requests.push(Request::ListQueue),
            Action::Stand(QueuePosition::First(_)) => {
                self.phase = Phase::Counting;
                self.requests.push(Request::ListLeases);
            }
            Action::Stand(QueuePosition::Behind(place)) => {
                self.phase = Phase::Watching;
                self.requests.push(Request::WatchPlace(place.zxid));
            }
            Action::Stand(QueuePosition::Missing) => self.contend(Event::Rejoin),
            // There is a directory, and a queue.
            Action::Ask(Wanted::Claim | Wanted::MakeDirectory) => {}
        }
    }

    fn take(&mut self, mut taking: Taking, place: Option<u8>, event: TakingEvent, mutant: Option<Mutant>) {
        let at = match (taking.step(event), mutant, event) {
            (TakingAction::Count, Some(Mutant::NoCount), _) => TakingAction::Taken,
            (TakingAction::Count, Some(Mutant::FoundIsTaken), TakingEvent::Found(_)) => TakingAction::Taken,
            (TakingAction::Find, Some(Mutant::NotLookedFor), _) if place.is_none() => TakingAction::InVain,
            (action, ..) => action,
        };
        self.phase = Phase::Taking { taking, at, place };
        match at {
            TakingAction::Make => self.requests.extend(place.map(|zxid| Request::Exchange(self.seat, zxid))),
            // Behind a claim the listing is on its way.
            TakingAction::Count if event == TakingEvent::Made => {}
            TakingAction::Count => self.requests.push(Request::ListLeases),
            TakingAction::Find => self.requests.push(Request::FindLease(self.seat)),
            TakingAction::Taken => self.phase = Phase::Holding,
            TakingAction::GiveBack if mutant == Some(Mutant::KeepsTooMany) => self.contend(Event::Begin),
            TakingAction::GiveBack => {
                self.phase = Phase::GivingBack;
                self.requests.push(Request::Remove(self.seat));
            }
            TakingAction::InVain if place.is_none() => self.contend(Event::Begin),
            TakingAction::InVain => self.contend(Event::Look),
            // There is a directory.
            TakingAction::MakeDirectory => {}
        }
    }

    /// Gives up, or releases the permits.
    pub(super) fn leave(&mut self, attempts: u8, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::NoUndo) && matches!(self.phase, Phase::Taking { place: None, .. }) {
            return self.end(attempts);
        }
        self.phase = Phase::Leaving;
        self.requests.push(Request::Remove(self.seat));
        // Answers that are still under way are not listened to.
        self.replies.clear();
    }

    fn end(&mut self, attempts: u8) {
        self.seat.attempt += 1;
        self.contention = Contention::new(Way::Append);
        self.phase = if self.seat.attempt == attempts { Phase::Done } else { Phase::Idle };
    }

    /// The connection broke: the session goes on with another server, which refuses what the former one still has.
    pub(super) fn reconnected(&mut self, mutant: Option<Mutant>) {
        self.requests.clear();
        self.replies.clear();
        match self.phase.clone() {
            Phase::Taking { taking, place, at: TakingAction::Count } => {
                self.phase = Phase::Taking { taking, at: TakingAction::Count, place };
                self.requests.push(Request::ListLeases);
            }
            Phase::Taking { taking, place, .. } => self.take(taking, place, TakingEvent::Unanswered, mutant),
            Phase::Contending => self.contend(Event::Unanswered),
            Phase::Watching | Phase::Counting | Phase::WatchingLeases => self.contend(Event::Look),
            Phase::Leaving | Phase::GivingBack => self.requests.push(Request::Remove(self.seat)),
            Phase::Idle | Phase::Holding | Phase::Done | Phase::Crashed => {}
        }
    }

    pub(super) fn crash(&mut self) {
        *self = Self { phase: Phase::Crashed, ..Self::new(self.seat, self.limit) };
    }

    fn is_enough(&self, leases: &[Lease]) -> bool {
        leases.iter().map(|lease| lease.seat.weight).sum::<u8>() + self.seat.weight <= self.limit
    }

    pub(super) fn hear(&mut self, reply: Reply, attempts: u8, mutant: Option<Mutant>) {
        match (reply, self.phase.clone()) {
            (Reply::Made, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                self.take(taking, place, TakingEvent::Made, mutant);
                if let (Some(Mutant::CountsBefore), None) = (mutant, place) {
                    // It was heard before.
                    self.phase = Phase::Holding;
                }
            }
            (Reply::Missing, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                self.take(taking, place, TakingEvent::Missing, mutant);
            }
            (Reply::Occupied, Phase::Taking { taking, at: TakingAction::Make, place }) => {
                self.take(taking, place, TakingEvent::Occupied, mutant);
            }
            (Reply::FoundLease(found), Phase::Taking { taking, at: TakingAction::Find, place }) => {
                self.take(taking, place, TakingEvent::Found(found), mutant);
            }
            (Reply::Leases(leases), Phase::Taking { at: TakingAction::Make, .. })
                if mutant == Some(Mutant::CountsBefore) && !self.is_enough(&leases) =>
            {
                self.requests.clear();
                self.contend(Event::Begin);
            }
            (Reply::Leases(leases), Phase::Taking { taking, at: TakingAction::Count, place }) => {
                let nodes =
                    leases.iter().map(|lease| (lease.number, lease.seat.weight.into(), lease.seat == self.seat));
                let is_within = is_within(self.limit.into(), nodes);
                self.take(taking, place, TakingEvent::Counted(is_within), mutant);
            }
            (Reply::Appended(zxid), Phase::Contending) => {
                // It asks for the listing, which is on its way.
                let _ = self.contention.step::<Place>(Event::Created(zxid, NOW));
            }
            (Reply::Queue(queue), Phase::Contending) => self.contend(Event::Listed(queue, NOW)),
            (Reply::FoundPlace(zxid), Phase::Contending) => self.contend(Event::Found(zxid)),
            (Reply::Changed | Reply::NoNode, Phase::Watching) => self.contend(Event::Look),
            (Reply::Leases(leases), Phase::Counting | Phase::WatchingLeases) => match self.contention.node() {
                Some(zxid) if self.is_enough(&leases) => {
                    let (taking, zxid) = (Taking::in_place(false), *zxid);
                    self.phase = Phase::Taking { taking, at: TakingAction::Make, place: Some(zxid) };
                    self.requests.push(Request::Exchange(self.seat, zxid));
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
            (Reply::Removed(_), Phase::GivingBack) => self.contend(Event::Begin),
            (Reply::Removed(_), Phase::Leaving) => self.end(attempts),
            // Answers to what is no longer asked.
            _ => {}
        }
    }
}
