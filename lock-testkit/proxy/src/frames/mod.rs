//! The cutting of a connection's bytes into frames, and the matching of replies to requests.

mod jute;
mod memcached;
mod resp;

use serde::{Deserialize, Serialize};

/// The protocol that is spoken over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Protocol {
    /// Redis' (RESP 2 and 3).
    Resp,
    /// ZooKeeper's (jute).
    ZooKeeper,
    /// memcached's text and meta protocol. Replies to quiet requests (flag `q`) are taken for nobody's.
    Memcached,
    /// Anything else: whatever arrives at once is a frame, and replies are nobody's.
    Opaque,
}

/// No frame is longer than this: what seems to be is something else, such as one of ZooKeeper's words of four letters.
const MOST: usize = 64 << 20;

/// An error: bytes that are no frame of the protocol. The rest of the connection is [`Protocol::Opaque`].
#[derive(Debug, PartialEq, Eq)]
struct Garbled;

/// The mark by which a reply is known to belong to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ticket {
    /// The reply is the next one.
    InTurn,
    /// The reply carries the same number.
    Number(i32),
}

/// The end of a connection that speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Client,
    Server,
}

/// The bytes that one end of a connection has sent so far, cut into frames.
#[derive(Debug)]
pub(super) struct Frames {
    protocol: Protocol,
    speaker: Speaker,
    buffer: Vec<u8>,
    passed: u64,
}

/// One message, whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// Of a request: the replies that it will get. Of a reply: the one that it is; none if it answers nobody.
    pub(super) tickets: Vec<Ticket>,
}

impl Frames {
    pub(super) fn new(protocol: Protocol, speaker: Speaker) -> Self {
        Self { protocol, speaker, buffer: Vec::new(), passed: 0 }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it is there.
    pub(super) fn next(&mut self) -> Option<Frame> {
        let length = match self.length() {
            Ok(length) => length?,
            Err(Garbled) => {
                self.protocol = Protocol::Opaque;
                self.buffer.len()
            }
        };
        let rest = self.buffer.split_off(length);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        let tickets = if bytes.is_empty() { return None } else { self.tickets(&bytes) };
        self.passed += 1;
        Some(Frame { bytes, tickets })
    }

    /// Returns what is left when the connection ends: a frame that was never finished.
    pub(super) fn rest(&mut self) -> Option<Frame> {
        let bytes = std::mem::take(&mut self.buffer);
        (!bytes.is_empty()).then_some(Frame { bytes, tickets: Vec::new() })
    }

    fn length(&self) -> Result<Option<usize>, Garbled> {
        match (self.protocol, self.speaker) {
            (Protocol::Resp, _) => resp::length(&self.buffer),
            (Protocol::ZooKeeper, _) => jute::length(&self.buffer),
            (Protocol::Memcached, Speaker::Client) => memcached::request_length(&self.buffer),
            (Protocol::Memcached, Speaker::Server) => memcached::reply_length(&self.buffer),
            (Protocol::Opaque, _) => Ok((!self.buffer.is_empty()).then_some(self.buffer.len())),
        }
    }

    fn tickets(&self, frame: &[u8]) -> Vec<Ticket> {
        match (self.protocol, self.speaker) {
            (Protocol::Resp, Speaker::Client) => vec![Ticket::InTurn; resp::replies_to(frame)],
            (Protocol::Resp, Speaker::Server) => vec![Ticket::InTurn; resp::is_reply(frame).into()],
            (Protocol::ZooKeeper, speaker) => jute::ticket(frame, speaker, self.passed == 0).into_iter().collect(),
            (Protocol::Memcached, Speaker::Client) => vec![Ticket::InTurn; memcached::has_reply(frame).into()],
            (Protocol::Memcached, Speaker::Server) => vec![Ticket::InTurn],
            (Protocol::Opaque, _) => Vec::new(),
        }
    }
}

impl Protocol {
    /// Returns the server's refusal of this request with these words; `None` if it could not refuse.
    pub(super) fn refusal(self, request: &Frame, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Resp => Some(format!("-{text}\r\n").into_bytes()),
            Self::Memcached => Some(format!("{text}\r\n").into_bytes()),
            Self::ZooKeeper => jute::refusal(&request.bytes, text),
            Self::Opaque => None,
        }
    }
}

/// Returns the end of the line that begins here: behind its `\r\n`.
fn line_end(buffer: &[u8], from: usize) -> Option<usize> {
    let line = buffer.get(from..)?;
    line.windows(2).position(|pair| pair == b"\r\n").map(|at| from + at + 2)
}

/// A length in decimal digits.
fn decimal(text: &[u8]) -> Result<usize, Garbled> {
    let length = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    length.filter(|length| *length <= MOST).ok_or(Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes arrive, these frames come out, with so many tickets each.
    #[track_caller]
    fn are_cut(protocol: Protocol, speaker: Speaker, frames: &[(&[u8], usize)]) {
        let all: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
        for chunk in [1, 2, 7, all.len()] {
            let mut splitter = Frames::new(protocol, speaker);
            let mut cut = Vec::new();
            for bytes in all.chunks(chunk) {
                splitter.feed(bytes);
                cut.extend(std::iter::from_fn(|| splitter.next()));
            }
            let cut: Vec<_> = cut.iter().map(|frame| (&*frame.bytes, frame.tickets.len())).collect();
            assert_eq!(cut, frames, "in chunks of {chunk}");
            assert_eq!(splitter.rest(), None);
        }
    }

    /// All bytes pass, whatever they are and however they arrive, cut in the same places.
    #[test]
    fn no_bytes_are_lost_whatever_comes() {
        let samples: &[&[u8]] = &[
            b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
            b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n",
            b"|1\r\n+a\r\n:1\r\n>2\r\n$10\r\ninvalidate\r\n*0\r\n",
            b"%1\r\n+a\r\n$-1\r\n-ERR\r\n",
            b"set k 0 0 4\r\nabcd\r\nms k S2 q\r\nab\r\nmn\r\n",
            b"VALUE a 0 5 17\r\nEND\r\n\r\nEND\r\nVA 5 c7\r\nabcde\r\nHD\r\n",
            b"\0\0\0\x09\0\0\0\x03\0\0\0\x01\x07\0\0\0\x05\xff\xff\xff\xff\x01",
        ];
        let cut = |protocol, speaker, input: &[u8], chunk| {
            let mut frames = Frames::new(protocol, speaker);
            let mut cut = Vec::new();
            for bytes in input.chunks(chunk) {
                frames.feed(bytes);
                cut.extend(std::iter::from_fn(|| frames.next()).map(|frame| frame.bytes));
            }
            let is_opaque = frames.protocol == Protocol::Opaque;
            cut.extend(frames.rest().map(|frame| frame.bytes));
            (cut, is_opaque)
        };
        lock_testkit::fuzz::bytes("frames of a link", samples, |input| {
            for protocol in [Protocol::Resp, Protocol::ZooKeeper, Protocol::Memcached] {
                for speaker in [Speaker::Client, Speaker::Server] {
                    let (whole, is_opaque) = cut(protocol, speaker, input, input.len().max(1));
                    let (parts, _) = cut(protocol, speaker, input, 3);
                    assert_eq!(whole.concat(), input);
                    assert_eq!(parts.concat(), input);
                    // What is no frame passes as it comes.
                    assert!(is_opaque || whole == parts, "{protocol:?} {speaker:?}");
                }
            }
        });
    }

    #[test]
    fn redis_requests_and_replies_are_cut_and_counted() {
        are_cut(
            Protocol::Resp,
            Speaker::Client,
            &[
                (b"*1\r\n$4\r\nPING\r\n", 1),
                (b"*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n", 2),
                (b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\n", 1),
                (b"PING\r\n", 1),
            ],
        );
        are_cut(
            Protocol::Resp,
            Speaker::Server,
            &[
                (b"+OK\r\n", 1),
                (b"$-1\r\n", 1),
                (b"*2\r\n:1\r\n*2\r\n$2\r\n\r\n\r\n-no\r\n", 1),
                (b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n", 0),
                (b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", 1),
                (b">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n", 1),
                (b">2\r\n$10\r\ninvalidate\r\n*0\r\n", 0),
                (b"%1\r\n+a\r\n:1\r\n", 1),
            ],
        );
    }

    #[test]
    fn zookeeper_frames_are_cut_and_news_answer_nobody() {
        let greeting: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0, 9];
        let request: &[u8] = &[0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 1, 7];
        let news: &[u8] = &[0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 1];
        are_cut(Protocol::ZooKeeper, Speaker::Client, &[(greeting, 1), (request, 1)]);
        are_cut(Protocol::ZooKeeper, Speaker::Server, &[(greeting, 1), (news, 0), (request, 1)]);
    }

    #[test]
    fn memcached_requests_and_replies_are_cut_and_counted() {
        are_cut(
            Protocol::Memcached,
            Speaker::Client,
            &[
                (b"set k 0 0 4\r\n\r\n\r\n\r\n", 1),
                (b"cas k 0 0 2 17 noreply\r\nab\r\n", 0),
                (b"ms k 2 T90\r\nab\r\n", 1),
                (b"ms k S2 q\r\nab\r\n", 0),
                (b"mg k v q\r\n", 0),
                (b"mn\r\n", 1),
                (b"get a b\r\n", 1),
                (b"quit\r\n", 0),
            ],
        );
        are_cut(
            Protocol::Memcached,
            Speaker::Server,
            &[
                (b"STORED\r\n", 1),
                (b"VA 5 c7\r\nEND\r\n\r\n", 1),
                (b"VALUE a 0 5\r\nEND\r\n\r\nVALUE b 0 1 17\r\nx\r\nEND\r\n", 1),
                (b"STAT a 1\r\nSTAT b 2\r\nEND\r\n", 1),
                (b"HD c5\r\n", 1),
                (b"END\r\n", 1),
            ],
        );
    }

    #[test]
    fn what_is_no_frame_passes_as_it_comes() {
        let mut frames = Frames::new(Protocol::ZooKeeper, Speaker::Client);
        frames.feed(b"ruok");
        assert_eq!(frames.next(), Some(Frame { bytes: b"ruok".to_vec(), tickets: Vec::new() }));
        let mut frames = Frames::new(Protocol::Resp, Speaker::Server);
        frames.feed(b"*x\r\n+OK\r\n");
        assert_eq!(frames.next().map(|frame| frame.bytes), Some(b"*x\r\n+OK\r\n".to_vec()));
    }

    #[test]
    fn a_frame_that_was_never_finished_is_what_is_left() {
        let mut frames = Frames::new(Protocol::Resp, Speaker::Client);
        frames.feed(b"+OK\r\n$5\r\nab");
        assert!(frames.next().is_some() && frames.next().is_none());
        assert_eq!(frames.rest().map(|frame| frame.bytes), Some(b"$5\r\nab".to_vec()));
    }

    #[test]
    fn a_refusal_is_one_of_the_protocol() {
        let request = Frame { bytes: vec![0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 1], tickets: vec![Ticket::Number(3)] };
        assert_eq!(Protocol::Resp.refusal(&request, "LOADING wait"), Some(b"-LOADING wait\r\n".to_vec()));
        assert_eq!(Protocol::Memcached.refusal(&request, "ERROR"), Some(b"ERROR\r\n".to_vec()));
        let refusal = Protocol::ZooKeeper.refusal(&request, "-4").unwrap();
        assert_eq!(refusal[..8], [0, 0, 0, 16, 0, 0, 0, 3]);
        assert_eq!(refusal[16..], [0xff, 0xff, 0xff, 0xfc]);
        assert_eq!(Protocol::ZooKeeper.refusal(&request, "no"), None);
    }
}
