//! Changes that go to the servers as one transaction: carried out whole, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zookeeper_client::{Acl, Acls, Client, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter};

use super::waiting::{Exchange, Place};
use super::{Claim, Created, Failure, Fate, NewNode};

/// The version of the data of a node in a queue, or of a permit: nobody changes those.
const NEVER_CHANGED: i32 = 0;

/// Makes nodes, each the only one in its directory; `None` if one of these is not empty.
pub(super) async fn claim_all(
    client: Arc<Client>,
    claims: Vec<Claim>,
    access: Arc<[Acl]>,
) -> Result<Option<Vec<Created>>, Error> {
    let access = Acls::new(&access);
    let mut writer = client.new_multi_writer();
    for (i, Claim { directory, path, data }) in claims.iter().enumerate() {
        writer.add_delete(directory, None)?;
        writer.add_create(directory, &[], &CreateMode::Container.with_acls(access))?;
        // For its answer alone, which is the same for all.
        if i == 0 {
            writer.add_set_data(directory, &[], None)?;
        }
        writer.add_create(path, data, &CreateMode::Ephemeral.with_acls(access))?;
    }
    let results = match writer.commit().await.map_err(Error::from) {
        Err(Error::NotEmpty) => return Ok(None),
        written => written?,
    };
    let czxid = transaction(&results)?;
    Ok(Some(claims.into_iter().map(|claim| Created { path: claim.path, czxid }).collect()))
}

/// Makes nodes with this data, provided that a directory is empty; `None` if it is not.
pub(super) async fn claim_beside(
    client: Arc<Client>,
    empty: String,
    new: Vec<NewNode>,
    data: Vec<u8>,
    access: Arc<[Acl]>,
) -> Result<Option<Vec<Created>>, Error> {
    let access = Acls::new(&access);
    let mut writer = client.new_multi_writer();
    writer.add_delete(&empty, None)?;
    writer.add_create(&empty, &[], &CreateMode::Container.with_acls(access))?;
    // The servers remove an empty container only if it has had a node once.
    let visitor = format!("{empty}/visitor");
    writer.add_create(&visitor, &[], &CreateMode::Ephemeral.with_acls(access))?;
    writer.add_delete(&visitor, None)?;
    // For its answer alone.
    writer.add_set_data(&empty, &[], None)?;
    for wanted in &new {
        let (path, mode) = mode(wanted);
        writer.add_create(path, &data, &mode.with_acls(access))?;
    }
    let results = match writer.commit().await.map_err(Error::from) {
        Err(Error::NotEmpty) => return Ok(None),
        written => written?,
    };
    let czxid = transaction(&results)?;
    // Behind the directory and the visitor.
    let paths = results.into_iter().filter_map(created).skip(2);
    Ok(Some(paths.map(|path| Created { path, czxid }).collect()))
}

/// Makes an exchange, and returns the paths of the new nodes.
pub(super) async fn exchange(client: Arc<Client>, exchange: Arc<Exchange>) -> Result<Vec<String>, Error> {
    let mut writer = client.new_multi_writer();
    add_exchange(&mut writer, &exchange)?;
    let results = writer.commit().await?;
    Ok(results.into_iter().filter_map(created).collect())
}

/// Adds an exchange to a transaction.
fn add_exchange(writer: &mut MultiWriter<'_>, exchange: &Exchange) -> Result<(), Error> {
    if let Some(present) = &exchange.present {
        writer.add_check_version(present, NEVER_CHANGED)?;
    }
    for wanted in &exchange.new {
        let (path, mode) = mode(wanted);
        writer.add_create(path, &exchange.data, &mode.with_acls(Acls::new(&exchange.access)))?;
    }
    exchange.old.iter().chain(&exchange.place).try_for_each(|path| writer.add_delete(path, None))
}

/// Changes a node of this version, or makes it if there is to be none, provided that the holder's node is there.
pub(super) async fn write_beside(
    client: Arc<Client>,
    holder: String,
    path: String,
    data: Vec<u8>,
    version: Option<i32>,
    access: Arc<[Acl]>,
) -> Result<(), Error> {
    let mut writer = client.new_multi_writer();
    writer.add_check_version(&holder, NEVER_CHANGED)?;
    match version {
        Some(_) => writer.add_set_data(&path, &data, version)?,
        None => writer.add_create(&path, &data, &CreateMode::Persistent.with_acls(Acls::new(&access)))?,
    }
    writer.commit().await?;
    Ok(())
}

/// Returns the number of a transaction that has changed a node. Before ZooKeeper 3.8.2 the answer to a creation lacks it.
fn transaction(results: &[MultiWriteResult]) -> Result<i64, Error> {
    let changed = results.iter().find_map(|result| match result {
        MultiWriteResult::SetData { stat } => Some(stat.mzxid),
        _ => None,
    });
    changed.ok_or_else(|| Error::UnexpectedError("the answer to a change is missing".to_owned()))
}

/// Returns how a node is to be made, and its path or the beginning of it.
fn mode(node: &NewNode) -> (&str, CreateMode) {
    match node {
        NewNode::Named(path) => (path, CreateMode::Ephemeral),
        NewNode::Sequential(path) => (path, CreateMode::EphemeralSequential),
    }
}

/// Returns the path of a node that a transaction has made.
fn created(result: MultiWriteResult) -> Option<String> {
    if let MultiWriteResult::Create { path, .. } = result { Some(path) } else { None }
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

/// The outcome of many requests as one that was not carried out.
#[derive(Debug)]
pub(super) enum Refused {
    /// All of them: nothing was done. Each goes singly, whatever was the matter with one of them.
    Batch,
    /// Because of the stamp, which nobody has asked for.
    Stamp,
}

/// The nodes that moved queues on: those of each exchange, and the places.
pub(super) type MovedOn = (Vec<Vec<String>>, Vec<Created>);

/// Moves queues on: makes these exchanges and these places, all of them or nothing.
///
/// One transaction has one number, which is the token of every place. Before ZooKeeper 3.8.2 the answer to a creation lacks it
/// (ZOOKEEPER-4026), the answer to a change never does: so the transaction changes a directory first, the stamp.
pub(super) async fn move_on(
    client: Arc<Client>,
    stamp: Arc<str>,
    exchanges: Vec<Arc<Exchange>>,
    places: Vec<Arc<Place>>,
) -> Result<Result<MovedOn, Refused>, Error> {
    let mut writer = client.new_multi_writer();
    if writer.add_set_data(&stamp, &[], None).is_err() {
        return Ok(Err(Refused::Stamp));
    }
    if exchanges.iter().any(|exchange| add_exchange(&mut writer, exchange).is_err()) {
        return Ok(Err(Refused::Batch));
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
    let mut paths = results.filter_map(created);
    let exchanged: Vec<Vec<_>> =
        exchanges.iter().map(|exchange| paths.by_ref().take(exchange.new.len()).collect()).collect();
    let placed: Vec<_> = paths.map(|path| Created { path, czxid: stat.mzxid }).collect();
    let matches = |(created, place): (&Created, &Arc<Place>)| created.path.starts_with(&place.stem);
    if placed.len() != places.len() || !placed.iter().zip(&places).all(matches) {
        return Err(unexpected());
    }
    Ok(Ok((exchanged, placed)))
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

pub(super) fn is_refusal(error: &Error) -> bool {
    !matches!(Failure::from(error.clone()).fate, Fate::Unknown | Fate::Ended)
}

pub(super) fn unexpected() -> Error {
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
