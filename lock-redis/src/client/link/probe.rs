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

/// The time between two looks. A connection that owes replies at both, and has given none in between, is asked for the word, and so is one
/// that still owes the last word.
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
            // One that has not come in time, or for which nobody waits any more, has come when the next one has.
            let asked_before = live.asks_word.load(Ordering::Acquire);
            let is_late = if live.owed.load(Ordering::Relaxed) == 0 {
                owes_since = None;
                false
            } else {
                now.since(live.pulse().answered_at().max(*owes_since.get_or_insert(now))) >= LOOK
            };
            if (asked_before || is_late) && !self.says_the_word(live).await {
                return self.give_up(live);
            }
        }
    }

    /// Makes it as if a word was asked for on the present connection and has not come.
    #[cfg(test)]
    pub(in crate::client) fn owes_the_word(&self) {
        self.with_present(|live| !live.asks_word.swap(true, Ordering::AcqRel));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lock_testkit::testing::{PROMPTLY, eventually, installed};
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Opener};
    use crate::url::Login;

    #[tokio::test]
    async fn a_word_that_has_not_come_in_time_does_not_throw_doubt_on_refusals_for_ever() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let address = Address::Tcp { host, port: port.parse().unwrap() };
        let link = Link::connect(Arc::new(Dial::to(Arc::new(opener), address))).await.unwrap();
        let live = link.present().unwrap();
        let refused = || Err(redis::make_extension_error("OOM".to_owned(), Some("command not allowed".to_owned())));
        let is_timeout = || link.own(&live, refused()).is_err_and(|error| error.is_timeout());
        // Nobody waits for its answer any more, nor for any other one.
        live.asks_word.store(true, Ordering::Release);
        assert!(is_timeout(), "it may be that of the word");
        eventually("refusals are taken for what they are", PROMPTLY, async || (!is_timeout()).then_some(())).await;
        assert!(link.present().is_some_and(|present| present.generation == live.generation));
        link.close();
    }
}
