//! One connection of a client, and the one behind it to the server.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::active::Active;
use super::fault::{Direction, Toxic, Trigger};
use super::link::Link;
use super::reader::Reader;
use super::replies::Replies;
use super::writer;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
    pub(super) replies: Replies,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.link.count_end();
    }
}

/// The reason that a connection ends before both sides are through with it.
#[derive(Debug)]
pub(super) enum Ending {
    /// It is closed.
    Fin,
    /// It is reset.
    Reset,
    /// One side is gone.
    Gone,
}

impl From<io::Error> for Ending {
    fn from(error: io::Error) -> Self {
        // A reset passes through as one.
        if error.kind() == io::ErrorKind::ConnectionReset { Self::Reset } else { Self::Gone }
    }
}

impl Connection {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let number = link.count_connection();
        Self { link, number, replies: Replies::default() }
    }

    /// Joins the two ends until both, one of them, or a fault has ended it.
    pub(super) async fn serve(self, mut client: TcpStream) -> io::Result<()> {
        match self.reach().await {
            Ok(mut server) => {
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                if let Err(Ending::Reset) = self.join(&mut client, &mut server).await {
                    client.set_zero_linger()?;
                    server.set_zero_linger()?;
                }
            }
            Err(Ending::Reset) => client.set_zero_linger()?,
            Err(Ending::Fin | Ending::Gone) => {}
        }
        Ok(())
    }

    /// Connects to the server, if a connection gets through.
    async fn reach(&self) -> Result<TcpStream, Ending> {
        while let Some(obstacle) = self.link.faults().into_iter().find(|fault| is_in_the_way(fault)) {
            obstacle.stopped_connection();
            obstacle.healed().await;
            if *obstacle.toxic() == Toxic::Blackhole {
                return Err(Ending::Reset);
            }
        }
        Ok(TcpStream::connect(&self.link.server).await?)
    }

    async fn join(&self, client: &mut TcpStream, server: &mut TcpStream) -> Result<(), Ending> {
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let (requests, for_server) = mpsc::unbounded_channel();
        let (replies, for_client) = mpsc::unbounded_channel();
        let both = async {
            tokio::try_join!(
                Reader::of_requests(self, requests, replies.clone()).read(&mut from_client),
                writer::write(for_server, &mut to_server),
                Reader::of_replies(self, replies).read(&mut from_server),
                writer::write(for_client, &mut to_client),
            )
        };
        tokio::select! {
            outcome = both => outcome.map(drop),
            ending = self.cut() => Err(ending),
        }
    }

    /// Waits for a fault that ends the connections that it finds.
    async fn cut(&self) -> Ending {
        let mut changes = self.link.changes();
        loop {
            for fault in self.link.faults() {
                if fault.strike_if_cut(self.number) {
                    fault.stopped_connection();
                    return if *fault.toxic() == Toxic::Fin { Ending::Fin } else { Ending::Reset };
                }
            }
            if changes.changed().await.is_err() {
                return Ending::Gone;
            }
        }
    }
}

/// Whether it keeps new connections from reaching the server.
fn is_in_the_way(fault: &Active) -> bool {
    matches!(fault.toxic(), Toxic::Hold | Toxic::Stall | Toxic::Blackhole)
        && fault.fault.trigger == Trigger::Now
        && fault.fault.direction.covers(Direction::ToServer)
}

impl Active {
    /// Strikes the connection if this fault ends the connections that it finds; whether it did not before.
    pub(super) fn strike_if_cut(&self, connection: u64) -> bool {
        matches!(self.toxic(), Toxic::Fin | Toxic::Reset)
            && self.fault.trigger == Trigger::Now
            && self.strike(connection)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{LinkFault, Protocol, Proxy};

    #[tokio::test]
    async fn a_cut_ends_the_connections_that_were_counted_before_it_and_no_others() {
        let proxy = Proxy::to("127.0.0.1:1", Protocol::Opaque).unwrap();
        let before = Connection::new(proxy.link.clone());
        // Nothing has been joined yet: the connection to the server may take its time.
        let _reset = proxy.inject(LinkFault::new(Toxic::Reset, Direction::Both));
        let after = Connection::new(proxy.link.clone());
        let cut = tokio::time::timeout(Duration::from_secs(10), before.cut()).await;
        assert!(matches!(cut, Ok(Ending::Reset)));
        assert!(tokio::time::timeout(Duration::from_millis(100), after.cut()).await.is_err());
    }
}
