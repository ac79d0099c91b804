//! The lease as a pure state machine: no I/O, no clock of its own, no task.
//!
//! Each [`LeaseState::step`] takes the present instant and an event, and answers with what is to be done. The rules:
//!
//! - A lease counts from the instant at which its request was **sent**, less a margin of 1 % for the rates of the two
//!   clocks and the granularity of the server's expiry.
//! - A passed deadline is final. Whoever looks first (a user's `is_held`, the keeper, an answer that comes too late)
//!   makes it so; no later answer revives the lease.
//! - An unknown answer never extends a lease, and never ends it either.

mod event;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use event::{Actions, Answer, Event};

use crate::clock::BootInstant;
use crate::driver::Grant;
use crate::loss::LossReason;
use crate::options::LeaseOptions;

/// The first pause before a renewal is tried again after an unknown answer.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// The longest pause between two such tries.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// The pause before a grant that was handed over for a short time is claimed.
const CLAIM_AFTER: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Held,
    Released,
    /// Boxed: a lease that is held has no room for it.
    Lost(Box<LossReason>),
}

/// The state of one lease.
#[derive(Debug, Clone)]
pub struct LeaseState {
    phase: Phase,
    options: LeaseOptions,
    granularity: Duration,
    /// The instant at which the grant was asked for.
    asked_at: BootInstant,
    held_since: BootInstant,
    deadline: BootInstant,
    renew_at: BootInstant,
    /// The instant at which the renewal that is under way was sent.
    in_flight: Option<BootInstant>,
    unanswered: u32,
    claimed: bool,
    /// The instant until which the holder has asked to hold: a server that grants it in parts is asked again until then.
    asked_until: BootInstant,
    /// The instant until which calls that attend the lease want to hold. It is taken back when the last of them is over.
    prolonged_until: BootInstant,
    /// The instant until which the server keeps the grant, margins aside.
    kept_until: BootInstant,
    /// The time for which the server kept it at its last answer, short extensions by hand aside.
    kept_for: Duration,
    /// The instant until which it counts by the longest answer that gave all that was asked for, whatever `max_hold` is.
    full_until: BootInstant,
    /// The instant until which the server may keep the grant by itself, whatever it has answered.
    may_last_until: BootInstant,
    /// The instant since which the server may have forgotten the grant; answers to earlier renewals do not dispel that.
    suspect_since: BootInstant,
    /// Whether no renewal that was sent since then has confirmed the grant.
    is_suspected: bool,
    /// Whether the holder has asked for a renewal, and none was answered since.
    is_prolonged: bool,
    /// The number of calls that have the lock and are not over yet.
    attendants: u32,
    /// Whether those calls ask for every renewal, as often as they would come by choice, and the lease is renewed by choice after them.
    is_attended: bool,
}

impl LeaseState {
    /// The lease of a fresh grant, which its holder has from `now` on.
    #[must_use]
    pub fn new(grant: &Grant, now: BootInstant, options: LeaseOptions, granularity: Duration) -> Self {
        let mut state = Self {
            phase: Phase::Held,
            options,
            granularity,
            asked_at: grant.sent_at,
            held_since: now,
            deadline: grant.sent_at,
            renew_at: BootInstant::FAR_FUTURE,
            in_flight: None,
            unanswered: 0,
            claimed: !grant.claim,
            asked_until: grant.sent_at.plus(options.ttl),
            prolonged_until: grant.sent_at,
            kept_until: grant.sent_at,
            kept_for: grant.valid_for,
            full_until: grant.sent_at,
            may_last_until: grant.sent_at.plus(options.ttl.max(grant.valid_for)),
            suspect_since: grant.sent_at,
            is_suspected: false,
            is_prolonged: false,
            attendants: 0,
            is_attended: false,
        };
        state.extend_to(grant.sent_at, grant.valid_for, options.ttl);
        if grant.claim {
            // A claim is sent even when the lease is not renewed by itself. It is due almost at once, after the hand-over and not
            // after the waiter's last question: a lock that is released meanwhile needs no claim.
            state.renew_at = now.plus(CLAIM_AFTER.min(state.deadline.since(now) / 10));
        }
        state
    }

    /// Whether the lock is held at `now`. A passed deadline is final: every later step finds it passed.
    #[must_use]
    pub fn is_held(&self, now: BootInstant) -> bool {
        self.phase == Phase::Held && now < self.deadline
    }

    /// Whether the lock was released.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.phase == Phase::Released
    }

    /// Whether the grant is a whole one, rather than a short one that is to be claimed.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.claimed
    }

    /// Whether its renewals, which would come by choice, are asked for by calls that have the lock and are not over yet.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.is_attended
    }

    /// Returns the time that is left at least as long as every renewal comes in time: what is left of a whole lease, or of the part of
    /// it that the server keeps at a time, when the next one is due or, if it is not renewed, at its beginning.
    #[must_use]
    pub fn least_left(&self) -> Duration {
        if self.claimed && self.is_in_parts() {
            let left = self.kept_for.saturating_sub(self.margin_of(self.kept_for));
            return left.saturating_sub(self.interval_in_parts(self.kept_for));
        }
        let LeaseOptions { ttl, auto_renew, .. } = self.options;
        let left = ttl.saturating_sub(self.margin_of(ttl));
        if auto_renew || self.is_attended { left.saturating_sub(self.options.renewal_interval()) } else { left }
    }

    /// Returns the reason of the loss, if the lease was lost and somebody has looked.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.phase {
            Phase::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the strongest options of all who hold by this grant.
    #[must_use]
    pub fn options(&self) -> LeaseOptions {
        self.options
    }

    /// Returns the instant until which the holder may believe in its lock.
    #[must_use]
    pub fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// Returns for how long the lock was held until `now`, or until its lease ended.
    #[must_use]
    pub fn held_for(&self, now: BootInstant) -> Duration {
        now.min(self.deadline).since(self.held_since)
    }

    /// Returns the instant until which the server may keep the grant by itself: one that was asked for more may have given it,
    /// although no answer came.
    #[must_use]
    pub fn may_last_until(&self) -> BootInstant {
        self.may_last_until
    }

    /// Takes note that the server is asked, at `now`, to keep the grant for `ttl`.
    pub fn asks(&mut self, now: BootInstant, ttl: Duration) {
        self.may_last_until = self.may_last_until.max(now.plus(ttl));
    }

    /// The TTL to ask for at `now`: the chosen one, or more where the lease was extended by hand; without renewal, what
    /// is left of what was asked for.
    #[must_use]
    pub fn ttl_to_ask(&self, now: BootInstant) -> Duration {
        let ttl =
            if self.options.auto_renew || !self.claimed { self.options.ttl } else { self.wanted_until().since(now) };
        ttl.max(self.deadline.since(now).min(LeaseOptions::MAX_TTL))
    }

    /// Returns the instant at which the state machine wants to be called again.
    #[must_use]
    pub fn wake_at(&self) -> Option<BootInstant> {
        match self.phase {
            Phase::Held => Some(self.renew_at.max(self.overdue_at()).min(self.deadline)),
            _ => None,
        }
    }

    /// Takes an event and answers what is to be done.
    pub fn step(&mut self, now: BootInstant, event: Event) -> Actions {
        let mut actions = Actions::default();
        if event == Event::Release {
            if self.phase == Phase::Held && now >= self.deadline {
                // Only our clock says so: the entry may still be at the server, and keep others out.
                self.lose(LossReason::Expired, true, &mut actions);
            } else if self.phase == Phase::Held {
                self.phase = Phase::Released;
            }
            return actions;
        }
        if let Event::NotHeld(reason) = event {
            // A release that found nothing was a loss: this is the only way out of `Released`.
            if self.phase == Phase::Released {
                self.lose(reason, false, &mut actions);
            }
            return actions;
        }
        if let Event::Answer { .. } = event {
            self.in_flight = None;
        }
        if self.phase != Phase::Held {
            return actions;
        }
        if now >= self.deadline {
            self.lose(LossReason::Expired, true, &mut actions);
            return actions;
        }
        match event {
            Event::Tick if now >= self.renew_at && now >= self.overdue_at() => {
                self.in_flight = Some(now);
                let ttl = self.ttl_to_ask(now);
                self.asks(now, ttl);
                actions.renew = Some(ttl);
            }
            Event::Tick | Event::Release | Event::NotHeld(_) => {}
            Event::Require(options) => self.require(options, now),
            Event::Attend => self.attend(now),
            Event::Unattend => self.unattend(),
            Event::Prolong => {
                self.prolong(now);
                self.renew_at = self.renew_at.min(now);
            }
            Event::Suspect => {
                self.suspect_since = now;
                self.verify_at(now);
            }
            Event::Answer { sent_at, answer: Answer::Renewed(valid_for) } => {
                self.extended(now, sent_at, valid_for, valid_for, &mut actions);
            }
            Event::Answer { sent_at, answer: Answer::Part { valid_for, asked } } => {
                self.extended(now, sent_at, valid_for, asked, &mut actions);
            }
            Event::Answer { answer: Answer::Held | Answer::Unknown, .. } => {
                let pause = FIRST_RETRY * 2_u32.saturating_pow(self.unanswered.min(10));
                self.unanswered += 1;
                if self.is_renewed() {
                    self.renew_at = now.plus(pause.min(LONGEST_RETRY));
                }
            }
            Event::Refused => {
                self.lose(LossReason::Taken, true, &mut actions);
                return actions;
            }
            // It tells late of an earlier grant of the attempt, or of a wait that ended: in a former session, say.
            Event::Notice { lost_by, .. } if lost_by < self.asked_at => {}
            Event::Answer { answer: Answer::Lost(reason), .. } | Event::Notice { reason, .. } => {
                // The server says that nothing is there: nothing is to be discarded.
                self.lose(reason, false, &mut actions);
                return actions;
            }
        }
        actions.wake_at = self.wake_at();
        actions
    }

    /// A renewal was answered: the server keeps the grant for `valid_for` of the time that was asked for.
    fn extended(
        &mut self,
        now: BootInstant,
        sent_at: BootInstant,
        valid_for: Duration,
        asked: Duration,
        actions: &mut Actions,
    ) {
        self.unanswered = 0;
        self.claimed = true;
        self.asked_until = self.asked_until.max(sent_at.plus(asked));
        self.is_prolonged = false;
        self.extend_to(sent_at, valid_for, asked);
        if sent_at < self.suspect_since {
            // The server may have forgotten the grant after it gave this answer, unless a later one has confirmed it already.
            if self.is_suspected {
                self.verify_at(now);
            }
        } else {
            self.is_suspected = false;
        }
        if !self.is_renewed() {
            self.renew_at = BootInstant::FAR_FUTURE;
        }
        if now >= self.deadline {
            self.lose(LossReason::Expired, true, actions);
        }
    }

    /// Takes the holder's word that it wants one TTL from now on.
    fn prolong(&mut self, now: BootInstant) {
        self.prolonged_until = self.prolonged_until.max(now.plus(self.options.ttl));
        self.is_prolonged = true;
    }

    fn attend(&mut self, now: BootInstant) {
        self.attendants = self.attendants.saturating_add(1);
        if self.attendants == 1 {
            self.is_attended = std::mem::take(&mut self.options.auto_renew);
        }
        if self.is_attended {
            // The renewal that is due next is the holder's: many short calls one after the other put it off for ever otherwise.
            if self.renew_at == BootInstant::FAR_FUTURE {
                self.renew_at = self.due();
            }
            self.prolong(now);
        }
    }

    fn unattend(&mut self) {
        self.attendants = self.attendants.saturating_sub(1);
        if self.attendants == 0 && std::mem::take(&mut self.is_attended) {
            self.options.auto_renew = true;
            // What they wanted and have not got is nobody's wish any more. What was asked for by hand meanwhile is another matter.
            self.prolonged_until = self.asked_at;
            self.is_prolonged = false;
            self.renew_at = self.renew_at.min(self.due());
        }
    }

    fn require(&mut self, required: LeaseOptions, now: BootInstant) {
        let interval = self.options.renewal_interval().min(required.renewal_interval());
        let longer = required.ttl > self.options.ttl;
        self.options.ttl = self.options.ttl.max(required.ttl);
        self.options.renew_every = Some(interval);
        self.options.auto_renew |= required.auto_renew;
        if self.options.auto_renew {
            // A shorter interval counts from the last renewal, which made the lease as long as it is.
            self.renew_at = self.renew_at.min(if longer { now } else { self.due() });
        }
    }

    /// The instant at which a lease that is renewed by choice is due.
    fn due(&self) -> BootInstant {
        if self.is_in_parts() {
            self.kept_until.minus(self.kept_for).plus(self.interval_in_parts(self.kept_for))
        } else {
            self.due_after_full()
        }
    }

    /// The instant at which the renewal under way, if any, is given up: it may have gone with the task that sent it.
    fn overdue_at(&self) -> BootInstant {
        let interval = match self.claimed && !self.wants_more() {
            true => self.options.renewal_interval(),
            false => self.interval_in_parts(self.kept_for),
        };
        match self.in_flight {
            // Its answer cannot dispel the doubt.
            Some(sent) if self.is_suspected && sent < self.suspect_since => self.held_since,
            Some(sent) => sent.plus(interval),
            None => self.held_since,
        }
    }

    /// Has a renewal sent at once, also of a lease that is not renewed by choice: that one asks for no more than what is left of it.
    fn verify_at(&mut self, now: BootInstant) {
        self.is_suspected = true;
        self.renew_at = self.renew_at.min(now);
    }

    /// Whether the keeper renews this lease: by choice, because it has to be claimed first, because the server has kept only a part of
    /// what was asked for, because the server may have forgotten it, or because the holder has asked for it.
    fn is_renewed(&self) -> bool {
        self.options.auto_renew || !self.claimed || self.wants_more() || self.is_suspected || self.is_prolonged
    }

    /// Whether the server keeps only a part of what it was asked for.
    fn is_in_parts(&self) -> bool {
        self.is_short_of(self.asked_until)
    }

    /// Whether the server keeps less than the holder wants, be it that it was not asked for that yet.
    fn wants_more(&self) -> bool {
        self.is_short_of(self.wanted_until())
    }

    fn wanted_until(&self) -> BootInstant {
        self.asked_until.max(self.prolonged_until)
    }

    fn is_short_of(&self, until: BootInstant) -> bool {
        // Servers count in coarser units than we ask in.
        self.kept_until.plus(self.granularity) < until
    }

    /// The server keeps the grant for `valid_for` from `sent_at` at least, and was asked for `asked`.
    fn extend_to(&mut self, sent_at: BootInstant, valid_for: Duration, asked: Duration) {
        let mut end = self.end_of(sent_at, valid_for);
        self.kept_until = self.kept_until.max(sent_at.plus(valid_for));
        // Servers count in coarser units than we ask in.
        let is_part = valid_for.saturating_add(self.granularity) < asked;
        if !is_part {
            self.full_until = self.full_until.max(self.end_of(sent_at, valid_for.max(asked)));
        }
        // A short extension by hand says nothing of what the server keeps at a time, and nothing of when a renewal is due.
        let is_short = !is_part && valid_for < self.options.ttl;
        if !is_short {
            self.kept_for = valid_for;
        }
        let renew_at = match (self.wants_more(), self.options.auto_renew) {
            (true, _) if is_short => self.renew_at,
            // The next part is due, even where nothing is renewed by choice: the holder has asked for more than this one.
            (true, auto_renew) if is_part || !auto_renew => sent_at.plus(self.interval_in_parts(valid_for)),
            (_, true) => self.due_after_full(),
            (_, false) => BootInstant::FAR_FUTURE,
        };
        if let Some(max) = self.options.max_hold {
            end = end.min(self.held_since.plus(max));
        }
        // An answer that was overtaken by a longer extension takes nothing away.
        if end >= self.deadline {
            self.deadline = end;
            self.renew_at = renew_at;
        } else if self.is_renewed() {
            self.renew_at = self.renew_at.max(renew_at);
        }
    }

    /// The instant at which as much is left as one interval after a lease of one TTL was granted. A longer extension by hand puts the next
    /// renewal off until then, a shorter one does not.
    fn due_after_full(&self) -> BootInstant {
        let ttl = self.options.ttl;
        self.full_until.plus(self.margin_of(ttl).saturating_add(self.options.renewal_interval())).minus(ttl)
    }

    /// The part of the time for which the server keeps a grant that its holder counts on: all of it but 1 %, for the rates of two clocks,
    /// and the coarseness of the server's expiry.
    #[must_use]
    pub fn counted(kept_for: Duration, granularity: Duration) -> Duration {
        kept_for.saturating_sub(kept_for / 100 + granularity)
    }

    /// The instant until which a lease counts that is kept for this time from `sent_at` on.
    fn end_of(&self, sent_at: BootInstant, kept_for: Duration) -> BootInstant {
        sent_at.plus(Self::counted(kept_for, self.granularity))
    }

    /// The part of this time that is not counted on.
    fn margin_of(&self, time: Duration) -> Duration {
        time.saturating_sub(Self::counted(time, self.granularity))
    }

    /// The time after which a lease is renewed of which the server keeps only a part at a time, of this length.
    fn interval_in_parts(&self, kept_for: Duration) -> Duration {
        self.options.renewal_interval().min(kept_for / 3).max(LeaseOptions::MIN_INTERVAL)
    }

    fn lose(&mut self, reason: LossReason, discard: bool, actions: &mut Actions) {
        self.phase = Phase::Lost(Box::new(reason.clone()));
        actions.lost = Some(reason);
        actions.discard = discard;
    }
}
