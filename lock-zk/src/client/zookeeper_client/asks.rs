//! The requests that can go together: each by itself, and many as one.

use std::sync::Arc;

use tokio::sync::oneshot;
use zookeeper_client::{Acl, Acls, Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriteResult};

use super::batch::{Part, RequestKind};
use super::listings::Listings;
use super::{Created, Failure, Fate};

/// The way to tell an answer.
pub(super) type AnswerSender<T> = oneshot::Sender<Result<T, Failure>>;

/// A place at the end of a queue.
#[derive(Debug)]
pub(super) struct Place {
    /// The node's path without the number.
    pub(super) stem: String,
    /// The queue's directory.
    pub(super) directory: String,
    pub(super) data: Vec<u8>,
    /// The rights to it.
    pub(super) access: Arc<[Acl]>,
}

/// The making of a place, and the listing behind it if that is wanted.
pub(super) struct Append {
    pub(super) place: Arc<Place>,
    pub(super) created: AnswerSender<Created>,
    pub(super) listed: Option<AnswerSender<Vec<String>>>,
}

impl Append {
    /// Returns the directory to list, if there is one.
    pub(super) fn listing(&self) -> Option<Arc<str>> {
        self.listed.as_ref().map(|_| self.place.directory.as_str().into())
    }

    /// Returns how to tell of the place, and the listing.
    pub(super) fn into_parts(self) -> (AnswerSender<Created>, Option<List>) {
        let path = self.listing();
        (self.created, path.zip(self.listed).map(|(path, answer)| List { path, answer }))
    }
}

/// A request about one path.
pub(super) struct OfPath<T> {
    pub(super) path: Arc<str>,
    pub(super) answer: AnswerSender<T>,
}

/// Requests of one kind.
pub(super) trait Ask {
    /// Returns its part in a batch.
    fn part(&self) -> Part<'_>;

    /// Whether it is still to be sent: somebody waits for its answer, or it is a deletion.
    fn is_wanted(&self) -> bool;

    /// The number of requests that it is: one, or two.
    fn turns(&self) -> usize {
        1
    }
}

impl Ask for Append {
    fn turns(&self) -> usize {
        1 + usize::from(self.listed.is_some())
    }

    fn part(&self) -> Part<'_> {
        let Place { stem, directory, data, .. } = &*self.place;
        Part { kind: RequestKind::Append, path: directory, bytes: stem.len() + directory.len() + data.len() }
    }

    fn is_wanted(&self) -> bool {
        !self.created.is_closed()
    }
}

/// Deletes a node.
pub(super) type Delete = OfPath<bool>;

impl Ask for Delete {
    fn part(&self) -> Part<'_> {
        Part { kind: RequestKind::Delete, path: &self.path, bytes: self.path.len() }
    }

    fn is_wanted(&self) -> bool {
        true
    }
}

/// Lists a directory.
pub(super) type List = OfPath<Vec<String>>;

impl Ask for List {
    fn part(&self) -> Part<'_> {
        Part { kind: RequestKind::List, path: &self.path, bytes: self.path.len() }
    }

    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
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
}
