//! A session of our own beside the crate's, for what the crate cannot say: ZooKeeper's protocol, one request after another.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest answer that is read: those to what is asked here have a hundred bytes and a path.
const LONGEST: u32 = 64 * 1024;

const CREATE_CONTAINER: i32 = 19;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;
/// The number that servers expect of a request to authenticate.
const AUTH_XID: i32 = -4;
/// A container among the modes of creation.
const CONTAINER: i32 = 4;
/// Every right to a node.
const ALL: i32 = 31;

/// One session on one connection.
pub(super) struct RawSession {
    stream: TcpStream,
    xid: i32,
}

impl RawSession {
    /// Opens a session that asks for this timeout; the one that was granted.
    pub(super) async fn open(address: SocketAddr, timeout: Duration) -> io::Result<(Self, Duration)> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&greeting(timeout)).await?;
        let mut raw_session = Self { stream, xid: 0 };
        let granted = granted(&raw_session.frame().await?)?;
        Ok((raw_session, granted))
    }

    /// Shows credentials of the scheme `digest`; the servers' verdict.
    pub(super) async fn introduce(&mut self, shown: &str) -> io::Result<i32> {
        let request = Frame::new(AUTH_XID, AUTH).number(0).text("digest").text(shown);
        self.ask(request).await
    }

    /// Makes a container for these identities, each a scheme and an id; the servers' verdict.
    pub(super) async fn make(&mut self, path: &str, access: &[(&str, &str)]) -> io::Result<i32> {
        self.xid += 1;
        // Without data.
        let request = Frame::new(self.xid, CREATE_CONTAINER).text(path).number(-1).number(length(access.len()));
        let each = |request: Frame, (scheme, id): &(&str, &str)| request.number(ALL).text(scheme).text(id);
        self.ask(access.iter().fold(request, each).number(CONTAINER)).await
    }

    /// Closes the session.
    pub(super) async fn close(mut self) -> io::Result<()> {
        self.stream.write_all(&Frame::new(self.xid + 1, CLOSE).frame()).await?;
        // The server ends the connection when the session is closed.
        let mut rest = Vec::new();
        self.stream.take(LONGEST.into()).read_to_end(&mut rest).await?;
        Ok(())
    }

    /// Asks, and reads the code of the answer: 0, or the number of an error.
    async fn ask(&mut self, request: Frame) -> io::Result<i32> {
        self.stream.write_all(&request.frame()).await?;
        verdict(&self.frame().await?)
    }

    async fn frame(&mut self) -> io::Result<Vec<u8>> {
        answer_from(&mut self.stream).await
    }
}

/// Reads one answer.
async fn answer_from(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > LONGEST {
        return Err(unreadable());
    }
    let mut answer = vec![0; usize::try_from(length).map_err(|_| unreadable())?];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// A request, as it is put together.
struct Frame(Vec<u8>);

impl Frame {
    fn new(xid: i32, code: i32) -> Self {
        Self(Vec::new()).number(xid).number(code)
    }

    fn number(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn text(self, text: &str) -> Self {
        let mut written = self.number(length(text.len()));
        written.0.extend(text.as_bytes());
        written
    }

    fn frame(self) -> Vec<u8> {
        frame(&self.0)
    }
}

/// Version 0, no transaction seen, a session of this timeout, which is a new one: its number and its password are zeros.
fn greeting(timeout: Duration) -> Vec<u8> {
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let body = [&0_i32.to_be_bytes()[..], &[0; 8], &timeout.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 17]];
    frame(&body.concat())
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&length(body.len()).to_be_bytes()[..], body].concat()
}

/// All that is sent here is shorter than 2^31.
fn length(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

/// The version, and then the timeout in ms.
fn granted(answer: &[u8]) -> io::Result<Duration> {
    match number_at(answer, 4).map(u64::try_from) {
        Some(Ok(timeout)) if timeout > 0 => Ok(Duration::from_millis(timeout)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the server grants no session")),
    }
}

/// The number of the request, the transaction, and then the code.
fn verdict(answer: &[u8]) -> io::Result<i32> {
    number_at(answer, 12).ok_or_else(unreadable)
}

fn number_at(answer: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*answer.get(at..)?.first_chunk()?))
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the server's answer cannot be read")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lock_testkit::fuzz;

    use super::*;

    #[test]
    fn a_session_is_asked_for_and_released() {
        let asked = greeting(Duration::from_secs(2));
        assert_eq!((asked.len(), &asked[..4], &asked[16..20]), (49, &[0, 0, 0, 45][..], &2000_i32.to_be_bytes()[..]));
        assert_eq!(Frame::new(1, CLOSE).frame(), [0, 0, 0, 8, 0, 0, 0, 1, 255, 255, 255, 245]);
        assert_eq!(granted(&[0, 0, 0, 0, 0, 0, 7, 208]).unwrap(), Duration::from_secs(2));
        assert!(granted(&[0; 8]).is_err());
    }

    #[test]
    fn no_answer_is_read_beyond_its_end() {
        for length in 0..20 {
            let answer = vec![0xff; length];
            assert!(granted(&answer).is_err(), "{length}");
            assert_eq!(verdict(&answer).is_ok(), length >= 16, "{length}");
        }
    }

    #[test]
    fn answers_are_read_or_refused_whatever_a_server_sends() {
        fuzz::with_rng("answers to a raw session", |rng| {
            let body: Vec<_> = (0..rng.below(40)).map(|_| rng.next_u64() as u8).collect();
            let mut sent = frame(&body);
            match rng.below(4) {
                // It ends too early, or its length is anything.
                0 => sent.truncate(usize::try_from(rng.below(sent.len() as u64 + 1)).unwrap()),
                1 => sent[..4].copy_from_slice(&(rng.next_u64() as u32).to_be_bytes()),
                2 => sent[3] = rng.next_u64() as u8,
                _ => {}
            }
            let mut unread = &sent[..];
            // All that is sent is there at once.
            let Ok(answer) = answer_from(&mut unread).now_or_never().unwrap() else { return };
            assert_eq!(sent[..sent.len() - unread.len()], frame(&answer), "exactly one answer is read");
            assert_eq!(verdict(&answer).is_ok(), answer.len() >= 16);
            if let Ok(granted) = granted(&answer) {
                let timeout = u32::try_from(granted.as_millis()).unwrap();
                assert!(timeout > 0 && answer[4..8] == timeout.to_be_bytes(), "{granted:?} of {answer:?}");
            }
        });
    }
}
