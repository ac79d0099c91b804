//! One connection, over which commands are sent in pipelines.
//!
//! A CAS number that was learned elsewhere is used only if the connection is older than that number. Otherwise the item is read first, over
//! this connection, and the command is sent with the item's present number if the item is still the one that is meant. So whatever the
//! network holds back, nothing that belongs to somebody else is changed.
//!
//! Replies come in the order of their commands. Where one is overdue, a word is asked for behind it: if that comes in its place, the
//! reply never will, and nobody waits for it until the operation timeout.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::wait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::task::unconstrained;

use crate::client::cas::CasNumber;
use crate::client::protocol::{Command, CommandAnswer, ReplyLine, stat};
use crate::error::Failure;
use crate::network::{Network, Stream};

/// The longest line of a reply, which has a key of 250 bytes at most.
const LONGEST_LINE: u64 = 4096;

/// The beginning of the line by which a server that has as many connections as it may have turns away one more, before it reads
/// anything of it.
const TURNED_AWAY: &[u8] = b"ERROR Too many open connections";

/// The room that almost every line of a reply fits into.
const USUAL_LINE: usize = 128;

/// The most bytes of a value that room is made for at once.
const MOST_AT_ONCE: usize = 64 * 1024;

/// The most lines that `stats` answers with; there are some hundred.
const MOST_STATS: usize = 4096;

/// The time after which a reply is overdue; three round trips where those take longer.
const OVERDUE: Duration = Duration::from_millis(400);

/// The command that the server answers with a word and does nothing for, and the word.
const ASK: &[u8] = b"mn\r\n";
const WORD: &[u8] = b"MN";

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    reader: Replies,
    writer: WriteHalf<Box<dyn Stream>>,
    number: u64,
    /// The time from the last request, or the opening, to the first answer.
    round_trip: Duration,
    /// The instant of its first answer.
    answered: Option<BootInstant>,
    /// The next command's mark.
    mark: u64,
    /// Whether the word that was asked for behind an overdue reply has not come yet.
    awaits_word: bool,
    /// Whether something was sent that was not answered, or was answered in another way than it should be.
    is_broken: bool,
    /// Whether the server has refused something. It goes on with what follows, but nobody else is to find out what comes of that.
    is_refused: bool,
}

/// The side of a connection over which replies come.
type Replies = BufReader<ReadHalf<Box<dyn Stream>>>;

/// A command, and its position among those that are sent together.
type Placed = (usize, Command);

/// Commands in the server's words.
struct CommandBatch {
    commands: Vec<Placed>,
    bytes: Vec<u8>,
    /// The end of each command among the bytes.
    ends: Vec<usize>,
    first: u64,
}

/// The part of a batch that is done.
#[derive(Default)]
struct BatchProgress {
    written: usize,
    answered: usize,
}

impl Connection {
    /// Opens the connection with this number; it has to be open by `until`.
    pub(super) async fn open(
        network: &dyn Network,
        place: SocketAddr,
        number: u64,
        until: BootInstant,
    ) -> io::Result<Self> {
        let asked = SystemClock.now();
        let stream = by(until, network.connect(place)).await?;
        let round_trip = SystemClock.now().since(asked);
        let (reader, writer) = tokio::io::split(stream);
        Ok(Self {
            reader: BufReader::new(reader),
            writer,
            number,
            round_trip,
            answered: None,
            mark: 0,
            awaits_word: false,
            is_broken: false,
            is_refused: false,
        })
    }

    /// The connection's number: later ones have higher ones.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether nothing is under way on it, but for the word.
    pub(super) fn is_in_order(&self) -> bool {
        !self.is_broken && !self.is_refused && (self.awaits_word || self.reader.buffer().is_empty())
    }

    /// Whether it can be used after a while: the server has not closed it, and has said nothing unasked.
    pub(super) fn is_alive(&mut self) -> bool {
        let mut text = Vec::new();
        let read = {
            let word = pin!(word(&mut self.reader, &mut text, &mut self.awaits_word));
            word.poll(&mut Context::from_waker(Waker::noop()))
        };
        // Nobody reads on what is a part of the word.
        if matches!(read, Poll::Ready(Err(_))) || (read.is_pending() && !text.is_empty()) {
            return false;
        }
        let mut byte = [0];
        let unasked = pin!(unconstrained(self.reader.get_mut().read(&mut byte)));
        let is_quiet = unasked.poll(&mut Context::from_waker(Waker::noop())).is_pending();
        is_quiet && self.is_in_order()
    }

    /// Sends commands in one write, and tells each its answer as soon as that is read. `sent_by` says of each by when it has to be sent;
    /// everything is over by `until`.
    pub(super) async fn exchange(
        &mut self,
        commands: Vec<Command>,
        sent_by: impl Fn(usize) -> BootInstant,
        until: BootInstant,
        mut tell: impl FnMut(usize, CommandAnswer),
    ) {
        let are_known = commands.iter().all(|command| self.knows(command));
        let mut commands: Vec<_> = commands.into_iter().enumerate().collect();
        if !are_known {
            // Seldom, and so not a part of every request's future.
            commands = Box::pin(self.verified(commands, &sent_by, until, &mut tell)).await;
        }
        self.send(commands, &sent_by, until, &mut tell).await;
    }

    /// Whether a command names no number, or one that means the same here.
    fn knows(&self, command: &Command) -> bool {
        command.own().is_none_or(|(_, own)| own.seen.counts_over(self.number, self.answered))
    }

    /// Reads each item whose number was learned elsewhere. Returns the commands that are to be sent, and tells the others their answers.
    async fn verified(
        &mut self,
        commands: Vec<Placed>,
        sent_by: &impl Fn(usize) -> BootInstant,
        until: BootInstant,
        tell: &mut impl FnMut(usize, CommandAnswer),
    ) -> Vec<Placed> {
        let unknown = commands.iter().filter(|(_, command)| !self.knows(command));
        let reads: Vec<_> = unknown.map(|(at, command)| (*at, Command::Read { key: command.key().clone() })).collect();
        let asked: HashSet<_> = reads.iter().map(|(at, _)| *at).collect();
        let mut found = HashMap::new();
        self.send(reads, sent_by, until, &mut |at, answer| drop(found.insert(at, answer))).await;
        let mut to_send = Vec::with_capacity(commands.len());
        for (at, command) in commands {
            let verified = if asked.contains(&at) { verified(command, found.remove(&at)) } else { Ok(command) };
            match verified {
                Ok(command) => to_send.push((at, command)),
                Err(answer) => tell(at, answer),
            }
        }
        to_send
    }

    /// Sends commands as they are.
    async fn send(
        &mut self,
        mut commands: Vec<Placed>,
        sent_by: &impl Fn(usize) -> BootInstant,
        until: BootInstant,
        tell: &mut impl FnMut(usize, CommandAnswer),
    ) {
        let mut fail = |at: usize, failure| tell(at, CommandAnswer::Failed(failure));
        if self.is_broken {
            let failure = || Failure::of_io(io::ErrorKind::NotConnected.into(), false);
            return commands.into_iter().for_each(|(at, _)| fail(at, failure()));
        }
        // What is sent may be carried out, whether anybody has the time to be told so or not.
        let now = SystemClock.now();
        commands.extract_if(.., |(at, _)| now >= sent_by(*at)).for_each(|(at, _)| fail(at, Failure::late()));
        if commands.is_empty() {
            return;
        }
        let batch = match CommandBatch::of(commands, self.mark) {
            Ok(batch) => batch,
            Err((commands, failure)) => {
                return commands.into_iter().for_each(|(at, _)| fail(at, failure.clone()));
            }
        };
        self.mark += batch.ends.len() as u64;
        // Until all of it is answered: this future may be dropped.
        self.is_broken = true;
        let mut progress = BatchProgress::default();
        match self.run(&batch, &mut progress, until, tell).await {
            Ok(()) => self.is_broken = false,
            Err(error) => {
                let error = Arc::new(error);
                let is_open = error.kind() != io::ErrorKind::ConnectionRefused;
                for ((at, command), end) in batch.commands.iter().zip(&batch.ends).skip(progress.answered) {
                    let sent = is_open && progress.written >= *end && command.changes();
                    tell(*at, CommandAnswer::Failed(Failure::of_shared(&error, sent)));
                }
            }
        }
    }

    /// Writes and reads at the same time, until then: what many commands are answered with fits into no buffer.
    async fn run(
        &mut self,
        batch: &CommandBatch,
        progress: &mut BatchProgress,
        until: BootInstant,
        tell: &mut impl FnMut(usize, CommandAnswer),
    ) -> io::Result<()> {
        let Self { reader, writer, number, round_trip, answered, awaits_word, is_refused, .. } = self;
        let BatchProgress { written, answered: done } = progress;
        // Whether the word is being asked for, and whether that was sent.
        let (is_overdue, is_sent) = (AtomicBool::new(false), AtomicBool::new(false));
        let asked = SystemClock.now();
        let ask_at = asked.plus(OVERDUE.max(*round_trip * 3));
        let write = async {
            let all = async {
                while *written < batch.bytes.len() {
                    match writer.write(&batch.bytes[*written..]).await? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        more => *written += more,
                    }
                }
                Ok(())
            };
            by(until, all).await?;
            if ask_at < until {
                SystemClock.sleep_until(ask_at).await;
                is_overdue.store(true, Ordering::Relaxed);
                by(until, writer.write_all(ASK)).await?;
                is_sent.store(true, Ordering::Relaxed);
            }
            SystemClock.sleep_until(until).await;
            Err::<Infallible, io::Error>(io::ErrorKind::TimedOut.into())
        };
        let read = async {
            let mut text = Vec::with_capacity(USUAL_LINE);
            word(reader, &mut text, awaits_word).await?;
            for (mark, (at, command)) in (batch.first..).zip(&batch.commands) {
                line(reader, &mut text).await?;
                if text == WORD && is_sent.load(Ordering::Relaxed) {
                    return Err(missing());
                }
                let reply = ReplyLine::read(&text)?;
                let value = match reply.follows() {
                    Some(bytes) => block(reader, bytes).await?,
                    None => Vec::new(),
                };
                if !reply.is_to(command, mark) {
                    let is_later = reply.mark().is_some_and(|later| later > mark && later < batch.end());
                    return Err(if is_later { missing() } else { io::ErrorKind::InvalidData.into() });
                }
                if *done == 0 {
                    *round_trip = SystemClock.now().since(asked);
                }
                answered.get_or_insert_with(|| SystemClock.now());
                let answer = reply.means(command, value, |cas| CasNumber { cas, over: *number, asked });
                *is_refused |= answer.failure().is_some();
                *done += 1;
                tell(*at, answer);
            }
            // The reply was late, and the word follows it; unless that was about to be asked for.
            *awaits_word = is_sent.load(Ordering::Relaxed);
            *is_refused |= is_overdue.load(Ordering::Relaxed) && !*awaits_word;
            Ok(())
        };
        tokio::select! {
            biased;
            outcome = read => outcome,
            Err(error) = write => Err(error),
        }
    }

    /// Asks what the server counts, or with `" settings"` how it is set up.
    pub(super) async fn stats(&mut self, of: &str, until: BootInstant) -> Result<HashMap<String, String>, Failure> {
        self.is_broken = true;
        let asked = async {
            self.writer.write_all(format!("stats{of}\r\n").as_bytes()).await?;
            let (mut stats, mut text) = (HashMap::new(), Vec::new());
            word(&mut self.reader, &mut text, &mut self.awaits_word).await?;
            loop {
                line(&mut self.reader, &mut text).await?;
                if text == b"END" {
                    return Ok(stats);
                }
                let (name, value) =
                    stat(&text).filter(|_| stats.len() < MOST_STATS).ok_or(io::ErrorKind::InvalidData)?;
                stats.insert(name, value);
            }
        };
        let stats = by(until, asked).await.map_err(|error| Failure::of_io(error, false))?;
        self.is_broken = false;
        self.answered.get_or_insert_with(|| SystemClock.now());
        Ok(stats)
    }
}

impl CommandBatch {
    /// Puts commands into words; if one of them cannot be, nothing is sent of any.
    fn of(commands: Vec<Placed>, first: u64) -> Result<Self, (Vec<Placed>, Failure)> {
        let mut bytes = Vec::with_capacity(commands.iter().map(|(_, command)| command.bytes()).sum());
        let mut ends = Vec::with_capacity(commands.len());
        for (mark, (_, command)) in (first..).zip(&commands) {
            if let Err(error) = command.write(mark, &mut bytes) {
                return Err((commands, Failure::unsendable(error)));
            }
            ends.push(bytes.len());
        }
        Ok(Self { commands, bytes, ends, first })
    }

    /// The mark behind the last one.
    fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }
}

/// A reply that never comes, as later ones have come.
fn missing() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// A command about an item whose number was learned elsewhere, once the item was read here; or what it comes to at once.
fn verified(command: Command, found: Option<CommandAnswer>) -> Result<Command, CommandAnswer> {
    match found {
        Some(CommandAnswer::Item(item)) if command.means(&item) => Ok(command.of(&item)),
        Some(CommandAnswer::Item(_) | CommandAnswer::Other | CommandAnswer::Done(_)) => Err(CommandAnswer::Other),
        Some(CommandAnswer::Missing) => Err(CommandAnswer::Missing),
        Some(CommandAnswer::Failed(failure)) => Err(CommandAnswer::Failed(failure)),
        None => Err(CommandAnswer::Failed(Failure::senseless())),
    }
}

/// Reads the word that was asked for, if it has not come yet.
async fn word(reader: &mut Replies, text: &mut Vec<u8>, is_awaited: &mut bool) -> io::Result<()> {
    if *is_awaited {
        line(reader, text).await?;
        if text != WORD {
            return Err(missing());
        }
        *is_awaited = false;
    }
    Ok(())
}

/// Reads a line into the place of the former one.
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`] if the server has turned the connection away: nothing that was sent over it is carried out.
async fn line(reader: &mut Replies, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    reader.take(LONGEST_LINE).read_until(b'\n', line).await?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.pop_if(|last| *last == b'\r');
    if line.starts_with(TURNED_AWAY) {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "it has as many connections as it is set up for (-c)",
        ));
    }
    Ok(())
}

async fn block(reader: &mut Replies, bytes: usize) -> io::Result<Vec<u8>> {
    let mut block = Vec::new();
    while block.len() < bytes + 2 {
        // Not all at once: a length that was only claimed takes no memory.
        let read = block.len();
        block.resize((bytes + 2).min(read + MOST_AT_ONCE), 0);
        reader.read_exact(&mut block[read..]).await?;
    }
    block.truncate(bytes);
    Ok(block)
}

/// A step that has to be over by then.
async fn by<T>(until: BootInstant, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let outcome = wait::before(&SystemClock, |_| until, step).await;
    outcome.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::SystemNetwork;

    /// The value that is read where the server sends these bytes and closes the connection.
    async fn read(sent: Vec<u8>, bytes: usize) -> io::Result<Vec<u8>> {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = SystemNetwork.connect(server.local_addr().unwrap()).await.unwrap();
        let mut accepted = server.accept().await.unwrap().0;
        let (reader, _writer) = tokio::io::split(stream);
        let mut reader = BufReader::new(reader);
        let sending = async move { accepted.write_all(&sent).await.unwrap() };
        tokio::join!(block(&mut reader, bytes), sending).0
    }

    #[tokio::test]
    async fn a_value_is_read_whole_however_long_it_is() {
        for bytes in [0, 19, MOST_AT_ONCE - 2, MOST_AT_ONCE - 1, MOST_AT_ONCE * 3] {
            let value: Vec<_> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let sent = [&value[..], b"\r\n"].concat();
            assert_eq!(read(sent.clone(), bytes).await.unwrap(), value);
            let short = read(sent[..=bytes].to_vec(), bytes).await.unwrap_err();
            assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
