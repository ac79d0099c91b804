//! One connection, over which a caller sends its commands and waits for their answers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::TcpStream;

use super::cas::CasNumber;
use super::exchange::{Answer, Sends};
use super::pipeline::Pipeline;
use super::protocol::{Command, CommandAnswer, stat};
use crate::error::Failure;

/// The most bytes that are read of what the server counts: it is about 3,000.
const LONGEST_STATS: u64 = 256 << 10;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    pipeline: Pipeline<()>,
    /// Whether something was sent that was not answered, or was answered in another way than it should be.
    is_broken: bool,
}

impl Connection {
    /// Opens the connection with this number; it has to be open by `until`.
    pub(super) async fn open(place: SocketAddr, number: u64, until: BootInstant) -> io::Result<Self> {
        let stream = by(until, TcpStream::connect(place)).await?;
        // Only for speed: small requests go out at once.
        let _ = stream.set_nodelay(true);
        Ok(Self::from_parts(stream, Pipeline::new(number)))
    }

    /// Its number: later ones have higher ones.
    pub(super) fn number(&self) -> u64 {
        self.pipeline.number()
    }

    /// Out of a stream and what is known of it. Nothing is under way on it.
    pub(super) fn from_parts(stream: TcpStream, pipeline: Pipeline<()>) -> Self {
        Self { stream, pipeline, is_broken: false }
    }

    /// The stream of a connection on which nothing is under way, and what is known of it.
    pub(super) fn into_parts(self) -> (TcpStream, Pipeline<()>) {
        (self.stream, self.pipeline)
    }

    /// Whether nothing is under way on it.
    pub(super) fn is_in_order(&self) -> bool {
        !self.is_broken && self.pipeline.is_in_order()
    }

    /// Whether it can be used after a while: the server has not closed it, and has said nothing unasked.
    pub(super) fn is_alive(&self) -> bool {
        let unasked = self.stream.try_read(&mut [0]);
        self.is_in_order() && unasked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Asks what the server counts, or with `" settings"` how it is set up.
    pub(super) async fn stats(&mut self, of: &str, until: BootInstant) -> Result<HashMap<String, String>, Failure> {
        self.is_broken = true;
        let asked = async {
            self.stream.write_all(format!("stats{of}\r\n").as_bytes()).await?;
            let mut lines = BufReader::new((&mut self.stream).take(LONGEST_STATS)).split(b'\n');
            let mut stats = HashMap::new();
            while let Some(line) = lines.next_segment().await? {
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                if line == b"END" {
                    return Ok(stats);
                }
                let (name, value) = stat(line).ok_or(io::ErrorKind::InvalidData)?;
                stats.insert(name, value);
            }
            Err(io::ErrorKind::UnexpectedEof.into())
        };
        let stats = by(until, asked).await.map_err(|error| Failure::of_io(error, false))?;
        self.is_broken = false;
        Ok(stats)
    }
}

impl Sends for Connection {
    fn knows(&self, seen: CasNumber) -> bool {
        seen.counts_over(self.pipeline.number(), self.pipeline.answered())
    }

    async fn send(&mut self, commands: Vec<Command>, until: BootInstant) -> Answer {
        if self.is_broken {
            let failed = |_| CommandAnswer::Failed(Failure::of_io(io::ErrorKind::NotConnected.into(), false));
            return Ok(commands.iter().map(failed).collect());
        }
        // Until all of it is answered: this future may be dropped.
        self.is_broken = true;
        let Self { stream, pipeline, .. } = self;
        pipeline.send(commands, SystemClock.now(), until, ());
        let answered = poll_fn(|context| {
            while !pipeline.is_idle() {
                std::task::ready!(poll_exchange(stream, pipeline, context))?;
            }
            Poll::Ready(Ok(()))
        });
        if let Err(error) = by(until, answered).await {
            pipeline.fail(error);
        }
        self.is_broken = !self.pipeline.is_in_order();
        // There is one request, which is over.
        self.pipeline.done().next().map_or_else(|| Ok(Vec::new()), |((), answer)| answer)
    }
}

/// Writes and reads what can be: what many commands are answered with fits into no buffer. Ready when something was received.
///
/// # Errors
/// If the connection can be used no more.
pub(super) fn poll_exchange<T>(
    stream: &mut TcpStream,
    pipeline: &mut Pipeline<T>,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !pipeline.outgoing().is_empty() {
        match Pin::new(&mut *stream).poll_write(context, pipeline.outgoing())? {
            Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(written) => pipeline.wrote(written),
            Poll::Pending => break,
        }
    }
    let mut room = ReadBuf::new(pipeline.room());
    std::task::ready!(Pin::new(stream).poll_read(context, &mut room))?;
    match room.filled().len() {
        0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        bytes => Poll::Ready(pipeline.received(bytes, SystemClock.now())),
    }
}

/// A step that has to be over by then.
pub(super) async fn by<T>(until: BootInstant, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::select! {
        biased;
        outcome = step => outcome,
        () = SystemClock.sleep_until(until) => Err(io::ErrorKind::TimedOut.into()),
    }
}
