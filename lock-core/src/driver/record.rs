//! The record beside a mutex: a little data that outlives its holders.

use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

use super::attempt::Attempt;
use super::backend::MutexBackend;
use crate::error::Error;
use crate::name::LockName;
use crate::token::FencingToken;

/// The digits of a token in a stored record.
const DIGITS: usize = 16;

/// The record beside a mutex, as it is at the server.
///
/// # Source
/// The small files of M. Burrows, "The Chubby lock service" (2006): data that is written under the lock, and read by anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The token of the latest holder: nobody with an older one can write any more.
    pub term: FencingToken,
    /// The token under which the data was written; `None` if nothing was ever written.
    pub written: Option<FencingToken>,
    /// The data, at most [`Record::MAX_BYTES`].
    pub data: Vec<u8>,
}

impl Record {
    /// The most bytes of data.
    pub const MAX_BYTES: usize = 1024;

    /// The longest time for which a record can be kept, and the default: 30 days.
    pub const LONGEST_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

    /// A record of which nothing was written yet.
    #[must_use]
    pub const fn new(term: FencingToken) -> Self {
        Self { term, written: None, data: Vec::new() }
    }

    /// Whether the latest holder has written the data, rather than one before it.
    #[must_use]
    pub fn is_of_term(&self) -> bool {
        self.written == Some(self.term)
    }

    /// The next state of a stored record: stamped by the holder with this token and, if there are any, with its data. `Err` with
    /// the newer token of somebody who has stamped it already.
    ///
    /// # Errors
    /// The token that is in the way.
    pub fn next(stored: Option<Self>, token: FencingToken, data: Option<&[u8]>) -> Result<Self, FencingToken> {
        let mut next = match stored {
            Some(stored) if stored.term > token => return Err(stored.term),
            Some(stored) => Self { term: token, ..stored },
            None => Self::new(token),
        };
        if let Some(data) = data {
            next.written = Some(token);
            next.data = data.to_vec();
        }
        Ok(next)
    }

    /// The form in which backends store it: the two tokens with 16 digits each (0 for none), a colon after each, and the data.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let written = self.written.map_or(0, FencingToken::as_u64);
        let mut bytes = format!("{:0DIGITS$}:{written:0DIGITS$}:", self.term.as_u64()).into_bytes();
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// Reads [that form](Record::to_bytes); `None` if it is something else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let token = |from: usize| {
            let digits = bytes.get(from..from + DIGITS)?;
            if !digits.iter().all(u8::is_ascii_digit) || bytes.get(from + DIGITS) != Some(&b':') {
                return None;
            }
            std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
        };
        let (term, written) = (FencingToken::new(token(0)?)?, token(DIGITS + 1)?);
        let written = if written == 0 { None } else { Some(FencingToken::new(written)?) };
        let data = &bytes[2 * (DIGITS + 1)..];
        (data.len() <= Self::MAX_BYTES && written <= Some(term)).then(|| Self { term, written, data: data.to_vec() })
    }
}

/// The answer to a request to write a record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordWrite {
    /// The record is so now.
    Done(Record),
    /// The grant is gone, or a later holder has been at the record: nothing was written.
    NotHeld,
}

/// Offers a record beside each mutex.
///
/// The core asks only for names that are no shared keys, and only where [`Fencing`](super::Guarantee::Fencing) is promised.
#[async_trait]
pub trait RecordBackend: MutexBackend {
    /// Reads the record; `None` if there is none (any more).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if no answer came within one operation timeout,
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) if something else is in its place.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error>;

    /// Reads the record as the server has it to which this client is connected, which may be some moments behind the others. By default as
    /// [`read_record`](RecordBackend::read_record).
    ///
    /// # Errors
    /// Those of [`read_record`](RecordBackend::read_record).
    ///
    /// # Cancel safety
    /// Reads only.
    async fn peek_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.read_record(name).await
    }

    /// Stamps the record with the token of this grant and, if there are any, writes the data; see [`Record::next`]. Both are one
    /// step at the server. It is refused if a newer token is there. A backend that can also refuses it, in the same step, if
    /// the grant is gone. The record is kept for `retention` from then on, by the server's clock, at least. Idempotent.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if nothing was sent,
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no answer came,
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) if something else is in its place.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn it_survives_being_stored() {
        let stamped = Record::new(token(7));
        let written = Record::next(Some(stamped.clone()), token(7), Some(b"a:\0\xff")).unwrap();
        let full = Record::next(None, FencingToken::MAX, Some(&[b':'; Record::MAX_BYTES])).unwrap();
        for record in [stamped, written, full] {
            assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        }
    }

    #[test]
    fn whatever_else_is_stored_is_no_record() {
        let good = Record::next(None, token(7), Some(b"data")).unwrap().to_bytes();
        for end in 0..2 * (DIGITS + 1) {
            assert_eq!(Record::from_bytes(&good[..end]), None);
        }
        let wrong = [&b""[..], b"{}", b"0000000000000000:0000000000000000:", b"000000000000000x:0000000000000000:"];
        for bytes in wrong.into_iter().chain([&b"0000000000000007:0000000000000008:written after its term"[..]]) {
            assert_eq!(Record::from_bytes(bytes), None);
        }
        let mut long = good.clone();
        long.resize(2 * (DIGITS + 1) + Record::MAX_BYTES + 1, b'x');
        assert_eq!(Record::from_bytes(&long), None);
    }

    #[test]
    fn a_stamp_keeps_the_data_and_turns_older_tokens_away() {
        let first = Record::next(None, token(5), Some(b"by 5")).unwrap();
        assert!(first.is_of_term());
        let stamped = Record::next(Some(first), token(6), None).unwrap();
        assert!(!stamped.is_of_term());
        assert_eq!((stamped.term, stamped.written, &*stamped.data), (token(6), Some(token(5)), &b"by 5"[..]));
        assert_eq!(Record::next(Some(stamped.clone()), token(5), Some(b"late")), Err(token(6)));
        let again = Record::next(Some(stamped), token(6), Some(b"by 6")).unwrap();
        assert_eq!(Record::next(Some(again.clone()), token(6), Some(b"by 6")), Ok(again), "idempotent");
    }
}
