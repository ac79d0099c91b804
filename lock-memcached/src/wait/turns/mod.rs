//! Turns at one lock: which of this client's waiters asks the server, and when it looks again; which one a holder of this
//! client hands the lock to; when the clients of others have their turn.
//!
//! Decided without a clock, a server, a lock or a task: each event comes with its instant, and what is to be done is returned.
//!
//! A lock stays within one client only for so long, before others get their turn. Between a release and the next claim of the same
//! client there is no time in which the look of another one would meet the free lock, but by chance. So a client that was kept
//! waiting by others a moment ago, and one whose tasks hand a lock over to each other, leaves it free now and then.

mod fairness;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::clock::{BootInstant, Deadline};

use self::fairness::Fairness;

/// Time for which others count as wanting a lock after one of them kept us waiting for it.
pub(crate) const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// The time for which the first one is late before another takes its place: it is not polled.
const LATE: Duration = Duration::from_secs(1);
/// The time for which a planned look is late before its waiter is not handed the lock any more; and the time that is left to the first
/// one by whoever comes while it is late, since the runtime may have stood still for all.
const BRIEFLY_LATE: Duration = Duration::from_millis(100);
/// The number of waiters behind the first one that watch whether it is late. Whoever comes to be one of them is woken.
const WATCHERS: usize = 2;

/// The number of pauses within the patience, at least, once a look was not answered.
const LOOKS_IN_PATIENCE: u32 = 4;
/// The number of looks within the TTL of what a waiter has at the server, at least: one of them comes while it is due for renewal.
const LOOKS_IN_TTL: u32 = 3;
/// The number of times that one with a reason to hurry looks for each time that the client's pace allows, at most.
const HASTE: u32 = 16;

/// Number of a waiter in its queue, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Limits of one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimits {
    /// The beginning of the wait.
    pub since: BootInstant,
    /// The end of the wait.
    pub deadline: Deadline,
    /// The longest silence of the server that is borne.
    pub patience: Duration,
    /// The longest time that one request takes.
    pub op_timeout: Duration,
    /// The pause after a request that failed, at least.
    pub longest_pause: Duration,
}

/// Outcome of a try, as far as turns depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tried {
    /// The lock is the waiter's.
    Granted,
    /// Somebody else has the lock.
    Held,
    /// Nobody is granted anything now; worth another look after this pause.
    NotNow(Duration),
    /// No answer that says how it is; the wait may go on if that may pass.
    Failed {
        /// Whether another try may succeed.
        may_pass: bool,
    },
}

/// Step of the first waiter after a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterTry {
    /// The wait ends with the outcome of this try.
    Ends,
    /// A pause of this length at least, and another look.
    Pauses(Duration),
}

/// Step of a waiter that stands behind others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Standing<W> {
    /// The waiter stands there until then, or until it is woken.
    Until(BootInstant),
    /// The wait ends: the server was silent for this long.
    Silent(Duration),
    /// The wait ends without the lock.
    Over,
    /// The waiter is the first one: it has become that, or has taken the place of one that is not polled. Then another one is to be
    /// woken, which watches now.
    First(Option<W>),
}

/// Turns at one lock. `W` wakes a waiter that becomes the first one, or has to watch it; `O` is the first one's offer to be handed the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Turns<W, O> {
    /// The one that asks the server.
    first: Option<Ticket>,
    /// The waiters behind the first one, in order of arrival.
    behind: BTreeMap<Ticket, W>,
    /// The waiters whose place was taken while they were not polled, until they return.
    passed_over: BTreeSet<Ticket>,
    /// The instant by which the first one looks, or has its answer.
    due: BootInstant,
    /// The last number that was given.
    last: u64,
    /// Whether the first one has been answered once.
    has_tried: bool,
    offer: Option<O>,
    /// The turns in a row, once somebody else wanted the lock or it was handed over.
    fairness: Option<Fairness>,
    /// Whether the last try was not answered.
    has_failed: bool,
    /// The server's last answer, or the instant of the look that is planned after it.
    silent_from: BootInstant,
}

impl<W: Clone, O> Turns<W, O> {
    /// A queue without waiters.
    #[must_use]
    pub fn new(now: BootInstant) -> Self {
        Self {
            first: None,
            behind: BTreeMap::new(),
            passed_over: BTreeSet::new(),
            due: now,
            last: 0,
            has_tried: false,
            offer: None,
            fairness: None,
            has_failed: false,
            silent_from: now,
        }
    }

    /// A waiter comes. Returns its ticket if it is the first one; otherwise it has to stand [`behind`](Turns::behind).
    pub fn comes(&mut self, now: BootInstant) -> Option<Ticket> {
        if self.first.is_some() {
            return None;
        }
        self.first = Some(self.next_ticket());
        self.due = now;
        self.first
    }

    /// A waiter stands behind the others.
    pub fn behind(&mut self, wake: W) -> Ticket {
        let ticket = self.next_ticket();
        self.behind.insert(ticket, wake);
        ticket
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    /// A waiter goes, with the lock or without. Returns who is to be woken: the first one, if it is another one now, and those that watch it,
    /// or watch anew.
    pub fn goes(&mut self, now: BootInstant, ticket: Ticket) -> [Option<W>; 3] {
        if self.first != Some(ticket) {
            self.passed_over.remove(&ticket);
            return [None, None, self.leaves_row(ticket)];
        }
        let next = self.behind.first_key_value().map(|(next, wake)| (*next, wake.clone()));
        let watcher = next.as_ref().and_then(|(next, _)| self.leaves_row(*next));
        let (next, wake) = next.unzip();
        self.begins(now, next);
        // It has watched another one, which may have had more time.
        let nearest = self.behind.values().next().cloned();
        [wake, nearest, watcher]
    }

    /// Whether the waiter has lost its place to another one, as it was not polled.
    #[must_use]
    pub fn is_passed_over(&self, ticket: Ticket) -> bool {
        self.passed_over.contains(&ticket)
    }

    /// A waiter that was passed over returns to its place: it is the next one.
    fn returns(&mut self, now: BootInstant, ticket: Ticket, wake: &W) {
        if self.first.is_some() {
            self.behind.insert(ticket, wake.clone());
        } else {
            self.begins(now, Some(ticket));
        }
    }

    /// Another one is the first. The server was not asked since the one before it was late, and so was not silent.
    fn begins(&mut self, now: BootInstant, first: Option<Ticket>) {
        if now > self.due {
            self.silent_from = self.silent_from.max(now);
        }
        (self.first, self.due, self.offer, self.has_tried) = (first, now, None, false);
    }

    /// A waiter does not stand behind the first one any more. Returns who watches now instead of it.
    fn leaves_row(&mut self, ticket: Ticket) -> Option<W> {
        let did_watch = self.watches(ticket);
        self.behind.remove(&ticket);
        if did_watch { self.behind.values().nth(WATCHERS - 1).cloned() } else { None }
    }

    /// Whether a waiter is one of those that watch whether the first one is late.
    fn watches(&self, ticket: Ticket) -> bool {
        self.behind.keys().take(WATCHERS).any(|watcher| *watcher == ticket)
    }

    /// Whether this waiter is the first one.
    #[must_use]
    pub fn is_first(&self, ticket: Ticket) -> bool {
        self.first == Some(ticket)
    }

    /// Whether anybody waits: then the first one is woken when the lock may be free. It looks after others have had their turn, see
    /// [`next_look`](Turns::next_look).
    #[must_use]
    pub fn is_waited_in(&self) -> bool {
        self.first.is_some()
    }

    /// Whether nothing has to be known of the queue any more: nobody waits, and others do not want the lock.
    #[must_use]
    pub fn is_over(&self, now: BootInstant) -> bool {
        let is_contended = self.fairness.as_ref().is_some_and(|fairness| fairness.is_contended(now));
        !self.is_waited_in() && self.passed_over.is_empty() && !is_contended
    }

    /// The instant of the first one's first try, if it is not now: a lock that others want is left to them now and then.
    pub fn first_try_at(&mut self, now: BootInstant, limits: &WaitLimits) -> Option<BootInstant> {
        let others_until = self.fairness.as_mut()?.yields_until(now)?;
        Some(others_until.min(limits.deadline.instant()))
    }

    /// A waiter is polled while it asks the server: the first one, or one that was passed over. No single request of a try takes longer than
    /// two operation timeouts.
    pub fn asks(&mut self, now: BootInstant, limits: &WaitLimits, ticket: Ticket) {
        if self.is_first(ticket) {
            self.due = now.plus(limits.op_timeout * 2);
        }
    }

    /// A waiter that asks has tried; `was_ours` says whether somebody of this client had the lock when the try began.
    ///
    /// Nobody else of this client asks, but for those that were passed over. So a try that is refused while nobody of this client
    /// has had the lock tells that others want it.
    pub fn tried(&mut self, now: BootInstant, limits: &WaitLimits, tried: Tried, was_ours: bool) -> AfterTry {
        let is_first_try = !std::mem::replace(&mut self.has_tried, true);
        let pause = match tried {
            Tried::Granted => {
                match &mut self.fairness {
                    Some(fairness) if is_first_try => fairness.claimed(now),
                    Some(fairness) => fairness.reset(),
                    None => {}
                }
                return AfterTry::Ends;
            }
            Tried::Held => {
                if !was_ours {
                    self.fairness.get_or_insert_default().refused(now);
                }
                Duration::ZERO
            }
            Tried::NotNow(pause) => pause,
            Tried::Failed { may_pass: true } if now < self.silence(limits.since, limits.patience) => {
                limits.longest_pause
            }
            Tried::Failed { .. } => return AfterTry::Ends,
        };
        self.has_failed = matches!(tried, Tried::Failed { .. });
        if !self.has_failed {
            self.silent_from = now;
        }
        if limits.deadline.has_passed(now) { AfterTry::Ends } else { AfterTry::Pauses(pause) }
    }

    /// The pause of one whose client's pace asks for this one, before jitter, which at most doubles it; `keeps` is the TTL of what the waiter
    /// has at the server, which it looks after itself.
    ///
    /// It is shorter where the waiter has something there, and after a try without an answer: nobody would know that the server answers again,
    /// and those behind would be told that it is silent. The pace stays a brake: many that hurry would keep everything else of the client from
    /// the server.
    #[must_use]
    pub fn pause_by_pace(&self, limits: &WaitLimits, keeps: Option<Duration>, by_pace: Duration) -> Duration {
        let of_patience = if self.has_failed { limits.patience / LOOKS_IN_PATIENCE } else { Duration::MAX };
        let longest = keeps.map_or(of_patience, |ttl| of_patience.min(ttl / LOOKS_IN_TTL));
        by_pace.min((longest / 2).max(by_pace / HASTE))
    }

    /// The instant of the next look of the first one, after a pause: not before others have had their turn.
    #[must_use]
    pub fn next_look(&self, now: BootInstant, limits: &WaitLimits, pause: Duration) -> BootInstant {
        let at = now.plus(pause);
        let others_until = self.fairness.as_ref().map_or(at, Fairness::others_until);
        at.max(others_until).min(limits.deadline.instant())
    }

    /// A waiter looks again at this instant. A server that answered the first one is not asked until then, and so not silent.
    pub fn pauses_until(&mut self, at: BootInstant, ticket: Ticket) {
        if !self.is_first(ticket) {
            return;
        }
        self.due = at;
        if !self.has_failed {
            self.silent_from = at;
        }
    }

    /// The process stood still until now, as one of the waiters has found: nobody was asked, and so nobody silent or late. A wait whose
    /// deadline has passed meanwhile does not go on for that.
    pub fn awakes(&mut self, now: BootInstant, limits: &WaitLimits) {
        self.due = self.due.max(now);
        if !limits.deadline.has_passed(now) {
            self.silent_from = self.silent_from.max(now);
        }
    }

    /// The step of a waiter that stands behind others, and has nothing at the server; it is woken by `wake`.
    ///
    /// A waiter that was passed over returns to its place. A first one that is late for long is not polled, and would keep all others from a lock that may be free. So the waiter takes its
    /// place.
    pub fn stands(&mut self, now: BootInstant, limits: &WaitLimits, ticket: Ticket, wake: &W) -> Standing<W> {
        if self.passed_over.remove(&ticket) {
            self.returns(now, ticket, wake);
        }
        if self.is_first(ticket) {
            return Standing::First(None);
        }
        let is_over = limits.deadline.has_passed(now);
        let late = |by: Duration| by.min(limits.patience);
        let mut late_at = self.due.plus(late(LATE));
        if !is_over {
            late_at = late_at.max(limits.since.plus(late(BRIEFLY_LATE)));
        }
        if now >= late_at {
            let watcher = self.leaves_row(ticket);
            self.passed_over.extend(self.first);
            self.begins(now, Some(ticket));
            return Standing::First(watcher);
        }
        // Who asks, asks all the time: so long a silence at the end is no answer that somebody holds.
        let patience = if is_over { limits.op_timeout.min(limits.patience) } else { limits.patience };
        let silent_at = self.silence(limits.since, patience);
        if now >= silent_at {
            Standing::Silent(patience)
        } else if is_over {
            Standing::Over
        } else {
            let until = silent_at.min(limits.deadline.instant());
            // Those that watch may all be kept without being polled, too.
            let looks_at = if self.watches(ticket) { late_at } else { late_at.plus(limits.patience / 2) };
            Standing::Until(until.min(looks_at))
        }
    }

    /// The instant at which the server has been silent for too long, for who came at `since`.
    fn silence(&self, since: BootInstant, patience: Duration) -> BootInstant {
        since.max(self.silent_from).plus(patience)
    }

    /// The first one pauses, and can be handed the lock meanwhile. A waiter that was passed over cannot.
    pub fn offers(&mut self, ticket: Ticket, offer: O) {
        if self.is_first(ticket) {
            self.offer = Some(offer);
        }
    }

    /// A waiter cannot be handed the lock any more. Returns its offer, unless a holder has taken it.
    pub fn withdraws(&mut self, ticket: Ticket) -> Option<O> {
        if self.is_first(ticket) { self.offer.take() } else { None }
    }

    /// A holder of this client releases the lock. Returns the offer of the first one, if the lock may be handed to it now: it
    /// pauses, its look is not late, and others do not have their turn.
    pub fn hands_over(&mut self, now: BootInstant) -> Option<O> {
        let is_late = now >= self.due.plus(BRIEFLY_LATE);
        if self.offer.is_none() || is_late {
            return None;
        }
        let fairness = self.fairness.get_or_insert_default();
        if !fairness.may_continue(now) {
            return None;
        }
        fairness.counts(now);
        self.offer.take()
    }
}

#[cfg(test)]
mod tests;
