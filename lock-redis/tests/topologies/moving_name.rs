//! A name that leads to another server when it is told to, as names in DNS do.

use std::io;
use std::sync::Mutex;

use async_trait::async_trait;
use lock_redis::network::{Network, Stream};
use tokio::net::TcpStream;

/// The system's network with one name more in it.
#[derive(Debug)]
pub(crate) struct MovingName(Mutex<String>);

impl MovingName {
    pub(crate) const HOST: &str = "cluster.example";

    /// A name that leads to this address, `host:port`.
    pub(crate) fn of(address: &str) -> Self {
        Self(Mutex::new(address.to_owned()))
    }

    /// Leads to this address from now on.
    pub(crate) fn moves_to(&self, address: &str) {
        address.clone_into(&mut self.0.lock().unwrap());
    }
}

#[async_trait]
impl Network for MovingName {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let address = if host == Self::HOST { self.0.lock().unwrap().clone() } else { format!("{host}:{port}") };
        Ok(Box::new(TcpStream::connect(address).await?))
    }
}
