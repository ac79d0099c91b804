//! The epoch: what tells one life of the server's memory from the next.
//!
//! A restart or a flush forgets every lock, although holders go on believing in theirs until their leases end. So the
//! server carries one more item, the epoch, which is forgotten with the locks, and which every claim reads before its own
//! key and after it, in one pipeline. Claims that go together read it once before the first of them, and once after the last.
//! Without it, nothing is granted. Whoever misses it puts it back *closed*; it is opened when the longest lease is over since,
//! and only then locks are granted again.
//!
//! The item is a number of 63 bits (for why not 64, see [`crate::store::keys`]): the longest lease in seconds (9 bits), when
//! it was made in µs since 1970 by its maker's clock (53 bits), and whether it is open (1 bit). Whoever opens it takes the closed
//! item's CAS number off the µs. CAS numbers count all stores since the server's start, for whatever prefix, also from before a flush; the
//! sum of both counts those since the epoch was made, and is the fencing token. A life of the server's memory is known by the µs that
//! are left.
//!
//! The rest of the item's TTL tells the server's time, and so whether its clock runs. A server that was paused, with its machine or by
//! a signal, answers for a moment before it notices how much time has passed. What it stores in that moment is stamped with old
//! time and ends too early, by the length of the pause. So a claim or a renewal counts only if the server is not behind what it was
//! before. A client that has seen nothing of an epoch, because it was closed before, may meet the server in that moment: nothing
//! counts until it has seen the clock tick. One that has seen nothing for minutes looks first over a new connection.

pub(crate) mod gate;

use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use crate::store::keys::{LONGEST_TTL, number};

/// TTL of a closed epoch, in seconds. What is left of it tells its age.
pub(crate) const CLOSED_FOR: u32 = LONGEST_TTL;

/// TTL of an open epoch. When it ends, a quarantine follows, as after a restart.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);

/// By the server's whole seconds and by the clocks of two clients, an age may be too high by this much.
const COARSE: Duration = Duration::from_secs(4);

/// Allowance for the time that a look at one's own clock takes.
const GRACE: Duration = Duration::from_secs(1);

/// Longest pause of a waiter while nothing is granted.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Time by which the server's clock may be behind its measure: it counts whole seconds, and makes steps of two. The measure itself
/// may be late by as much as whole seconds and a step take, two seconds. What is stored by a clock that is just not noticed
/// to stand has [`crate::store::keys::MARGIN`] for the sum of both.
const TOLERANCE: i64 = 2_500;

/// The longest time that looks may take to show a tick, from the first one's request to the last one's answer: no standstill beyond the
/// tolerance fits into it.
const TICKS_WITHIN: Duration = Duration::from_millis(1_500);

/// Time for which an observation serves as the measure. Two clocks drift apart by much less than the tolerance meanwhile.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// The time without a renewal after which a measure is forgotten: two clocks drift apart by so little meanwhile that it is no part of the
/// tolerance that counts.
const MEASURED_FOR: Duration = Duration::from_secs(10 * 60);

/// After so many seconds on its own a clock that is behind runs again: it was put back for good.
const RUNS_AGAIN: i64 = 2;

/// One life of the server's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The longest lease that its clients may have, in seconds.
    longest: u64,
    /// The epoch's beginning, in µs since 1970; of an open one less the CAS number that it had when it was closed.
    micros: u64,
    /// The CAS number with which it was read. Whatever was taken in an open one has a higher number.
    cas: u64,
    /// Whether locks are granted.
    pub open: bool,
}

impl Epoch {
    /// Makes an epoch that begins now, closed.
    #[must_use]
    pub fn new(longest: Duration, since_1970: Duration) -> Self {
        let micros = u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX).min(FencingToken::MAX.as_u64());
        Self { longest: whole_seconds(longest), micros, cas: 0, open: false }
    }

    /// Out of the item's value and CAS number; `None` if the value is none of ours.
    pub(crate) fn of(value: &[u8], cas: u64) -> Option<Self> {
        let value = number(value).filter(|value| i64::try_from(*value).is_ok())?;
        let (longest, micros) = (value >> 54, value >> 1 & FencingToken::MAX.as_u64());
        (longest > 0 && micros > 0).then_some(Self { longest, micros, cas, open: value & 1 == 1 })
    }

    /// Returns what this closed epoch is when it is open: its tokens count the stores from now on. A count that is above the µs since 1970
    /// is none of a server's; the epoch stays one that can be read.
    pub(crate) fn opened(self) -> Self {
        Self { micros: self.micros.saturating_sub(self.cas).max(1), open: true, ..self }
    }

    /// The item's value.
    pub(crate) fn value(self) -> u64 {
        self.longest << 54 | self.micros << 1 | u64::from(self.open)
    }

    /// The number by which its life is known, as long as it is closed, and another one once it is open.
    pub(crate) fn id(self) -> u64 {
        self.micros
    }

    /// The longest lease that its clients may have.
    pub(crate) fn longest(self) -> Duration {
        Duration::from_secs(self.longest)
    }

    /// Whether clients with this longest lease belong to it.
    pub(crate) fn admits(self, longest: Duration) -> bool {
        self.longest == whole_seconds(longest)
    }

    /// The token of what was taken with this CAS number: when the open epoch was made, in µs, and the stores since then. Between the
    /// making of two epochs more µs go by than a server can store items. So every token is above those of former epochs, whether the
    /// server counts anew since then, after a restart, or goes on, after a flush.
    pub(crate) fn token(self, cas: u64) -> Option<FencingToken> {
        self.micros.checked_add(cas).and_then(FencingToken::new)
    }

    /// Whether an item that has this CAS number now may have been taken under this token in this open epoch.
    pub(crate) fn may_have_given(self, token: FencingToken, cas: u64) -> bool {
        Some(token) > self.token(self.cas) && Some(token) <= self.token(cas)
    }

    /// Time for which it has to stay closed yet.
    pub(crate) fn closed_for(self, age: Age) -> Duration {
        let longest = self.longest();
        let watched = (longest + longest / 100 + GRACE).saturating_sub(age.watched);
        let told = (longest + COARSE).saturating_sub(age.by_server.min(age.by_wall_clock));
        watched.min(told)
    }
}

/// Least age of a closed epoch, by several clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Age {
    /// By this client's own clock, since it first saw it.
    pub(crate) watched: Duration,
    /// By the server's clock. Alone not to be trusted: a server that was paused stamps new items with old time.
    pub(crate) by_server: Duration,
    /// By the clocks of its maker and of this client. Alone not to be trusted either.
    pub(crate) by_wall_clock: Duration,
}

fn whole_seconds(longest: Duration) -> u64 {
    longest.as_secs() + u64::from(longest.subsec_nanos() > 0)
}

/// Verdict on a claim that was sent before the epoch was read.
#[derive(Debug, Clone, Copy)]
pub enum GateVerdict {
    /// The answers count.
    Counts(Option<Epoch>),
    /// The answers do not count, now.
    No(NotNow),
}

/// Reason for which nothing is granted.
#[derive(Debug, Clone, Copy)]
pub enum NotNow {
    /// The server has no epoch: it was restarted or flushed, or never had one.
    Missing,
    /// The epoch is closed, for about this long yet.
    Closed(Duration),
    /// The server's clock stands, has not caught up yet, or was not seen to tick yet.
    ClockStands,
}

/// The epoch, as far as a client has seen it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EpochWatch {
    clock: ServerClock,
    /// The closed epoch that was seen last, and since when.
    closed: Option<(u64, BootInstant)>,
}

impl EpochWatch {
    /// Whether looks go over a connection that was just opened, so that the first one is a measure of the server's clock.
    pub fn set_met_anew(&mut self, is: bool) {
        self.clock.set_met_anew(is);
    }

    /// Whether the server's clock was measured, and so long before `now` that it has to be measured anew.
    pub(crate) fn is_out_of_date(&self, now: BootInstant) -> bool {
        self.clock.is_out_of_date(now)
    }

    /// Forgets a measure of the server's clock that is out of date. Then that has to be seen to tick.
    pub(crate) fn forgets_what_is_old(&mut self, now: BootInstant) {
        self.clock.forgets_what_is_old(now);
    }

    /// Judges what was sent before this epoch was read, which lives on for `left` seconds.
    pub fn judges(
        &mut self,
        epoch: Epoch,
        left: i64,
        asked: BootInstant,
        now: BootInstant,
        since_1970: impl FnOnce() -> Duration,
    ) -> GateVerdict {
        if !epoch.open {
            return GateVerdict::No(NotNow::Closed(self.closed_for(epoch, left, now, since_1970())));
        }
        if self.clock.runs(ClockLook { epoch: epoch.id(), left, asked, answered: now }) {
            GateVerdict::Counts(Some(epoch))
        } else {
            GateVerdict::No(NotNow::ClockStands)
        }
    }

    /// Time for which a closed epoch has to stay so yet.
    pub fn closed_for(&mut self, epoch: Epoch, left: i64, now: BootInstant, since_1970: Duration) -> Duration {
        let since = self.closed.filter(|(id, _)| *id == epoch.id()).map_or(now, |(_, since)| since);
        self.closed = Some((epoch.id(), since));
        let age = i64::from(CLOSED_FOR).saturating_sub(left);
        epoch.closed_for(Age {
            watched: now.since(since),
            by_server: Duration::from_secs(u64::try_from(age).unwrap_or_default()),
            by_wall_clock: since_1970.saturating_sub(Duration::from_micros(epoch.id())),
        })
    }
}

impl GateVerdict {
    /// Judges what was carried out between two looks. The server forgets the epoch with everything else: if it has the same one at both
    /// looks, it has forgotten nothing between them. And its clock does not go back: if it was seen to run at the first look, whatever
    /// was stored after that has the right end.
    #[must_use]
    pub fn between(first: Self, last: Self) -> Self {
        match (first, last) {
            (Self::Counts(Some(first)), Self::Counts(Some(last))) if first.id() != last.id() => {
                Self::No(NotNow::Missing)
            }
            (Self::Counts(_), last) => last,
            (first, _) => first,
        }
    }

    /// The epoch under which a claim counts, if it does; none with [`RestartPolicy::Off`](crate::RestartPolicy::Off).
    pub(crate) fn counts(self) -> Option<Option<Epoch>> {
        match self {
            Self::Counts(epoch) => Some(epoch),
            Self::No(_) => None,
        }
    }
}

impl NotNow {
    /// Whether something can be done about it now; `early` says whether a closed epoch may be opened before its time.
    #[must_use]
    pub fn can_be_tended(self, early: bool) -> bool {
        match self {
            Self::Missing | Self::ClockStands => true,
            Self::Closed(left) => left.is_zero() || early,
        }
    }

    /// Pause before the next claim.
    #[must_use]
    pub fn pause(self) -> Duration {
        match self {
            Self::Closed(left) => left.clamp(Duration::from_millis(1), LONGEST_PAUSE),
            Self::Missing | Self::ClockStands => Duration::from_millis(10),
        }
    }

    pub(crate) fn into_error(self, phase: Phase) -> Error {
        let what = match self {
            Self::Missing => {
                "the server was restarted or flushed: former holders may believe in their locks".to_owned()
            }
            Self::Closed(left) => format!(
                "the server was restarted or flushed, or is new: former holders may believe in their locks for {left:?}"
            ),
            Self::ClockStands => {
                "the server's clock was not seen to tick yet: it was paused a moment ago, or is new to this client"
                    .to_owned()
            }
        };
        Error::new(ErrorKind::Unavailable, phase, what)
    }
}

/// The server's clock, by what was seen of it. All numbers are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ServerClock {
    epoch: u64,
    /// The most by which the server's time was ahead of ours, in this span and in the one before.
    ahead: Option<i64>,
    before: Option<i64>,
    since: Option<BootInstant>,
    /// The last look before the clock was seen to tick: the server's time, and when we asked for it.
    first: Option<(i64, BootInstant)>,
    is_met_anew: bool,
    /// The server's time when it was first seen to be behind.
    behind_at: Option<i64>,
}

/// One look: what was left of an item that ends at a fixed time, and when we asked and were answered.
#[derive(Debug, Clone, Copy)]
struct ClockLook {
    /// The item's epoch: numbers of different items cannot be compared.
    epoch: u64,
    /// The item's rest, in whole seconds.
    left: i64,
    asked: BootInstant,
    answered: BootInstant,
}

impl ServerClock {
    /// Whether looks go over a connection that was just opened, and the first one is a measure.
    fn set_met_anew(&mut self, is: bool) {
        self.is_met_anew = is;
    }

    fn is_out_of_date(&self, now: BootInstant) -> bool {
        self.since.is_some_and(|since| now.since(since) >= MEASURED_FOR)
    }

    fn forgets_what_is_old(&mut self, now: BootInstant) {
        if self.is_out_of_date(now) {
            *self = Self { epoch: self.epoch, is_met_anew: self.is_met_anew, ..Self::default() };
        }
    }

    /// Takes a look, and says whether the clock runs.
    fn runs(&mut self, look: ClockLook) -> bool {
        if self.epoch != look.epoch {
            *self = Self { epoch: look.epoch, is_met_anew: self.is_met_anew, ..Self::default() };
        }
        self.forgets_what_is_old(look.asked);
        let time = -look.left.saturating_mul(1000);
        let Some(best) = self.ahead.max(self.before) else { return self.is_seen_to_tick(time, look) };
        if time - milliseconds(look.asked) < best - TOLERANCE {
            let first = *self.behind_at.get_or_insert(time);
            if time - first < RUNS_AGAIN * 1000 {
                return false;
            }
            // It was seen to tick while it was behind.
            *self = Self { epoch: look.epoch, ..Self::default() };
        }
        self.behind_at = None;
        self.measure(time, look);
        true
    }

    /// Takes a look while there is no measure: of two looks that show a tick, the second becomes the first measure. Nobody knows when a
    /// look was answered between its request and the arrival of its answer, so all of that time counts.
    fn is_seen_to_tick(&mut self, time: i64, look: ClockLook) -> bool {
        let before = self.first.replace((time, look.asked));
        let shown_since = if self.is_met_anew {
            Some(look.asked)
        } else {
            before.filter(|(first, _)| time > *first).map(|(_, asked)| asked)
        };
        let ticks = shown_since.is_some_and(|asked| look.answered.since(asked) <= TICKS_WITHIN);
        if ticks {
            self.measure(time, look);
        }
        ticks
    }

    /// Takes a look of which it is known that the clock runs.
    fn measure(&mut self, time: i64, look: ClockLook) {
        if self.since.is_none_or(|since| look.answered.since(since) >= RENEWED_EVERY) {
            (self.before, self.ahead, self.since) = (self.ahead, None, Some(look.answered));
        }
        self.ahead = self.ahead.max(Some(time - milliseconds(look.answered)));
    }
}

fn milliseconds(instant: BootInstant) -> i64 {
    i64::try_from(instant.since_origin().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
