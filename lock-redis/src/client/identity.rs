//! One client, as the scripts are told of it.

use lock_core::{Error, GrantId};

/// The id of a client, and the prefix of all clients' push channels.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) client: String,
    pub(crate) channels: String,
}

impl Identity {
    /// A new client, of those whose push channels begin like this.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(crate) fn new(channels: String) -> Result<Self, Error> {
        Ok(Self { client: GrantId::random()?.to_string()[..16].to_owned(), channels })
    }

    /// The client's own push channel.
    pub(crate) fn channel(&self) -> String {
        format!("{}{}", self.channels, self.client)
    }
}
