//! How to connect, and what all locks of a client have in common.

use lock_core::{ClientOptions, Error, Phase};

/// Configuration of a [`RedisLocks`](crate::RedisLocks) client.
///
/// ```
/// use lock_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis://worker:secret@127.0.0.1:6379/2").with_prefix("billing");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// `redis://[user[:password]@]host[:port][/database]`.
    pub url: String,
    /// What every key and channel begins with, except keys given by [`LockName::at_key`](lock_core::LockName::at_key).
    /// Clients with different prefixes do not see each other's locks. `"lock"` by default.
    pub prefix: String,
    /// Lease, time limits and label.
    pub client: ClientOptions,
}

impl RedisConfig {
    /// The defaults for this server.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: "lock".to_owned(), client: ClientOptions::default() }
    }

    /// The same with another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The same with other options for its locks.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let prefix = &self.prefix;
        if prefix.is_empty() || prefix.len() > 256 || prefix.contains(['{', '}']) {
            let what = format!("the prefix {prefix:?} must have 1 to 256 bytes and no braces");
            return Err(Error::invalid(Phase::Configure, what).with_backend(crate::NAME));
        }
        Ok(())
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Without the URL, which may carry a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
