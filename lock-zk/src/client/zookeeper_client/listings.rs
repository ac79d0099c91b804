//! The lengths of the last listings, as far as they were long: by these, listings go together or by themselves.
//!
//! No server limits what it answers, and the crate takes a frame of any length. But it holds a frame as a whole, and so does the
//! server: 64 queues of 10,000 waiters each are 45 MB. The first listing of a directory in a session has no length that is known, and counts as
//! short.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::MOST_TOGETHER;

/// The bytes of the names in one answer, at most, as far as they are known before; one that has more by itself comes alone.
const MOST_BYTES_LISTED: usize = 512 * 1024;

/// The bytes of a short listing, which is not noted: as many as go together are no more than may be.
const SHORT: usize = MOST_BYTES_LISTED / MOST_TOGETHER;

/// The directories that are noted, at most. Beyond that, one of them counts as short until it is listed again.
const MOST_NOTED: usize = 1024;

/// The lengths of long listings, each in bytes.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<HashMap<Arc<str>, usize>>);

impl Listings {
    /// Notes how long a listing is.
    pub(super) fn note(&self, directory: &Arc<str>, names: &[String]) {
        // Each has its length before it.
        let bytes = names.iter().map(|name| 4 + name.len()).sum();
        let mut long = self.long();
        if bytes <= SHORT {
            long.remove(directory);
            return;
        }
        if long.len() >= MOST_NOTED
            && !long.contains_key(directory)
            && let Some(any) = long.keys().next().cloned()
        {
            long.remove(&any);
        }
        long.insert(directory.clone(), bytes);
    }

    /// Divides these directories, in their order, into those that are listed by one request each time.
    pub(super) fn divide(&self, directories: Vec<Arc<str>>) -> Vec<Vec<Arc<str>>> {
        let long = self.long();
        let (mut divided, mut bytes) = (Vec::<Vec<_>>::new(), 0);
        for directory in directories {
            let more = long.get(&directory).copied().unwrap_or(SHORT);
            bytes += more;
            match divided.last_mut() {
                Some(together) if bytes <= MOST_BYTES_LISTED => together.push(directory),
                _ => {
                    divided.push(vec![directory]);
                    bytes = more;
                }
            }
        }
        divided
    }

    fn long(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Every critical section leaves it valid after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(number: usize) -> Vec<Arc<str>> {
        (0..number).map(|number| format!("/{number}").into()).collect()
    }

    fn names(bytes: usize) -> Vec<String> {
        vec!["x".repeat(bytes - 4)]
    }

    fn lengths(listings: &Listings, number: usize) -> Vec<usize> {
        listings.divide(paths(number)).iter().map(Vec::len).collect()
    }

    #[test]
    fn short_listings_go_together_and_long_ones_as_far_as_they_have_room() {
        let (listings, all) = (Listings::default(), paths(MOST_TOGETHER));
        assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER]);
        listings.note(&all[1], &names(SHORT));
        assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER], "it is short");
        listings.note(&all[1], &names(MOST_BYTES_LISTED * 2));
        assert_eq!(lengths(&listings, 4), [1, 1, 2]);
        listings.note(&all[2], &names(MOST_BYTES_LISTED / 2));
        listings.note(&all[3], &names(MOST_BYTES_LISTED / 2));
        assert_eq!(lengths(&listings, 5), [1, 1, 2, 1]);
        for path in &all {
            listings.note(path, &[]);
        }
        assert_eq!(lengths(&listings, MOST_TOGETHER), [MOST_TOGETHER]);
        assert!(listings.long().is_empty(), "what is short again is forgotten");
        assert!(listings.divide(Vec::new()).is_empty());
    }

    #[test]
    fn so_many_are_noted_at_most_and_the_last_one_always_is() {
        let listings = Listings::default();
        for path in paths(MOST_NOTED + 10) {
            listings.note(&path, &names(SHORT + 1));
            assert!(listings.long().contains_key(&path));
        }
        assert_eq!(listings.long().len(), MOST_NOTED);
    }
}
