//! A connection that is in use: the turns of the requests that go over it, the look whether their replies come, and its pulse, which
//! tells when silence is death.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::Link;
use crate::address::Address;
use crate::client::compare_delete::CompareDelete;
use crate::client::dial::Commands;
use crate::client::loading::Loading;
use crate::error;

pub(crate) const CROWDED: &str = "too many requests of this client wait for their turn";
pub(crate) const NO_TIME: &str = "no time was left to send the request";

/// The time between two looks. A connection that owes replies at both, and has given none in between, is sent a probe, and so is one
/// that still owes the reply to the last probe.
const LOOK: Duration = Duration::from_millis(400);

/// The reply to a probe, which no other script gives, and the script of the probe. The rights to everything else are enough for that.
const PROBE_REPLY: &[u8] = b"lock-redis: no reply is missing";
const PROBE: &str = "return ARGV[1]";

/// A silence has to be of this length at least to say that a connection is dead. Short leases have no time for a longer
/// one.
const LONG_SILENCE: Duration = Duration::from_millis(500);

/// A timeout that is noticed this much too late says nothing about the connection: this process stood still, and the answer
/// may have been there in time.
const STOOD_STILL: Duration = Duration::from_millis(100);

/// The turn of a request on a connection.
#[derive(Debug)]
pub(in crate::client) enum SendTurn {
    /// The turn has come, and lasts until this is dropped.
    Now(OwnedSemaphorePermit),
    /// The connection was given up before.
    Ended,
    /// The turn has not come in time, because of this.
    Never(&'static str),
}

/// A connection that is in use. A clone is the same one.
#[derive(Debug, Clone)]
pub(in crate::client) struct Live {
    pub(super) state: Arc<LiveState>,
    pub(in crate::client) commands: Commands,
}

/// The state of a connection that is in use, beside the connection itself.
#[derive(Debug)]
pub(in crate::client) struct LiveState {
    /// The number of the connection, above those of all earlier ones of its client.
    pub(in crate::client) generation: u64,
    pub(in crate::client) server: Address,
    pub(super) since: BootInstant,
    pulse: Mutex<Pulse>,
    pub(in crate::client) loading: Loading,
    pub(super) turns: Arc<Semaphore>,
    /// The server's own compare-and-delete, if it has one.
    pub(super) compare_delete: Option<CompareDelete>,
    /// The number of requests that wait for their replies.
    pub(super) awaited: AtomicUsize,
    /// Whether a probe was sent behind them, and has no reply.
    probing: AtomicBool,
}

impl Deref for Live {
    type Target = LiveState;

    fn deref(&self) -> &LiveState {
        &self.state
    }
}

impl Live {
    /// Waits for the turn of a request that has time until `until`, for half of that at most: the other half is for the answer. One
    /// that has no time left has no turn.
    pub(in crate::client) async fn turn(&self, until: BootInstant) -> SendTurn {
        let now = SystemClock.now();
        // What is sent may be carried out, whether anybody has the time to be told so or not.
        if now >= until {
            return SendTurn::Never(NO_TIME);
        }
        // The usual case costs no timer.
        match self.turns.clone().try_acquire_owned() {
            Ok(turn) => return SendTurn::Now(turn),
            Err(TryAcquireError::Closed) => return SendTurn::Ended,
            Err(TryAcquireError::NoPermits) => {}
        }
        let turn = tokio::select! {
            biased;
            turn = self.turns.clone().acquire_owned() => turn,
            () = SystemClock.sleep_until(now.plus(until.since(now) / 2)) => return SendTurn::Never(CROWDED),
        };
        match turn {
            // This process may have stood still meanwhile.
            Ok(turn) if SystemClock.now() < until => SendTurn::Now(turn),
            Ok(_) => SendTurn::Never(NO_TIME),
            Err(_) => SendTurn::Ended,
        }
    }

    /// Waits for the turn of at least one of so many requests, as [`turn`](Live::turn) does, and takes that of as many as there are
    /// turns for.
    pub(super) async fn turns(&self, wanted: usize, until: BootInstant) -> SendTurn {
        // They are never more than the least that may be on their way.
        let many = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if let Ok(turns) = self.turns.clone().try_acquire_many_owned(many(wanted)) {
            return SendTurn::Now(turns);
        }
        let outcome = self.turn(until).await;
        let SendTurn::Now(mut turns) = outcome else { return outcome };
        let more = self.turns.available_permits().min(wanted.saturating_sub(1));
        if let Ok(more) = self.turns.clone().try_acquire_many_owned(many(more)) {
            turns.merge(more);
        }
        SendTurn::Now(turns)
    }
}

impl LiveState {
    /// The first moments of a connection to this server, which has just answered.
    pub(super) fn new(
        generation: u64,
        server: Address,
        since: BootInstant,
        pulse: Pulse,
        turns: usize,
        compare_delete: Option<CompareDelete>,
    ) -> Self {
        Self {
            generation,
            server,
            since,
            pulse: Mutex::new(pulse),
            loading: Loading::default(),
            turns: Arc::new(Semaphore::new(turns)),
            compare_delete,
            awaited: AtomicUsize::new(0),
            probing: AtomicBool::new(false),
        }
    }

    pub(super) fn pulse(&self) -> MutexGuard<'_, Pulse> {
        // Every critical section leaves it valid after each statement.
        self.pulse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for its reply, counted until this is dropped.
pub(super) struct AwaitedReply<'a>(&'a AtomicUsize);

impl<'a> AwaitedReply<'a> {
    pub(super) fn one_more(awaited: &'a AtomicUsize) -> Self {
        awaited.fetch_add(1, Ordering::Relaxed);
        Self(awaited)
    }
}

impl Drop for AwaitedReply<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Link {
    /// Looks at a connection until it is given up: are the replies that it owes late, or will one of them never come?
    ///
    /// Replies have no number, and each is that to the oldest request which has none. So a probe is sent behind the requests that wait.
    /// If its reply comes, everything before it has come. If another request is given that, a reply is missing: then the connection is
    /// given up long before the operation timeout, and what it owed is unknown.
    pub(super) async fn look_after(&self, live: &Live) {
        let mut owes_since = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = SystemClock.now();
            // A probe whose reply is late, or is waited for by nobody any more, is settled by the reply to the next probe.
            let asked_before = live.probing.load(Ordering::Acquire);
            let is_late = if live.awaited.load(Ordering::Relaxed) == 0 {
                owes_since = None;
                false
            } else {
                now.since(live.pulse().answered_at().max(*owes_since.get_or_insert(now))) >= LOOK
            };
            if (asked_before || is_late) && !self.probe(live).await {
                return self.give_up(live);
            }
        }
    }

    /// Makes it as if a probe was sent over the present connection and has no reply.
    #[cfg(test)]
    pub(in crate::client) fn pretend_probing(&self) {
        self.with_present(|live| !live.probing.swap(true, Ordering::AcqRel));
    }

    /// Sends a probe. Returns false if it is given another reply.
    async fn probe(&self, live: &Live) -> bool {
        let mut probe = Cmd::new();
        probe.arg("EVAL").arg(PROBE).arg(0).arg(PROBE_REPLY);
        let sent_at = SystemClock.now();
        live.probing.store(true, Ordering::Release);
        let reply = live.commands.connection.clone().send_packed_command(&probe).await;
        match reply.and_then(Value::extract_error) {
            Ok(Value::BulkString(reply)) if reply == PROBE_REPLY => live.pulse().answered(sent_at, SystemClock.now()),
            Ok(_) => return false,
            // Replies that came meanwhile went to the wrong requests. A timeout says nothing if this process stood still.
            Err(error) if error.is_timeout() => {
                let pulse = live.pulse();
                return pulse.answered_at() < sent_at
                    || SystemClock.now() > sent_at.plus(self.op_timeout() + STOOD_STILL);
            }
            Err(error) if error::is_of_connection(&error) => return true,
            // It is refused.
            Err(_) => {}
        }
        live.probing.store(false, Ordering::Release);
        true
    }

    /// The outcome of a request by its reply, unless that is the reply to a probe, or may be.
    pub(super) fn checked_reply(&self, live: &Live, outcome: RedisResult<Value>) -> RedisResult<Value> {
        match outcome {
            Ok(Value::BulkString(reply)) if reply == PROBE_REPLY => {
                self.give_up(live);
                Err(missing())
            }
            // Perhaps that of the probe.
            Err(error) if live.probing.load(Ordering::Acquire) && error::is_of_any_command(&error) => Err(late()),
            outcome => outcome,
        }
    }
}

/// The signs of life of a connection: its last answer, and the time of its round trips. They say when a request that got no answer
/// means that the connection is dead.
///
/// A request that had no time left says nothing: its answer may be on its way. One that waited for most of its time on
/// this connection says that it is dead, unless anything at all was answered meanwhile. Pure: told of answers and timeouts,
/// with their instants.
#[derive(Debug)]
pub(super) struct Pulse {
    answered_at: BootInstant,
    /// The latest instant at which a request was sent that has an answer.
    heard_of: BootInstant,
    round_trip: Duration,
    silence: Duration,
}

impl Pulse {
    /// The pulse of a connection that has just answered a request of `sent_at`, and whose requests have `op_timeout` at
    /// most.
    pub(super) fn new(sent_at: BootInstant, now: BootInstant, op_timeout: Duration) -> Self {
        let silence = LONG_SILENCE.min(op_timeout / 2);
        Self { answered_at: now, heard_of: sent_at, round_trip: now.since(sent_at), silence }
    }

    /// Takes note of an answer, of whatever content.
    pub(super) fn answered(&mut self, sent_at: BootInstant, now: BootInstant) {
        self.answered_at = self.answered_at.max(now);
        self.heard_of = self.heard_of.max(sent_at);
        self.round_trip = self.round_trip.min(now.since(sent_at));
    }

    /// Whether a request that was sent at this instant or later has its answer.
    pub(super) fn has_answered_since(&self, sent_at: BootInstant) -> bool {
        self.heard_of >= sent_at
    }

    /// The instant of the last answer.
    pub(super) fn answered_at(&self) -> BootInstant {
        self.answered_at
    }

    /// Returns whether the connection is dead, as a request that was sent at `sent_at` and had time until `until` has no
    /// answer now. It had `patience` in all, some of which it may have waited for the connection.
    pub(super) fn is_dead(
        &self,
        sent_at: BootInstant,
        until: BootInstant,
        patience: Duration,
        now: BootInstant,
    ) -> bool {
        let silent_for = now.since(sent_at.max(self.answered_at));
        let enough = self.silence.max(self.round_trip * 2).max(patience / 4 * 3);
        now <= until.plus(STOOD_STILL) && silent_for >= enough
    }
}

/// The error of a request that had no answer in time.
pub(super) fn late() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// The error of a request whose reply is missing.
fn missing() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "a reply is missing").into()
}

#[cfg(test)]
mod tests {
    use lock_testkit::testing::{PROMPTLY, eventually, installed};
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::client::dial::{Dial, Opener};
    use crate::url::Login;

    const fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(milliseconds))
    }

    fn pulse(round_trip: u64) -> Pulse {
        Pulse::new(at(1000 - round_trip), at(1000), Duration::from_secs(2))
    }

    /// Whether the lack of an answer to this request says that the connection is dead, noticed on time.
    fn is_dead(pulse: &Pulse, sent: u64, until: u64, patience: u64) -> bool {
        pulse.is_dead(at(sent), at(until), Duration::from_millis(patience), at(until))
    }

    #[test]
    fn a_request_that_had_no_time_left_says_nothing_however_many_there_are() {
        let pulse = pulse(20);
        for left in 1..1500 {
            assert!(!is_dead(&pulse, 1000, 1000 + left, 2000));
        }
        assert!(is_dead(&pulse, 1000, 2500, 2000));
    }

    #[test]
    fn a_long_silence_is_death_unless_anything_was_answered_meanwhile() {
        let mut pulse = pulse(20);
        assert!(!is_dead(&pulse, 1000, 1400, 400) && is_dead(&pulse, 1000, 1600, 600));
        pulse.answered(at(1000), at(1200));
        assert!(!is_dead(&pulse, 1000, 1600, 600) && is_dead(&pulse, 1000, 1700, 600));
    }

    #[test]
    fn a_slow_link_is_given_two_round_trips() {
        let mut pulse = pulse(520);
        assert!(!is_dead(&pulse, 1000, 1700, 700) && is_dead(&pulse, 1000, 2100, 1100));
        // The first answer was slow because the server was busy.
        pulse.answered(at(1000), at(1001));
        assert!(is_dead(&pulse, 1001, 1701, 700));
    }

    #[test]
    fn a_timeout_that_is_noticed_too_late_says_nothing() {
        assert!(!pulse(1).is_dead(at(1000), at(3000), Duration::from_secs(2), at(3200)));
    }

    #[test]
    fn a_short_operation_timeout_is_enough() {
        let pulse = Pulse::new(at(999), at(1000), Duration::from_millis(300));
        assert!(is_dead(&pulse, 1000, 1300, 300));
    }

    #[tokio::test]
    async fn a_probe_without_a_reply_in_time_does_not_throw_doubt_on_refusals_for_ever() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let address = Address::Tcp { host, port: port.parse().unwrap() };
        let link = Link::connect(Arc::new(Dial::to(Arc::new(opener), address))).await.unwrap();
        let live = link.present().unwrap();
        let refused = || Err(redis::make_extension_error("OOM".to_owned(), Some("command not allowed".to_owned())));
        let is_timeout = || link.checked_reply(&live, refused()).is_err_and(|error| error.is_timeout());
        // Nobody waits for its answer any more, nor for any other one.
        live.probing.store(true, Ordering::Release);
        assert!(is_timeout(), "it may be that of the probe");
        eventually("refusals are taken for what they are", PROMPTLY, async || (!is_timeout()).then_some(())).await;
        assert!(link.present().is_some_and(|present| present.generation == live.generation));
        link.close();
    }
}
