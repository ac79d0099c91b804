//! The two ends of a connection, joined: the client's, and the one behind it to the server.
//!
//! Each direction has a reader and a writer. The reader cuts the bytes into frames (`frames/`), finds the faults that hit a frame
//! (`active.rs`) and the request that a reply belongs to (`replies.rs`). The writer delivers the frames in order, and does to each what its
//! faults say. A test has the link as `proxy.rs`, with the runtime that it works in.

use std::io;

use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::active::Active;
use super::connection::Connection;
use super::ending::Ending;
use super::fault::{Direction, Toxic, Trigger};
use super::reader::FrameReader;
use super::writer;

/// Joins the two ends until both, one of them, or a fault has ended it.
pub(super) async fn serve(connection: Connection, mut client: TcpStream) -> io::Result<()> {
    match reach(&connection).await {
        Ok(mut server) => {
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            if let Err(Ending::Reset) = join(&connection, &mut client, &mut server).await {
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
async fn reach(connection: &Connection) -> Result<TcpStream, Ending> {
    while let Some(obstacle) = connection.link.faults().into_iter().find(|fault| is_in_the_way(fault)) {
        obstacle.stopped_connection();
        obstacle.healed().await;
        if *obstacle.toxic() == Toxic::Blackhole {
            return Err(Ending::Reset);
        }
    }
    Ok(TcpStream::connect(&connection.link.server).await?)
}

async fn join(connection: &Connection, client: &mut TcpStream, server: &mut TcpStream) -> Result<(), Ending> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (requests, for_server) = mpsc::unbounded_channel();
    let (replies, for_client) = mpsc::unbounded_channel();
    let both = async {
        tokio::try_join!(
            FrameReader::of_requests(connection, requests, replies.clone()).read(&mut from_client),
            writer::write(for_server, &mut to_server),
            FrameReader::of_replies(connection, replies).read(&mut from_server),
            writer::write(for_client, &mut to_client),
        )
    };
    tokio::select! {
        outcome = both => outcome.map(drop),
        ending = cut(connection) => Err(ending),
    }
}

/// Waits for a fault that ends the connections that it finds.
async fn cut(connection: &Connection) -> Ending {
    let mut changes = connection.link.changes();
    loop {
        for fault in connection.link.faults() {
            if fault.strike_if_cut(connection.number) {
                fault.stopped_connection();
                return if *fault.toxic() == Toxic::Fin { Ending::Fin } else { Ending::Reset };
            }
        }
        if changes.changed().await.is_err() {
            return Ending::Gone;
        }
    }
}

/// Whether it keeps new connections from reaching the server.
fn is_in_the_way(fault: &Active) -> bool {
    matches!(fault.toxic(), Toxic::Hold | Toxic::Stall | Toxic::Blackhole)
        && fault.fault.trigger == Trigger::Now
        && fault.fault.direction.covers(Direction::ToServer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{LinkFault, Protocol, Proxy};

    #[tokio::test]
    async fn a_cut_ends_the_connections_that_were_counted_before_it_and_no_others() {
        let proxy = Proxy::to("127.0.0.1:1", Protocol::Opaque).unwrap();
        let before = Connection::new(proxy.link.clone()).unwrap();
        // Nothing has been joined yet: the connection to the server may take its time.
        let _reset = proxy.inject(LinkFault::new(Toxic::Reset, Direction::Both));
        let after = Connection::new(proxy.link.clone()).unwrap();
        let ending = tokio::time::timeout(Duration::from_secs(10), cut(&before)).await;
        assert!(matches!(ending, Ok(Ending::Reset)));
        assert!(tokio::time::timeout(Duration::from_millis(100), cut(&after)).await.is_err());
    }
}
