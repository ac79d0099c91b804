//! The keys of a lock, and the form in which it is kept there.
//!
//! | key | content |
//! |---|---|
//! | `<prefix>:<kind>:{<name>}` | the lock; the kind is `mutex`, `reentrant`, `rwlock` or `semaphore` |
//! | the same + `:q`, `:w`, `:x` | queue, waiters, reason of a forced release |
//! | the same + `:r` | the record beside a mutex |
//! | `<prefix>:tokens` | the last token of all locks; in a cluster `<prefix>:tokens:{<number>}`, one for each slot |
//! | `<prefix>:client:<id>` | the push channel of one client |
//!
//! In a name, `%`, `{` and `}` are written as `%25`, `%7B`, `%7D`, so that the braces around it are the key's hash tag and
//! all keys of one lock share a slot. A key shared with foreign clients is used as it is; its side keys are
//! `<prefix>:key:{<tag>}:<key>` with the same endings, where the tag is the part of the key that Redis hashes. A key that is
//! one of those above cannot be shared.

use std::borrow::Cow;
use std::sync::Arc;

use lock_core::driver::Kind;
use lock_core::{Error, LockName, Phase};

use super::dialect::{Dialect, Dialects};
use super::redisson;
use super::scripts::{self, Script, Scripts};
use super::slot::{find_numbers, number_of, slot};

/// The part between the prefix and the name in the keys of this client's own locks, and in the side keys of shared ones.
const SPACES: [&str; 5] = ["mutex", "reentrant", "rwlock", "semaphore", "key"];

/// The keys of all locks of one client.
#[derive(Debug, Clone)]
pub(crate) struct KeySpace {
    prefix: String,
    dialects: Dialects,
    tokens: TokenCounters,
}

impl KeySpace {
    /// Keys under this prefix, on one server that has all of them, and shared ones in these dialects.
    pub(crate) fn new(prefix: String, dialects: Dialects) -> Self {
        let tokens = TokenCounters::one(&prefix);
        Self { prefix, dialects, tokens }
    }

    /// The keys, with one counter of tokens for each slot of a cluster.
    pub(crate) fn over_slots(self) -> Self {
        Self { tokens: self.tokens.by_slot(), ..self }
    }

    /// The keys of a lock that somebody asks for.
    ///
    /// # Errors
    /// If it is to be kept at a key that clients with this prefix use for something else.
    pub(crate) fn checked(&self, name: &LockName, kind: Kind) -> Result<Keys, Error> {
        if name.is_key()
            && let Some(reserved) = self.reserved(name.as_str())
        {
            let key = name.as_str();
            let what = format!("the key {key:?} cannot be shared: this client keeps its own data at {reserved}");
            return Err(Error::invalid(Phase::Configure, what).with_name(name));
        }
        Ok(self.of(name, kind))
    }

    /// The keys that clients with this prefix keep for themselves and among which this one would be, if so.
    fn reserved(&self, key: &str) -> Option<String> {
        let Self { prefix, .. } = self;
        let rest = key.strip_prefix(&**prefix)?.strip_prefix(':')?;
        if let Some(rest) = rest.strip_prefix("tokens")
            && (rest.is_empty() || rest.starts_with(":{"))
        {
            return Some(format!("{prefix}:tokens and keys that begin with {prefix}:tokens:{{"));
        }
        let has_space = |space: &&&str| rest.strip_prefix(**space).is_some_and(|rest| rest.starts_with(":{"));
        SPACES.iter().find(has_space).map(|space| format!("keys that begin with {prefix}:{space}:{{"))
    }

    /// The keys of a lock that was asked for before.
    pub(crate) fn of(&self, name: &LockName, kind: Kind) -> Keys {
        let (prefix, tokens) = (&*self.prefix, self.tokens.clone());
        let form = self.form(name, kind);
        if name.is_key() {
            let side = format!("{prefix}:key:{{{}}}:{}", hash_tag(name.as_str()), escaped(name.as_str()));
            let lock = name.as_str().to_owned();
            return Keys { lock, side: Some(side), shared: kind == Kind::Mutex, form, tokens };
        }
        let (space, name) = (kind.space(), escaped(name.as_str()));
        let mut lock = String::with_capacity(prefix.len() + space.len() + name.len() + 4);
        [prefix, ":", space, ":{", &name, "}"].iter().for_each(|part| lock.push_str(part));
        Keys { lock, side: None, shared: false, form, tokens }
    }

    /// The keys of the mutex that has this key; `None` if no name has it.
    pub(crate) fn of_mutex(&self, lock: &str) -> Option<Keys> {
        if lock.strip_prefix(&*self.prefix).is_some_and(|rest| rest.starts_with(":mutex:{") && rest.ends_with('}')) {
            let (lock, tokens) = (lock.to_owned(), self.tokens.clone());
            return Some(Keys { lock, side: None, shared: false, form: Form::Text, tokens });
        }
        let keys = self.of(&LockName::from_key(lock).ok()?, Kind::Mutex);
        Some(Keys { form: Form::Text, ..keys })
    }

    /// The form in which a lock is kept.
    pub(crate) fn form(&self, name: &LockName, kind: Kind) -> Form {
        Form::of(name, kind, &self.dialects)
    }

    /// The prefix of every client's push channel.
    pub(crate) fn channels(&self) -> String {
        format!("{}:client:", self.prefix)
    }
}

/// The keys of one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) lock: String,
    /// The beginning of the side keys, if that is not the lock's key.
    side: Option<String>,
    /// Whether foreign clients use the lock's key too.
    pub(crate) shared: bool,
    pub(crate) form: Form,
    tokens: TokenCounters,
}

impl Keys {
    /// The scripts for this lock.
    pub(crate) fn scripts(&self) -> &'static Scripts {
        self.form.scripts()
    }

    /// The argument of scripts that says whether foreign clients use the lock's key too.
    pub(crate) fn shared_arg(&self) -> &'static [u8] {
        if self.shared { b"1" } else { b"" }
    }

    /// Lock, queue, waiters, tokens, forced: the order of every script that begins with `base.lua`.
    pub(crate) fn all(&self) -> [Cow<'_, str>; 5] {
        [Cow::Borrowed(&*self.lock), self.side(":q"), self.side(":w"), self.tokens(), self.side(":x")]
    }

    /// Lock and waiters: what the usual sign of life needs.
    pub(crate) fn to_heartbeat(&self) -> [Cow<'_, str>; 2] {
        [Cow::Borrowed(&*self.lock), self.side(":w")]
    }

    /// The lock alone, for scripts that leave or adopt it.
    pub(crate) fn lock_only(&self) -> [Cow<'_, str>; 1] {
        [Cow::Borrowed(&*self.lock)]
    }

    /// The counter of the lock's tokens.
    pub(crate) fn tokens(&self) -> Cow<'_, str> {
        self.tokens.of(&self.lock)
    }

    /// The record, to be read.
    pub(crate) fn to_read_record(&self) -> [Cow<'_, str>; 1] {
        [self.side(":r")]
    }

    /// Lock and record: what writing the record needs.
    pub(crate) fn to_write_record(&self) -> [Cow<'_, str>; 2] {
        [Cow::Borrowed(&*self.lock), self.side(":r")]
    }

    /// The reason of a forced release, which renewals look at when the lock is gone.
    pub(crate) fn forced(&self) -> Cow<'_, str> {
        self.side(":x")
    }

    /// The waiters for this lock.
    pub(crate) fn waiters(&self) -> Cow<'_, str> {
        self.side(":w")
    }

    /// The beginning of the side keys.
    pub(crate) fn beside(&self) -> &str {
        self.side.as_deref().unwrap_or(&self.lock)
    }

    fn side(&self, ending: &str) -> Cow<'_, str> {
        Cow::Owned([self.beside(), ending].concat())
    }
}

/// The form in which a lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// One holder, as a text: `scripts/mutex/text.lua`.
    Text,
    /// One holder, as Redisson does: `scripts/mutex/redisson.lua`.
    Redisson,
    /// Any number of them: `scripts/holders/many.lua`.
    Holders,
}

impl Form {
    fn of(name: &LockName, kind: Kind, dialects: &Dialects) -> Self {
        match dialects.get(name.as_str()) {
            _ if kind != Kind::Mutex => Self::Holders,
            Some(Dialect::Redisson) if name.is_key() => Self::Redisson,
            _ => Self::Text,
        }
    }

    pub(crate) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Text => &scripts::MUTEX,
            Self::Redisson => &redisson::REDISSON,
            Self::Holders => &scripts::HOLDERS,
        }
    }

    /// The script that has a lock end after a time, under another nonce, where there is one.
    pub(crate) fn leave(self) -> Option<&'static Script> {
        match self {
            Self::Text => Some(&scripts::LEAVE),
            Self::Redisson => Some(&redisson::LEAVE),
            Self::Holders => None,
        }
    }
}

/// The counters from which one client's grants have their fencing tokens: one for all locks of a server, or one for each slot of a
/// cluster. A clone has the same counters.
///
/// A counter holds the last token that it gave: never less than the server's clock in µs at that time, so that one that is lost
/// goes on above all that were given, unless the clock was set back too. Locks that share one leave nothing at the server once they
/// are free.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenCounters {
    key: Arc<str>,
    is_by_slot: bool,
}

impl TokenCounters {
    /// One counter, for a server that has all keys.
    fn one(prefix: &str) -> Self {
        Self { key: format!("{prefix}:tokens").into(), is_by_slot: false }
    }

    /// One for each slot: a script has keys of one slot only.
    fn by_slot(self) -> Self {
        // Now, and not while somebody asks for a lock.
        find_numbers();
        Self { is_by_slot: true, ..self }
    }

    /// The key of the counter of this lock's tokens.
    fn of(&self, lock: &str) -> Cow<'_, str> {
        if !self.is_by_slot {
            return Cow::Borrowed(&self.key);
        }
        Cow::Owned(format!("{}:{{{}}}", self.key, number_of(slot(lock.as_bytes()))))
    }
}

fn escaped(name: &str) -> Cow<'_, str> {
    if !name.bytes().any(|byte| matches!(byte, b'%' | b'{' | b'}')) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D"))
}

/// A hash tag with the slot of this key: what stands between the first `{` and the next `}`, if that is not empty;
/// otherwise the whole key. A whole key with a `}` in it cannot be a tag; the first number that has its slot serves then.
fn hash_tag(key: &str) -> Cow<'_, str> {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    match tag {
        Some(tag) if !tag.is_empty() => Cow::Borrowed(tag),
        _ if key.contains('}') => Cow::Owned(number_of(slot(key.as_bytes())).to_string()),
        _ => Cow::Borrowed(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> KeySpace {
        KeySpace::new("lock".to_owned(), Dialects::new())
    }

    #[test]
    fn the_braces_of_a_name_never_become_a_hash_tag() {
        let keys = space().of(&LockName::from("a{b}%c"), Kind::Mutex);
        assert_eq!(keys.lock, "lock:mutex:{a%7Bb%7D%25c}");
        assert_eq!(keys.all()[1], "lock:mutex:{a%7Bb%7D%25c}:q");
    }

    #[test]
    fn distinct_names_have_distinct_keys() {
        let names = ["a", "A", "a:q", "{a}", "%7Ba%7D", "a}:q", "{}", "}{"];
        let kinds = [Kind::Mutex, Kind::Reentrant, Kind::Write, Kind::Permits { permits: 1, limit: 1 }];
        let keys: Vec<_> =
            names.iter().flat_map(|name| kinds.map(|kind| space().of(&LockName::from(*name), kind))).collect();
        let keys: std::collections::HashSet<_> = keys.iter().flat_map(Keys::all).collect();
        assert_eq!(keys.len(), names.len() * kinds.len() * 4 + 1, "they share one counter only");
    }

    #[test]
    fn a_key_that_the_client_itself_uses_cannot_be_shared() {
        let kinds = [Kind::Mutex, Kind::Reentrant, Kind::Write, Kind::Permits { permits: 1, limit: 1 }];
        let at = |key: &str| space().checked(&LockName::from_key(key).unwrap(), Kind::Mutex);
        for name in [LockName::from("a"), LockName::from_key("jobs").unwrap(), LockName::from_key("odd}key").unwrap()] {
            for kind in kinds {
                let keys = space().checked(&name, kind).unwrap();
                for key in keys.all().iter().filter(|key| key.starts_with("lock:")) {
                    let error = at(key).unwrap_err();
                    assert_eq!(error.kind(), lock_core::ErrorKind::InvalidArgument);
                    assert!(error.to_string().contains(&**key), "{error}");
                }
            }
        }
        assert!(at("lock:tokens:{17}").is_err());
        for key in
            ["lock", "lock:mutex", "lock:mutexes:{a}", "clock:mutex:{a}", "lock:client:7", "lock:jobs", "lock:tokens:a"]
        {
            assert!(at(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn side_keys_of_a_shared_key_are_in_its_slot() {
        for (key, tag) in [("jobs", "{jobs}"), ("app:{jobs}:lock", "{jobs}"), ("a{}b", "{3991}"), ("odd}key", "{7386}")]
        {
            let keys = space().over_slots().of(&LockName::from_key(key).unwrap(), Kind::Mutex);
            assert_eq!(keys.lock, key);
            for side in &keys.all()[1..] {
                let begins = if *side == keys.tokens() { "lock:tokens:{" } else { &*format!("lock:key:{tag}:") };
                assert!(side.starts_with(begins), "{side}");
                assert_eq!(slot(side.as_bytes()), slot(key.as_bytes()), "{side}");
            }
        }
    }

    #[test]
    fn the_keys_of_a_name_from_outside_share_a_slot_and_are_nobody_else_s() {
        let samples = ["jobs", "app:{jobs}:lock", "a{}b", "odd}key", "lock:mutex:{a%7Bb%7D%25c}", "%25{%7D"];
        lock_testkit::fuzz::texts("names of locks", &samples, |text| {
            let space = space().over_slots();
            let own = LockName::new(text).ok().map(|name| space.of(&name, Kind::Mutex));
            let shared = LockName::from_key(text).ok().map(|name| space.of(&name, Kind::Mutex));
            for keys in own.iter().chain(&shared) {
                assert!(keys.all().iter().all(|key| slot(key.as_bytes()) == slot(keys.lock.as_bytes())), "{keys:?}");
            }
            if let Some(own) = own {
                let name = own.lock.strip_prefix("lock:mutex:{").and_then(|rest| rest.strip_suffix('}')).unwrap();
                assert!(!name.contains(['{', '}']), "{name}");
                assert_eq!(percent_encoding::percent_decode_str(name).decode_utf8().unwrap(), text);
                assert_eq!(space.of_mutex(&own.lock), Some(own));
            }
            if let Some(shared) = shared {
                assert_eq!((&*shared.lock, shared.shared), (text, true));
            }
        });
    }

    #[test]
    fn one_server_has_one_counter() {
        let counters = TokenCounters::one("lock");
        assert_eq!(counters.of("lock:mutex:{a}"), "lock:tokens");
        assert_eq!(counters.of("anything"), "lock:tokens");
    }

    #[test]
    fn each_slot_has_a_counter_in_that_slot() {
        let counters = TokenCounters::one("lock").by_slot();
        for lock in ["lock:mutex:{a}", "lock:rwlock:{a}", "lock:mutex:{b}", "app:{jobs}:lock", "odd}key", ""] {
            let counter = counters.of(lock).into_owned();
            assert!(counter.starts_with("lock:tokens:{") && counter.ends_with('}'), "{counter}");
            assert_eq!(slot(counter.as_bytes()), slot(lock.as_bytes()), "{counter}");
        }
        assert_eq!(counters.of("lock:mutex:{a}"), counters.of("lock:rwlock:{a}"));
        assert_ne!(counters.of("lock:mutex:{a}"), counters.of("lock:mutex:{b}"));
    }
}
