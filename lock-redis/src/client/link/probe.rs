//! The look at a connection that owes replies: are they late, or will one of them never come?
//!
//! Replies have no number, and each is that to the oldest request which has none. So a word is asked for behind what is owed. If it
//! comes, everything before it has come. If something else has it, a reply is missing: then the connection is given up long before the
//! operation timeout, and what it owed is unknown.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_core::clock::{Clock, SystemClock};
use redis::{Cmd, RedisError, RedisResult, Value};

use super::request::late;
use super::{Link, Live};
use crate::client::pulse::STOOD_STILL;
use crate::error;

/// The time between two looks. A connection that owes replies at both, and has given none in between, is asked for the word.
const LOOK: Duration = Duration::from_millis(400);

/// The word, which no script replies, and the script that does. The rights to everything else are enough for that.
const WORD: &[u8] = b"lock-redis: no reply is missing";
const ASK: &str = "return ARGV[1]";

impl Link {
    /// Looks at a connection until it is given up.
    pub(super) async fn look_after(&self, live: &Live) {
        let mut owes_since = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = SystemClock.now();
            if live.owed.load(Ordering::Relaxed) == 0 {
                owes_since = None;
            } else if now.since(live.pulse().answered_at().max(*owes_since.get_or_insert(now))) >= LOOK
                && !self.says_the_word(live).await
            {
                return self.give_up(live);
            }
        }
    }

    /// Asks for the word. Returns false if something else has it.
    async fn says_the_word(&self, live: &Live) -> bool {
        let mut ask = Cmd::new();
        ask.arg("EVAL").arg(ASK).arg(0).arg(WORD);
        let sent_at = SystemClock.now();
        live.asks_word.store(true, Ordering::Release);
        let said = live.commands.connection.clone().send_packed_command(&ask).await;
        match said.and_then(Value::extract_error) {
            Ok(Value::BulkString(said)) if said == WORD => live.pulse().answered(sent_at, SystemClock.now()),
            Ok(_) => return false,
            // What has come meanwhile was taken for the replies to others. Where this process stood still, it says nothing.
            Err(error) if error.is_timeout() => {
                let pulse = live.pulse();
                return pulse.answered_at() < sent_at
                    || SystemClock.now() > sent_at.plus(self.op_timeout() + STOOD_STILL);
            }
            Err(error) if error.is_io_error() => return true,
            // It is refused.
            Err(_) => {}
        }
        live.asks_word.store(false, Ordering::Release);
        true
    }

    /// The outcome of a request by its reply, which may be that to another one.
    pub(super) fn own(&self, live: &Live, outcome: RedisResult<Value>) -> RedisResult<Value> {
        match outcome {
            Ok(Value::BulkString(said)) if said == WORD => {
                self.give_up(live);
                Err(missing())
            }
            // Perhaps that of the word.
            Err(error) if live.asks_word.load(Ordering::Acquire) && error::is_of_any_command(&error) => Err(late()),
            outcome => outcome,
        }
    }
}

/// The error of a request whose reply is missing.
fn missing() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "a reply is missing").into()
}
