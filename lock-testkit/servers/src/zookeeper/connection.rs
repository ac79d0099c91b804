//! One connection: a session's, and one request at a time; watches are heard of at any time.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

use super::jute::{JuteReader, Writer, frame_length};
use super::session::Session;
use super::watch::{self, Changes};

/// The numbers by which requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Delete = 2,
    Exists = 3,
    Data = 4,
    SetData = 5,
    Acl = 6,
    SetAcl = 7,
    Children = 8,
    Sync = 9,
    /// The one that answers figures too (`create2`).
    Create = 15,
    CreateContainer = 19,
    Authenticate = 100,
    Ephemerals = 103,
    CloseSession = -11,
}

/// The answer to a request: what the server says, or why it refuses.
pub(super) type Reply = Result<Vec<u8>, Refusal>;

/// A server's reason to refuse a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal(i32);

impl Refusal {
    pub(super) const NO_NODE: Self = Self(-101);
    pub(super) const NODE_EXISTS: Self = Self(-110);
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            -6 => "Unimplemented",
            -8 => "BadArguments",
            -101 => "NoNode",
            -102 => "NoAuth",
            -103 => "BadVersion",
            -108 => "NoChildrenForEphemerals",
            -110 => "NodeExists",
            -111 => "NotEmpty",
            -112 => "SessionExpired",
            -114 => "InvalidACL",
            -115 => "AuthFailed",
            -118 => "SessionMoved",
            _ => "refused",
        };
        write!(f, "{name} ({})", self.0)
    }
}

impl std::error::Error for Refusal {}

#[derive(Debug)]
pub(super) struct Connection {
    requests: OwnedWriteHalf,
    answers: mpsc::UnboundedReceiver<io::Result<Vec<u8>>>,
    changes: Changes,
    /// The task that reads; it ends with the connection.
    _reading: JoinSet<()>,
    /// The number of the last request.
    xid: i32,
}

impl Connection {
    /// Credentials go by a number that no other request has.
    const CREDENTIALS: i32 = -4;

    /// Opens a connection for this session, and answers the session as the server grants it, with its timeout.
    pub(super) async fn open(
        address: &str,
        session: &Session,
        timeout: Duration,
    ) -> io::Result<(Self, Session, Duration)> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&greeting(session, timeout)).await?;
        let (session, timeout) = welcome(&frame(&mut stream).await?)?;
        Ok((Self::over(stream), session, timeout))
    }

    fn over(stream: TcpStream) -> Self {
        let (incoming, requests) = stream.into_split();
        let (answered, answers) = mpsc::unbounded_channel();
        let (changed, changes) = broadcast::channel(watch::MOST);
        let mut reading = JoinSet::new();
        reading.spawn(read(incoming, answered, changed));
        Self { requests, answers, changes, _reading: reading, xid: 0 }
    }

    /// Returns the server's messages about nodes that are watched, from now on.
    pub(super) fn changes(&self) -> Changes {
        self.changes.resubscribe()
    }

    /// Shows credentials, such as `user:password` by the scheme `digest`.
    pub(super) async fn authenticate(&mut self, scheme: &str, credentials: &str) -> io::Result<Reply> {
        let body = |header: Writer| header.int(0).text(scheme).text(credentials);
        self.exchange(Self::CREDENTIALS, Operation::Authenticate, body).await
    }

    /// Sends one request.
    pub(super) async fn request(
        &mut self,
        operation: Operation,
        body: impl FnOnce(Writer) -> Writer,
    ) -> io::Result<Reply> {
        self.xid += 1;
        self.exchange(self.xid, operation, body).await
    }

    async fn exchange(
        &mut self,
        xid: i32,
        operation: Operation,
        body: impl FnOnce(Writer) -> Writer,
    ) -> io::Result<Reply> {
        let header = Writer::default().int(xid).int(operation as i32);
        self.requests.write_all(&body(header).frame()).await?;
        let frame = self.answers.recv().await.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))?;
        let mut reader = JuteReader::new(&frame);
        let (answered, _zxid, error) = (reader.int()?, reader.long()?, reader.int()?);
        if answered != xid {
            let what = format!("an answer to the request {answered} instead of {xid}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(if error == 0 { Ok(reader.rest().to_vec()) } else { Err(Refusal(error)) })
    }
}

/// Hands on what comes in, until there is no more of it, or nobody asks for it.
async fn read(
    mut incoming: OwnedReadHalf,
    answered: mpsc::UnboundedSender<io::Result<Vec<u8>>>,
    changed: broadcast::Sender<String>,
) {
    loop {
        let frame = frame(&mut incoming).await;
        let is_last = frame.is_err();
        match frame.as_deref().ok().and_then(watch::path_of) {
            // Nobody may be listening any more.
            Some(path) => drop(changed.send(path)),
            None if answered.send(frame).is_err() => return,
            None if is_last => return,
            None => {}
        }
    }
}

async fn frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).await?;
    let mut frame = vec![0; frame_length(prefix)?];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

/// Protocol 0, no transaction seen yet, no wish for a server that only reads.
fn greeting(session: &Session, timeout: Duration) -> Vec<u8> {
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let request = Writer::default().int(0).long(0).int(timeout);
    request.long(session.id()).bytes(session.password()).bool(false).frame()
}

fn welcome(frame: &[u8]) -> io::Result<(Session, Duration)> {
    let mut reader = JuteReader::new(frame);
    let (_version, timeout) = (reader.int()?, reader.int()?);
    let session = Session::granted(reader.long()?, reader.bytes()?);
    match u64::try_from(timeout) {
        // What servers say to somebody whose session is over, or whose password is wrong.
        Ok(0) | Err(_) => Err(io::Error::new(io::ErrorKind::NotConnected, "SessionExpired: there is no such session")),
        Ok(timeout) => Ok((session, Duration::from_millis(timeout))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_asked_for_with_its_password() {
        let frame = greeting(&Session::granted(7, vec![9; 16]), Duration::from_secs(2));
        assert_eq!(frame.len(), 49);
        assert_eq!(frame[..4], [0, 0, 0, 45]);
        assert_eq!(frame[16..20], 2000_i32.to_be_bytes());
        assert_eq!(frame[20..28], 7_i64.to_be_bytes());
        assert_eq!(frame[28..], [&[0, 0, 0, 16][..], &[9; 16], &[0]].concat());
    }

    #[test]
    fn a_session_without_a_timeout_is_over() {
        let answer = |timeout| Writer::default().int(0).int(timeout).long(7).bytes(b"word").frame();
        let (session, timeout) = welcome(&answer(400)[4..]).unwrap();
        assert_eq!((session, timeout), (Session::granted(7, b"word".to_vec()), Duration::from_millis(400)));
        assert!(welcome(&answer(0)[4..]).unwrap_err().to_string().contains("SessionExpired"));
    }
}
