//! The words of the server or the system, without the user's name.
//!
//! Servers name the user in some refusals (`User a has no permissions to …`); it may be a misplaced password.

use std::fmt;

use redis::RedisError;

/// The bytes of a server's words that are kept.
const MOST: usize = 1024;

/// The words of the server or the system, as the source of an error: at most 1 KiB of them.
#[derive(Clone)]
pub(crate) struct Cause {
    text: String,
    wrong_type: bool,
}

impl Cause {
    /// The words of this error.
    pub(crate) fn of(error: &RedisError, wrong_type: bool) -> Self {
        Self { text: shortened(without_user(&error.to_string()), MOST), wrong_type }
    }

    /// Whether it said that the key holds another type of data.
    pub(crate) fn is_wrong_type(&self) -> bool {
        self.wrong_type
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Cause {}

/// The beginning of a text that is longer than this, which ends in `…` then.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A name of a user has no blanks.
fn without_user(text: &str) -> String {
    let (before, after) = ("User ", " has no permissions");
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once(before) {
        told.push_str(head);
        told.push_str(before);
        let end = tail.find(after).filter(|end| !tail[..*end].contains(' ')).unwrap_or(0);
        told.push_str(if end > 0 { "…" } else { "" });
        rest = &tail[end..];
    }
    told.push_str(rest);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_without_the_user() {
        for (said, told) in [
            (
                "NOPERM: User a-b has no permissions to run the 'get' command",
                "NOPERM: User … has no permissions to run the 'get' command",
            ),
            (
                "ACL failure in script: User x has no permissions to access 1",
                "ACL failure in script: User … has no permissions to access 1",
            ),
            ("User a User b has no permissions", "User a User … has no permissions"),
            ("User ", "User "),
            ("timed out", "timed out"),
        ] {
            assert_eq!(without_user(said), told);
        }
    }

    #[test]
    fn a_refusal_from_outside_is_told_in_few_words_and_without_the_user() {
        let samples = [
            "-NOPERM User s3cret has no permissions to run the 'get' command\r\n",
            "-ERR ACL failure in script: User s3cret has no permissions to access 1 of the keys\r\n",
            "-ERR Error running script (call to f_ab): @user_script: 3: -OOM command not allowed\r\n",
            "-MOVED 3999 127.0.0.1:6381\r\n",
            "!21\r\nSYNTAX invalid syntax\r\n",
        ];
        let long = format!("-ERR {}\r\n", "long".repeat(400));
        let samples: Vec<_> = samples.iter().chain([&&*long]).map(|sample| sample.as_bytes()).collect();
        lock_testkit::fuzz::bytes("refusals", &samples, |bytes| {
            let Ok(value) = redis::parse_redis_value(bytes) else { return };
            let Err(said) = value.extract_error() else { return };
            let whole = said.to_string();
            let error = crate::error::of_request(said, lock_core::Phase::Acquire, "here");
            let told = std::error::Error::source(&error).unwrap().to_string();
            assert!(error.what().len() < 200 && told.len() <= 1100, "{} bytes", told.len());
            if whole.contains("User s3cret has no permissions") {
                assert!(!told.contains("User s3cret has no permissions"), "{told}");
            }
        });
    }
}
