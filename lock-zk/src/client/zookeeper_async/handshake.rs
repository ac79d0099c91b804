//! The timeout that the servers grant. The crate does not tell which timeout was negotiated, and waits for ever where nobody
//! answers: so each server is asked for a session first, which is closed again at once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;

use super::raw_session::RawSession;
use super::{Failure, Fate};

/// The longest time for which a server is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The answers of the servers.
#[derive(Debug)]
pub(super) struct Handshake {
    /// The servers that answered, then those that are down at present. The crate would wait for minutes for one that is silent, so such
    /// a one is left out.
    pub(super) servers: Vec<SocketAddr>,
    /// The shortest timeout that any of them grants.
    pub(super) timeout: Duration,
}

/// Asks all servers at once.
pub(super) async fn greet_all(servers: &str, timeout: Duration) -> Result<Handshake, Failure> {
    let mut addresses = Vec::new();
    let mut refusal = io::Error::from(io::ErrorKind::NotFound);
    for resolved in join_all(servers.split(',').map(tokio::net::lookup_host)).await {
        match resolved {
            Ok(found) => addresses.extend(found),
            Err(error) => refusal = error,
        }
    }
    let limit = PATIENCE.min(timeout * 3 / 4);
    let asked = addresses.into_iter().map(async |address| {
        let greeted = tokio::time::timeout(limit, greet(address, timeout)).await;
        (address, greeted)
    });
    let (mut up, mut down, mut least) = (Vec::new(), Vec::new(), None::<Duration>);
    for (address, greeted) in join_all(asked).await {
        match greeted {
            Ok(Ok(granted)) => {
                up.push(address);
                least = Some(least.map_or(granted, |least| least.min(granted)));
            }
            Ok(Err(error)) => {
                down.push(address);
                refusal = error;
            }
            Err(late) => refusal = late.into(),
        }
    }
    let timeout = least.ok_or_else(|| Failure { fate: Fate::Unknown, source: Box::new(refusal) })?;
    up.append(&mut down);
    Ok(Handshake { servers: up, timeout })
}

/// Opens a session and closes it; the timeout that was granted.
async fn greet(address: SocketAddr, timeout: Duration) -> io::Result<Duration> {
    let (raw_session, granted) = RawSession::open(address, timeout).await?;
    raw_session.close().await?;
    Ok(granted)
}
