//! The items with their numbers and their ends.

use std::collections::BTreeMap;

/// The longest relative time to live, in seconds: what is above it is a time since 1970.
const LONGEST: i64 = 60 * 60 * 24 * 30;

/// An item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The item's value.
    pub value: Vec<u8>,
    /// The number of the store that made it as it is.
    pub cas: u64,
    /// The second of the server's clock at which it ends; `None` if it does not.
    pub ends_at: Option<i64>,
}

/// All items of one life of a server, and its clock as it was when the present command began.
#[derive(Debug, Clone)]
pub struct Store {
    items: BTreeMap<Vec<u8>, Item>,
    last_cas: u64,
    /// The beginning of this life, in µs since 1970.
    started: u64,
    /// µs since 1970.
    now: u64,
    flushes: u64,
}

impl Store {
    /// An empty store, of a server that was started at this time, in µs since 1970.
    #[must_use]
    pub fn started(at: u64) -> Self {
        Self { items: BTreeMap::new(), last_cas: 0, started: at, now: at, flushes: 0 }
    }

    /// Sets the time, in µs since 1970.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// Whole seconds since the server's start.
    #[must_use]
    pub fn uptime(&self) -> u64 {
        self.now.saturating_sub(self.started) / 1_000_000
    }

    /// The number of times that everything was forgotten.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// The server's clock: it counts whole seconds from the start on.
    #[must_use]
    pub fn second(&self) -> i64 {
        ((self.started / 1_000_000) + self.uptime()) as i64
    }

    /// The second at which an item ends that is given this time to live.
    #[must_use]
    pub fn end(&self, seconds: i64) -> Option<i64> {
        match seconds {
            0 => None,
            ..0 => Some(self.second()),
            1..=LONGEST => Some(self.second() + seconds),
            _ => Some(seconds),
        }
    }

    /// Returns the item of a key.
    pub fn get(&mut self, key: &[u8]) -> Option<&mut Item> {
        let second = self.second();
        if self.items.get(key).is_some_and(|item| item.ends_at.is_some_and(|end| end <= second)) {
            self.items.remove(key);
        }
        self.items.get_mut(key)
    }

    /// The seconds that an item has left; -1 if it has no end.
    #[must_use]
    pub fn left(&self, item: &Item) -> i64 {
        item.ends_at.map_or(-1, |end| end - self.second())
    }

    /// The number of the next store.
    pub fn next_cas(&mut self) -> u64 {
        self.last_cas += 1;
        self.last_cas
    }

    /// Stores a value. Returns its number.
    pub fn set(&mut self, key: &[u8], value: &[u8], ends_at: Option<i64>) -> u64 {
        let cas = self.next_cas();
        self.items.insert(key.to_vec(), Item { value: value.to_vec(), cas, ends_at });
        cas
    }

    /// Deletes a key.
    pub fn remove(&mut self, key: &[u8]) {
        self.items.remove(key);
    }

    /// Forgets everything. The numbers go on.
    pub fn flush(&mut self) {
        self.items.clear();
        self.flushes += 1;
    }

    /// Every item that has not ended.
    pub fn items(&mut self) -> Vec<(Vec<u8>, Item)> {
        let keys: Vec<_> = self.items.keys().cloned().collect();
        keys.into_iter().filter_map(|key| self.get(&key).cloned().map(|item| (key, item))).collect()
    }
}
