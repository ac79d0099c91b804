//! The requests that can go together: each by itself, and many as one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zookeeper_client::{Acl, Acls, Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriteResult};

use super::{Created, Failure, Fate};

/// The number of requests that go together, at most.
pub(super) const MOST_TOGETHER: usize = 64;

/// The bytes of the names in one answer, at most, as far as they are known before; one that has more by itself comes alone.
const MOST_BYTES_LISTED: usize = 512 * 1024;

/// The bytes of a short listing, which is not noted: as many as go together are no more than may be.
const SHORT: usize = MOST_BYTES_LISTED / MOST_TOGETHER;

/// The directories that are noted, at most. Beyond that, one of them counts as short until it is listed again.
const MOST_NOTED: usize = 1024;

/// A place at the end of a queue.
#[derive(Debug)]
pub(super) struct Place {
    /// The node's path without the number.
    pub(super) stem: String,
    /// The queue's directory.
    pub(super) directory: Arc<str>,
    pub(super) data: Vec<u8>,
    /// The rights to it.
    pub(super) access: Arc<[Acl]>,
}

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
pub(super) async fn list(client: Arc<Client>, listings: Arc<Listings>, path: Arc<str>) -> Result<Vec<String>, Error> {
    let names = client.list_children(&path).await?;
    listings.note(&path, &names);
    Ok(names)
}

/// The outcome of many requests as one that was not carried out.
#[derive(Debug)]
pub(super) enum Refused {
    /// All of them: nothing was done. Each goes singly, whatever was the matter with one of them.
    Batch,
    /// Because of the stamp, which nobody has asked for.
    Stamp,
}

/// Makes places, all of them or none.
///
/// One transaction has one number, which is the token of every place. Before ZooKeeper 3.8.2 the answer to a creation lacks it
/// (ZOOKEEPER-4026), the answer to a change never does: so the transaction changes a directory first, the stamp.
pub(super) async fn create_all(
    client: Arc<Client>,
    stamp: Arc<str>,
    places: Vec<Arc<Place>>,
) -> Result<Result<Vec<Created>, Refused>, Error> {
    let mut writer = client.new_multi_writer();
    if writer.add_set_data(&stamp, &[], None).is_err() {
        return Ok(Err(Refused::Stamp));
    }
    for place in &places {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&place.access));
        if writer.add_create(&place.stem, &place.data, &options).is_err() {
            return Ok(Err(Refused::Batch));
        }
    }
    let results = match writer.commit().await {
        Err(MultiWriteError::OperationFailed { index: 0, .. }) => return Ok(Err(Refused::Stamp)),
        written => match carried_out(written)? {
            Some(results) => results,
            None => return Ok(Err(Refused::Batch)),
        },
    };
    let mut results = results.into_iter();
    let Some(MultiWriteResult::SetData { stat }) = results.next() else { return Err(unexpected()) };
    let paths = results.filter_map(|result| match result {
        MultiWriteResult::Create { path, .. } => Some(path),
        _ => None,
    });
    let created: Vec<_> = paths.map(|path| Created { path, czxid: stat.mzxid }).collect();
    let matches = |(created, place): (&Created, &Arc<Place>)| created.path.starts_with(&place.stem);
    if created.len() != places.len() || !created.iter().zip(&places).all(matches) {
        return Err(unexpected());
    }
    Ok(Ok(created))
}

/// Deletes nodes, all of them or none.
pub(super) async fn delete_all(client: Arc<Client>, paths: Vec<Arc<str>>) -> Result<Result<Vec<bool>, Refused>, Error> {
    let mut writer = client.new_multi_writer();
    if paths.iter().any(|path| writer.add_delete(path, None).is_err()) {
        return Ok(Err(Refused::Batch));
    }
    match carried_out(writer.commit().await)? {
        Some(results) if results.len() == paths.len() => Ok(Ok(vec![true; paths.len()])),
        Some(_) => Err(unexpected()),
        None => Ok(Err(Refused::Batch)),
    }
}

/// The names in one of several directories.
pub(super) type Listed = Result<Vec<String>, Error>;

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
            Ok(children)
        }
        MultiReadResult::Error { err } => Err(err),
        _ => Err(unexpected()),
    };
    Ok(Ok(paths.iter().zip(results).map(listed).collect()))
}

/// Returns the results of a transaction; `None` if it was refused, so that nothing of it was done.
fn carried_out(
    written: Result<Vec<MultiWriteResult>, MultiWriteError>,
) -> Result<Option<Vec<MultiWriteResult>>, Error> {
    match written {
        Ok(results) => Ok(Some(results)),
        // A server has judged one part, whatever it says of that.
        Err(MultiWriteError::OperationFailed { .. }) => Ok(None),
        Err(MultiWriteError::RequestFailed { source }) if is_refusal(&source) => Ok(None),
        Err(MultiWriteError::RequestFailed { source }) => Err(source),
    }
}

fn is_refusal(error: &Error) -> bool {
    !matches!(Failure::from(error.clone()).fate, Fate::Unknown | Fate::Ended)
}

fn unexpected() -> Error {
    Error::UnexpectedError("the answer is not to what was asked".to_owned())
}

/// The directory that is changed by every transaction which makes places, for the number of that.
pub(super) struct Stamp {
    pub(super) path: Arc<str>,
    /// Whether it could not be changed, and no directory was made since.
    is_refused: AtomicBool,
}

impl Stamp {
    /// At this path, which has not been refused yet.
    pub(super) fn of(path: String) -> Self {
        Self { path: path.into(), is_refused: AtomicBool::new(false) }
    }

    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
    }

    /// Notes that a directory was made: it may be there now.
    pub(super) fn try_again(&self) {
        self.is_refused.store(false, Ordering::Release);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }
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

    #[test]
    fn a_part_that_was_judged_is_a_refusal_of_all_and_a_lost_answer_is_not() {
        let failed = |index, source| Err(MultiWriteError::OperationFailed { index, source });
        for error in [Error::NoNode, Error::NoAuth, Error::UnexpectedErrorCode(-2), Error::Timeout] {
            assert_eq!(carried_out(failed(1, error)).unwrap(), None);
        }
        let whole = |source| carried_out(Err(MultiWriteError::RequestFailed { source }));
        assert_eq!(whole(Error::Throttled).unwrap(), None);
        for error in [Error::ConnectionLoss, Error::SessionExpired, Error::UnexpectedError("torn".to_owned())] {
            assert!(whole(error).is_err());
        }
    }

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
