//! Items: the keys of locks, the numbers that tell whose those are, and times as the server counts them.
//!
//! | key | content |
//! |---|---|
//! | `<prefix>:mutex:<name>`, `<prefix>:reentrant:<name>` | the holder's number |
//! | `<prefix>:rwlock:<name>:w` | the writer's number, also of one that waits for readers to leave |
//! | `<prefix>:rwlock:<name>:<n>` | the number of one reader, `n` from 0 |
//! | `<prefix>:semaphore:<name>:<n>` | the number of the holder of one permit, `n` from 0 |
//! | `<prefix>:semaphore:<name>:limit` | the limit under which permits were taken |
//! | `<prefix>:record:<name>` | the record beside a mutex |
//! | `<prefix>:holder:<number>` | for `inspect`: who that is |
//! | `<prefix>:forced:<number>` | for a holder whose grant was released by force: by whom, and why |
//! | `<prefix>:readers` | how many readers a read-write lock has room for |
//! | `<prefix>:epoch` | the epoch, see there |
//!
//! In prefix and name, bytes up to the blank, DEL, `%`, `#` and (in the prefix) `:` are written as `%20` and so on. A key
//! that would have more than 200 bytes then has `#` and the name's SHA-256 in its place. A key that is shared with other
//! libraries is used as it is.
//!
//! The server counts in whole seconds, by a clock that ends items early.
//!
//! An item with a TTL of n seconds lives for more than n − 2 and at most n seconds: its second has begun when it is
//! stored, and about every 500 s the server's clock makes up for its drift with a step of two. After a pause of the server its
//! clock may be behind by 2.5 s more before it is noticed (see [`crate::epoch`]). So a lease is stored with [`MARGIN`],
//! which is more than both together, beyond its end: what ends first is always the holder's own deadline.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::driver::Kind;
use lock_core::{Error, ErrorKind, GrantId, LockName, Phase};
use sha2::{Digest, Sha256};

/// A key as the server knows it.
pub(crate) type Key = Arc<str>;

/// The server's limit for a key, in bytes.
const LONGEST: usize = 250;
/// The longest key of a lock, before the ending.
const LONGEST_STEM: usize = 200;

/// The part of an epoch's key that follows the prefix.
const EPOCH: &str = ":epoch";

/// The keys of one client.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    prefix: String,
    pub(crate) epoch: Key,
    pub(crate) readers: Key,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let mut escaped = String::new();
        escape(prefix, &[':'], &mut escaped);
        let prefix = escaped;
        Self { epoch: format!("{prefix}{EPOCH}").into(), readers: format!("{prefix}:readers").into(), prefix }
    }

    /// The prefix of its own keys, as it is in them.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of a lock, or what its keys begin with.
    pub(crate) fn lock(&self, name: &LockName, kind: Kind) -> Result<Key, Error> {
        if name.is_key() {
            return self.shared(name, kind);
        }
        Ok(self.named(kind.space(), name))
    }

    /// The key of the record beside a mutex.
    pub(crate) fn record(&self, name: &LockName) -> Key {
        self.named("record", name)
    }

    fn named(&self, space: &str, name: &LockName) -> Key {
        let mut key = String::with_capacity(LONGEST_STEM);
        key.extend([&self.prefix, ":", space, ":"]);
        let stem = key.len();
        escape(name.as_str(), &[], &mut key);
        if key.len() > LONGEST_STEM {
            key.truncate(stem);
            key.push('#');
            hash(name.as_str(), &mut key);
        }
        key.into()
    }

    /// A key that is shared with other libraries. Keys of our own prefix are refused: each of them is of one kind. Other prefixes are not
    /// known; only their epochs are refused: a lock's number in one could be read as an open epoch.
    fn shared(&self, name: &LockName, kind: Kind) -> Result<Key, Error> {
        let refused = |kind, what: String| Err(Error::new(kind, Phase::Configure, what).with_name(name));
        if kind != Kind::Mutex {
            let what = format!("a {} has several keys; with other libraries only a mutex can be shared", kind.space());
            return refused(ErrorKind::Unsupported, what);
        }
        let key = name.as_str();
        if key.len() > LONGEST || key.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            let what = format!("a key has at most {LONGEST} bytes, without blanks and control characters");
            return refused(ErrorKind::InvalidArgument, what);
        }
        if key.strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with(':')) {
            let what = format!("keys that begin with \"{}:\" are this client's own", self.prefix);
            return refused(ErrorKind::InvalidArgument, what);
        }
        if key.strip_suffix(EPOCH).is_some_and(|prefix| !prefix.is_empty() && !prefix.contains(':')) {
            let what = "a key of this form holds the epoch of the clients with such a prefix".to_owned();
            return refused(ErrorKind::InvalidArgument, what);
        }
        Ok(key.into())
    }

    /// The key of the record of who a number is.
    pub(crate) fn holder(&self, nonce: Nonce) -> Key {
        format!("{}:holder:{}", self.prefix, nonce.number()).into()
    }

    /// The key of the reason for which a number's grant was released by force.
    pub(crate) fn forced(&self, nonce: Nonce) -> Key {
        format!("{}:forced:{}", self.prefix, nonce.number()).into()
    }
}

/// A slot of a semaphore or of a read-write lock's readers.
pub(crate) fn slot(lock: &str, number: u32) -> Key {
    format!("{lock}:{number}").into()
}

/// The key of a read-write lock's writer.
pub(crate) fn writer(lock: &str) -> Key {
    format!("{lock}:w").into()
}

/// The name of the queue of a read-write lock's readers; no key of the server.
pub(crate) fn readers(lock: &str) -> Key {
    format!("{lock}:r").into()
}

/// The key of a semaphore's limit.
pub(crate) fn limit(lock: &str) -> Key {
    format!("{lock}:limit").into()
}

/// With `%` and two digits for what a key cannot have, and for what our own keys have a use for.
fn escape(text: &str, also: &[char], key: &mut String) {
    for c in text.chars() {
        if c <= ' ' || matches!(c, '\x7f' | '%' | '#') || also.contains(&c) {
            // Writing to a string does not fail.
            let _ = write!(key, "%{:02X}", u32::from(c));
        } else {
            key.push(c);
        }
    }
}

fn hash(name: &str, key: &mut String) {
    for byte in Sha256::digest(name) {
        // Writing to a string does not fail.
        let _ = write!(key, "{byte:02x}");
    }
}

/// All numbers have 19 digits, so that one can take another's place without new memory. None is 2⁶³ or more: in what follows
/// the item of such a number, 1.6.18 looks for a minus sign, and if it finds one there, it calls the item non-numeric.
const LOWEST: u64 = 1_000_000_000_000_000_000;
const MANY: u64 = 8_200_000_000_000_000_000;

/// The number of a grant: 62 of its id's random bits. An item also has a CAS number, which no two have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Nonce(u64);

impl Nonce {
    pub(crate) fn of(grant: GrantId) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&grant.as_bytes()[..8]);
        Self(LOWEST + u64::from_be_bytes(first) % MANY)
    }

    /// Out of an item's value; `None` for what another library has stored.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        // None of ours ever becomes shorter: none has blanks after it.
        let number = number(value).filter(|_| value.last() != Some(&b' '))?;
        (LOWEST..LOWEST + MANY).contains(&number).then_some(Self(number))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn of_a_test(by_chance: u64) -> Self {
        Self(LOWEST + by_chance % MANY)
    }
}

/// The number that an item holds, as the server writes it: digits, without a sign or zeros before them. One that became
/// shorter has blanks after it.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    let blanks = value.iter().rev().take_while(|byte| **byte == b' ').count();
    match &value[..value.len() - blanks] {
        [] => None,
        [b'0', _, ..] => None,
        digits => digits.iter().try_fold(0_u64, |number, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(digit.into())
        }),
    }
}

/// The longest TTL, in seconds: 30 days. A higher number is an instant since 1970.
pub(crate) const LONGEST_TTL: u32 = 30 * 24 * 60 * 60;

/// The present time by the wall clock, since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time for which an item is stored beyond its lease.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);

/// Time for which an item blocks others beyond its lease if nobody deletes it: the margin, and what rounding adds.
pub(crate) const OUTLASTS: Duration = Duration::from_secs(MARGIN.as_secs() + 1);

/// The TTL of an item that is to live for this long at least, in seconds.
pub(crate) fn item_ttl(lease: Duration) -> u32 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    // No lease is longer than a day.
    u32::try_from(whole + MARGIN.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(prefix: &str, name: &str, kind: Kind) -> Key {
        Keys::new(prefix).lock(&LockName::from(name), kind).unwrap()
    }

    #[test]
    fn what_the_server_cannot_carry_is_escaped() {
        assert_eq!(&*key("lock", "orders/42", Kind::Mutex), "lock:mutex:orders/42");
        assert_eq!(&*key("a:b", "x y\r\nü%#\u{7f}", Kind::Write), "a%3Ab:rwlock:x%20y%0D%0Aü%25%23%7F");
    }

    #[test]
    fn distinct_names_have_distinct_keys_that_fit() {
        let long = "ü".repeat(512);
        let names = ["a", "A", "a:0", "a:w", "a b", "a%20b", "#", "a:limit", &long, &long[2..]];
        let kinds = [Kind::Mutex, Kind::Reentrant, Kind::Write, Kind::Permits { permits: 1, limit: 1 }];
        let mut keys = HashSet::new();
        for prefix in ["p", "p:mutex"] {
            for name in names {
                for kind in kinds {
                    let lock = key(prefix, name, kind);
                    assert!(lock.len() <= LONGEST_STEM, "{lock}");
                    keys.extend(match kind {
                        Kind::Mutex | Kind::Reentrant => vec![lock],
                        Kind::Write => vec![writer(&lock), slot(&lock, 0)],
                        _ => vec![limit(&lock), slot(&lock, 0)],
                    });
                }
            }
        }
        assert_eq!(keys.len(), 2 * names.len() * 6);
    }

    #[test]
    fn a_shared_key_is_used_as_it_is_or_refused() {
        let keys = Keys::new("lock");
        let at = |key: &str| LockName::from_key(key).unwrap();
        assert_eq!(&*keys.lock(&at("__TOOZ_LOCK_a"), Kind::Mutex).unwrap(), "__TOOZ_LOCK_a");
        assert_eq!(keys.lock(&at("a"), Kind::Write).unwrap_err().kind(), ErrorKind::Unsupported);
        for known_to_nobody in ["locks", "epoch", ":epoch", "a:b:epoch", "other:mutex:a"] {
            assert_eq!(&*keys.lock(&at(known_to_nobody), Kind::Mutex).unwrap(), known_to_nobody);
        }
        for wrong in
            ["a b", "a\nb", &"x".repeat(251), "lock:mutex:a", "lock:epoch", "lock:semaphore:s:limit", "other:epoch"]
        {
            assert_eq!(keys.lock(&at(wrong), Kind::Mutex).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn a_nonce_has_nineteen_digits_and_is_read_again() {
        for byte in [0, 1, 127, 128, 255] {
            let nonce = Nonce::of(GrantId::from_bytes([byte; 16]));
            let text = nonce.number().to_string();
            assert!(i64::try_from(nonce.number()).is_ok());
            assert_eq!((text.len(), Nonce::read(text.as_bytes())), (19, Some(nonce)));
        }
        for foreign in [&b""[..], b"1", b"worker-1", b"\xff", b"9223372036854775807"] {
            assert_eq!(Nonce::read(foreign), None);
        }
    }

    #[test]
    fn a_lease_is_rounded_up_and_has_its_margin() {
        for (ms, expected) in [(100, 6), (1000, 6), (1001, 7), (10_000, 15), (86_400_000, 86_405)] {
            assert_eq!(item_ttl(Duration::from_millis(ms)), expected, "{ms} ms");
        }
    }
}
