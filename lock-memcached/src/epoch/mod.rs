//! The epoch: what tells one life of the server's memory from the next.
//!
//! A restart or a flush forgets every lock, although holders go on believing in theirs until their leases end. So the
//! server carries one more item, the epoch, which is forgotten with the locks, and which every claim reads after its own
//! key, in one pipeline. Without it, nothing is granted. Whoever misses it puts it back *closed*; it is opened when the
//! longest lease is over since, and only then locks are granted again.
//!
//! The item is a number of 63 bits (for why not 64, see [`crate::store::values`]): the longest lease in seconds (9 bits), when
//! it was made in µs since 1970 by its maker's clock (53 bits), and whether it is open (1 bit). A life of the server's memory
//! is known by the µs, and its fencing tokens begin with them.
//!
//! The rest of the item's TTL tells the server's time, and so whether its clock runs. A server that was paused, with its machine or by
//! a signal, answers for a moment before it notices how much time has passed. What it stores in that moment is stamped with old
//! time and ends too early, by the length of the pause. So a claim or a renewal counts only if the server is not behind what it was
//! before. A client that has seen nothing of an epoch, because it was closed before, may meet the server in that moment: nothing
//! counts until it has seen the clock tick.

pub(crate) mod gate;

use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, ErrorKind, FencingToken, Phase};

use crate::store::values::{LONGEST_TTL, number};

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
/// to stand has [`crate::store::values::MARGIN`] for the sum of both.
const TOLERANCE: i64 = 2_500;

/// The answers of two looks that are to show a tick are at most this far apart: between them no standstill fits that is not tolerated.
const TICKS_WITHIN: Duration = Duration::from_millis(1_500);

/// Time for which an observation serves as the measure. Two clocks drift apart by much less than the tolerance meanwhile.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// After so many seconds on its own a clock that is behind runs again: it was put back for good.
const RUNS_AGAIN: i64 = 2;

/// One life of the server's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The longest lease that its clients may have, in seconds.
    longest: u64,
    /// The epoch's beginning, in µs since 1970.
    micros: u64,
    /// Whether locks are granted.
    pub open: bool,
}

impl Epoch {
    /// Makes an epoch that begins now, closed.
    #[must_use]
    pub fn new(longest: Duration, since_1970: Duration) -> Self {
        let micros = u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX).min(FencingToken::MAX.as_u64());
        Self { longest: whole_seconds(longest), micros, open: false }
    }

    /// Out of the item's value; `None` if that is none of ours.
    pub(crate) fn of(value: &[u8]) -> Option<Self> {
        let value = number(value).filter(|value| i64::try_from(*value).is_ok())?;
        let epoch =
            Self { longest: value >> 54, micros: value >> 1 & FencingToken::MAX.as_u64(), open: value & 1 == 1 };
        (epoch.longest > 0 && epoch.micros > 0).then_some(epoch)
    }

    /// The item's value.
    pub(crate) fn value(self) -> u64 {
        self.longest << 54 | self.micros << 1 | u64::from(self.open)
    }

    /// The number by which its life is known.
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

    /// The token of what was taken with this CAS number. Numbers grow with every store and begin anew with the server's
    /// life; lives differ by more µs than a server can store items meanwhile.
    pub(crate) fn token(self, cas: u64) -> Option<FencingToken> {
        self.micros.checked_add(cas).and_then(FencingToken::new)
    }

    /// Whether an item that has this CAS number now may have been taken under this token in this epoch.
    pub(crate) fn may_have_given(self, token: FencingToken, cas: u64) -> bool {
        token.as_u64() > self.micros && Some(token) <= self.token(cas)
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
                "the server's clock was not seen to run: it was paused a moment ago, or nobody has met it before"
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
    /// The last look before the clock was seen to tick: the server's time, and when we were answered.
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

    /// Takes a look, and says whether the clock runs.
    fn runs(&mut self, look: ClockLook) -> bool {
        if self.epoch != look.epoch {
            *self = Self { epoch: look.epoch, is_met_anew: self.is_met_anew, ..Self::default() };
        }
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

    /// Takes a look before there is a measure: the second one of two that show a tick is the first one.
    fn is_seen_to_tick(&mut self, time: i64, look: ClockLook) -> bool {
        let before = self.first.replace((time, look.answered));
        let ticks = self.is_met_anew
            || before.is_some_and(|(first, at)| time > first && look.answered.since(at) <= TICKS_WITHIN);
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
mod tests {
    use super::*;
    use crate::store::values::LongestLease;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_micros(1_795_247_659_123_456);

    fn age(watched: u32, by_server: u32, by_wall_clock: u32) -> Age {
        Age { watched: SECOND * watched, by_server: SECOND * by_server, by_wall_clock: SECOND * by_wall_clock }
    }

    #[test]
    fn an_epoch_survives_its_item() {
        for longest in [SECOND, SECOND * 30, LongestLease::MOST] {
            for open in [false, true] {
                let epoch = Epoch { open, ..Epoch::new(longest, NOW) };
                assert_eq!(Epoch::of(epoch.value().to_string().as_bytes()), Some(epoch));
                assert!(epoch.admits(longest) && !epoch.admits(longest + SECOND));
            }
        }
        for foreign in [&b""[..], b"0", b"1", b"hello", b"\xff", b"9999999999999999999999"] {
            assert_eq!(Epoch::of(foreign), None);
        }
    }

    #[test]
    fn opening_one_adds_one_to_its_value() {
        let closed = Epoch::new(SECOND, NOW);
        assert_eq!(Epoch { open: true, ..closed }.value(), closed.value() + 1);
    }

    #[test]
    fn tokens_grow_within_an_epoch_and_from_one_to_the_next() {
        let (former, next) = (Epoch::new(SECOND, NOW), Epoch::new(SECOND, NOW + SECOND));
        assert!(former.token(1) < former.token(2));
        assert!(former.token(900_000) < next.token(1));
        assert_eq!(former.token(u64::MAX), None);
    }

    #[test]
    fn it_stays_closed_for_its_longest_lease_by_ones_own_clock_or_by_both_others() {
        let epoch = Epoch::new(SECOND * 30, NOW);
        assert!(epoch.closed_for(age(0, 0, 0)) > SECOND * 30);
        assert_eq!(epoch.closed_for(age(32, 0, 0)), Duration::ZERO);
        assert!(!epoch.closed_for(age(31, 0, 0)).is_zero());
        assert_eq!(epoch.closed_for(age(0, 34, 34)), Duration::ZERO);
        for one_clock_is_wrong in [age(0, 900, 3), age(0, 3, 900)] {
            assert!(epoch.closed_for(one_clock_is_wrong) >= SECOND * 28);
        }
    }

    const fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_claim_counts_under_an_open_epoch_whose_clock_was_seen_to_run() {
        let open = Epoch { open: true, ..Epoch::new(SECOND * 30, NOW) };
        let judged = |watch: &mut EpochWatch, now, left| watch.judges(open, left, at(now), at(now), || NOW);
        let mut watch = EpochWatch::default();
        assert!(matches!(judged(&mut watch, 100, 900), GateVerdict::No(NotNow::ClockStands)));
        assert!(matches!(judged(&mut watch, 101, 899), GateVerdict::Counts(Some(epoch)) if epoch == open));
        let mut met = EpochWatch::default();
        met.set_met_anew(true);
        assert_eq!(judged(&mut met, 100, 900).counts(), Some(Some(open)));
        assert_eq!(GateVerdict::Counts(None).counts(), Some(None));
        assert_eq!(GateVerdict::No(NotNow::Missing).counts(), None);
    }

    #[test]
    fn a_closed_epoch_is_watched_from_its_first_look_on() {
        let (closed, other) = (Epoch::new(SECOND * 30, NOW), Epoch::new(SECOND * 30, NOW + SECOND));
        let (mut watch, new) = (EpochWatch::default(), i64::from(CLOSED_FOR));
        assert!(watch.closed_for(closed, new, at(100), NOW) > SECOND * 30);
        assert!(!watch.closed_for(closed, new, at(131), NOW).is_zero());
        assert_eq!(watch.closed_for(closed, new, at(132), NOW), Duration::ZERO);
        assert!(watch.closed_for(other, new, at(133), NOW) > SECOND * 30, "it is another one");
        assert_eq!(watch.closed_for(other, new - 34, at(133), NOW + SECOND * 35), Duration::ZERO);
        let judged = watch.judges(closed, new, at(200), at(200), || NOW);
        assert!(matches!(judged, GateVerdict::No(NotNow::Closed(left)) if left > SECOND * 30));
    }

    #[test]
    fn what_is_missing_is_put_back_and_what_is_closed_opened_when_it_is_time() {
        for now in [NotNow::Missing, NotNow::ClockStands, NotNow::Closed(Duration::ZERO)] {
            assert!(now.can_be_tended(false));
        }
        assert!(!NotNow::Closed(SECOND).can_be_tended(false));
        assert!(NotNow::Closed(SECOND).can_be_tended(true));
        assert_eq!(NotNow::Missing.pause(), Duration::from_millis(10));
        assert_eq!(NotNow::Closed(SECOND).pause(), LONGEST_PAUSE);
        assert_eq!(NotNow::Closed(Duration::ZERO).pause(), Duration::from_millis(1));
    }

    /// A look at `local` ms, when the server's clock says `server` s.
    fn look(local: u64, server: i64) -> ClockLook {
        let asked = BootInstant::from_origin(Duration::from_millis(local));
        ClockLook { epoch: 1, left: 1_000_000 - server, asked, answered: asked.plus(Duration::from_millis(1)) }
    }

    /// A clock that was seen to tick at this local time, in ms.
    fn met(at: i64) -> ServerClock {
        let (mut clock, second) = (ServerClock::default(), at / 1000);
        let asked = BootInstant::from_origin(Duration::from_millis(at.unsigned_abs()));
        for server in [second - 1, second] {
            clock.runs(ClockLook { epoch: 1, left: 1_000_000 - server, asked, answered: asked });
        }
        clock
    }

    #[test]
    fn the_margin_holds_what_the_server_s_seconds_and_an_unnoticed_standstill_take_together() {
        let whole_seconds = 2_000;
        assert!(crate::store::values::MARGIN.as_millis() >= u128::from((whole_seconds + TOLERANCE).unsigned_abs()));
    }

    /// A server that counts seconds from `phase` ms on, late by up to `drift` ms, and stood still from `stopped` to `went_on`.
    struct Server {
        phase: i64,
        drift: i64,
        stopped: i64,
        went_on: i64,
    }

    impl Server {
        /// The server's time when it answers: at the instant at which it goes on it has not caught up yet.
        fn says(&self, at: i64) -> i64 {
            let known = if at == self.went_on { self.stopped } else { at };
            (known - self.phase - self.drift).div_euclid(1000)
        }

        /// The end of an item that is stored at this time with this TTL.
        fn ends(&self, stored: i64, seconds: u32) -> i64 {
            (self.says(stored) + i64::from(seconds)) * 1000 + self.phase
        }

        fn look(&self, asked: i64, answered: i64) -> ClockLook {
            let at = |ms: i64| BootInstant::from_origin(Duration::from_millis(ms.unsigned_abs()));
            ClockLook { epoch: 1, left: 1_000_000 - self.says(answered), asked: at(asked), answered: at(answered) }
        }
    }

    /// Every phase of the server's seconds, of its pause, and of the claim; with looks before at all times, or at one only.
    #[test]
    fn whatever_is_granted_after_a_pause_lasts_as_long_as_its_lease() {
        let (lease, before) = (1000, 100_000);
        let mut granted = 0;
        for (phase, drift) in (0..1000).step_by(50).flat_map(|phase| [(phase, 0), (phase, 1000)]) {
            for (stopped, length) in (0..1000).step_by(50).flat_map(|at| (0..6000).step_by(50).map(move |l| (at, l))) {
                let (stopped, went_on) = (before + stopped, before + stopped + length + 1);
                let server = Server { phase, drift, stopped, went_on };
                for (first, every) in [(before - 3000, 20), (before - 3000, 990)] {
                    let mut clock = ServerClock::default();
                    for at in (first..before).step_by(every) {
                        clock.runs(server.look(at, at));
                    }
                    for asked in (stopped.max(went_on - 4000)..went_on).step_by(50) {
                        if !clock.runs(server.look(asked, went_on)) {
                            continue;
                        }
                        granted += 1;
                        let ends = server.ends(went_on, crate::store::values::seconds(Duration::from_millis(lease)));
                        let believed = asked + i64::try_from(lease).unwrap();
                        assert!(
                            ends >= believed,
                            "phase {phase}, drift {drift}, stopped for {length} ms, asked {} ms before it went on: \
                             the item ended {} ms too early",
                            went_on - asked,
                            believed - ends
                        );
                        break;
                    }
                }
            }
        }
        assert!(granted > 1000, "{granted}");
    }

    /// A client that connects while the server stands has seen nothing of its clock.
    #[test]
    fn nothing_counts_before_the_clock_was_seen_to_tick() {
        let server = Server { phase: 0, drift: 0, stopped: 10_000, went_on: 60_500 };
        let mut clock = ServerClock::default();
        assert!(!clock.runs(server.look(58_000, 60_500)), "a look at a clock that stood for 50 s");
        assert!(!clock.runs(server.look(60_499, 60_500)));
        assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
        let mut late = ServerClock::default();
        let server = Server { phase: 0, drift: 0, stopped: 16_000, went_on: 60_500 };
        assert!(!late.runs(server.look(10_000, 10_001)));
        assert!(!late.runs(server.look(60_400, 60_500)), "it has ticked since, and stood then");
        assert!(!late.runs(server.look(60_500, 60_500)));
        assert!(late.runs(server.look(60_600, 60_601)));
    }

    /// It ticked once after the first look, stood then, and answered the second one when it went on.
    #[test]
    fn a_tick_that_was_answered_late_shows_nothing() {
        let server = Server { phase: 0, drift: 0, stopped: 11_100, went_on: 60_500 };
        let mut clock = ServerClock::default();
        assert!(!clock.runs(server.look(10_500, 10_501)));
        assert!(!clock.runs(server.look(11_050, 60_500)), "it stood for 49 s");
        assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
    }

    #[test]
    fn a_clock_that_ticks_runs() {
        let mut clock = met(0);
        // Late by almost a second at each tick, and with a step of two now and then.
        for local in 0..200_000 {
            let server = i64::try_from(local / 1000).unwrap() - i64::from(local % 50_000 > 49_000);
            assert!(clock.runs(look(local, server)), "at {local} ms");
        }
    }

    #[test]
    fn a_clock_that_stood_still_is_behind_until_it_catches_up() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(14_000, 10)), "four seconds are missing");
        assert!(!clock.runs(look(14_005, 10)));
        assert!(clock.runs(look(14_010, 14)));
        assert!(clock.runs(look(15_500, 15)));
    }

    #[test]
    fn a_clock_that_was_put_back_for_good_is_believed_when_it_runs() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(40_000, 11)));
        assert!(!clock.runs(look(41_000, 12)));
        assert!(clock.runs(look(42_000, 13)));
        assert!(clock.runs(look(43_000, 14)));
        assert!(!clock.runs(look(48_000, 15)), "and is the measure from then on");
    }

    #[test]
    fn a_long_drift_is_no_standstill() {
        let mut clock = met(0);
        // Slower than ours by 0.1 %: a second in a thousand.
        for second in 0..20_000 {
            let server = i64::try_from(second - second / 1000).unwrap();
            assert!(clock.runs(look(second * 1000, server)), "after {second} s");
        }
    }

    #[test]
    fn numbers_of_another_epoch_are_not_compared() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(ClockLook { epoch: 2, ..look(11_000, -500) }));
        assert!(clock.runs(ClockLook { epoch: 2, ..look(11_020, -499) }));
    }
}
