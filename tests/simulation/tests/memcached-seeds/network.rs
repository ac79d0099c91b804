//! The simulated network, as `lock-memcached` is given it.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use lock_memcached::network::{Network, Stream};

/// `turmoil`'s network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulated;

#[async_trait]
impl Network for Simulated {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![SocketAddr::new(turmoil::lookup(host), port)])
    }

    async fn connect(&self, place: SocketAddr) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(turmoil::net::TcpStream::connect(place).await?))
    }
}
