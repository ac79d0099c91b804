//! The command connection to one server: one multiplexed connection, redialled for ever, and one run of a script over it.

pub(crate) mod batches;
mod compare;
mod lifecycle;
mod live;
mod outcome;
mod pipeline;
pub(crate) mod predecessors;
pub(crate) mod request;
mod supervisor;

use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, Phase};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::Notify;

use crate::client::dial::{Commands, Dial};
use crate::error;
use crate::store::call::{Request, whole_milliseconds};
use batches::Batches;
use lifecycle::Presence;
use live::{AwaitedReply, late};
pub(crate) use live::{CROWDED, NO_TIME};
pub(in crate::client) use live::{Live, SendTurn};
use predecessors::Predecessors;
use request::{Failed, Raw, Reply};

/// The age that a connection must have for "you can't write against a read only replica" to mean that the address has moved on
/// to another server since, so that dialling again may find that one.
const SETTLED: Duration = Duration::from_secs(1);

/// A request that begins this much after its operation needs no timeout of its own.
const SLACK: Duration = Duration::from_millis(20);

/// The digits of the largest number that can be a token, which is below 2^53.
const MOST_DIGITS: usize = 16;

/// The command connection to one server.
#[derive(Debug)]
pub(crate) struct Link {
    dial: Arc<Dial>,
    op_timeout: Duration,
    predecessors: Arc<Predecessors>,
    /// Read by every request.
    presence: RwLock<Presence>,
    last_error: Mutex<Option<Error>>,
    broken: Notify,
    /// The news that there is reason to dial without a pause.
    hurried: Notify,
    closed: AtomicBool,
    /// The callers whose requests are on their way, or wait to be.
    callers: AtomicUsize,
    batches: Batches,
}

/// A caller of a link, for as long as its request takes.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub(in crate::client) link: &'a Arc<Link>,
    /// Whether somebody else asks.
    pub(crate) has_company: bool,
}

/// The longest lease that was asked for over links that have it in common, in milliseconds.
#[derive(Debug, Default)]
struct LongestLease(AtomicU64);

/// The reply to a request in a short way, and when that was sent.
#[derive(Debug)]
pub(crate) struct ShortReply {
    pub(crate) sent_at: BootInstant,
    /// The number of the connection over which it came.
    pub(crate) generation: u64,
    text: ShortText,
}

/// The text of a reply: all that came, or a part of what a batch was told.
#[derive(Debug)]
enum ShortText {
    Whole(Value),
    Part(Arc<Vec<u8>>, Range<usize>),
}

impl Link {
    /// Counts a caller.
    pub(in crate::client) fn caller(self: &Arc<Self>) -> Caller<'_> {
        let others = self.callers.fetch_add(1, Ordering::Relaxed);
        Caller { link: self, has_company: others > 0 }
    }

    pub(crate) fn server(&self) -> &str {
        &self.dial.server
    }

    pub(in crate::client) fn op_timeout(&self) -> Duration {
        self.op_timeout
    }

    /// Takes note of a lease that is about to be asked for.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        self.predecessors.longest_lease.note(ttl);
    }

    /// Runs a script on the present connection, waiting for one at most until `until`; never sends it twice.
    ///
    /// `sent` is told the connection before anything is sent, so that a caller that is dropped in the middle leaves a
    /// trace.
    pub(crate) async fn run(
        &self,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        sent: impl FnOnce(u64),
    ) -> Result<Reply, Failed> {
        loop {
            let live = self.live(until).await.map_err(Failed::unsent)?;
            let _turn = match live.turn(until).await {
                SendTurn::Now(turn) => turn,
                SendTurn::Ended => continue,
                SendTurn::Never(why) => return Err(Failed::no_turn(why, phase, self.server())),
            };
            sent(live.generation);
            let outcome = self.run_on(live, request, false, until).await;
            return outcome.map_err(|error| Failed::of(error, phase, self.server()));
        }
    }

    /// Runs a script on this connection; `asking` where the server is about to take the keys over.
    pub(in crate::client) async fn run_on(
        &self,
        mut live: Live,
        request: Request<'_>,
        asking: bool,
        until: BootInstant,
    ) -> RedisResult<Reply> {
        let mut sent_at = SystemClock.now();
        if let Some(held) = request.held
            && let Some(outcome) = self.compare_and_delete(&mut live, (&request.keys[0], held), asking, until).await
        {
            return Ok(Reply { sent_at, value: Raw { value: outcome?, generation: live.generation } });
        }
        let by_digest = request.by_digest();
        let mut outcome = self.send(&mut live, &by_digest, asking, until).await;
        if outcome.as_ref().is_err_and(error::is_no_script) {
            // A flushed or restarted server.
            let telling = self.tell(&mut live, request, &by_digest, asking, until, (sent_at, outcome));
            (sent_at, outcome) = Box::pin(telling).await;
        }
        Ok(Reply { sent_at, value: Raw { value: outcome?, generation: live.generation } })
    }

    /// Sends one command, and draws from its answer, or from the lack of one, what that says about the connection. One that begins
    /// late, after a reconnect or a repetition, has less than an operation timeout.
    async fn send(&self, live: &mut Live, command: &Cmd, asking: bool, until: BootInstant) -> RedisResult<Value> {
        let (sent_at, _awaited) = (SystemClock.now(), AwaitedReply::one_more(&live.state.awaited));
        let sending = send_one(&mut live.commands, command, asking);
        let outcome = self.in_time(sent_at, until, pin!(sending)).await;
        let outcome = self.checked_reply(live, outcome.and_then(Value::extract_error));
        self.judge(live, sent_at, until, self.op_timeout(), outcome.as_ref().err());
        outcome
    }

    /// Waits for an answer until then. The connection itself gives every command one operation timeout. What is sent is best pinned
    /// by the caller: handed on by value, it would be part of the caller's future twice.
    async fn in_time<T>(
        &self,
        sent_at: BootInstant,
        until: BootInstant,
        sending: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let left = until.since(sent_at);
        if left + SLACK >= self.op_timeout() {
            sending.await
        } else {
            tokio::time::timeout(left, sending).await.unwrap_or_else(|_| Err(late()))
        }
    }

    /// Takes note of an answer, or of what came instead, to a request over this connection that had `patience` in all;
    /// gives the connection up if that says that it is dead, or leads to the wrong server.
    pub(in crate::client) fn judge(
        &self,
        live: &Live,
        sent_at: BootInstant,
        until: BootInstant,
        patience: Duration,
        failure: Option<&RedisError>,
    ) {
        let now = SystemClock.now();
        let Some(error) = failure.filter(|error| error::is_of_connection(error)) else {
            live.pulse().answered(sent_at, now);
            let is_astray = failure.is_some_and(|error| error::code(error) == Some("READONLY"));
            if is_astray && now.since(live.since) >= SETTLED {
                self.distrust(live.generation);
            }
            return;
        };
        if !error.is_timeout() {
            self.distrust(live.generation);
        } else if live.pulse().is_dead(sent_at, until, patience, now) {
            self.distrust(live.generation);
            // Whoever waits for an answer of it waits for nothing.
            live.commands.abort();
        }
    }

    /// The present connection, or the next one if it comes in time.
    pub(in crate::client) async fn live(&self, until: BootInstant) -> Result<Live, Error> {
        if let Some(live) = self.present() {
            return Ok(live);
        }
        let mut generation = self.generations();
        loop {
            // Subscribed before this look: a connection that is made after it is a change.
            if let Some(live) = self.present() {
                return Ok(live);
            }
            tokio::select! {
                biased;
                Ok(_) = generation.changed() => {}
                () = SystemClock.sleep_until(until) => return Err(self.down()),
            }
        }
    }

    /// The present connection.
    pub(in crate::client) fn present(&self) -> Option<Live> {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.clone()
    }

    /// Looks at the present connection; false if there is none.
    fn with_present(&self, look: impl FnOnce(&Live) -> bool) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.as_ref().is_some_and(look)
    }

    /// The error that there is no connection, and why.
    pub(in crate::client) fn down(&self) -> Error {
        let down = |kind, why: &str| {
            let down = Error::new(kind, Phase::Connect, format!("there is no connection: {why}"));
            down.with_backend(crate::guarantees::NAME).with_server(self.server())
        };
        match &*self.last_error() {
            Some(last) => error::with_cause_of(down(last.kind(), last.what()), last),
            None => down(ErrorKind::Unavailable, "it is being made"),
        }
    }

    fn last_error(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.link.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LongestLease {
    /// Takes note of a lease that is about to be asked for.
    fn note(&self, ttl: Duration) {
        let ttl = whole_milliseconds(ttl);
        if self.0.load(Ordering::Relaxed) < ttl {
            self.0.fetch_max(ttl, Ordering::Relaxed);
        }
    }

    /// The TTL of the longest one.
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl ShortReply {
    /// The reply to a request that went by itself.
    pub(in crate::client) fn whole(value: Value, sent_at: BootInstant, generation: u64) -> Self {
        Self { sent_at, generation, text: ShortText::Whole(value) }
    }

    /// The part of a batch's text that answers one of its requests.
    fn part(text: &Arc<Vec<u8>>, part: Range<usize>, sent_at: BootInstant, generation: u64) -> Self {
        Self { sent_at, generation, text: ShortText::Part(text.clone(), part) }
    }

    /// Reads `<nonce><sign><token>`, where not each sign has a token; `None` if that answers another request.
    pub(in crate::client) fn read(&self, nonce: &str) -> Option<(u8, Option<FencingToken>)> {
        let bytes = match &self.text {
            ShortText::Whole(Value::BulkString(bytes)) => &bytes[..],
            ShortText::Whole(_) => return None,
            ShortText::Part(text, part) => text.get(part.clone())?,
        };
        let (sign, digits) = bytes.strip_prefix(nonce.as_bytes())?.split_first()?;
        Some((*sign, number(digits).and_then(FencingToken::new)))
    }
}

/// Reads the digits of a number; `None` if they are none, or too many for a token.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

async fn send_one(commands: &mut Commands, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return commands.connection.send_packed_command(command).await;
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command.clone());
    let mut values = commands.connection.send_packed_commands(&pipeline, 0, 2).await?;
    values.pop().ok_or_else(|| std::io::Error::other("no reply to a pipeline").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_as_a_reply_of_its_own_is() {
        let nonce = "0123456789abcdef0123456789abcdef";
        let text = Arc::new(format!("{nonce}+17\n{nonce}-\n").into_bytes());
        let part = |part| ShortReply::part(&text, part, BootInstant::FAR_FUTURE, 1);
        assert_eq!(part(0..35).read(nonce), Some((b'+', FencingToken::new(17))));
        assert_eq!(part(36..69).read(nonce), Some((b'-', None)));
        assert_eq!(part(0..35).read(&nonce.replace('0', "1")), None);
        assert_eq!(part(0..32).read(nonce), None);
        assert_eq!(part(60..90).read(nonce), None);
    }

    #[test]
    fn the_digits_of_a_token_are_read_and_nothing_else_is() {
        for (digits, read) in [("1", 1), ("0017", 17), ("9007199254740991", 9_007_199_254_740_991)] {
            assert_eq!(number(digits.as_bytes()), Some(read), "{digits}");
        }
        for wrong in ["", "+1", "-1", " 1", "1x", "1.0", "10000000000000000", "18446744073709551616"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
