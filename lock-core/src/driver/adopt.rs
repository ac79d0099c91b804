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
    /// Moves the grant `from` to the id of this attempt, in one step at the server. It keeps its token and lasts for at least the attempt's
    /// TTL from now on. `Ok(None)` if the server has no such grant. Idempotent: a grant that is under the attempt's id already is returned.
    ///
    /// `token` is the grant's token by the message, for a server that stores none. Such a backend accepts it only if it can be the token of
    /// what the server has.
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
