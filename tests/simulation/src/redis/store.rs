//! The keys with their data and their ends.

use std::collections::BTreeMap;

use super::bytes::Bytes;
use super::hash::Hash;
use super::resp::Value;

/// The data of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// A string.
    Text(Bytes),
    /// A hash.
    Hash(Hash),
    /// A sorted set: members and scores.
    Sorted(BTreeMap<Bytes, f64>),
    /// A list. Our scripts have none: it is what a stranger puts into a lock's place.
    List(Vec<Bytes>),
}

impl Data {
    /// As `TYPE` calls it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
            Self::List(_) => "list",
        }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    data: Data,
    /// ms on the server's clock.
    ends_at: Option<u64>,
}

/// All keys of a server, and its clock as it was when the present command began.
#[derive(Debug, Clone, Default)]
pub struct Store {
    entries: BTreeMap<Bytes, Entry>,
    /// µs since the epoch.
    pub now: u64,
    /// The messages published since they were last taken: channel and message.
    pub published: Vec<(Bytes, Bytes)>,
    /// The channels that are listened to, each as often as there are listeners.
    pub listened: Vec<Bytes>,
    /// The most keys on which a script was run.
    pub most_keys: usize,
    /// Whether the server compares and deletes by itself (`DELIFEQ`), as newer ones do.
    pub compares: bool,
}

/// A key holds another kind of data than the command is for.
#[derive(Debug)]
pub struct WrongType;

impl From<WrongType> for Value {
    fn from(_: WrongType) -> Self {
        Self::Error("WRONGTYPE Operation against a key holding the wrong kind of value".to_owned())
    }
}

impl Store {
    /// An empty store, of a server that compares and deletes by itself if that is said.
    #[must_use]
    pub fn new(compares: bool) -> Self {
        Self { compares, ..Self::default() }
    }

    fn now_ms(&self) -> u64 {
        self.now / 1000
    }

    /// A key lives through the ms at which it ends.
    fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now_ms();
        if self.entries.get(key).is_some_and(|entry| entry.ends_at.is_some_and(|end| now > end)) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// Returns the data of a key.
    pub fn get(&mut self, key: &[u8]) -> Option<&Data> {
        self.entry(key).map(|entry| &entry.data)
    }

    /// The string at a key.
    ///
    /// # Errors
    /// If the key holds something else.
    pub fn text(&mut self, key: &[u8]) -> Result<Option<&Bytes>, WrongType> {
        match self.get(key) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text)),
            Some(_) => Err(WrongType),
        }
    }

    /// The hash at a key, for reading.
    ///
    /// # Errors
    /// If the key holds something else.
    pub fn hash(&mut self, key: &[u8]) -> Result<Option<&mut Hash>, WrongType> {
        match self.entry(key).map(|entry| &mut entry.data) {
            None => Ok(None),
            Some(Data::Hash(hash)) => Ok(Some(hash)),
            Some(_) => Err(WrongType),
        }
    }

    /// The sorted set at a key, for reading.
    ///
    /// # Errors
    /// If the key holds something else.
    pub fn sorted(&mut self, key: &[u8]) -> Result<Option<&mut BTreeMap<Bytes, f64>>, WrongType> {
        match self.entry(key).map(|entry| &mut entry.data) {
            None => Ok(None),
            Some(Data::Sorted(set)) => Ok(Some(set)),
            Some(_) => Err(WrongType),
        }
    }

    /// Makes a key hold this, and how long: as long as before with `keep`.
    pub fn set(&mut self, key: &[u8], data: Data, ends_at: Option<u64>, keep: bool) {
        let before = self.entry(key).and_then(|entry| entry.ends_at);
        let ends_at = if keep { before } else { ends_at };
        self.entries.insert(key.to_vec(), Entry { data, ends_at });
    }

    /// Makes a key hold this if it holds nothing.
    pub fn begin(&mut self, key: &[u8], empty: Data) {
        if self.entry(key).is_none() {
            self.set(key, empty, None, false);
        }
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some() && self.entries.remove(key).is_some()
    }

    /// Removes a key that holds nothing any more.
    pub fn tidy(&mut self, key: &[u8]) {
        let empty = match self.get(key) {
            Some(Data::Hash(hash)) => hash.is_empty(),
            Some(Data::Sorted(set)) => set.is_empty(),
            _ => false,
        };
        if empty {
            self.entries.remove(key);
        }
    }

    /// Returns the time until a key ends, in ms.
    pub fn left(&mut self, key: &[u8]) -> Option<Option<u64>> {
        let now = self.now_ms();
        self.entry(key).map(|entry| entry.ends_at.map(|end| end - now))
    }

    /// Lets a key end in so many ms; whether it is there.
    pub fn ends_in(&mut self, key: &[u8], ms: i64) -> bool {
        let now = self.now_ms();
        let Some(entry) = self.entry(key) else { return false };
        match u64::try_from(ms) {
            Ok(ms) if ms > 0 => entry.ends_at = Some(now + ms),
            _ => {
                self.entries.remove(key);
            }
        }
        true
    }

    /// Every key that lives.
    pub fn keys(&mut self) -> Vec<Bytes> {
        let all: Vec<_> = self.entries.keys().cloned().collect();
        all.into_iter().filter(|key| self.entry(key).is_some()).collect()
    }
}
