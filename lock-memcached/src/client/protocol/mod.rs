//! The few commands that locks are made of, and the replies to them, in the server's words.
//!
//! A key is taken by `ma` (arithmetic) and not by `ms … ME` (add): when memory is short, `ms` deletes the item that it finds
//! in its place, and since 1.6.27 it takes its CAS number before it takes the key. `ma` does neither. The CAS number that
//! it is to compare matches nothing, so that an item that is there is never changed, and one that is not is made.
//!
//! A record is stored by the older commands `cas` and `add` for the first of these reasons. Their replies have no marks.
//!
//! Wire format: <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>, "Meta Commands". Written and read without memory of
//! its own: the same words as the client crate's, which tests compare. That crate has no word for a store that keeps what it finds.

use std::io;

use memcache::exp::{Error as ClientError, MetaResponse, ReturnCode};

use super::cas::{CasNumber, OwnItem};
use crate::error::Failure;
use crate::store::keys::{Key, Nonce, number};

/// No item has this CAS number.
const NONE: u64 = i64::MAX.unsigned_abs();

/// The digits of the largest number.
const MOST_DIGITS: usize = 20;

/// The longest key.
const LONGEST_KEY: usize = 250;

/// The longest value that is read: what other libraries keep under a shared key may be as long as the server takes it.
const LONGEST_VALUE: usize = 64 << 20;

/// A command.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Takes a key if it is free. [`CommandAnswer::Done`] or [`CommandAnswer::Other`].
    Claim { key: Key, value: u64, seconds: u32 },
    /// Gives an item that is unchanged more time. [`CommandAnswer::Done`], [`CommandAnswer::Other`] or [`CommandAnswer::Missing`]. A strict
    /// one only if it has the CAS number that is known, over whatever connection: an own item that was changed is another one then.
    Renew { key: Key, own: OwnItem, seconds: u32, is_strict: bool },
    /// Turns an item that is unchanged into another one's. As `Renew`.
    HandOver { key: Key, own: OwnItem, to: Nonce, seconds: u32 },
    /// Turns an item that is unchanged into one with this number, and has it end at this second since 1970. As `Renew`.
    Open { key: Key, own: OwnItem, to: u64, ends_at: u32 },
    /// Deletes an item that is unchanged. As `Renew`.
    Release { key: Key, own: OwnItem },
    /// Reads the item of a key. [`CommandAnswer::Item`] or [`CommandAnswer::Missing`].
    Read { key: Key },
    /// Reads an item without using it: its last use stays where it was. As `Read`.
    Peek { key: Key },
    /// Looks whether there is such a key. [`CommandAnswer::Item`], without its value, or [`CommandAnswer::Missing`].
    Look { key: Key },
    /// Gives an item more time, whosever it is, and reads it; only for what no lock depends on. As `Read`.
    Keep { key: Key, seconds: u32 },
    /// Stores a text; only for what no lock depends on. [`CommandAnswer::Done`].
    Note { key: Key, text: String, seconds: u32 },
    /// Stores bytes in the place of an item with this CAS number, or where there is none. A refusal leaves what is there.
    /// [`CommandAnswer::Done`], [`CommandAnswer::Other`] or [`CommandAnswer::Missing`].
    Store { key: Key, bytes: Vec<u8>, seen: Option<u64>, seconds: u32 },
    /// Deletes a text. [`CommandAnswer::Done`] or [`CommandAnswer::Missing`].
    Forget { key: Key },
}

/// Answer of the server to a command.
#[derive(Debug)]
pub(crate) enum CommandAnswer {
    /// The command was carried out. The item now has this CAS number; 0 where that has none.
    Done(CasNumber),
    /// An item is there.
    Item(Item),
    /// No item is there.
    Missing,
    /// Another item is there.
    Other,
    /// Nothing that says how it is, and why.
    Failed(Failure),
}

/// An item.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) seen: CasNumber,
    /// Seconds for which it lives on; below zero without end.
    pub(crate) left: i64,
}

impl Command {
    /// The key that it is about.
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Claim { key, .. }
            | Self::Renew { key, .. }
            | Self::HandOver { key, .. }
            | Self::Open { key, .. }
            | Self::Release { key, .. }
            | Self::Read { key }
            | Self::Peek { key }
            | Self::Look { key }
            | Self::Keep { key, .. }
            | Self::Note { key, .. }
            | Self::Store { key, .. }
            | Self::Forget { key } => key,
        }
    }

    /// The item that is to be changed only if it is unchanged.
    pub(super) fn own(&self) -> Option<(&Key, OwnItem)> {
        match self {
            Self::Renew { key, own, .. }
            | Self::HandOver { key, own, .. }
            | Self::Open { key, own, .. }
            | Self::Release { key, own } => Some((key, *own)),
            _ => None,
        }
    }

    /// Turns to the item as it was just found. A renewal leaves it all the time that it has: another one may have given it more
    /// since this one was made.
    pub(super) fn of(mut self, found: &Item) -> Self {
        match &mut self {
            Self::Renew { own, seconds, .. } => {
                own.seen = found.seen;
                // No item of a lock is without an end.
                *seconds = u32::try_from(found.left).map_or(*seconds, |left| left.max(*seconds));
            }
            Self::HandOver { own, .. } | Self::Open { own, .. } | Self::Release { own, .. } => own.seen = found.seen,
            _ => {}
        }
        self
    }

    /// Whether this item, as it was just found, is the one that is meant.
    pub(super) fn means(&self, found: &Item) -> bool {
        let is_strict = matches!(self, Self::Renew { is_strict: true, .. });
        let is_same = |own: OwnItem| own.is(&found.value) && (!is_strict || own.seen.cas == found.seen.cas);
        self.own().is_some_and(|(_, own)| is_same(own))
    }

    /// The number that the item holds when the command was carried out, where that is told.
    pub(super) fn leaves(&self) -> Option<u64> {
        match self {
            Self::Claim { value, .. } => Some(*value),
            Self::Renew { own, .. } => Some(own.value),
            Self::HandOver { to, .. } => Some(to.number()),
            Self::Open { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The bytes that it has in the server's words, roughly.
    pub(super) fn bytes(&self) -> usize {
        let text = match self {
            Self::Note { text, .. } => text.len(),
            Self::Store { bytes, .. } => bytes.len(),
            _ => 0,
        };
        self.key().len() + text + 64
    }

    /// Whether the command may change something at the server, even if no answer comes.
    pub(super) fn changes(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Peek { .. } | Self::Look { .. })
    }

    /// Whether it can be put into words: the server knows such a key.
    pub(super) fn is_sendable(&self) -> bool {
        let key = self.key();
        !key.is_empty() && key.len() <= LONGEST_KEY && !key.bytes().any(|byte| byte <= b' ' || byte == 0x7f)
    }

    /// Appends the command in the server's words, with a mark that its reply has too.
    ///
    /// # Errors
    /// If the server knows no such key. Then nothing is appended.
    pub(crate) fn write(&self, mark: u64, to: &mut Vec<u8>) -> Result<(), ClientError> {
        let key = self.key().as_bytes();
        if !self.is_sendable() {
            return Err(ClientError::Usage("a key is 1 to 250 bytes without blanks and control characters"));
        }
        let mut line = Line(to);
        match self {
            Self::Claim { value, seconds, .. } => {
                line.begin(b"ma", key).word(b" c").number(b" D", 0).number(b" N", u64::from(*seconds));
                line.number(b" J", *value).number(b" C", NONE)
            }
            Self::Renew { own, seconds, .. } => line.add(key, *own, 0, *seconds),
            Self::HandOver { own, to, seconds, .. } => {
                line.add(key, *own, to.number().wrapping_sub(own.value), *seconds)
            }
            Self::Open { own, to, ends_at, .. } => line.add(key, *own, to.wrapping_sub(own.value), *ends_at),
            Self::Release { own, .. } => line.begin(b"md", key).number(b" C", own.seen.cas),
            Self::Read { .. } => line.begin(b"mg", key).word(b" v c t"),
            Self::Peek { .. } => line.begin(b"mg", key).word(b" v c t u"),
            Self::Look { .. } => line.begin(b"mg", key).word(b" c t"),
            Self::Keep { seconds, .. } => line.begin(b"mg", key).word(b" v c t").number(b" T", u64::from(*seconds)),
            Self::Note { text, seconds, .. } => {
                line.begin(b"ms", key).number(b" ", text.len() as u64).number(b" T", u64::from(*seconds))
            }
            Self::Store { bytes, seen, seconds, .. } => {
                line.begin(if seen.is_some() { b"cas" } else { b"add" }, key);
                line.number(b" ", 0).number(b" ", u64::from(*seconds)).number(b" ", bytes.len() as u64);
                match seen {
                    Some(seen) => line.number(b" ", *seen),
                    None => &mut line,
                }
            }
            Self::Forget { .. } => line.begin(b"md", key),
        };
        if !matches!(self, Self::Store { .. }) {
            line.number(b" O", mark);
        }
        line.word(b"\r\n");
        match self {
            Self::Note { text, .. } => line.word(text.as_bytes()).word(b"\r\n"),
            Self::Store { bytes, .. } => line.word(bytes).word(b"\r\n"),
            _ => &mut line,
        };
        Ok(())
    }
}

/// A line that is being written.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    fn begin(&mut self, operation: &[u8], key: &[u8]) -> &mut Self {
        self.word(operation).word(b" ").word(key)
    }

    fn word(&mut self, word: &[u8]) -> &mut Self {
        self.0.extend_from_slice(word);
        self
    }

    fn number(&mut self, before: &[u8], number: u64) -> &mut Self {
        let (mut digits, mut left) = ([0; MOST_DIGITS], number);
        let mut first = MOST_DIGITS;
        loop {
            first -= 1;
            digits[first] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.word(before).word(&digits[first..])
    }

    /// Changes an item that is unchanged, and reads it: the value says whose it is.
    fn add(&mut self, key: &[u8], own: OwnItem, delta: u64, seconds: u32) -> &mut Self {
        self.begin(b"ma", key).word(b" v c").number(b" D", delta).number(b" T", u64::from(seconds));
        self.number(b" C", own.seen.cas)
    }
}

impl CommandAnswer {
    /// The answer to a command that has to have one: there are as many answers as commands.
    pub(crate) fn expected(answer: Option<Self>) -> Self {
        answer.unwrap_or_else(|| Self::Failed(Failure::senseless()))
    }

    /// The failure, if it is one.
    pub(crate) fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// The item, if there is one.
    pub(crate) fn item(self) -> Result<Option<Item>, Failure> {
        match self {
            Self::Item(item) => Ok(Some(item)),
            Self::Missing => Ok(None),
            Self::Failed(failure) => Err(failure),
            Self::Done(_) | Self::Other => Err(Failure::protocol("a read was answered as if it were a write")),
        }
    }

    /// [`item`](CommandAnswer::item), for one of several who are told.
    pub(crate) fn item_seen(&self) -> Result<Option<&Item>, Failure> {
        match self {
            Self::Item(item) => Ok(Some(item)),
            Self::Missing => Ok(None),
            Self::Failed(failure) => Err(failure.clone()),
            Self::Done(_) | Self::Other => Err(Failure::protocol("a read was answered as if it were a write")),
        }
    }

    /// Whether there is such an item.
    pub(crate) fn is_there(&self) -> Result<bool, Failure> {
        match self {
            Self::Item(_) => Ok(true),
            Self::Missing => Ok(false),
            Self::Failed(failure) => Err(failure.clone()),
            Self::Done(_) | Self::Other => Err(Failure::protocol("a read was answered as if it were a write")),
        }
    }
}

/// A reply's line.
#[derive(Debug)]
pub(crate) enum ReplyLine {
    /// An answer; a value of so many bytes follows it.
    Answer { code: ReturnCode, cas: Option<u64>, left: Option<i64>, mark: Option<u64>, value: Option<usize> },
    /// An answer to [`Command::Store`].
    Stored(ReturnCode),
    /// The server does not carry the command out.
    Refusal(Failure),
}

impl ReplyLine {
    /// Reads the reply that a line without its end is.
    ///
    /// # Errors
    /// If it makes no sense: nothing that follows on the connection can be told apart any more.
    pub(crate) fn read(line: &[u8]) -> io::Result<Self> {
        match line {
            b"STORED" => return Ok(Self::Stored(ReturnCode::Hd)),
            b"NOT_STORED" => return Ok(Self::Stored(ReturnCode::Ns)),
            b"EXISTS" => return Ok(Self::Stored(ReturnCode::Ex)),
            b"NOT_FOUND" => return Ok(Self::Stored(ReturnCode::Nf)),
            _ => {}
        }
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let Some(code) = words.next().and_then(|word| ReturnCode::from_wire(word).ok()) else {
            let refusal = MetaResponse::parse_header(line).err().ok_or_else(senseless)?;
            return Failure::refused(refusal).map(Self::Refusal);
        };
        let value = if code == ReturnCode::Va { Some(length(words.next())?) } else { None };
        let (mut cas, mut left, mut mark) = (None, None, None);
        for word in words {
            match word.split_first() {
                Some((b'c', rest)) => cas = Some(number(rest).ok_or_else(senseless)?),
                Some((b't', rest)) => left = Some(seconds(rest).ok_or_else(senseless)?),
                Some((b'O', rest)) => mark = number(rest),
                _ => {}
            }
        }
        Ok(Self::Answer { code, cas, left, mark, value })
    }

    /// Number of bytes that follow the line, without their end.
    pub(crate) fn follows(&self) -> Option<usize> {
        match self {
            Self::Answer { value, .. } => *value,
            Self::Stored(_) | Self::Refusal(_) => None,
        }
    }

    /// The mark of the command that is answered, where it has one.
    pub(crate) fn mark(&self) -> Option<u64> {
        match self {
            Self::Answer { mark, .. } => *mark,
            Self::Stored(_) | Self::Refusal(_) => None,
        }
    }

    /// Whether this may be the reply to a command that was sent with this mark. A refusal has none, nor has the answer to a store.
    pub(crate) fn is_to(&self, command: &Command, sent: u64) -> bool {
        match self {
            Self::Answer { mark, .. } => *mark == Some(sent),
            Self::Stored(_) => matches!(command, Command::Store { .. }),
            Self::Refusal(_) => true,
        }
    }

    /// Answers this command. `seen` makes a number one that was learned here and now.
    pub(crate) fn means(self, command: &Command, value: Vec<u8>, seen: impl FnOnce(u64) -> CasNumber) -> CommandAnswer {
        let (code, cas, left) = match self {
            // `ma` says so of an item without any text, whoever stored that.
            Self::Refusal(failure) if failure.is_non_numeric() => return CommandAnswer::Other,
            Self::Refusal(failure) => return CommandAnswer::Failed(failure),
            Self::Answer { code, cas, left, .. } => (code, cas, left),
            Self::Stored(code) => (code, None, None),
        };
        let seen = seen(cas.unwrap_or_default());
        let is_read = matches!(
            command,
            Command::Read { .. } | Command::Peek { .. } | Command::Look { .. } | Command::Keep { .. }
        );
        match code {
            ReturnCode::En | ReturnCode::Nf => CommandAnswer::Missing,
            ReturnCode::Hd | ReturnCode::Va if is_read => {
                CommandAnswer::Item(Item { value, seen, left: left.unwrap_or(-1) })
            }
            // The number was right, and the item is another's all the same.
            ReturnCode::Va if command.leaves().is_some_and(|left| !OwnItem { value: left, seen }.is(&value)) => {
                CommandAnswer::Other
            }
            ReturnCode::Hd | ReturnCode::Va => CommandAnswer::Done(seen),
            ReturnCode::Ex | ReturnCode::Ns => CommandAnswer::Other,
            _ => CommandAnswer::Failed(Failure::senseless()),
        }
    }
}

/// The name and the value in `STAT name value`.
pub(crate) fn stat(line: &[u8]) -> Option<(String, String)> {
    let line = String::from_utf8_lossy(line);
    let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
    Some((name.to_owned(), value.to_owned()))
}

fn length(word: Option<&[u8]>) -> io::Result<usize> {
    let length = word.and_then(number).and_then(|length| usize::try_from(length).ok());
    length.filter(|length| *length <= LONGEST_VALUE).ok_or_else(senseless)
}

/// Reads the seconds that an item has left; -1 without end.
fn seconds(word: &[u8]) -> Option<i64> {
    match word.strip_prefix(b"-") {
        Some(below_zero) => number(below_zero).and_then(|seconds| 0_i64.checked_sub_unsigned(seconds)),
        None => number(word).and_then(|seconds| i64::try_from(seconds).ok()),
    }
}

fn senseless() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests;
