//! One reply of the server: its line, and the value that may follow.

use std::io;

use memcache::exp::{MetaResponse, ReturnCode, parse_meta_result};

use super::cas::{self, CasNumber, OwnItem};
use super::command::{Command, CommandAnswer, Item};
use crate::error::Failure;

/// The longest value that is read: what other libraries keep under a shared key may be as long as the server takes it.
const LONGEST_VALUE: usize = 64 << 20;

/// A reply's line.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An answer; a value of so many bytes follows it.
    Answer { code: ReturnCode, cas: Option<u64>, left: Option<i64>, opaque: Option<Vec<u8>>, value: Option<usize> },
    /// The server does not carry the command out.
    Refusal(Failure),
}

impl Reply {
    /// Out of a line without its end.
    ///
    /// # Errors
    /// If it makes no sense: nothing that follows on the connection can be told apart any more.
    pub(crate) fn parse(line: &[u8]) -> io::Result<Self> {
        let response = match MetaResponse::parse_header(line) {
            Ok(response) => response,
            Err(refusal) => return Failure::refused(refusal).map(Self::Refusal),
        };
        let code = response.rc();
        let value = if code == ReturnCode::Va { Some(length(line)?) } else { None };
        let told = parse_meta_result(response).map_err(|_| senseless())?;
        Ok(Self::Answer { code, cas: told.cas, left: told.ttl, opaque: told.opaque, value })
    }

    /// Number of bytes that follow the line, without their end.
    pub(crate) fn follows(&self) -> Option<usize> {
        match self {
            Self::Answer { value, .. } => *value,
            Self::Refusal(_) => None,
        }
    }

    /// Whether this is the reply to what was sent with this mark. A refusal has none.
    pub(crate) fn is_to(&self, mark: u64) -> bool {
        match self {
            Self::Answer { opaque, .. } => opaque.as_deref() == Some(mark.to_string().as_bytes()),
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
        };
        let seen = seen(cas.unwrap_or_default());
        let is_read = matches!(command, Command::Read { .. } | Command::Look { .. } | Command::Keep { .. });
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

fn length(line: &[u8]) -> io::Result<usize> {
    let word = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).nth(1);
    let length = word.and_then(cas::number).and_then(|length| usize::try_from(length).ok());
    length.filter(|length| *length <= LONGEST_VALUE).ok_or_else(senseless)
}

fn senseless() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
