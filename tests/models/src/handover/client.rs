//! A client and its waiters. What they decide is decided by `lock_memcached::machine`, as it ships; here is what its shell does:
//! `wait/mod.rs`, `wait/looks.rs`, `release.rs` and `epoch/gate.rs` of `lock-memcached`.

use std::time::Duration;

use lock_core::clock::{BootInstant, Deadline};
use lock_memcached::machine::{
    AfterTry, EpochWatch, GateVerdict, HandOverAnswer, HandedOver, NotNow, Standing, Tried, Turns, WaitLimits,
};

use super::server::{Own, Reply, Request, SeenEpoch, Server};
use super::waiter::{Phase, Waiter};
use super::{LONGEST, MARGIN, Mutant, OP_TIMEOUT, TTL, instant, since_1970};

/// Pause between two looks; no time passes within a second.
const PAUSE: Duration = Duration::from_millis(500);

/// One client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// Waiters are woken, and offer to be handed the lock, by their position.
    pub(super) turns: Turns<usize, usize>,
    watch: EpochWatch,
    /// Whether the first one was woken from its pause.
    woken: bool,
    pub(super) waiters: Vec<Waiter>,
    /// The number of hand-overs since the last claim.
    pub(super) row: u8,
    /// Whether others have their turn in this second.
    pub(super) yields: bool,
    /// Whether it took the lock all the same.
    pub(super) is_greedy: bool,
    /// Whether a release was told that a lock had been lost that was not.
    pub(super) false_loss: bool,
    /// Whether a lock was left free while the first one slept on.
    pub(super) sleeps_on: bool,
    /// Whether a first one that dallies is late. Otherwise nobody takes its place, and there are a tenth of the states.
    may_be_late: bool,
}

impl Client {
    pub(super) fn new(first: u8, waiters: u8, attempts: u8, may_be_late: bool, server: &Server) -> Self {
        let waiter = |at: u8| Waiter {
            nonce: (first + at) * 32,
            left: attempts,
            phase: Phase::Idle,
            ticket: None,
            asks: None,
            was_ours: false,
            unsure_until: 0,
            is_gone: false,
            is_still: false,
            sleeps_until: 0,
        };
        let mut client = Self {
            turns: Turns::new(instant(0)),
            watch: EpochWatch::default(),
            woken: false,
            waiters: (0..waiters).map(waiter).collect(),
            row: 0,
            yields: false,
            is_greedy: false,
            false_loss: false,
            sleeps_on: false,
            may_be_late,
        };
        client.watch.set_met_anew(true);
        client.judges(server.seen_epoch(), 0, 0);
        client.watch.set_met_anew(false);
        client
    }

    fn judges(&mut self, seen: SeenEpoch, asked: u8, now: u8) -> GateVerdict {
        let Some((epoch, left)) = seen else { return GateVerdict::No(NotNow::Missing) };
        self.watch.judges(epoch, left, instant(asked), instant(now), || since_1970(now))
    }

    /// Puts the epoch back, or opens it if it is time.
    fn tends(&mut self, server: &mut Server, mutant: Option<Mutant>) {
        let now = server.now;
        let epoch = lock_memcached::machine::Epoch::new(LONGEST, since_1970(now));
        server.epoch.get_or_insert((epoch, now));
        let Some((epoch, left)) = server.seen_epoch().filter(|(epoch, _)| !epoch.open) else { return };
        let closed_for = self.watch.closed_for(epoch, left, instant(now), since_1970(now));
        if let Some((epoch, _)) = &mut server.epoch
            && (closed_for.is_zero() || mutant == Some(Mutant::OpenedAtOnce))
        {
            epoch.open = true;
        }
    }

    pub(super) fn starts(&mut self, at: usize, now: u8) {
        self.waiters[at].left -= 1;
        (self.waiters[at].nonce, self.waiters[at].is_gone) = (self.waiters[at].nonce + 1, false);
        let (ticket, phase) = match self.turns.comes(self.due(instant(now))) {
            Some(first) => (first, Phase::First),
            None => (self.turns.behind(at), Phase::Behind),
        };
        (self.waiters[at].ticket, self.waiters[at].phase) = (Some(ticket), phase);
        self.looks_round(at, now);
    }

    /// A waiter that stands behind others sees how long it has to, and sleeps for as long.
    fn looks_round(&mut self, at: usize, now: u8) {
        let Some(ticket) = self.waiters[at].ticket.filter(|_| self.may_be_late) else { return };
        if self.waiters[at].phase == Phase::Behind && !self.waiters[at].is_still {
            let standing = self.turns.clone().stands(instant(now), &limits(), ticket, &at);
            let Standing::Until(until) = standing else { return };
            self.waiters[at].sleeps_until = super::second(until);
        }
    }

    /// A second has passed: whoever slept until now looks round.
    pub(super) fn ticks(&mut self, now: u8) {
        for at in 0..self.waiters.len() {
            if self.waiters[at].sleeps_until <= now {
                self.looks_round(at, now);
            }
        }
    }

    /// Waiters are woken to watch the first one.
    fn watch(&mut self, watchers: impl IntoIterator<Item = Option<usize>>, now: u8, mutant: Option<Mutant>) {
        for watcher in watchers.into_iter().flatten().filter(|_| mutant != Some(Mutant::NobodyWatchesAnew)) {
            self.waiters[watcher].sleeps_until = now;
            self.looks_round(watcher, now);
        }
    }

    /// The instant from which the first one may try.
    pub(super) fn may_try(&self, at: usize, now: u8, mutant: Option<Mutant>) -> bool {
        match self.waiters[at].phase {
            Phase::First => {
                self.turns.clone().first_try_at(instant(now), &limits()).is_none_or(|at| at <= instant(now))
            }
            Phase::Pausing(until) => {
                let others_until = self.turns.next_look(instant(now), &limits(), Duration::ZERO);
                let woken = self.is_first(at)
                    && self.woken
                    && (others_until <= instant(now) || mutant == Some(Mutant::WokenPastOthers));
                until <= now && mutant != Some(Mutant::NoLooks) || woken
            }
            _ => false,
        }
    }

    /// The first one tries, or looks.
    pub(super) fn tries(&mut self, at: usize, now: u8) {
        if self.was_passed_over(at, now) {
            return self.returns(at, now);
        }
        self.was_tried(at, now);
        let is_first_try = self.waiters[at].phase == Phase::First;
        if let Some(ticket) = self.waiters[at].ticket {
            if !is_first_try {
                self.turns.withdraws(ticket);
            }
            self.turns.asks(self.due(instant(now)), &limits(), ticket);
        }
        self.woken &= is_first_try || !self.is_first(at);
        let waiter = &mut self.waiters[at];
        let unsure = now < waiter.unsure_until;
        // A look before a claim that has no chance changes nothing.
        waiter.asks(Request::Claim { nonce: waiter.nonce, unsure }, now);
        waiter.phase = Phase::Asking;
    }

    /// Whether a waiter has lost its place to another one, and has nothing at the server.
    fn was_passed_over(&self, at: usize, now: u8) -> bool {
        let waiter = &self.waiters[at];
        let passed_over = waiter.ticket.is_some_and(|ticket| self.turns.is_passed_over(ticket));
        passed_over && now >= waiter.unsure_until
    }

    fn returns(&mut self, at: usize, now: u8) {
        let Some(ticket) = self.waiters[at].ticket else { return };
        let standing = self.turns.stands(instant(now), &limits(), ticket, &at);
        let is_first = matches!(standing, Standing::First(_));
        self.waiters[at].phase = if is_first { Phase::First } else { Phase::Behind };
        self.looks_round(at, now);
    }

    fn was_tried(&mut self, at: usize, now: u8) {
        if self.waiters[at].phase == Phase::First {
            self.turns.first_try_at(instant(now), &limits());
        }
        let holds = |waiter: &Waiter| {
            matches!(waiter.phase, Phase::Holding { .. } | Phase::HandingOver { .. } | Phase::Releasing { .. })
        };
        self.waiters[at].was_ours = self.waiters.iter().any(holds);
    }

    /// The instant by which the first one gives a sign, for the turns.
    fn due(&self, at: BootInstant) -> BootInstant {
        if self.may_be_late { at } else { instant(u8::MAX) }
    }

    fn is_first(&self, at: usize) -> bool {
        self.waiters[at].ticket.is_some_and(|ticket| self.turns.is_first(ticket))
    }

    /// Whether the first one was told that it is that.
    pub(super) fn first_knows_it(&self) -> bool {
        (0..self.waiters.len()).all(|at| self.waiters[at].phase != Phase::Behind || !self.is_first(at))
    }

    /// Whether this waiter may take the first one's place now.
    pub(super) fn may_take_place(&self, at: usize, now: u8, mutant: Option<Mutant>) -> bool {
        let Some(ticket) = self.waiters[at].ticket.filter(|_| self.waiters[at].phase == Phase::Behind) else {
            return false;
        };
        let standing = self.turns.clone().stands(instant(now), &limits(), ticket, &at);
        let is_awake = now >= self.waiters[at].sleeps_until;
        is_awake && matches!(standing, Standing::First(_)) && mutant != Some(Mutant::PlaceNeverTaken)
    }

    /// This waiter takes the place of the first one, which is late.
    pub(super) fn takes_place(&mut self, at: usize, now: u8, mutant: Option<Mutant>) {
        let Some(ticket) = self.waiters[at].ticket else { return };
        if let Standing::First(watcher) = self.turns.stands(instant(now), &limits(), ticket, &at) {
            (self.waiters[at].phase, self.woken) = (Phase::First, false);
            self.watch([watcher], now, mutant);
        }
    }

    /// Whether a waiter can be kept without being polled: it has asked for nothing that is under way.
    pub(super) fn may_be_still(&self, at: usize) -> bool {
        let waits = matches!(self.waiters[at].phase, Phase::Behind | Phase::First | Phase::Pausing(_));
        waits && !self.waiters[at].is_gone
    }

    /// The holder releases the lock, or hands it over.
    pub(super) fn releases(&mut self, at: usize, now: u8, mutant: Option<Mutant>) {
        let Phase::Holding { until, own } = self.waiters[at].phase else { return };
        let pausing = self.waiters.iter().position(|waiter| matches!(waiter.phase, Phase::Pausing(_)));
        let to = self.turns.hands_over(instant(now));
        let to = if mutant == Some(Mutant::HandedPastOthers) { to.or(pausing) } else { to };
        if let Some(to) = to {
            self.waiters[to].phase = Phase::Handed;
            self.row += 1;
            let nonce = self.waiters[to].nonce;
            self.waiters[at].phase = Phase::HandingOver { to, until, own };
            return self.waiters[at].asks(Request::HandOver { own, to: nonce }, now);
        }
        self.waiters[at].phase = Phase::Releasing { handed: HandedOver::No, own, until };
        let others_until = self.turns.next_look(instant(now), &limits(), Duration::ZERO);
        // A claim of one that was passed over may be on its way.
        let none_asks = self.waiters.iter().all(|waiter| waiter.asks.is_none());
        self.yields |= pausing.is_some() && none_asks && others_until > instant(now);
    }

    /// Releases the lock, or undoes what may be there; the answer is lost if so said.
    pub(super) fn ends(&mut self, at: usize, server: &mut Server, is_lost: bool, mutant: Option<Mutant>) {
        let now = server.now;
        if let Phase::Releasing { handed, own, until } = self.waiters[at].phase {
            let is_there = server.release(own, mutant);
            if is_lost {
                self.waiters[at].phase = Phase::Undoing;
                return;
            }
            let was_held = handed.was_held(usize::from(is_there), usize::from(!is_there));
            self.false_loss |= now < until && was_held == Some(false) && server.life == 0;
        } else {
            server.undo(self.waiters[at].nonce);
            self.waiters[at].unsure_until = 0;
        }
        self.waiters[at].ends(now);
        self.wakes(now, mutant);
    }

    /// Whether something is to be released or undone now: what was not answered may be carried out until then.
    pub(super) fn may_end(&self, at: usize, server: &Server) -> bool {
        match self.waiters[at].phase {
            Phase::Releasing { .. } => true,
            // It looks again and again: something that is found is not on its way any more.
            Phase::Undoing => server.now >= self.waiters[at].unsure_until || server.holds(self.waiters[at].nonce),
            _ => false,
        }
    }

    /// A waiter gives up. What it has asked for is carried through first.
    pub(super) fn gives_up(&mut self, at: usize, now: u8, mutant: Option<Mutant>) {
        self.waiters[at].is_gone = true;
        self.goes(at, now, mutant);
        match self.waiters[at].phase {
            Phase::Asking | Phase::Handed => {}
            _ => self.waiters[at].ends(now),
        }
    }

    fn goes(&mut self, at: usize, now: u8, mutant: Option<Mutant>) {
        let Some(ticket) = self.waiters[at].ticket.take() else { return };
        let [next, nearest, watcher] = self.turns.goes(self.due(instant(now)), ticket);
        if let Some(next) = next.filter(|_| mutant != Some(Mutant::TurnNotPassedOn)) {
            self.waiters[next].phase = Phase::First;
        }
        self.watch([nearest, watcher], now, mutant);
    }

    /// The lock may be free.
    fn wakes(&mut self, now: u8, mutant: Option<Mutant>) {
        let others_until = self.turns.next_look(instant(now), &limits(), Duration::ZERO);
        let is_left_out = mutant == Some(Mutant::NotWokenForOthers) && others_until > instant(now);
        self.woken |= self.turns.is_waited_in() && !is_left_out;
        let pauses = |at: usize| matches!(self.waiters[at].phase, Phase::Pausing(_)) && self.is_first(at);
        self.sleeps_on |= !self.woken && (0..self.waiters.len()).any(pauses);
    }

    /// The request of a waiter is answered, or nobody knows what became of it.
    pub(super) fn hears(&mut self, at: usize, server: &mut Server, mutant: Option<Mutant>) {
        let Some((request, sent, reply)) = self.waiters[at].asks.take() else { return };
        let now = server.now;
        match (request, reply) {
            (Request::Claim { .. }, Some(Reply::Claimed { won, epoch })) => {
                self.claimed(at, won, epoch, sent, server, mutant);
            }
            (Request::Claim { .. }, _) => {
                self.waiters[at].unsure_until = sent + OP_TIMEOUT + TTL + MARGIN;
                self.tried(at, Tried::Failed { may_pass: true }, now);
            }
            (Request::HandOver { .. }, reply) => self.handed_over(at, sent, reply, now, mutant),
        }
    }

    /// A try has ended without the lock.
    fn tried(&mut self, at: usize, tried: Tried, now: u8) {
        if self.waiters[at].is_gone {
            self.waiters[at].phase = Phase::Undoing;
            return;
        }
        let was_ours = std::mem::take(&mut self.waiters[at].was_ours);
        if let AfterTry::Pauses(least) = self.turns.tried(instant(now), &limits(), tried, was_ours) {
            let until = self.turns.next_look(instant(now), &limits(), least.max(PAUSE));
            if let Some(ticket) = self.waiters[at].ticket {
                self.turns.pauses_until(self.due(until), ticket);
                self.turns.offers(ticket, at);
            }
            self.waiters[at].phase = Phase::Pausing(super::second(until));
        }
    }

    fn claimed(
        &mut self,
        at: usize,
        won: Option<(u8, u8)>,
        epoch: SeenEpoch,
        sent: u8,
        server: &mut Server,
        mutant: Option<Mutant>,
    ) {
        let now = server.now;
        let verdict = self.judges(epoch, sent, now);
        let counts = matches!(verdict, GateVerdict::Counts(_)) || mutant == Some(Mutant::EpochNotRead);
        match (won, verdict) {
            (Some(_), _) if self.waiters[at].is_gone => self.waiters[at].phase = Phase::Undoing,
            (Some((cas, life)), _) if counts => {
                let was_ours = std::mem::take(&mut self.waiters[at].was_ours);
                self.turns.tried(instant(now), &limits(), Tried::Granted, was_ours);
                self.row = 0;
                let from = if mutant == Some(Mutant::ClaimFromAnswer) { now } else { sent };
                self.holds(at, Own { nonce: self.waiters[at].nonce, cas, life }, from, now, mutant);
            }
            (_, GateVerdict::No(why)) => {
                if mutant != Some(Mutant::ClaimLeft) {
                    server.undo(self.waiters[at].nonce);
                }
                if why.can_be_tended(false) || mutant == Some(Mutant::OpenedAtOnce) {
                    self.tends(server, mutant);
                }
                self.tried(at, Tried::NotNow(why.pause()), now);
            }
            _ => self.tried(at, Tried::Held, now),
        }
    }

    fn holds(&mut self, at: usize, own: Own, from: u8, now: u8, mutant: Option<Mutant>) {
        self.waiters[at].phase = Phase::Holding { until: from + TTL, own };
        self.is_greedy |= self.yields;
        self.goes(at, now, mutant);
    }

    fn handed_over(&mut self, at: usize, sent: u8, reply: Option<Reply>, now: u8, mutant: Option<Mutant>) {
        let Phase::HandingOver { to, until, own } = self.waiters[at].phase else { return };
        let (answer, done) = match reply {
            Some(Reply::HandedOver { done: Some(done), epoch }) => {
                let counts = matches!(self.judges(epoch, sent, now), GateVerdict::Counts(_));
                (HandOverAnswer::Done { lasts: true, counts }, Some(done))
            }
            None if mutant != Some(Mutant::SilenceIsRefusal) => (HandOverAnswer::Unknown, None),
            _ => (HandOverAnswer::NotDone, None),
        };
        let handed = HandedOver::by(answer);
        if handed == HandedOver::Perhaps {
            self.waiters[to].unsure_until = sent + OP_TIMEOUT + TTL + MARGIN;
        }
        match done.filter(|_| handed == HandedOver::Granted) {
            Some(_) if self.waiters[to].is_gone && mutant == Some(Mutant::NoUndo) => self.waiters[to].ends(now),
            Some(_) if self.waiters[to].is_still => {}
            Some((cas, life)) if !self.waiters[to].is_gone => {
                let from = if mutant == Some(Mutant::HandOverFromAnswer) { now } else { sent };
                self.holds(to, Own { nonce: self.waiters[to].nonce, cas, life }, from, now, mutant);
            }
            _ if self.waiters[to].is_gone => self.waiters[to].phase = Phase::Undoing,
            // It looks for itself.
            _ => self.waiters[to].phase = Phase::Pausing(now),
        }
        if handed.ends_release() {
            return self.waiters[at].ends(now);
        }
        self.waiters[at].phase = Phase::Releasing { handed, own, until };
    }
}

fn limits() -> WaitLimits {
    WaitLimits {
        since: instant(0),
        deadline: Deadline::NEVER,
        patience: Duration::from_secs(1000),
        op_timeout: Duration::from_secs(OP_TIMEOUT.into()),
        longest_pause: PAUSE,
    }
}
