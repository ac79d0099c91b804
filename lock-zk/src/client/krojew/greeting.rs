//! What the servers grant. The crate does not tell which timeout was negotiated, and waits for ever where nobody answers:
//! so each server is asked for a session first, which is closed again at once.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Fate, Fault};

/// For how long a server is waited for, at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the servers have said.
#[derive(Debug)]
pub(super) struct Greeted {
    /// `ip:port,ip:port`: those that answered, then those that are down at present. The crate would wait for minutes for one
    /// that is silent, so such a one is left out.
    pub(super) servers: String,
    /// The shortest timeout that any of them grants.
    pub(super) timeout: Duration,
}

/// Asks all servers at once.
pub(super) async fn greet_all(servers: &str, timeout: Duration) -> Result<Greeted, Fault> {
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
                up.push(address.to_string());
                least = Some(least.map_or(granted, |least| least.min(granted)));
            }
            Ok(Err(error)) => {
                down.push(address.to_string());
                refusal = error;
            }
            Err(late) => refusal = late.into(),
        }
    }
    let timeout = least.ok_or_else(|| Fault { fate: Fate::Unknown, source: Box::new(refusal) })?;
    up.append(&mut down);
    Ok(Greeted { servers: up.join(","), timeout })
}

/// Opens a session and closes it; the timeout that was granted.
async fn greet(address: SocketAddr, timeout: Duration) -> io::Result<Duration> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&greeting(timeout)).await?;
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await?;
    let granted = granted(answer)?;
    stream.write_all(&farewell()).await?;
    // It ends the connection when the session is closed.
    stream.read_to_end(&mut Vec::new()).await?;
    Ok(granted)
}

/// Version 0, no transaction seen, a session of this timeout, which is a new one: its number and its password are zeros.
fn greeting(timeout: Duration) -> Vec<u8> {
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let body = [&0_i32.to_be_bytes()[..], &[0; 8], &timeout.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 17]];
    frame(&body.concat())
}

/// Request 1: the session is to be closed.
fn farewell() -> Vec<u8> {
    frame(&[1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat())
}

fn frame(body: &[u8]) -> Vec<u8> {
    // Both are shorter than 2^31.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], body].concat()
}

/// The version, and then the timeout in ms.
fn granted(answer: [u8; 8]) -> io::Result<Duration> {
    let [_, _, _, _, timeout @ ..] = answer;
    match u64::try_from(i32::from_be_bytes(timeout)) {
        Ok(timeout) if timeout > 0 => Ok(Duration::from_millis(timeout)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the server grants no session")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_and_given_back() {
        let asked = greeting(Duration::from_secs(2));
        assert_eq!((asked.len(), &asked[..4], &asked[16..20]), (49, &[0, 0, 0, 45][..], &2000_i32.to_be_bytes()[..]));
        assert_eq!(farewell(), [0, 0, 0, 8, 0, 0, 0, 1, 255, 255, 255, 245]);
        assert_eq!(granted([0, 0, 0, 0, 0, 0, 7, 208]).unwrap(), Duration::from_secs(2));
        assert!(granted([0; 8]).is_err());
    }
}
