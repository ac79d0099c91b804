//! The counters that the locks protect. Two refuse old tokens, each by itself, and one takes everything.
//!
//! They live in the run's own process, and write their log down in the order in which they admit.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use lock_core::FencingToken;
use lock_core::fence::FenceGate;
use lock_testkit_checker::history::event::{Access, Text};
use lock_testkit_checker::history::{Recorder, What};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CounterName {
    /// Looks at tokens.
    Fenced,
    /// Does so, too: one token is good at both.
    AlsoFenced,
    /// Takes everything.
    Unfenced,
}

impl CounterName {
    pub(crate) const ALL: [Self; 3] = [Self::Fenced, Self::AlsoFenced, Self::Unfenced];

    fn name(self) -> &'static str {
        match self {
            Self::Fenced => "fenced counter",
            Self::AlsoFenced => "other fenced counter",
            Self::Unfenced => "unfenced counter",
        }
    }
}

/// A use of a counter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) id: String,
    pub(crate) target: CounterName,
    pub(crate) token: Option<u64>,
    /// Nothing for a read.
    pub(crate) write: Option<u64>,
}

/// The answer: the counter's value, if the use was admitted.
pub(crate) type Value = Option<u64>;

#[derive(Debug, Default)]
struct Counter {
    /// `None` of one that takes everything.
    gate: Option<FenceGate>,
    value: u64,
}

#[derive(Debug)]
struct Counters {
    counters: [(CounterName, Counter); CounterName::ALL.len()],
    log: Recorder,
}

impl Counters {
    fn new(log: Recorder) -> Self {
        let gate = |target| (target != CounterName::Unfenced).then(FenceGate::new);
        Self { counters: CounterName::ALL.map(|target| (target, Counter { gate: gate(target), value: 0 })), log }
    }

    fn admit(&mut self, usage: &Usage) -> Value {
        let (target, counter) = self.counters.iter_mut().find(|(target, _)| *target == usage.target)?;
        let token = usage.token.and_then(FencingToken::new);
        let accepted = match &counter.gate {
            Some(gate) => token.is_some_and(|token| gate.admit_exclusive(token).is_ok()),
            None => true,
        };
        if let (Some(written), true) = (usage.write, accepted) {
            counter.value = written;
        }
        self.log.record(What::Access(Access {
            id: usage.id.as_str().into(),
            target: Text::from(target.name()),
            fenced: counter.gate.is_some(),
            token: usage.token,
            shared: false,
            write: usage.write,
            accepted,
        }));
        accepted.then_some(counter.value)
    }
}

/// Serves the counters as long as the runtime lives; says where.
pub(crate) async fn serve(log: Recorder) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let counters = Arc::new(Mutex::new(Counters::new(log)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A worker that is killed leaves its connection in the middle.
            let counters = counters.clone();
            tokio::spawn(async move { converse(stream, &counters).await });
        }
    });
    Ok(address)
}

async fn converse(stream: TcpStream, counters: &Mutex<Counters>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let usage: Usage = serde_json::from_str(&line)?;
        // One `admit` leaves its data valid after each statement.
        let value = counters.lock().unwrap_or_else(PoisonError::into_inner).admit(&usage);
        let mut answer = serde_json::to_vec(&value)?;
        answer.push(b'\n');
        write.write_all(&answer).await?;
    }
    Ok(())
}

/// A worker's way to the counters.
pub(crate) struct Client {
    lines: tokio::io::Lines<BufReader<tokio::net::tcp::OwnedReadHalf>>,
    write: tokio::net::tcp::OwnedWriteHalf,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Self { lines: BufReader::new(read).lines(), write })
    }

    pub(crate) async fn ask(&mut self, usage: &Usage) -> io::Result<Value> {
        let mut line = serde_json::to_vec(usage)?;
        line.push(b'\n');
        self.write.write_all(&line).await?;
        let answer = self.lines.next_line().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(serde_json::from_str(&answer)?)
    }
}
