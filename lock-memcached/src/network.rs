//! The network that connections are made over: the system's, or the simulation's. Not part of the public API; see
//! `docs/decisions/0043-memcacheds-client-is-simulated.md`.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

/// A way to reach hosts.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Resolves the name of a host.
    ///
    /// # Errors
    /// If the name is not known, or could not be asked for.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Opens a connection.
    ///
    /// # Errors
    /// If nobody listens there, or nobody answers.
    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>>;
}

/// A connection.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Unpin + Send> Stream for S {}

/// The system's network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemNetwork;

#[async_trait]
impl Network for SystemNetwork {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((host, port)).await?.collect())
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(place).await?;
        // Only for speed: small requests go out at once.
        let _ = stream.set_nodelay(true);
        Ok(Box::new(stream))
    }
}
