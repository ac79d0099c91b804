//! The simulated network, as `lock-redis` is given it.

use std::io;

use async_trait::async_trait;
use lock_redis::network::{Network, Stream};

/// `turmoil`'s network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Simulated;

#[async_trait]
impl Network for Simulated {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(turmoil::net::TcpStream::connect((host, port)).await?))
    }
}
