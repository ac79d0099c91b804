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

impl<'a> MutexText<'a> {
    /// The parts before the token, which the server gives.
    pub(crate) const fn beginning(nonce: &'a str, client: &'a str, owner: &'a str) -> [&'a str; 6] {
        [nonce, ":", client, ":", owner, ":"]
    }
}

impl fmt::Display for MutexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::beginning(self.nonce, self.client, self.owner).iter().try_for_each(|part| f.write_str(part))?;
        self.token.fmt(f)
    }
}
