//! The adoption of a grant by another client.

use async_trait::async_trait;

use super::attempt::{Attempt, Grant};
use super::backend::MutexBackend;
use crate::error::Error;
use crate::owner::GrantId;
use crate::token::FencingToken;

/// Offers that a client goes on with a mutex that another one holds.
///
/// The core asks only where [`Adoption`](super::Guarantee::Adoption) is promised.
#[async_trait]
pub trait AdoptBackend: MutexBackend {
    /// Puts the grant with the id `from` under the id of this attempt, with its token, and lets it last for the attempt's TTL from now on at
    /// least: one step at the server. `Ok(None)` if it has no such grant. Idempotent: what is under the attempt's id already is told again.
    ///
    /// `token` is the grant's, as the message says, for a server that does not know it by itself: that one takes it only if it may be
    /// the token of what it has there.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if nothing was sent,
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no answer came.
    ///
    /// # Cancel safety
    /// May be dropped: the core then calls [`Backend::cancel`](super::Backend::cancel).
    async fn adopt(
        &self,
        attempt: &Attempt,
        from: GrantId,
        token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error>;
}
