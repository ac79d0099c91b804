//! As much of Redis' protocol (RESP 2) as ground truth, readiness and specimens need.
//!
//! Wire format: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use lock_testkit::HarnessError;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::url::{Credentials, ServerUrl};

/// The time that one command may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// No string is longer than this.
const MOST: usize = 64 << 20;
/// No reply has more arrays in each other.
const DEEPEST: usize = 64;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Nil,
    /// A status such as `OK`.
    Status(String),
    /// A number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Several replies.
    Array(Vec<Value>),
    /// The server refused the command.
    Error(String),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The text of a status or a string, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<String> {
        match self {
            Self::Status(text) => Some(text.clone()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// The parts of an array; none for everything else.
    #[must_use]
    pub fn into_parts(self) -> Vec<Self> {
        match self {
            Self::Array(parts) => parts,
            _ => Vec::new(),
        }
    }

    /// Whether this is the status `OK`.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Status(text) if text == "OK")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Status(text) | Self::Error(text) => f.write_str(text),
            Self::Int(value) => value.fmt(f),
            Self::Bulk(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Array(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

/// A client with one connection, made at the first command and again after every failure. Commands run one at a time.
///
/// A command whose future is dropped closes the connection: its reply could not be told from the next one's.
#[derive(Debug)]
pub struct Resp {
    server: Endpoint,
    stream: Mutex<Option<BufReader<TcpStream>>>,
}

/// The address of a client's connections, and what they begin with.
#[derive(Debug, Clone)]
struct Endpoint {
    address: String,
    credentials: Option<Credentials>,
    /// Empty for the first one, which a connection has anyway.
    database: String,
}

impl Resp {
    /// A client of the server at `host:port`. No traffic yet.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        Self::of(Endpoint { address: address.into(), credentials: None, database: String::new() })
    }

    /// A client of the server that a `redis://[user:password@]host[:port][/database]` URL names. No traffic yet.
    ///
    /// # Errors
    /// If the URL has another form.
    pub fn from_url(url: &str) -> Result<Self, HarnessError> {
        let url = ServerUrl::parse(url, 6379)?;
        match (url.scheme.as_str(), <[String; 1]>::try_from(url.addresses)) {
            ("redis", Ok([address])) => {
                Ok(Self::of(Endpoint { address, credentials: url.credentials, database: url.path }))
            }
            _ => Err(HarnessError::new("the testkit's own client needs a URL like redis://host:port/")),
        }
    }

    fn of(server: Endpoint) -> Self {
        Self { server, stream: Mutex::new(None) }
    }

    /// A client of the same server with a connection of its own, for a transaction.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::of(self.server.clone())
    }

    /// Sends one command, each part of it as it goes over the wire; an error reply is an error.
    ///
    /// # Errors
    /// If the server refuses the command, cannot be reached, or does not answer within five seconds.
    ///
    /// # Cancel safety
    /// The command may be carried out although the future was dropped.
    pub async fn command<P: AsRef<[u8]>>(&self, parts: &[P]) -> Result<Value, HarnessError> {
        match self.raw(parts).await? {
            Value::Error(text) => Err(HarnessError::new(text)),
            value => Ok(value),
        }
    }

    async fn raw<P: AsRef<[u8]>>(&self, parts: &[P]) -> Result<Value, HarnessError> {
        let mut slot = self.stream.lock().await;
        let exchange = async {
            // Out of its slot while in use, so that a dropped future leaves no half-read stream behind.
            let mut stream = match slot.take() {
                Some(stream) => stream,
                None => self.server.connect().await?,
            };
            stream.get_mut().write_all(&encode(parts)).await?;
            let value = read(&mut stream).await?;
            *slot = Some(stream);
            Ok::<_, io::Error>(value)
        };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(HarnessError::new(format!("{} gave no answer within {PATIENCE:?}", self.server.address))),
        }
    }
}

impl Endpoint {
    async fn connect(&self) -> io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        for greeting in self.greetings() {
            stream.get_mut().write_all(&encode(&greeting)).await?;
            if let Value::Error(text) = read(&mut stream).await? {
                return Err(io::Error::other(text));
            }
        }
        Ok(stream)
    }

    fn greetings(&self) -> Vec<Vec<&str>> {
        let mut greetings = Vec::new();
        if let Some(Credentials { user, password }) = &self.credentials {
            let user = Some(user.as_str()).filter(|user| !user.is_empty());
            greetings.push(["AUTH"].into_iter().chain(user).chain([password.as_str()]).collect());
        }
        if !self.database.is_empty() {
            greetings.push(vec!["SELECT", &self.database]);
        }
        greetings
    }
}

fn encode<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        let part = part.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

type Reading<'a> = Pin<Box<dyn Future<Output = io::Result<Value>> + Send + 'a>>;

fn read(stream: &mut (impl AsyncBufRead + Send + Unpin)) -> Reading<'_> {
    read_within(stream, DEEPEST)
}

/// A value with no more arrays in each other than this.
fn read_within(stream: &mut (impl AsyncBufRead + Send + Unpin), depth: usize) -> Reading<'_> {
    Box::pin(async move {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbled(line))?;
        match kind {
            "+" => Ok(Value::Status(rest.to_owned())),
            "-" => Ok(Value::Error(rest.to_owned())),
            ":" => Ok(Value::Int(number(rest)?)),
            "$" => match usize::try_from(number(rest)?) {
                Ok(length) if length > MOST => Err(garbled(line)),
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    stream.read_exact(&mut bytes).await?;
                    bytes.truncate(length);
                    Ok(Value::Bulk(bytes))
                }
                Err(_) => Ok(Value::Nil),
            },
            "*" => match usize::try_from(number(rest)?) {
                Ok(_) if depth == 0 => Err(garbled("too many arrays in each other")),
                Ok(length) => {
                    let mut parts = Vec::with_capacity(length.min(1024));
                    for _ in 0..length {
                        parts.push(read_within(stream, depth - 1).await?);
                    }
                    Ok(Value::Array(parts))
                }
                Err(_) => Ok(Value::Nil),
            },
            _ => Err(garbled(line)),
        }
    })
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| garbled(text))
}

fn garbled(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no RESP reply: {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reply_breaks_the_client() {
        let samples: &[&[u8]] =
            &[b"+OK\r\n", b"$-1\r\n", b"$2\r\nab\r\n", b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n", b"-ERR no\r\n", b"*-1\r\n"];
        lock_testkit::fuzz::bytes("RESP replies", samples, |mut input| {
            // Nothing is waited for: all that there is is there.
            let outcome = futures_util::FutureExt::now_or_never(read(&mut input)).unwrap();
            drop(outcome.map(|value| value.to_string()));
        });
        let deep = "*1\r\n".repeat(100_000);
        assert!(futures_util::FutureExt::now_or_never(read(&mut deep.as_bytes())).unwrap().is_err());
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        assert_eq!(encode(&["GET", "ü"]), "*2\r\n$3\r\nGET\r\n$2\r\nü\r\n".as_bytes());
    }

    #[test]
    fn a_url_says_where_and_as_whom() {
        let greetings = |url| Resp::from_url(url).unwrap().server.greetings().concat().join(" ");
        assert_eq!(Resp::from_url("redis://127.0.0.1:7000/").unwrap().server.address, "127.0.0.1:7000");
        assert_eq!(Resp::from_url("redis://localhost").unwrap().server.address, "localhost:6379");
        assert_eq!(greetings("redis://localhost/"), "");
        assert_eq!(greetings("redis://me:secret@localhost/2"), "AUTH me secret SELECT 2");
        assert_eq!(greetings("redis://:secret@localhost"), "AUTH secret");
    }

    #[test]
    fn other_urls_are_refused() {
        for url in ["http://host/", "rediss://host/", "unix:///a/socket", "redis://a:1,b:2/"] {
            assert!(Resp::from_url(url).is_err(), "{url}");
        }
    }
}
