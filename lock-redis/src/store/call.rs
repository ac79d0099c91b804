//! Calls: one run of a script each, with the texts that it carries. Those in the short ways may go together.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Kind};
use lock_core::{Error, FencingToken, Owner, Phase};
use redis::Cmd;

use super::scripts::{self, Script};

/// The bytes and parts that a run seldom exceeds.
const USUAL_BYTES: usize = 256;
const USUAL_PARTS: usize = 8;

/// The keys and arguments of one run of a script, in one text: there are tens of thousands of them a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    text: String,
    ends: PartEnds,
    /// The number of parts that are keys. They come first.
    keys: usize,
}

impl Call {
    /// A run with these keys. At least the lock's, which is the first.
    pub(crate) fn of(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut call = Self { text: String::with_capacity(USUAL_BYTES), ends: PartEnds::default(), keys: 0 };
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
    pub(crate) fn key(&self) -> &str {
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
        let begin = move |i: usize| if i == 0 { 0 } else { self.ends.at(i - 1) };
        these.map(move |i| &self.text[begin(i)..self.ends.at(i)])
    }
}

/// The end of each part of a text. The usual number of them needs no allocation.
#[derive(Debug, Clone, Default)]
struct PartEnds {
    len: usize,
    usual: [usize; USUAL_PARTS],
    more: Vec<usize>,
}

impl PartEnds {
    fn push(&mut self, end: usize) {
        match self.usual.get_mut(self.len) {
            Some(usual) => *usual = end,
            None => self.more.push(end),
        }
        self.len += 1;
    }

    const fn len(&self) -> usize {
        self.len
    }

    /// The end of the part of this number, which there must be.
    fn at(&self, part: usize) -> usize {
        self.usual.get(part).copied().unwrap_or_else(|| self.more[part - USUAL_PARTS])
    }
}

/// One run of a script, of keys and arguments that are elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) script: &'a Script,
    pub(crate) keys: &'a [Cow<'a, str>],
    pub(crate) args: &'a [&'a [u8]],
    /// The text that its first key has, if all that it does is to delete that: a server that compares it needs no script.
    pub(crate) held: Option<&'a MutexText<'a>>,
}

impl<'a> Request<'a> {
    /// A run of this script.
    pub(crate) const fn new(script: &'a Script, keys: &'a [Cow<'a, str>], args: &'a [&'a [u8]]) -> Self {
        Self { script, keys, args, held: None }
    }

    /// The command by which a server runs it that knows the script.
    pub(crate) fn by_digest(&self) -> Cmd {
        self.evaluation("EVALSHA", &self.script.digest)
    }

    /// The command that tells the server the script, and runs it.
    pub(crate) fn by_text(&self) -> Cmd {
        self.evaluation("EVAL", self.script.code)
    }

    fn evaluation(&self, command: &'static str, script: &str) -> Cmd {
        let Self { keys, args, .. } = self;
        let bytes = keys.iter().map(|key| key.len()).chain(args.iter().map(|arg| arg.len())).sum::<usize>();
        let mut eval = Cmd::with_capacity(3 + keys.len() + args.len(), command.len() + script.len() + 2 + bytes);
        eval.arg(command).arg(script).arg(keys.len());
        for key in *keys {
            eval.arg(key.as_bytes());
        }
        for arg in *args {
            eval.arg(*arg);
        }
        eval
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

impl ShortWay {
    /// The number of them.
    pub(crate) const ALL: usize = 4;

    /// The phase of a request.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::Acquire | Self::AcquireHolder => Phase::Acquire,
            Self::Release | Self::ReleaseHolder => Phase::Release,
        }
    }

    /// The most requests that go together: a run of their script takes less than 5 ms on a slow machine, too.
    pub(crate) const fn most(self) -> usize {
        match self {
            Self::AcquireHolder => 64,
            Self::Acquire | Self::Release | Self::ReleaseHolder => 128,
        }
    }

    /// Whether the last key of each request is the counter of tokens, which all of a batch share.
    pub(crate) const fn counts_tokens(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireHolder)
    }

    /// The script of a batch.
    pub(crate) fn in_batch(self) -> &'static Script {
        match self {
            Self::Acquire => &scripts::ACQUIRE_BATCH,
            Self::Release => &scripts::RELEASE_BATCH,
            Self::AcquireHolder => &scripts::ACQUIRE_HOLDERS_BATCH,
            Self::ReleaseHolder => &scripts::RELEASE_HOLDERS_BATCH,
        }
    }
}

/// The text that the key of a held mutex has as long as nobody waits,
/// `<nonce>:<client>:<owner JSON>:<token>`, as `scripts/mutex/one.lua` has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MutexText<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) client: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) token: FencingToken,
}

impl<'a> MutexText<'a> {
    /// The parts before the token, which the server gives.
    pub(crate) const fn beginning(nonce: &'a str, client: &'a str, owner: &'a str) -> [&'a str; 6] {
        [nonce, ":", client, ":", owner, ":"]
    }
}

impl fmt::Display for MutexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::beginning(self.nonce, self.client, self.owner).iter().try_for_each(|part| f.write_str(part))?;
        self.token.fmt(f)
    }
}

/// The text of an owner, as it is written beside a nonce. That of the last one is kept: most often it is the client's own. An owner's label
/// may change.
#[derive(Debug, Default)]
pub(crate) struct OwnerText(RwLock<Option<(Owner, Arc<str>)>>);

impl OwnerText {
    /// The text of this owner.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn of(&self, owner: &Owner) -> Result<Arc<str>, Error> {
        if let Some((last, text)) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && last.id() == owner.id()
            && last.label() == owner.label()
        {
            return Ok(text.clone());
        }
        let text: Arc<str> = serde_json::to_string(owner)
            .map_err(|e| Error::invalid(Phase::Acquire, "the owner cannot be written").with_source(e))?
            .into();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((owner.clone(), text.clone()));
        Ok(text)
    }
}

/// The request of an attempt, as the scripts write it.
pub(crate) fn mode(attempt: &Attempt) -> String {
    match attempt.kind {
        Kind::Read => "R".to_owned(),
        Kind::Write => "W".to_owned(),
        Kind::Reentrant => format!("O{}", attempt.owner.id()),
        Kind::Permits { permits, limit } => permits_mode(permits, limit),
        // A mutex has one holder, and no mode.
        _ => String::new(),
    }
}

/// The mode of a semaphore's grant.
pub(crate) fn permits_mode(permits: u32, limit: u32) -> String {
    format!("P{permits}/{limit}")
}

/// Returns whole milliseconds, as Redis wants them. The rest of a TTL is less than the granularity that every lease has
/// subtracted.
pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// [`whole_milliseconds`] as text.
pub(crate) fn milliseconds(duration: Duration) -> String {
    whole_milliseconds(duration).to_string()
}

/// Returns whole milliseconds as text, rounded up: for a time that must not be shorter.
pub(crate) fn milliseconds_at_least(duration: Duration) -> String {
    milliseconds(duration.saturating_add(Duration::from_nanos(999_999)))
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
    fn however_many_parts_there_are_they_come_back() {
        let numbers: Vec<_> = (0..3 * USUAL_PARTS).map(|number| number.to_string()).collect();
        for keys in [1, USUAL_PARTS - 1, USUAL_PARTS, USUAL_PARTS + 1, numbers.len()] {
            let call = Call::of(&numbers[..keys]).with(&numbers[keys..]);
            assert_eq!(call.keys().chain(call.args()).collect::<Vec<_>>(), numbers, "{keys} keys");
            assert_eq!((call.keys().len(), call.key()), (keys, "0"));
        }
    }

    #[test]
    fn the_text_of_an_owner_has_its_present_label() {
        let (texts, owner) = (OwnerText::default(), Owner::new());
        for label in ["step 1", "step 2"] {
            let owner = owner.clone().with_label(label);
            let text = texts.of(&owner).unwrap();
            assert_eq!(serde_json::from_str::<Owner>(&text).unwrap().label(), Some(label));
            assert!(Arc::ptr_eq(&text, &texts.of(&owner).unwrap()), "it is kept");
        }
        assert_eq!(serde_json::from_str::<Owner>(&texts.of(&owner).unwrap()).unwrap().label(), None);
    }
}
