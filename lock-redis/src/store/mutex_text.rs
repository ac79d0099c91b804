//! The text that the key of a held mutex has, as long as nobody waits.

use std::fmt;

use lock_core::FencingToken;

/// `<nonce>:<client>:<owner JSON>:<token>`, as `scripts/mutex/one.lua` has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MutexText<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) client: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) token: FencingToken,
}

impl fmt::Display for MutexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nonce, client, owner, token } = self;
        write!(f, "{nonce}:{client}:{owner}:{token}")
    }
}
