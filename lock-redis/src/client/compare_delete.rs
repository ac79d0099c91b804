//! The compare-and-delete that newer servers have: Valkey from 9.0 (`DELIFEQ`), Redis from 8.4 (`DELEX … IFEQ`).
//!
//! It releases a mutex that has no waiters, and costs the server less than a script. A waiter marks the text that the key holds, so the
//! comparison then fails. The reply is a bare number, which could belong to another request. So the nonce is asked for behind it, and the
//! number counts only together with the nonce.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};

use crate::error::{self, is_of_any_command, is_of_connection};
use crate::store::call::MutexText;

/// Asks a server which one it has.
const ASK: &str = include_str!("../store/scripts/compare_delete.lua");

/// A server's own compare-and-delete.
#[derive(Debug)]
pub(super) struct CompareDelete {
    command: DeleteCommand,
    /// It was refused since it was found.
    refused: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeleteCommand {
    Delifeq,
    Delex,
}

impl CompareDelete {
    /// The request for the one that this user may call, at keys that begin with this.
    pub(super) fn question(prefix: &str) -> Cmd {
        let mut ask = Cmd::new();
        ask.arg("EVAL").arg(ASK).arg(0).arg(prefix);
        ask
    }

    /// The one that the server names; `None` if it has none, or does not tell.
    pub(super) fn named(answer: &Value) -> Option<Self> {
        let Value::BulkString(name) = answer else { return None };
        let command = match &**name {
            b"DELIFEQ" => DeleteCommand::Delifeq,
            b"DELEX" => DeleteCommand::Delex,
            _ => return None,
        };
        Some(Self { command, refused: AtomicBool::new(false) })
    }

    /// The commands that delete a key if it holds this text, and tell whose answer that is.
    pub(super) fn commands(&self, key: &str, held: &MutexText<'_>, asking: bool) -> Pipeline {
        let mut pipeline = redis::pipe();
        if asking {
            pipeline.cmd("ASKING");
        }
        match self.command {
            DeleteCommand::Delifeq => pipeline.cmd("DELIFEQ").arg(key),
            DeleteCommand::Delex => pipeline.cmd("DELEX").arg(key).arg("IFEQ"),
        }
        .arg(held.to_string());
        pipeline.cmd("ECHO").arg(held.nonce);
        pipeline
    }

    /// Whether it was refused for good.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether this error concerns the command itself, so that a script may do its work. A command that the server does not know, or
    /// denies, is not called again over this connection.
    pub(super) fn is_refused_by(&self, error: &RedisError) -> bool {
        let detail = error.detail().unwrap_or_default();
        let denied = error::code(error) == Some("NOPERM") && detail.contains("command");
        if denied || detail.contains("unknown command") {
            self.refused.store(true, Ordering::Relaxed);
        }
        denied || error::code(error) == Some("ERR")
    }
}

/// The reply in the form of the script's reply; `whose` is the nonce that shows whether it answers this request.
pub(super) fn reply(nonce: &str, whose: RedisResult<Value>, deleted: RedisResult<Value>) -> RedisResult<Value> {
    match whose {
        Ok(Value::BulkString(echo)) if echo == nonce.as_bytes() => {}
        // Somebody else's answer, as which it is found out.
        Ok(other) => return Ok(other),
        // Both were refused, as everything is.
        Err(error) if is_of_any_command(&error) && deleted.as_ref().is_err_and(is_of_any_command) => {
            return Err(error);
        }
        // It may have been deleted: an answer that cannot be told from another's is none.
        Err(error) if !is_of_connection(&error) => {
            let why = "the server did not say whose its answer was";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why).into());
        }
        Err(error) => return Err(error),
    }
    let sign = match deleted? {
        Value::Int(1) => '+',
        _ => '?',
    };
    Ok(Value::BulkString(format!("{nonce}{sign}").into_bytes()))
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;

    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    fn text(text: &str) -> RedisResult<Value> {
        Ok(Value::BulkString(text.as_bytes().to_vec()))
    }

    fn refusal(text: &str) -> RedisResult<Value> {
        let server = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        server.extract_error()
    }

    #[test]
    fn a_number_counts_only_with_the_nonce_behind_it() {
        let replied = |whose, deleted| reply(NONCE, whose, deleted).map_err(|error| error.to_string());
        assert_eq!(replied(text(NONCE), Ok(Value::Int(1))), Ok(text(&format!("{NONCE}+")).unwrap()));
        assert_eq!(replied(text(NONCE), Ok(Value::Int(0))), Ok(text(&format!("{NONCE}?")).unwrap()));
        // The answers are one too far: that of the release before, and this one's number.
        assert_eq!(replied(Ok(Value::Int(1)), text(&NONCE.replace('0', "f"))), Ok(Value::Int(1)));
        let other = NONCE.replace('0', "f");
        assert_eq!(replied(text(&other), Ok(Value::Int(1))), Ok(text(&other).unwrap()));
    }

    #[test]
    fn without_the_nonce_the_outcome_is_unknown_and_with_it_a_refusal_is_definite() {
        let denied = reply(NONCE, refusal("NOPERM no echo"), Ok(Value::Int(1))).unwrap_err();
        assert_eq!(error::fate(&denied), error::RequestFate::Unknown, "{denied:?}");
        let busy = reply(NONCE, refusal("BUSY a script"), refusal("BUSY a script")).unwrap_err();
        assert_eq!((error::fate(&busy), error::code(&busy)), (error::RequestFate::Refused, Some("BUSY")));
        let denied = reply(NONCE, text(NONCE), refusal("NOPERM no right")).unwrap_err();
        assert_eq!((error::fate(&denied), error::code(&denied)), (error::RequestFate::Refused, Some("NOPERM")));
    }

    #[test]
    fn it_is_known_by_its_name_and_not_called_again_once_it_was_refused() {
        assert!(CompareDelete::named(&text("").unwrap()).is_none() && CompareDelete::named(&Value::Nil).is_none());
        let errors = [
            ("MOVED 1 127.0.0.1:1", false, false),
            ("WRONGTYPE no", false, false),
            ("NOPERM No permissions to access a key", false, false),
            ("ERR Key should be of string type", true, false),
            ("ERR unknown command 'DELEX'", true, true),
            ("NOPERM User has no permissions to run the 'delex' command", true, true),
        ];
        for (error, by_script, for_good) in errors {
            let delete = CompareDelete::named(&text("DELEX").unwrap()).unwrap();
            assert_eq!(delete.is_refused_by(&refusal(error).unwrap_err()), by_script, "{error}");
            assert_eq!(delete.refused.load(Ordering::Relaxed), for_good, "{error}");
        }
    }

    #[test]
    fn each_server_is_asked_in_its_own_words() {
        let held = MutexText { nonce: NONCE, client: "c", owner: "{}", token: FencingToken::new(7).unwrap() };
        let words = |name: &str, asking| {
            let delete = CompareDelete::named(&text(name).unwrap()).unwrap();
            let packed = delete.commands("key", &held, asking).get_packed_pipeline();
            let words = String::from_utf8(packed).unwrap();
            words.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
        };
        let compared = format!("{NONCE}:c:{{}}:7");
        assert_eq!(words("DELIFEQ", false).trim(), format!("DELIFEQ key {compared} ECHO {NONCE}"));
        assert_eq!(words("DELEX", true).trim(), format!("ASKING DELEX key IFEQ {compared} ECHO {NONCE}"));
    }
}
