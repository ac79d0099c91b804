//! The system's network, whose connecting panics now and then.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lock_redis::network::{Network, Stream};
use tokio::net::TcpStream;

/// A network that panics at as many connections to some servers as it is told to.
#[derive(Debug, Default)]
pub(crate) struct MistakenNetwork {
    ports: Vec<u16>,
    left: AtomicUsize,
}

impl MistakenNetwork {
    /// A network that may panic at connections to these addresses, `host:port` each.
    pub(crate) fn to<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Self {
        let port = |address: &str| address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { ports: addresses.into_iter().map(port).collect(), left: AtomicUsize::new(0) }
    }

    /// Panics at so many connections from now on.
    pub(crate) fn panics(&self, times: usize) {
        self.left.store(times, Ordering::SeqCst);
    }

    /// Whether it has panicked that often.
    pub(crate) fn has_panicked(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    fn is_mistaken(&self, port: u16) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.ports.contains(&port) && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

#[async_trait]
impl Network for MistakenNetwork {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.is_mistaken(port) {
            // Not by the panic hook, which would count it for a mistake of the backend.
            resume_unwind(Box::new("a mistake in the network, planted by the test"));
        }
        Ok(Box::new(TcpStream::connect((host, port)).await?))
    }
}
