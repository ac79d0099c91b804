//! Several servers that know nothing of each other.

use futures_util::future::try_join_all;
use lock_testkit::Missing;

use super::options::RedisOptions;
use super::server::RedisServer;

/// The variable that names existing servers instead, their URLs separated by commas.
pub const QUORUM_URLS_VARIABLE: &str = "LOCK_TESTKIT_REDIS_QUORUM_URLS";

/// Several servers that know nothing of each other, for locks that need a majority of them.
#[derive(Debug)]
pub struct IndependentServers {
    servers: Vec<RedisServer>,
}

impl IndependentServers {
    /// The servers that [`QUORUM_URLS_VARIABLE`] names, or else so many of our own.
    ///
    /// # Errors
    /// [`Missing`], with what is missing or went wrong.
    pub async fn start(count: usize) -> Result<Self, Missing> {
        match std::env::var(QUORUM_URLS_VARIABLE) {
            Ok(urls) => Self::existing(urls.split(',')).await,
            Err(_) => Self::start_own(count).await,
        }
    }

    /// So many servers of our own even where [`QUORUM_URLS_VARIABLE`] names some.
    ///
    /// # Errors
    /// As [`start`](IndependentServers::start).
    pub async fn start_own(count: usize) -> Result<Self, Missing> {
        Self::start_with(count, &RedisOptions::new()).await
    }

    /// So many servers of our own that run like this.
    ///
    /// # Errors
    /// As [`start`](IndependentServers::start).
    pub async fn start_with(count: usize, options: &RedisOptions) -> Result<Self, Missing> {
        let servers = try_join_all((0..count).map(|_| RedisServer::start_with(options))).await?;
        Ok(Self { servers })
    }

    /// The servers that run at these URLs, which are not ours to stop.
    ///
    /// # Errors
    /// [`Missing`], if one of them does not answer.
    pub async fn existing(urls: impl IntoIterator<Item: Into<String>>) -> Result<Self, Missing> {
        let servers: Vec<_> = urls.into_iter().map(RedisServer::existing).collect();
        try_join_all(servers.iter().map(RedisServer::ready)).await?;
        Ok(Self { servers })
    }

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The URLs that clients connect to, one for each server.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url().to_owned()).collect()
    }
}
