//! The bytes that servers send to a client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A link to a server, which counts what comes from there.
pub(crate) struct Meter {
    address: String,
    bytes: Arc<AtomicU64>,
}

impl Meter {
    pub(crate) async fn to(server: impl Into<String>) -> Self {
        let (server, bytes) = (server.into(), Arc::<AtomicU64>::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let counted = bytes.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(connection) = TcpStream::connect(&server).await else { continue };
                let ((mut asked, answers), (answered, mut requests)) = (client.into_split(), connection.into_split());
                tokio::spawn(async move { copy(&mut asked, &mut requests).await });
                tokio::spawn(count(answered, answers, counted.clone()));
            }
        });
        Self { address, bytes }
    }

    /// The URL of what is behind it.
    pub(crate) fn url(&self) -> String {
        format!("zk://{}", self.address)
    }

    /// Returns the number of bytes that have come until now.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

/// Passes on what comes, and counts it before anybody has it.
async fn count(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, bytes: Arc<AtomicU64>) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        bytes.fetch_add(read as u64, Ordering::SeqCst);
        to.write_all(&buffer[..read]).await?;
    }
}
