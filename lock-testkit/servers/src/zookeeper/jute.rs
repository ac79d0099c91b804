//! ZooKeeper's encoding (jute): big-endian numbers, and whatever has a length after it.

use std::io;

/// The largest frame. A server sends at most `jute.maxbuffer`, by default 1 MiB, and listings somewhat more.
const MOST: usize = 64 << 20;

/// A frame that is being written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let mut writer = self.count(value.len());
        writer.0.extend(value);
        writer
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// A vector: its length, then each of its parts.
    pub(super) fn each<T>(self, parts: &[T], write: impl Fn(Self, &T) -> Self) -> Self {
        parts.iter().fold(self.count(parts.len()), write)
    }

    fn count(self, length: usize) -> Self {
        // Saturated, it is more than any server takes.
        self.int(i32::try_from(length).unwrap_or(i32::MAX))
    }

    /// Returns the bytes for the wire: the length, then everything that was written.
    pub(super) fn frame(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

/// Returns the length of the frame that begins with this.
pub(super) fn frame_length(prefix: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(i32::from_be_bytes(prefix)).ok().filter(|length| *length <= MOST);
    length.ok_or_else(|| garbled("a frame of an impossible length"))
}

/// A frame that is being read.
#[derive(Debug)]
pub(super) struct JuteReader<'a>(&'a [u8]);

impl<'a> JuteReader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self(frame)
    }

    pub(super) fn int(&mut self) -> io::Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> io::Result<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A node that was made without data may have none at all, of length -1: the same as nothing.
    pub(super) fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.int()?).unwrap_or_default();
        let (value, rest) = self.0.split_at_checked(length).ok_or_else(|| garbled("a frame that ends too early"))?;
        self.0 = rest;
        Ok(value.to_vec())
    }

    pub(super) fn text(&mut self) -> io::Result<String> {
        String::from_utf8(self.bytes()?).map_err(|_| garbled("a text that is not UTF-8"))
    }

    /// A vector: its length, then each of its parts.
    pub(super) fn each<T>(&mut self, read: impl Fn(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let length = self.int()?;
        (0..length).map(|_| read(self)).collect()
    }

    /// Returns what has not been read yet.
    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk().ok_or_else(|| garbled("a frame that ends too early"))?;
        self.0 = rest;
        Ok(*value)
    }
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let names = ["a".to_owned(), "ü".to_owned()];
        let frame =
            Writer::default().int(-7).long(1 << 40).bytes(b"\0\xff").each(&names, |w, name| w.text(name)).frame();
        let (prefix, body) = frame.split_first_chunk().unwrap();
        assert_eq!(frame_length(*prefix).unwrap(), body.len());
        let mut reader = JuteReader::new(body);
        assert_eq!((reader.int().unwrap(), reader.long().unwrap()), (-7, 1 << 40));
        assert_eq!(reader.bytes().unwrap(), b"\0\xff");
        assert_eq!(reader.each(JuteReader::text).unwrap(), names);
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn no_frame_breaks_the_reader() {
        let names = ["a".to_owned(), "/lock/ü".to_owned()];
        let sample = Writer::default().int(3).long(1 << 40).bytes(b"data").each(&names, |w, name| w.text(name)).frame();
        lock_testkit::fuzz::bytes("jute frames", &[&sample, &[0xff; 4]], |input| {
            if let Some(prefix) = input.first_chunk() {
                assert!(frame_length(*prefix).is_ok_and(|length| length <= MOST) || frame_length(*prefix).is_err());
            }
            let mut reader = JuteReader::new(input);
            let read = (|| {
                Ok::<_, io::Error>((reader.int()?, reader.long()?, reader.bytes()?, reader.each(JuteReader::text)?))
            })();
            assert!(read.is_err() || reader.rest().len() < input.len());
            drop(JuteReader::new(input).each(JuteReader::bytes));
        });
    }

    #[test]
    fn numbers_are_big_endian_and_lengths_stand_before() {
        let frame = Writer::default().int(1).bool(true).text("ab").frame();
        assert_eq!(frame, [0, 0, 0, 11, 0, 0, 0, 1, 1, 0, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        assert!(frame_length([0xff; 4]).is_err() && frame_length([0x7f; 4]).is_err());
        assert!(JuteReader::new(&[0, 0, 1]).int().is_err());
        assert!(JuteReader::new(&[0, 0, 0, 9, b'a']).bytes().is_err());
        assert!(JuteReader::new(&[0, 0, 0, 1, 0xff]).text().is_err());
        assert!(JuteReader::new(&[0x7f, 0, 0, 1, 0xff]).each(JuteReader::text).is_err());
        assert_eq!(JuteReader::new(&[0xff; 4]).bytes().unwrap(), b"");
    }
}
