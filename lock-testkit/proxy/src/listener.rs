//! The port of a link, which is closed while connections are refused.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::active::Active;
use super::connection::Connection;
use super::joint;
use super::link::Link;
use crate::ports::free_port;

/// Before another try to accept or to listen, when the process has no descriptor left or somebody has the port.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    open: TcpListener,
}

impl Listener {
    /// On a free port that no outgoing connection takes while it is closed. To be called in a runtime.
    pub(super) fn new() -> io::Result<Self> {
        loop {
            let port = free_port()?;
            match listen(port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                outcome => return outcome.map(|open| Self { port, open }),
            }
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) async fn serve(self, link: Arc<Link>) {
        let Self { port, mut open } = self;
        let mut changes = link.changes();
        loop {
            if let Some(refusal) = refusal(&link) {
                drop(open);
                tokio::select! {
                    () = until_refused(port) => refusal.stopped_connection(),
                    () = refusal.healed() => {}
                }
                refusal.healed().await;
                open = reopen(port).await;
            }
            accept(&open, &link, &mut changes).await;
        }
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts connections until the faults change.
async fn accept(open: &TcpListener, link: &Arc<Link>, changes: &mut watch::Receiver<()>) {
    loop {
        let accepted = tokio::select! {
            _ = changes.changed() => return,
            accepted = open.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => match Connection::new(link.clone()) {
                Ok(connection) => drop(tokio::spawn(joint::serve(connection, client))),
                Err(refusal) => refuse(client, &refusal),
            },
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn refusal(link: &Link) -> Option<Arc<Active>> {
    link.faults().into_iter().find(|fault| fault.refuses())
}

/// Resets a connection that came before the port was closed, and after it was to be.
fn refuse(client: TcpStream, refusal: &Active) {
    // Without it the client hears of an end instead of a reset, but hears of it.
    let _ = client.set_zero_linger();
    refusal.stopped_connection();
}

/// Waits until a connection to this port is really refused.
async fn until_refused(port: u16) {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.err().map(|error| error.kind())
        != Some(io::ErrorKind::ConnectionRefused)
    {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn reopen(port: u16) -> TcpListener {
    loop {
        match listen(port) {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::fault::Toxic;
    use crate::{Direction, LinkFault, Protocol};

    #[tokio::test]
    async fn a_connection_is_refused_from_the_injection_on_also_while_the_port_is_still_open() {
        let link = Arc::new(Link::new("127.0.0.1:1".to_owned(), Protocol::Opaque));
        let Listener { port, open } = Listener::new().unwrap();
        let refusal = Arc::new(Active::new(LinkFault::new(Toxic::Refuse, Direction::Both)));
        link.change(|faults| faults.push(refusal.clone()));
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let mut changes = link.changes();
        let read = tokio::select! {
            () = accept(&open, &link, &mut changes) => unreachable!("the faults do not change"),
            read = tokio::time::timeout(Duration::from_secs(10), client.read_u8()) => read.expect("it is open"),
        };
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!((link.connections(), refusal.proof().connections), (0, 1));
    }
}
