//! The waiters on one lock, and when it is to be asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, GrantId};

use super::agenda::{Agenda, AgendaEntry};
use super::{DueHeartbeat, HeartbeatReply, KnownHolder, Lock, Pause};

/// The time between two heartbeats of a client for a lock on which it waits: a lost push, a foreign release or a crashed holder
/// costs at most this and two round trips: well within a second, also at 50 ms each. Sooner when the holder's lease ends sooner:
/// within [`SHORTEST_PERIOD`] for one heartbeat in two only, so that a lease that is short and renewed is not asked for all the time.
pub(super) const PERIOD: Duration = Duration::from_millis(750);
pub(crate) const SHORTEST_PERIOD: Duration = Duration::from_millis(500);
/// [`PERIOD`] with its jitter, and until its [`ROUND`].
pub(super) const LONGEST_PERIOD: Duration = Duration::from_millis(830);
/// Usual signs of life wait for the next round, so that many locks share a request.
const ROUND: Duration = Duration::from_millis(40);
/// [`PERIOD`] for a key that is shared with other libraries, whose releases tell nobody and whose waiters ask as often.
pub(super) const SHARED_PERIOD: Duration = Duration::from_millis(200);
/// The pause between the end of a holder's lease and the heartbeat that finds it over.
const BEHIND_END: Duration = Duration::from_millis(2);
/// The pause before the next ones are asked for when a heartbeat has found lost news.
pub(crate) const SOON: Duration = Duration::from_millis(5);
/// The pause before a heartbeat that failed is tried again: the first one. Each one more is twice as long, up to the longest.
const RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_millis(800);
/// The number of short heartbeats that follow each other at most.
const MOST_QUIET: u8 = 64;
/// The number of a client's first waiters for which one heartbeat asks.
pub(crate) const ASKED: usize = 64;

/// The waiters on one lock, in the order of their tickets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockQueue<L> {
    pub(super) lock: L,
    pub(super) waiting: BTreeSet<(u64, GrantId)>,
    /// The time to ask for it; never while a heartbeat is on its way.
    pub(super) entry: AgendaEntry,
    /// Whether a heartbeat is on its way, and the number of the last one.
    pub(super) asking: bool,
    pub(super) heartbeat: u64,
    /// The time to ask again, as was found out since that heartbeat was sent.
    pub(super) again_at: BootInstant,
    /// The number of answers in a row that had no news.
    quiet: u8,
    /// Whether the next heartbeat comes at the end of a lease, sooner than [`SHORTEST_PERIOD`] after the one before.
    hurries: bool,
    /// Whether the last one did.
    hurried: bool,
    /// The holder of the lock, as far as the last short heartbeat has told.
    pub(super) holder: Option<KnownHolder>,
    pub(super) answered_at: BootInstant,
    /// The reason why the last heartbeat failed, if it did.
    pub(super) refused: Option<Arc<str>>,
    /// The pause after the next one that fails.
    retry: Duration,
}

/// The news of a heartbeat that should have come before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    /// Whether there were any.
    pub(super) any: bool,
    /// Whether there were any, and there may be more: it has not asked for all.
    pub(super) more: bool,
}

impl<L: Lock> LockQueue<L> {
    /// A queue without waiters.
    pub(super) fn new(lock: &L, now: BootInstant, agenda: &mut Agenda<L>) -> Self {
        Self {
            lock: lock.clone(),
            waiting: BTreeSet::new(),
            entry: agenda.enter(BootInstant::FAR_FUTURE, lock.clone()),
            asking: false,
            heartbeat: 0,
            again_at: BootInstant::FAR_FUTURE,
            quiet: 0,
            hurries: false,
            hurried: false,
            holder: None,
            answered_at: now,
            refused: None,
            retry: RETRY,
        }
    }

    /// The server has answered a request about this lock.
    pub(super) fn heard(&mut self, now: BootInstant) {
        self.answered_at = now;
        (self.refused, self.retry) = (None, RETRY);
    }

    /// Whether the next heartbeat is a short one: nothing but a sign of life is expected.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.len() == 1 && (1..MOST_QUIET).contains(&self.quiet)
    }

    /// Asks at this time at the latest, or as soon as the heartbeat is answered that is on its way.
    fn ask_by(&mut self, agenda: &mut Agenda<L>, at: BootInstant) {
        if self.asking {
            self.again_at = self.again_at.min(at);
        } else if at < self.entry.at() {
            agenda.put_off(&mut self.entry, at);
            self.hurries = false;
        }
    }

    /// Asks at this time at the latest, in the long way.
    pub(super) fn ask_anew(&mut self, agenda: &mut Agenda<L>, at: BootInstant) {
        self.quiet = 0;
        self.ask_by(agenda, at);
    }

    /// Asks at once, in the long way: whoever would have brought the answer to a heartbeat on its way has gone.
    pub(super) fn begin_anew(&mut self, agenda: &mut Agenda<L>, now: BootInstant) {
        (self.asking, self.again_at, self.quiet, self.hurries) = (false, BootInstant::FAR_FUTURE, 0, false);
        agenda.put_off(&mut self.entry, now);
    }

    /// Asks no later than the holder's lease asks for. Says whether the heartbeat task does not know of this queue yet.
    pub(super) fn ask_within(&mut self, agenda: &mut Agenda<L>, now: BootInstant, pause: Pause) -> bool {
        let is_new = !self.asking && self.entry.at() == BootInstant::FAR_FUTURE;
        if self.asking {
            self.ask_by(agenda, now.plus(interval(now, self.lock.is_shared(), pause)));
            return is_new;
        }
        let (pause, hurries) = self.until_next(now, pause);
        let at = now.plus(pause);
        if at < self.entry.at() {
            self.ask_by(agenda, at);
            self.hurries = hurries;
        }
        is_new
    }

    /// The heartbeat that is due, under this number. It asks about the waiters without news; those with news need no answer. If all have
    /// news, it is only a sign of life.
    pub(super) fn heartbeat(
        &mut self,
        agenda: &mut Agenda<L>,
        now: BootInstant,
        number: u64,
        is_in_the_dark: impl Fn(GrantId) -> bool,
    ) -> DueHeartbeat<L> {
        agenda.put_off(&mut self.entry, BootInstant::FAR_FUTURE);
        (self.asking, self.again_at, self.heartbeat) = (true, BootInstant::FAR_FUTURE, number);
        let all = self.waiting.iter().map(|(_, nonce)| *nonce);
        let mut nonces: Vec<_> = all.clone().filter(|nonce| is_in_the_dark(*nonce)).take(ASKED).collect();
        if nonces.is_empty() {
            nonces.extend(all.take(1));
        }
        let quiet = self.is_quiet();
        let holder = self.holder.take().filter(|holder| quiet && holder.lasts_until(now.plus(LONGEST_PERIOD)));
        DueHeartbeat { number, lock: self.lock.clone(), nonces, quiet, holder }
    }

    /// A heartbeat failed.
    pub(super) fn failed(&mut self, agenda: &mut Agenda<L>, now: BootInstant, was_quiet: bool, error: &Error) {
        (self.asking, self.quiet) = (false, 0);
        let pause = if was_quiet { Duration::ZERO } else { self.retry };
        if !was_quiet {
            self.retry = (self.retry * 2).min(LONGEST_RETRY);
        }
        agenda.put_off(&mut self.entry, now.plus(pause).min(self.again_at));
        self.refused = Some(error.to_string().into());
    }

    /// Takes note that a short heartbeat found what is for a long one, which is due now.
    pub(super) fn stays_due(&mut self, agenda: &mut Agenda<L>, now: BootInstant) {
        (self.asking, self.quiet) = (false, 0);
        agenda.put_off(&mut self.entry, now);
    }

    /// A heartbeat was answered.
    pub(super) fn answered(&mut self, agenda: &mut Agenda<L>, now: BootInstant, reply: &HeartbeatReply, lost: Lost) {
        self.asking = false;
        self.heard(now);
        let sound = reply.known && !lost.any && self.again_at == BootInstant::FAR_FUTURE;
        self.quiet = match self.quiet {
            quiet if sound && quiet < MOST_QUIET => quiet + 1,
            // Now and then the long way is asked: it also looks after what is shared by all waiters.
            _ => u8::from(sound),
        };
        self.hurried = std::mem::take(&mut self.hurries);
        let (pause, hurries) = self.until_next(now, reply.pause);
        let (pause, hurries) = if lost.more { (pause.min(SOON), false) } else { (pause, hurries) };
        let at = now.plus(pause);
        let at = if sound && !hurries && !self.lock.is_shared() { next_round(at) } else { at };
        self.hurries = hurries && at <= self.again_at;
        agenda.put_off(&mut self.entry, at.min(self.again_at));
        self.holder = reply.holder;
    }

    /// The time until the next heartbeat, as [`interval`] has it, or until the holder's lease ends if that is sooner and the last heartbeat
    /// did not hurry; and whether this one does.
    fn until_next(&self, now: BootInstant, pause: Pause) -> (Duration, bool) {
        let regular = interval(now, self.lock.is_shared(), pause);
        match pause {
            Pause::Until(end) if !self.hurried && !self.lock.is_shared() && end + BEHIND_END < regular => {
                (end + BEHIND_END, true)
            }
            _ => (regular, false),
        }
    }
}

/// The time until the next heartbeat: at the end of the holder's lease, not within [`SHORTEST_PERIOD`]; or after [`PERIOD`] or
/// [`SHARED_PERIOD`], give or take a tenth; or when a shared key has been left free for long enough.
pub(super) fn interval(now: BootInstant, shared: bool, pause: Pause) -> Duration {
    if let Pause::Free(left) = pause {
        return left.min(SHARED_PERIOD) + Duration::from_millis(1);
    }
    let jitter = now.since_origin().subsec_nanos() % 100;
    let regular = if shared { SHARED_PERIOD } else { PERIOD } * (950 + jitter) / 1000;
    let end = if let Pause::Until(end) = pause { end + BEHIND_END } else { regular };
    end.clamp(SHORTEST_PERIOD.min(regular), regular)
}

/// The first round at this instant or later.
fn next_round(at: BootInstant) -> BootInstant {
    let late = at.since_origin().as_nanos() % ROUND.as_nanos();
    // Less than a round.
    let left = if late == 0 { 0 } else { (ROUND.as_nanos() - late) as u64 };
    at.plus(Duration::from_nanos(left))
}
