//! Commands in the server's words, and the lines of its replies.
//!
//! Wire format: <https://github.com/memcached/memcached/blob/master/doc/protocol.txt>, "Meta Commands". Written and read without memory of
//! its own: the same words as the client crate's, which tests compare. That crate has no word for a store that keeps what it finds.

use std::io;

use memcache::exp::{Error, MetaResponse, ReturnCode};

use super::cas::OwnItem;
use super::protocol::{Command, Reply};
use crate::error::Failure;
use crate::store::values::number;

/// No item has this CAS number.
const NONE: u64 = i64::MAX.unsigned_abs();

/// The digits of the largest number.
const MOST_DIGITS: usize = 20;

/// The longest key.
const LONGEST_KEY: usize = 250;

/// The longest value that is read: what other libraries keep under a shared key may be as long as the server takes it.
const LONGEST_VALUE: usize = 64 << 20;

/// Appends a command in the server's words, with a mark that its reply has too.
///
/// # Errors
/// If the server knows no such key. Then nothing is appended.
pub(crate) fn write(command: &Command, mark: u64, to: &mut Vec<u8>) -> Result<(), Error> {
    let key = command.key().as_bytes();
    if !is_key(key) {
        return Err(Error::Usage("a key is 1 to 250 bytes without blanks and control characters"));
    }
    let mut line = Line(to);
    match command {
        Command::Claim { value, seconds, .. } => {
            line.begin(b"ma", key).word(b" c").number(b" D", 0).number(b" N", u64::from(*seconds));
            line.number(b" J", *value).number(b" C", NONE)
        }
        Command::Renew { own, seconds, .. } => line.add(key, *own, 0, *seconds),
        Command::HandOver { own, to, seconds, .. } => {
            line.add(key, *own, to.number().wrapping_sub(own.value), *seconds)
        }
        Command::AddOne { own, ends_at, .. } => line.add(key, *own, 1, *ends_at),
        Command::Release { own, .. } => line.begin(b"md", key).number(b" C", own.seen.cas),
        Command::Read { .. } => line.begin(b"mg", key).word(b" v c t"),
        Command::Look { .. } => line.begin(b"mg", key).word(b" c t"),
        Command::Keep { seconds, .. } => line.begin(b"mg", key).word(b" v c t").number(b" T", u64::from(*seconds)),
        Command::Note { text, seconds, .. } => {
            line.begin(b"ms", key).number(b" ", text.len() as u64).number(b" T", u64::from(*seconds))
        }
        Command::Store { bytes, seen, seconds, .. } => {
            line.begin(if seen.is_some() { b"cas" } else { b"add" }, key);
            line.number(b" ", 0).number(b" ", u64::from(*seconds)).number(b" ", bytes.len() as u64);
            match seen {
                Some(seen) => line.number(b" ", *seen),
                None => &mut line,
            }
        }
        Command::Forget { .. } => line.begin(b"md", key),
    };
    if !matches!(command, Command::Store { .. }) {
        line.number(b" O", mark);
    }
    line.word(b"\r\n");
    match command {
        Command::Note { text, .. } => line.word(text.as_bytes()).word(b"\r\n"),
        Command::Store { bytes, .. } => line.word(bytes).word(b"\r\n"),
        _ => &mut line,
    };
    Ok(())
}

/// Whether the server knows such a key.
pub(super) fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= LONGEST_KEY && !key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
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

/// The reply that a line without its end is.
///
/// # Errors
/// If it makes no sense: nothing that follows on the connection can be told apart any more.
pub(crate) fn read(line: &[u8]) -> io::Result<Reply> {
    match line {
        b"STORED" => return Ok(Reply::Stored(ReturnCode::Hd)),
        b"NOT_STORED" => return Ok(Reply::Stored(ReturnCode::Ns)),
        b"EXISTS" => return Ok(Reply::Stored(ReturnCode::Ex)),
        b"NOT_FOUND" => return Ok(Reply::Stored(ReturnCode::Nf)),
        _ => {}
    }
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let Some(code) = words.next().and_then(|word| ReturnCode::from_wire(word).ok()) else {
        let refusal = MetaResponse::parse_header(line).err().ok_or_else(senseless)?;
        return Failure::refused(refusal).map(Reply::Refusal);
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
    Ok(Reply::Answer { code, cas, left, mark, value })
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
mod tests {
    use lock_testkit::fuzz;
    use memcache::exp::{
        ArithmeticOptions, DeleteOptions, GetOptions, MetaCommand, SetOptions, build_arithmetic, build_delete,
        build_get, build_set, parse_meta_result,
    };

    use super::super::cas::CasNumber;
    use super::super::protocol::CommandAnswer;
    use super::*;
    use crate::store::values::Nonce;

    /// A command in the client crate's words.
    fn of_the_crate(command: &Command) -> Result<MetaCommand, Error> {
        let key = command.key().as_bytes();
        let get = |value, touch| {
            let mut options = GetOptions::default();
            (options.value, options.return_cas, options.return_ttl, options.touch) = (value, true, true, touch);
            build_get(key, &options)
        };
        let change = |own: &OwnItem, delta, seconds| {
            let mut options = ArithmeticOptions::default();
            (options.return_value, options.return_cas, options.compare_cas) = (true, true, Some(own.seen.cas));
            (options.delta, options.ttl) = (Some(delta), Some(seconds));
            build_arithmetic(key, &options)
        };
        match command {
            Command::Claim { value, seconds, .. } => {
                let mut options = ArithmeticOptions::default();
                (options.return_value, options.return_cas, options.compare_cas) = (false, true, Some(NONE));
                (options.delta, options.initial, options.initial_ttl) = (Some(0), Some(*value), Some(*seconds));
                build_arithmetic(key, &options)
            }
            Command::Renew { own, seconds, .. } => change(own, 0, *seconds),
            Command::HandOver { own, to, seconds, .. } => change(own, to.number().wrapping_sub(own.value), *seconds),
            Command::AddOne { own, ends_at, .. } => change(own, 1, *ends_at),
            Command::Release { own, .. } => {
                let mut options = DeleteOptions::default();
                options.compare_cas = Some(own.seen.cas);
                build_delete(key, &options)
            }
            Command::Read { .. } => get(true, None),
            Command::Look { .. } => get(false, None),
            Command::Keep { seconds, .. } => get(true, Some(*seconds)),
            Command::Note { text, seconds, .. } => {
                let mut options = SetOptions::default();
                options.ttl = Some(*seconds);
                build_set(key, text.as_bytes(), &options)
            }
            Command::Store { .. } => Err(Error::Usage("it has no word for this")),
            Command::Forget { .. } => build_delete(key, &DeleteOptions::default()),
        }
    }

    #[test]
    fn commands_are_in_the_words_of_the_client_crate() {
        fuzz::with_rng("commands", |rng| {
            let key = || "a%3Ab:mutex:ü".into();
            let (value, cas) = (rng.next_u64() >> rng.below(64), rng.next_u64() >> rng.below(64));
            let (seconds, mark) = (rng.below(1 << 32) as u32, rng.next_u64() >> rng.below(64));
            let (own, to) = (OwnItem { value, seen: CasNumber::of_a_test(cas) }, Nonce::of_a_test(rng.next_u64()));
            let text = format!("{{\"since\":{value}}}\r\n");
            let commands = [
                Command::Claim { key: key(), value, seconds },
                Command::Renew { key: key(), own, seconds },
                Command::HandOver { key: key(), own, to, seconds },
                Command::AddOne { key: key(), own, ends_at: seconds },
                Command::Release { key: key(), own },
                Command::Read { key: key() },
                Command::Look { key: key() },
                Command::Keep { key: key(), seconds },
                Command::Note { key: key(), text, seconds },
                Command::Forget { key: key() },
            ];
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for command in &commands {
                write(command, mark, &mut ours).unwrap();
                of_the_crate(command).unwrap().flag(format!("O{mark}")).encode_into(&mut theirs).unwrap();
            }
            assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
        });
    }

    #[test]
    fn a_store_is_in_the_older_words() {
        let store = |seen| {
            let mut written = Vec::new();
            let command = Command::Store { key: "k".into(), bytes: b"a\r\nb".to_vec(), seen, seconds: 60 };
            write(&command, 7, &mut written).unwrap();
            (command, String::from_utf8(written).unwrap())
        };
        let ((command, changed), (_, made)) = (store(Some(9)), store(None));
        assert_eq!((&*changed, &*made), ("cas k 0 60 4 9\r\na\r\nb\r\n", "add k 0 60 4\r\na\r\nb\r\n"));
        let means = |line: &[u8]| {
            let reply = read(line).unwrap();
            assert!(reply.is_to(&command, 7) && !reply.is_to(&Command::Look { key: "k".into() }, 7));
            reply.means(&command, Vec::new(), CasNumber::of_a_test)
        };
        assert!(matches!(means(b"STORED"), CommandAnswer::Done(_)));
        assert!(matches!(means(b"NOT_STORED"), CommandAnswer::Other));
        assert!(matches!(means(b"EXISTS"), CommandAnswer::Other));
        assert!(matches!(means(b"NOT_FOUND"), CommandAnswer::Missing));
        assert!(!read(b"HD O8").unwrap().is_to(&command, 7));
    }

    #[test]
    fn a_key_that_the_server_does_not_know_is_not_written() {
        let long = "x".repeat(251);
        for key in ["", "a b", "a\r\nflush_all", "a\u{7f}", "a\0", &long] {
            let mut written = Vec::new();
            assert!(write(&Command::Look { key: key.into() }, 1, &mut written).is_err(), "{key:?}");
            assert_eq!(written, b"");
        }
    }

    #[test]
    fn replies_mean_what_they_mean_to_the_client_crate() {
        let samples: [&[u8]; 6] = [
            b"HD c123 O7",
            b"VA 19 c9223372036854775807 t-1 O7 s19",
            b"EN O7",
            b"CLIENT_ERROR cannot increment or decrement non-numeric value",
            b"SERVER_ERROR out of memory storing object",
            b"ERROR",
        ];
        fuzz::bytes("replies in the words of the client crate", &samples, |line| {
            let theirs = MetaResponse::parse_header(line);
            match (read(line), theirs) {
                (Ok(Reply::Answer { code, cas, left, mark, value }), Ok(theirs)) => {
                    assert_eq!(code, theirs.rc());
                    let theirs = parse_meta_result(theirs);
                    // Theirs reads more fields, and refuses more of them.
                    let Ok(theirs) = theirs else { return };
                    assert_eq!((cas, left), (theirs.cas, theirs.ttl));
                    let opaque = theirs.opaque.map(|opaque| String::from_utf8_lossy(&opaque).into_owned());
                    assert!(mark.is_none() || mark.map(|mark| mark.to_string()) == opaque);
                    assert!(value.is_none_or(|_| code == ReturnCode::Va));
                }
                (Ok(Reply::Refusal(_)), theirs) => {
                    assert!(matches!(theirs, Err(Error::Server(_) | Error::Rejected(_))));
                }
                (Ok(Reply::Stored(_)), _) => {}
                (Ok(answer), Err(theirs)) => panic!("{answer:?}, {theirs}"),
                // Ours is stricter: numbers are as the server writes them.
                (Err(_), _) => {}
            }
        });
    }
}
