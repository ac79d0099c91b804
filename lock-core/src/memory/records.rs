//! The records beside the mutexes of a store in memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::Record;
use crate::name::LockName;

/// The namespace and the name of a record's mutex.
type RecordKey = (Arc<str>, LockName);

/// Records, each until its retention is over.
#[derive(Debug, Default)]
pub(super) struct Records {
    by_key: HashMap<RecordKey, (Record, BootInstant)>,
    ends: BTreeSet<(BootInstant, RecordKey)>,
}

impl Records {
    pub(super) fn get(&mut self, key: &RecordKey, now: BootInstant) -> Option<Record> {
        self.expire(now);
        self.by_key.get(key).map(|(record, _)| record.clone())
    }

    pub(super) fn put(&mut self, key: RecordKey, record: Record, now: BootInstant, retention: Duration) {
        self.expire(now);
        // A shorter retention takes nothing away from one that was promised before.
        let before = self.by_key.get(&key).map(|(_, end)| *end);
        let end = before.map_or(now.plus(retention), |before| before.max(now.plus(retention)));
        if let Some(before) = before {
            self.ends.remove(&(before, key.clone()));
        }
        self.ends.insert((end, key.clone()));
        self.by_key.insert(key, (record, end));
    }

    fn expire(&mut self, now: BootInstant) {
        while self.ends.first().is_some_and(|(end, _)| *end <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.by_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::FencingToken;

    #[test]
    fn a_record_ends_with_the_longest_retention_that_it_was_given() {
        let at = |seconds| BootInstant::from_origin(Duration::from_secs(seconds));
        let key = || -> RecordKey { ("".into(), "a".into()) };
        let record = Record::new(FencingToken::new(1).unwrap());
        let mut records = Records::default();
        records.put(key(), record.clone(), at(0), Duration::from_secs(100));
        records.put(key(), record.clone(), at(10), Duration::from_secs(60));
        assert_eq!(records.get(&key(), at(99)), Some(record));
        assert_eq!(records.get(&key(), at(100)), None);
        assert!(records.by_key.is_empty() && records.ends.is_empty(), "what ends is forgotten");
    }
}
