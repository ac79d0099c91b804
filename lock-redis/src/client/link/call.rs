//! One run of a script: its keys and arguments. The short ways, whose runs may go together, and their replies.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use lock_core::clock::BootInstant;
use lock_core::{FencingToken, Phase};
use redis::Value;

use crate::store::scripts::{self, Script};

/// The bytes and parts that a run seldom exceeds.
const USUAL_BYTES: usize = 256;
const USUAL_PARTS: usize = 6;

/// The keys and arguments of one run of a script, in one text: there are tens of thousands of them a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    text: String,
    /// The end of each part.
    ends: Vec<usize>,
    /// The number of parts that are keys. They come first.
    keys: usize,
}

impl Call {
    /// A run with these keys. At least the lock's, which is the first.
    pub(crate) fn of(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut call =
            Self { text: String::with_capacity(USUAL_BYTES), ends: Vec::with_capacity(USUAL_PARTS), keys: 0 };
        keys.into_iter().for_each(|key| call.push(key));
        call.keys = call.ends.len();
        call
    }

    /// A run with these two keys, of which the second begins with `side` and has this ending.
    pub(crate) fn of_two(lock: &str, side: &str, ending: &str) -> Self {
        Self::of([lock]).and_key(side, ending)
    }

    /// Adds one more key of two parts, before any argument.
    pub(crate) fn and_key(mut self, side: &str, ending: &str) -> Self {
        self.push_parts(&[side, ending]);
        self.keys = self.ends.len();
        self
    }

    /// Adds an argument.
    pub(crate) fn push(&mut self, part: impl AsRef<str>) {
        self.text.push_str(part.as_ref());
        self.ends.push(self.text.len());
    }

    /// Adds an argument that has several parts.
    pub(crate) fn push_parts(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.push_str(part));
        self.ends.push(self.text.len());
    }

    /// Adds an argument that is a number.
    pub(crate) fn push_number(&mut self, number: u64) {
        // Writing to a text cannot fail.
        let _ = write!(self.text, "{number}");
        self.ends.push(self.text.len());
    }

    /// Adds these arguments behind the others.
    pub(crate) fn with(mut self, args: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        args.into_iter().for_each(|arg| self.push(arg));
        self
    }

    /// The key that says which server is asked.
    pub(in crate::client) fn key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// The keys.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts(0..self.keys)
    }

    /// The arguments.
    pub(crate) fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts(self.keys..self.ends.len())
    }

    /// The number of bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    fn parts(&self, these: Range<usize>) -> impl ExactSizeIterator<Item = &str> {
        let begin = move |i: usize| if i == 0 { 0 } else { self.ends[i - 1] };
        these.map(move |i| &self.text[begin(i)..self.ends[i]])
    }
}

/// A short way whose requests may go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShortWay {
    /// Acquires a free mutex.
    Acquire,
    /// Releases a mutex.
    Release,
    /// Acquires a lock of another kind that has room.
    AcquireHolder,
    /// Releases a grant of a lock of another kind.
    ReleaseHolder,
}

/// A request in a short way.
#[derive(Debug)]
pub(crate) struct ShortRequest {
    pub(crate) way: ShortWay,
    pub(crate) call: Call,
    /// The end of the operation.
    pub(crate) until: BootInstant,
}

/// The reply to a request in a short way, and when that was sent.
#[derive(Debug)]
pub(crate) struct ShortReply {
    pub(crate) sent_at: BootInstant,
    /// The number of the connection over which it came.
    pub(crate) generation: u64,
    text: ShortText,
}

/// The text of a reply: all that came, or a part of what a batch was told.
#[derive(Debug)]
enum ShortText {
    Whole(Value),
    Part(Arc<Vec<u8>>, Range<usize>),
}

impl ShortWay {
    /// The number of them.
    pub(super) const ALL: usize = 4;

    /// The phase of a request.
    pub(in crate::client) fn phase(self) -> Phase {
        match self {
            Self::Acquire | Self::AcquireHolder => Phase::Acquire,
            Self::Release | Self::ReleaseHolder => Phase::Release,
        }
    }

    /// The most requests that go together: a run of their script takes less than 5 ms on a slow machine, too.
    pub(super) const fn most(self) -> usize {
        match self {
            Self::AcquireHolder => 64,
            Self::Acquire | Self::Release | Self::ReleaseHolder => 128,
        }
    }

    /// Whether the last key of each request is the counter of tokens, which all of a batch share.
    pub(super) const fn counts_tokens(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireHolder)
    }

    /// The script of a batch.
    pub(super) fn in_batch(self) -> &'static Script {
        match self {
            Self::Acquire => &scripts::ACQUIRE_BATCH,
            Self::Release => &scripts::RELEASE_BATCH,
            Self::AcquireHolder => &scripts::ACQUIRE_HOLDERS_BATCH,
            Self::ReleaseHolder => &scripts::RELEASE_HOLDERS_BATCH,
        }
    }
}

impl ShortReply {
    /// The reply to a request that went by itself.
    pub(in crate::client) fn whole(value: Value, sent_at: BootInstant, generation: u64) -> Self {
        Self { sent_at, generation, text: ShortText::Whole(value) }
    }

    /// The part of a batch's text that answers one of its requests.
    pub(super) fn part(text: &Arc<Vec<u8>>, part: Range<usize>, sent_at: BootInstant, generation: u64) -> Self {
        Self { sent_at, generation, text: ShortText::Part(text.clone(), part) }
    }

    /// Reads `<nonce><sign><token>`, where not each sign has a token; `None` if that answers another request.
    pub(in crate::client) fn read(&self, nonce: &str) -> Option<(u8, Option<FencingToken>)> {
        let bytes = match &self.text {
            ShortText::Whole(Value::BulkString(bytes)) => &bytes[..],
            ShortText::Whole(_) => return None,
            ShortText::Part(text, part) => text.get(part.clone())?,
        };
        let (sign, digits) = bytes.strip_prefix(nonce.as_bytes())?.split_first()?;
        let token = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        Some((*sign, token.and_then(FencingToken::new)))
    }
}

/// Returns the parts of a batch's text, in the order of its requests: each ends with a line's end, and is empty where there is no
/// answer; `None` unless there are so many.
pub(super) fn parts(text: &[u8], requests: usize) -> Option<Vec<Range<usize>>> {
    let mut parts = Vec::with_capacity(requests);
    let mut begin = 0;
    for part in text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n') {
        parts.push(begin..begin + part.len());
        begin += part.len() + 1;
    }
    (parts.len() == requests).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_arguments_come_back_as_they_were_put_in() {
        let call = Call::of(["lock", "", "ö"]).with(["a"]).with(["17"]).with([""]);
        assert_eq!(call.keys().collect::<Vec<_>>(), ["lock", "", "ö"]);
        assert_eq!(call.args().collect::<Vec<_>>(), ["a", "17", ""]);
        assert_eq!((call.key(), call.len()), ("lock", 9));
        let mut call = Call::of_two("lock", "side", ":q");
        call.push_parts(&["a", "", "b"]);
        call.push_number(1200);
        assert_eq!(call.keys().collect::<Vec<_>>(), ["lock", "side:q"]);
        assert_eq!(call.args().collect::<Vec<_>>(), ["ab", "1200"]);
        assert_eq!(Call::default().key(), "");
    }

    #[test]
    fn a_text_has_as_many_parts_as_there_are_requests() {
        assert_eq!(parts(b"ab\n\nc\n", 3), Some(vec![0..2, 3..3, 4..5]));
        assert_eq!(parts(b"\n\n", 2), Some(vec![0..0, 1..1]));
        for (text, requests) in [(&b"ab\n\nc\n"[..], 2), (b"ab\n\nc\n", 4), (b"ab", 1), (b"", 0), (b"", 1)] {
            assert_eq!(parts(text, requests), None, "{text:?}");
        }
    }

    #[test]
    fn a_part_is_read_as_a_reply_of_its_own_is() {
        let nonce = "0123456789abcdef0123456789abcdef";
        let text = Arc::new(format!("{nonce}+17\n{nonce}-\n").into_bytes());
        let part = |part| ShortReply::part(&text, part, BootInstant::FAR_FUTURE, 1);
        assert_eq!(part(0..35).read(nonce), Some((b'+', FencingToken::new(17))));
        assert_eq!(part(36..69).read(nonce), Some((b'-', None)));
        assert_eq!(part(0..35).read(&nonce.replace('0', "1")), None);
        assert_eq!(part(0..32).read(nonce), None);
        assert_eq!(part(60..90).read(nonce), None);
    }
}
