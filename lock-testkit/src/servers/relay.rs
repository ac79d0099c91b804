//! TCP connections that can be cut and healed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Before another try to accept, when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(10);

/// A port on the loopback interface that leads to another one. While it is cut, nothing gets through in either direction
/// and everything stays open, as when a cable is pulled; what was sent meanwhile arrives when it is healed.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    /// Whether anything gets through. With its sender, the relay ends.
    open: watch::Sender<bool>,
}

impl Relay {
    /// A relay to this address, which works in this runtime.
    pub(crate) fn new(to: SocketAddr, runtime: &Handle) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let (open, gate) = watch::channel(true);
        let _guard = runtime.enter();
        runtime.spawn(serve(TcpListener::from_std(listener)?, to, Gate(gate)));
        Ok(Self { port, open })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn heal(&self) {
        self.open.send_replace(true);
    }
}

#[derive(Debug, Clone)]
struct Gate(watch::Receiver<bool>);

impl Gate {
    /// Waits until something gets through; an error if the relay is gone.
    async fn pass(&mut self) -> io::Result<()> {
        self.0.wait_for(|open| *open).await.map(drop).map_err(|_| io::ErrorKind::ConnectionAborted.into())
    }

    async fn gone(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, gate: Gate) {
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((from, _)) => drop(tokio::spawn(connect(from, to, gate.clone()))),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = gate.clone().gone() => {}
    }
}

/// Joins the two ends until one of them, or the relay, is gone.
async fn connect(from: TcpStream, to: SocketAddr, mut gate: Gate) -> io::Result<()> {
    gate.pass().await?;
    let to = TcpStream::connect(to).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    let both =
        async { tokio::try_join!(copy(from_read, to_write, gate.clone()), copy(to_read, from_write, gate.clone())) };
    tokio::select! {
        outcome = both => outcome.map(drop),
        () = gate.clone().gone() => Ok(()),
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut gate: Gate) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let outcome = from.read(&mut buffer).await;
        // Not even that a connection has ended gets through.
        gate.pass().await?;
        match outcome? {
            0 => return to.shutdown().await,
            length => to.write_all(&buffer[..length]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{eventually, ms, promptly, soon, stays_pending};

    async fn relayed() -> (Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::new(listener.local_addr().unwrap(), &Handle::current()).unwrap();
        let from = TcpStream::connect(("127.0.0.1", relay.port())).await.unwrap();
        let (to, _) = listener.accept().await.unwrap();
        (relay, from, to)
    }

    #[tokio::test]
    async fn what_is_sent_while_it_is_cut_arrives_when_it_is_healed() {
        let (relay, mut from, mut to) = relayed().await;
        from.write_all(b"a").await.unwrap();
        assert_eq!(soon("the first byte", promptly(), to.read_u8()).await.unwrap().unwrap(), b'a');
        relay.cut();
        from.write_all(b"b").await.unwrap();
        from.shutdown().await.unwrap();
        let mut next = Box::pin(to.read_u8());
        stays_pending("the second byte", ms(50), next.as_mut()).await.unwrap();
        relay.heal();
        assert_eq!(soon("the second byte", promptly(), next).await.unwrap().unwrap(), b'b');
        assert_eq!(soon("the end", promptly(), to.read(&mut [0])).await.unwrap().unwrap(), 0);
        to.write_all(b"c").await.unwrap();
        assert_eq!(soon("the answer", promptly(), from.read_u8()).await.unwrap().unwrap(), b'c');
    }

    #[tokio::test]
    async fn connections_end_with_the_relay_even_if_it_is_cut() {
        let (relay, mut from, _to) = relayed().await;
        let address = ("127.0.0.1", relay.port());
        relay.cut();
        drop(relay);
        assert_eq!(soon("the end", promptly(), from.read(&mut [0])).await.unwrap().unwrap(), 0);
        let refused = async || Ok(TcpStream::connect(address).await.is_err().then_some(()));
        eventually("the end of its port", promptly(), refused).await.unwrap();
    }
}
