//! What the server or the system said, without the user's name.
//!
//! Servers name the user in some refusals (`User a has no permissions to …`); it may be a misplaced password.

use std::fmt;

use redis::RedisError;

use crate::error;

/// What the server or the system said, as the source of an error.
#[derive(Clone)]
pub(crate) struct Cause {
    text: String,
    wrong_type: bool,
}

impl Cause {
    /// Whether it said that the key holds another type of data.
    pub(crate) fn is_wrong_type(&self) -> bool {
        self.wrong_type
    }
}

impl From<&RedisError> for Cause {
    fn from(error: &RedisError) -> Self {
        Self { text: without_user(&error.to_string()), wrong_type: error::is_wrong_type(error) }
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
}
