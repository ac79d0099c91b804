//! The reasons why no session could be opened, for readers of the error: client crates say only that the time was over.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::client::{Failure, Fate};

/// The time for each step of finding it out, by which a connection that fails takes longer.
const PATIENCE: Duration = Duration::from_millis(200);
/// The servers that are looked at, at most.
const MOST: usize = 8;

/// The failure of a session that could not be opened, with what is wrong with each server of `host:port,host:port`.
pub(crate) async fn diagnosed(failure: Failure, servers: &str) -> Failure {
    if matches!(failure.fate, Fate::Denied | Fate::Invalid | Fate::Missing) {
        return failure;
    }
    let reasons = join_all(servers.split(',').take(MOST).map(reason)).await.join("; ");
    Failure { source: format!("{reasons} ({})", failure.source).into(), ..failure }
}

async fn reason(server: &str) -> String {
    let addresses: Vec<_> = match timeout(PATIENCE, lookup_host(server)).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => return format!("the name of {server} could not be resolved: {error}"),
        Err(_) => return format!("the name of {server} was not resolved in time"),
    };
    match timeout(PATIENCE, TcpStream::connect(&*addresses)).await {
        Ok(Ok(_)) => format!("{server} takes connections, and opened no session"),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("{server} refused the connection")
        }
        Ok(Err(error)) => format!("no connection to {server}: {error}"),
        Err(_) => format!("{server} took no connection in time"),
    }
}
