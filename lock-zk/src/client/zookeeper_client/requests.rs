//! The requests for one node or directory that can go together with others, and the listing of many directories.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zookeeper_client::{Acls, Client, CreateMode, Error, MultiReadResult};

use super::transactions::{Refused, is_refusal, unexpected};
use super::waiting::{MOST_TOGETHER, Place};
use super::{Created, Names};

/// The bytes of the names in one answer, at most, as far as they are known before; one that has more by itself comes alone.
const MOST_BYTES_LISTED: usize = 512 * 1024;

/// The bytes of a short listing, which is not noted: as many as go together are no more than may be.
const SHORT: usize = MOST_BYTES_LISTED / MOST_TOGETHER;

/// The directories that are noted, at most. Beyond that, one of them counts as short until it is listed again.
const MOST_NOTED: usize = 1024;

/// Makes a place.
pub(super) async fn create(client: Arc<Client>, place: Arc<Place>) -> Result<Created, Error> {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&place.access));
    let (stat, sequence) = client.create(&place.stem, &place.data, &options).await?;
    Ok(Created { path: format!("{}{sequence}", place.stem), czxid: stat.czxid })
}

/// Deletes a node, and returns whether it was there.
pub(super) async fn delete(client: Arc<Client>, path: Arc<str>) -> Result<bool, Error> {
    match client.delete(&path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the names in a directory, and notes how long they are.
pub(super) async fn list(client: Arc<Client>, listings: Arc<Listings>, path: Arc<str>) -> Result<Names, Error> {
    let names = client.list_children(&path).await?;
    listings.note(&path, &names);
    Ok(Arc::new(names))
}

/// The names in one of several directories.
pub(super) type Listed = Result<Names, Error>;

/// Lists directories, each with an outcome of its own, and notes how long they are.
pub(super) async fn list_all(
    client: Arc<Client>,
    listings: Arc<Listings>,
    paths: Vec<Arc<str>>,
) -> Result<Result<Vec<Listed>, Refused>, Error> {
    let mut reader = client.new_multi_reader();
    if paths.iter().any(|path| reader.add_get_children(path).is_err()) {
        return Ok(Err(Refused::Batch));
    }
    let results = match reader.commit().await {
        Err(error) if is_refusal(&error) => return Ok(Err(Refused::Batch)),
        read => read?,
    };
    if results.len() != paths.len() {
        return Err(unexpected());
    }
    let listed = |(path, result)| match result {
        MultiReadResult::Children { children } => {
            listings.note(path, &children);
            Ok(Arc::new(children))
        }
        MultiReadResult::Error { err } => Err(err),
        _ => Err(unexpected()),
    };
    Ok(Ok(paths.iter().zip(results).map(listed).collect()))
}

/// The lengths of the last listings in bytes, as far as they were long: by these, listings go together or by themselves.
///
/// No server limits what it answers, and the crate takes a frame of any length. But it holds a frame as a whole, and so does the
/// server: 64 queues of 10,000 waiters each are 45 MB. The first listing of a directory in a session has no length that is known, and counts as
/// short.
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
