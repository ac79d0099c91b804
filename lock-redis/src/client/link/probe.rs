//! The look at a connection that owes a reply: is it late, or will it never come?
//!
//! Replies have no number, and each is that to the oldest request which has none. So a word is asked for behind what is owed. If it
//! comes, everything before it has come, or somebody else has it: then a reply is missing, and the connection is given up long before
//! the operation timeout.

use std::time::Duration;

use lock_core::clock::{Clock, SystemClock};
use redis::{Cmd, Value};

use super::{Link, Live};

/// The time for which every reply has to be missing before the word is asked for, and the time between two looks.
const OVERDUE: Duration = Duration::from_millis(400);

/// The word, by a command for which the rights to everything else are enough.
const WORD: &str = "here";
const ASK: &str = "return ARGV[1]";

impl Link {
    /// Looks at a connection until it is given up.
    pub(super) async fn look_after(&self, live: &Live) {
        let mut word = Cmd::new();
        word.arg("EVAL").arg(ASK).arg(0).arg(WORD);
        let mut idle_at = SystemClock.now();
        loop {
            tokio::time::sleep(OVERDUE).await;
            let now = SystemClock.now();
            if !live.owes_replies() {
                idle_at = now;
            } else if now.since(idle_at.max(live.pulse().answered_at())) >= OVERDUE {
                match live.commands.connection.clone().send_packed_command(&word).await {
                    Ok(Value::BulkString(said)) if said == WORD.as_bytes() => {
                        live.pulse().answered(now, SystemClock.now());
                    }
                    // The reply to something else.
                    Ok(said) if said.clone().extract_error().is_ok() => return self.give_up(live.generation),
                    // Who waits for a reply judges what that says.
                    _ => {}
                }
            }
        }
    }
}
