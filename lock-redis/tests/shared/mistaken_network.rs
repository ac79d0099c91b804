//! The system's network, whose connecting panics now and then.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lock_redis::network::{Network, Stream};
use tokio::net::TcpStream;

/// A network that panics at as many connections as it is told to.
#[derive(Debug, Default)]
pub(crate) struct MistakenNetwork(AtomicUsize);

impl MistakenNetwork {
    /// Panics at so many connections from now on.
    pub(crate) fn panics(&self, times: usize) {
        self.0.store(times, Ordering::SeqCst);
    }

    /// Whether it has panicked that often.
    pub(crate) fn has_panicked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

#[async_trait]
impl Network for MistakenNetwork {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            // Not by the panic hook, which would count it for a mistake of the backend.
            resume_unwind(Box::new("a mistake in the network, planted by the test"));
        }
        Ok(Box::new(TcpStream::connect((host, port)).await?))
    }
}
