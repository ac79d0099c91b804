//! The network that connections are made over, where it is not the system's: the workspace's simulation has one, and the
//! conformance suite leads connections through proxies by one. Not part of the public API; see
//! `docs/decisions/0019-the-simulation-has-one-door.md`.

use std::fmt;
use std::io;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A way to reach hosts.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the system's `connect` fails.
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>>;
}

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
