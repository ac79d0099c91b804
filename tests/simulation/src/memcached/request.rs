//! A command as it comes over a connection: a line of words, and perhaps a block of data.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The longest line that is read, and the largest block: more than a client of locks sends.
const LONGEST: u64 = 64 * 1024;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The words of its line.
    pub words: Vec<Vec<u8>>,
    /// The block that followed the line.
    pub data: Vec<u8>,
}

impl Request {
    /// Reads one; `None` at the end of the connection.
    ///
    /// # Errors
    /// If the connection breaks, or does not keep to the protocol.
    pub async fn read(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Self>> {
        let mut line = Vec::new();
        if (&mut *reader).take(LONGEST).read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::InvalidData)?;
        let words: Vec<_> =
            line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
        let mut request = Self { words, data: Vec::new() };
        if let Some(bytes) = request.bytes_that_follow() {
            let bytes = bytes.filter(|bytes| (*bytes as u64) < LONGEST).ok_or(io::ErrorKind::InvalidData)?;
            request.data = vec![0; bytes + 2];
            reader.read_exact(&mut request.data).await?;
            if request.data.split_off(bytes) != b"\r\n" {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(Some(request))
    }

    /// The length of the block, of a command that has one; `None` within if it makes no sense.
    fn bytes_that_follow(&self) -> Option<Option<usize>> {
        let at = match self.word(0) {
            b"ms" => 2,
            b"add" | b"set" | b"cas" => 4,
            _ => return None,
        };
        Some(number(self.word(at)))
    }

    /// The word at this place; nothing if there are not so many.
    #[must_use]
    pub fn word(&self, at: usize) -> &[u8] {
        self.words.get(at).map_or(&[], |word| word)
    }

    /// The flags of a meta command.
    pub fn flags(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let first = if self.word(0) == b"ms" { 3 } else { 2 };
        self.words.iter().skip(first).filter_map(|word| word.split_first()).map(|(flag, value)| (*flag, value))
    }

    /// The value of a flag, if it is there.
    #[must_use]
    pub fn flag(&self, flag: u8) -> Option<&[u8]> {
        self.flags().find(|(name, _)| *name == flag).map(|(_, value)| value)
    }

    /// The number behind a flag, if it is there.
    #[must_use]
    pub fn number<N: std::str::FromStr>(&self, flag: u8) -> Option<N> {
        self.flag(flag).and_then(number)
    }
}

/// A number in digits.
#[must_use]
pub fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}
