//! The lease as a pure state machine: no I/O, no clock of its own, no task.
//!
//! Each [`LeaseState::step`] takes the present instant and an event, and answers with what is to be done. The rules:
//!
//! - A lease counts from the instant at which its request was **sent**, less a margin of 1 % for the rates of the two
//!   clocks and the granularity of the server's expiry.
//! - A passed deadline is final. Whoever looks first (a user's `is_held`, the keeper, an answer that comes too late)
//!   makes it so; no later answer revives the lease.
//! - An unknown answer never extends a lease, and never ends it either.

use std::time::Duration;

use super::LossReason;
use crate::backend::Grant;
use crate::clock::BootInstant;
use crate::options::LeaseOptions;

/// How soon a renewal is tried again after an unknown answer, at first.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// The longest pause between two such tries.
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// How soon a grant that was handed over for a short time is claimed.
const CLAIM_AFTER: Duration = Duration::from_millis(20);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time passed.
    Tick,
    /// A renewal that was sent at `sent_at` was answered.
    Answer {
        /// When the renewal was sent.
        sent_at: BootInstant,
        /// What the server said.
        answer: Answer,
    },
    /// The server announced that the grant is gone.
    Notice(LossReason),
    /// The server may have forgotten the grant: verify it now.
    Suspect,
    /// The holder gives the lock back; from now on nothing is renewed and no loss is signalled.
    Release,
}

/// The server's answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Extended by this much from the instant of sending.
    Renewed(Duration),
    /// Extended by a part of what was asked for: the server keeps the rest too, if it is asked again in time.
    Part {
        /// By how much, from the instant of sending.
        valid_for: Duration,
        /// What was asked for.
        asked: Duration,
    },
    /// Still there, not extended.
    Held,
    /// Gone.
    Lost(LossReason),
    /// Nothing known.
    Unknown,
}

impl Answer {
    /// What it means that the server keeps a grant for `valid_for` when it was asked for `asked`.
    #[must_use]
    pub fn kept(valid_for: Duration, asked: Duration) -> Self {
        if valid_for < asked { Self::Part { valid_for, asked } } else { Self::Renewed(valid_for) }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// Send a renewal with this TTL now.
    pub renew: Option<Duration>,
    /// Tell the holder that the lock is lost. Comes at most once in a lease's life.
    pub lost: Option<LossReason>,
    /// Delete the entry at the server when it can be reached.
    pub discard: bool,
    /// When to come back with a [`Event::Tick`]; `None` if never.
    pub wake_at: Option<BootInstant>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Held,
    Released,
    Lost(LossReason),
}

/// The state of one lease.
#[derive(Debug, Clone)]
pub struct LeaseState {
    phase: Phase,
    options: LeaseOptions,
    granularity: Duration,
    granted_at: BootInstant,
    deadline: BootInstant,
    renew_at: BootInstant,
    /// When the renewal that is under way was sent.
    in_flight: Option<BootInstant>,
    unanswered: u32,
    claimed: bool,
    /// Until when the holder has asked to hold: a server that grants it in parts is asked again until then.
    asked_until: BootInstant,
    /// Until when the server keeps it, margins aside.
    kept_until: BootInstant,
    /// Since when the server may have forgotten the grant; answers to earlier renewals do not dispel that.
    suspect_since: BootInstant,
}

impl LeaseState {
    /// The lease of a fresh grant.
    #[must_use]
    pub fn new(grant: &Grant, options: LeaseOptions, granularity: Duration) -> Self {
        let mut state = Self {
            phase: Phase::Held,
            options,
            granularity,
            granted_at: grant.sent_at,
            deadline: grant.sent_at,
            renew_at: BootInstant::FAR_FUTURE,
            in_flight: None,
            unanswered: 0,
            claimed: !grant.claim,
            asked_until: grant.sent_at.plus(options.ttl),
            kept_until: grant.sent_at,
            suspect_since: grant.sent_at,
        };
        state.extend_to(grant.sent_at, grant.valid_for);
        if grant.claim {
            // A claim is sent even when the lease is not renewed by itself. It is due almost at once: a lock that is
            // given back meanwhile needs no claim.
            state.renew_at = grant.sent_at.plus(CLAIM_AFTER.min(grant.valid_for / 10));
        }
        state
    }

    /// Whether the lock is held at `now`. A passed deadline is final: every later step finds it passed.
    #[must_use]
    pub fn is_held(&self, now: BootInstant) -> bool {
        self.phase == Phase::Held && now < self.deadline
    }

    /// Whether the lock was given back.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.phase == Phase::Released
    }

    /// Why it was lost, if it was and somebody has looked.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.phase {
            Phase::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// Until when the holder may believe in its lock.
    #[must_use]
    pub fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// The TTL to ask for at `now`: the chosen one, or more where the lease was extended by hand; without renewal, what
    /// is left of what was asked for.
    #[must_use]
    pub fn ttl_to_ask(&self, now: BootInstant) -> Duration {
        let ttl = if self.options.auto_renew || !self.claimed { self.options.ttl } else { self.asked_until.since(now) };
        ttl.max(self.deadline.since(now).min(LeaseOptions::MAX_TTL))
    }

    /// When the state machine wants to be called again.
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
                self.lose(LossReason::Expired, true, &mut actions);
            } else if self.phase == Phase::Held {
                self.phase = Phase::Released;
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
                actions.renew = Some(self.ttl_to_ask(now));
            }
            Event::Tick | Event::Release => {}
            Event::Suspect => {
                self.suspect_since = now;
                self.verify_now(now);
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
            Event::Answer { answer: Answer::Lost(reason), .. } | Event::Notice(reason) => {
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
        self.extend_to(sent_at, valid_for);
        if sent_at < self.suspect_since {
            self.verify_now(now);
        }
        if now >= self.deadline {
            self.lose(LossReason::Expired, true, actions);
        }
    }

    /// When the renewal under way, if any, is given up as lost: it may have gone with the task that sent it.
    fn overdue_at(&self) -> BootInstant {
        self.in_flight.map_or(self.granted_at, |sent| sent.plus(self.options.renewal_interval()))
    }

    /// Has the next renewal sent at once, if there is to be one.
    fn verify_now(&mut self, now: BootInstant) {
        if self.is_renewed() {
            self.renew_at = self.renew_at.min(now);
        }
    }

    /// Whether the keeper renews this lease: by choice, because it has to be claimed first, or because the server has kept
    /// only a part of what was asked for.
    fn is_renewed(&self) -> bool {
        self.options.auto_renew || !self.claimed || self.is_in_parts()
    }

    fn is_in_parts(&self) -> bool {
        // Servers count in coarser units than we ask in.
        self.kept_until.plus(self.granularity) < self.asked_until
    }

    /// The server keeps the grant for `valid_for` from `sent_at` at least.
    fn extend_to(&mut self, sent_at: BootInstant, valid_for: Duration) {
        let margin = valid_for / 100 + self.granularity;
        let mut end = sent_at.plus(valid_for.saturating_sub(margin));
        let mut renew_at = BootInstant::FAR_FUTURE;
        if self.options.auto_renew {
            // Due one interval after the lease was full; an extension by hand puts the next renewal off.
            let surplus = valid_for.saturating_sub(self.options.ttl);
            renew_at = sent_at.plus(surplus.saturating_add(self.options.renewal_interval()));
        }
        self.kept_until = self.kept_until.max(sent_at.plus(valid_for));
        if self.is_in_parts() {
            renew_at = renew_at.min(sent_at.plus(self.options.renewal_interval().min(valid_for / 3)));
        }
        if let Some(max) = self.options.max_hold {
            end = end.min(self.granted_at.plus(max));
        }
        // An answer that was overtaken by a longer extension takes nothing away.
        if end >= self.deadline {
            self.deadline = end;
            self.renew_at = renew_at;
        } else if self.is_renewed() {
            self.renew_at = self.renew_at.max(renew_at);
        }
    }

    fn lose(&mut self, reason: LossReason, discard: bool, actions: &mut Actions) {
        self.phase = Phase::Lost(reason.clone());
        actions.lost = Some(reason);
        actions.discard = discard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    fn lease(options: LeaseOptions) -> LeaseState {
        LeaseState::new(&Grant::new(None, at(0), TTL), options, Duration::from_millis(2))
    }

    fn answer(sent: u64, answer: Answer) -> Event {
        Event::Answer { sent_at: at(sent), answer }
    }

    #[test]
    fn the_margin_is_one_per_cent_and_the_granularity() {
        assert_eq!(lease(LeaseOptions::with_ttl(TTL)).deadline(), at(3000 - 30 - 2));
    }

    #[test]
    fn renewals_are_due_every_third_and_count_from_their_sending() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        assert_eq!(lease.step(at(999), Event::Tick).renew, None);
        assert_eq!(lease.step(at(1000), Event::Tick).renew, Some(TTL));
        assert_eq!(lease.step(at(1001), Event::Tick).renew, None, "one renewal at a time");
        let actions = lease.step(at(1500), answer(1000, Answer::Renewed(TTL)));
        assert_eq!(lease.deadline(), at(1000 + 2968), "counted from the sending, not from the answer");
        assert_eq!(actions.wake_at, Some(at(2000)));
    }

    #[test]
    fn a_passed_deadline_is_final_and_told_once() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(1000), Event::Tick);
        assert!(!lease.is_held(at(2968)));
        let late = lease.step(at(2968), answer(1000, Answer::Renewed(TTL)));
        assert_eq!((late.lost, late.discard), (Some(LossReason::Expired), true));
        let again = lease.step(at(2969), answer(1000, Answer::Renewed(TTL)));
        assert_eq!(again, Actions::default());
        assert!(!lease.is_held(at(2970)));
    }

    #[test]
    fn a_renewal_that_is_never_answered_is_sent_again_after_an_interval() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        assert_eq!(lease.step(at(1000), Event::Tick).wake_at, Some(at(2000)));
        assert_eq!(lease.step(at(2000), Event::Tick).renew, Some(TTL));
        assert_eq!(lease.wake_at(), Some(at(2968)), "never past the deadline");
    }

    #[test]
    fn an_unknown_answer_neither_extends_nor_ends() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(1000), Event::Tick);
        let actions = lease.step(at(1100), answer(1000, Answer::Unknown));
        assert_eq!((actions.lost, actions.wake_at), (None, Some(at(1150))));
        assert_eq!(lease.deadline(), at(2968));
        assert_eq!(lease.step(at(1150), Event::Tick).renew, Some(TTL));
    }

    #[test]
    fn a_lease_that_is_there_and_was_not_extended_is_renewed_again_soon() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(1000), Event::Tick);
        let actions = lease.step(at(1100), answer(1000, Answer::Held));
        assert_eq!((lease.deadline(), actions.wake_at), (at(2968), Some(at(1150))));
    }

    #[test]
    fn a_suspicion_is_dispelled_only_by_a_renewal_that_was_sent_after_it() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(1000), Event::Tick);
        lease.step(at(1100), Event::Suspect);
        lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
        assert_eq!(lease.step(at(1200), Event::Tick).renew, Some(TTL));
        let verified = lease.step(at(1210), answer(1200, Answer::Renewed(TTL)));
        assert_eq!(verified.wake_at, Some(at(2200)));
        let mut kept_by_hand = LeaseState::new(
            &Grant::new(None, at(0), TTL),
            LeaseOptions::with_ttl(TTL).without_renewal(),
            Duration::ZERO,
        );
        kept_by_hand.step(at(100), Event::Suspect);
        assert_eq!(kept_by_hand.step(at(101), Event::Tick).renew, None);
    }

    #[test]
    fn after_a_release_nothing_is_signalled_or_renewed() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(10), Event::Release);
        assert!(!lease.is_held(at(11)));
        for event in [Event::Tick, Event::Notice(LossReason::Taken), answer(5, Answer::Lost(LossReason::Taken))] {
            assert_eq!(lease.step(at(5000), event), Actions::default());
        }
    }

    #[test]
    fn the_longest_hold_stops_renewals() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL).held_at_most(Duration::from_secs(4)));
        lease.step(at(1000), Event::Tick);
        lease.step(at(1001), answer(1000, Answer::Renewed(TTL)));
        lease.step(at(2000), Event::Tick);
        lease.step(at(2001), answer(2000, Answer::Renewed(TTL)));
        assert_eq!(lease.deadline(), at(4000));
        assert_eq!(lease.step(at(4000), Event::Tick).lost, Some(LossReason::Expired));
    }

    #[test]
    fn a_server_that_keeps_a_part_is_asked_again_in_time() {
        let part = |ms: u64, asked| Answer::Part { valid_for: Duration::from_millis(ms), asked };
        let grant = Grant::new(None, at(0), Duration::from_millis(900));
        let mut renewed = LeaseState::new(&grant, LeaseOptions::with_ttl(TTL), Duration::ZERO);
        assert_eq!(renewed.wake_at(), Some(at(300)), "a third of the part, not of the TTL");
        assert_eq!(renewed.step(at(300), Event::Tick).renew, Some(TTL));
        assert_eq!(renewed.step(at(310), answer(300, part(1200, TTL))).wake_at, Some(at(300 + 400)));

        let mut unrenewed = LeaseState::new(&grant, LeaseOptions::with_ttl(TTL).without_renewal(), Duration::ZERO);
        assert_eq!(unrenewed.step(at(300), Event::Tick).renew, Some(Duration::from_millis(2700)), "what is left of it");
        unrenewed.step(at(310), answer(300, part(900, Duration::from_millis(2700))));
        assert_eq!(unrenewed.step(at(600), Event::Tick).renew, Some(Duration::from_millis(2400)));
        unrenewed.step(at(610), answer(600, Answer::Renewed(Duration::from_millis(2400))));
        assert_eq!(unrenewed.step(at(2900), Event::Tick).renew, None, "all of it is kept");
        assert_eq!(unrenewed.step(at(2976), Event::Tick).lost, Some(LossReason::Expired), "and no more");
    }

    #[test]
    fn an_extension_by_hand_is_kept_in_parts_too() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL).without_renewal());
        let (asked, valid_for) = (Duration::from_secs(9), TTL);
        lease.step(at(1000), answer(1000, Answer::Part { valid_for, asked }));
        assert_eq!(lease.step(at(2000), Event::Tick).renew, Some(Duration::from_secs(8)));
    }

    #[test]
    fn a_claim_is_due_almost_at_once_even_without_renewal() {
        let grant = Grant::new(None, at(0), Duration::from_secs(2)).to_be_claimed();
        let mut lease = LeaseState::new(&grant, LeaseOptions::with_ttl(TTL).without_renewal(), Duration::ZERO);
        assert_eq!(lease.step(at(20), Event::Tick).renew, Some(TTL));
        lease.step(at(22), answer(21, Answer::Renewed(TTL)));
        assert_eq!(lease.deadline(), at(21 + 2970));
        assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
    }

    #[test]
    fn an_extension_by_hand_is_not_shortened_by_the_next_renewal() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(100), answer(100, Answer::Renewed(Duration::from_secs(60))));
        assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
        let due = 100 + 57_000 + 1000;
        assert_eq!(lease.step(at(due), Event::Tick).renew, Some(TTL));
    }

    #[test]
    fn a_failed_extension_by_hand_starts_no_renewals() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL).without_renewal());
        lease.step(at(100), answer(100, Answer::Unknown));
        assert_eq!(lease.step(at(1500), Event::Tick).renew, None);
    }

    #[test]
    fn a_renewal_that_was_overtaken_by_an_extension_takes_nothing_away() {
        let mut lease = lease(LeaseOptions::with_ttl(TTL));
        lease.step(at(1000), Event::Tick);
        lease.step(at(1100), answer(1050, Answer::Renewed(Duration::from_secs(60))));
        let extended = lease.deadline();
        lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
        assert_eq!(lease.deadline(), extended);
    }

    /// Every sequence of events of length six, at every order of instants: the invariants that a holder relies on.
    #[test]
    fn no_sequence_of_events_revives_a_lease_or_tells_a_loss_twice() {
        let events = [
            Event::Tick,
            answer(0, Answer::Renewed(TTL)),
            answer(900, Answer::Renewed(TTL)),
            answer(0, Answer::Unknown),
            answer(0, Answer::Lost(LossReason::Taken)),
            Event::Suspect,
            Event::Release,
        ];
        let times = [0, 1000, 2967, 2968, 3900, 9000];
        for code in 0..events.len().pow(6) {
            let mut lease = lease(LeaseOptions::with_ttl(TTL));
            let (mut rest, mut losses, mut ended) = (code, 0, false);
            for now in times {
                lease.step(at(now), events[rest % events.len()].clone()).lost.iter().for_each(|_| losses += 1);
                rest /= events.len();
                let held = lease.is_held(at(now));
                assert!(!(ended && held), "revived by sequence {code}");
                assert!(!held || now < 900 + 2968, "held past every deadline by sequence {code}");
                ended |= !held;
            }
            assert!(losses <= 1, "told {losses} times by sequence {code}");
        }
    }
}
