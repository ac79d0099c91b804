//! The records beside mutexes: a node each that outlives sessions, changed in one transaction with a look at the holder's node.
//!
//! A record that nobody has touched for its retention, by the time of day of the servers that led, is deleted by a client that makes
//! another one: each client looks at all of them at most once an hour, some hundreds at a time. One client at a time does so, as long as a
//! node of its session is there: a record that another one had deleted, and somebody made anew, may have the version again that was read of
//! the one before.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Record, RecordWrite, log, wait};
use lock_core::{Error, ErrorKind, FencingToken, LockName, LossReason, Phase};
use tokio::time::{Instant, timeout_at};

use crate::client::{Connection, Failure, Fate, Node};
use crate::error::{self, StepError, retry_unanswered};
use crate::registry::{Registration, Registry};
use crate::release::delete_own;
use crate::session::{Session, Sessions};
use crate::store::kept_record::KeptRecord;
use crate::store::layout;

/// Rounds of reading and changing, when others change the record at the same time.
const ROUNDS: usize = 5;

/// The time between two looks for records that have ended.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// The most records that are looked at by one request of such a look.
const SWEPT: usize = 256;

/// The pause between two requests of such a look, which leaves the servers to those who want locks.
const PAUSE: Duration = Duration::from_millis(100);

/// The records of one client.
#[derive(Debug)]
pub(crate) struct Records {
    sessions: Arc<Sessions>,
    registry: Arc<Registry>,
    prefix: String,
    op_timeout: Duration,
    swept: Mutex<Option<BootInstant>>,
    /// Held while records that have ended are looked for.
    sweeping: Arc<tokio::sync::Mutex<()>>,
}

impl Records {
    pub(crate) fn new(sessions: Arc<Sessions>, registry: Arc<Registry>, prefix: String, op_timeout: Duration) -> Self {
        Self { sessions, registry, prefix, op_timeout, swept: Mutex::default(), sweeping: Arc::default() }
    }

    /// Reads within one operation timeout, as the leader has it or, if `any` server will do, as that of this session has it.
    pub(crate) async fn read(&self, name: &LockName, any: bool) -> Result<Option<Record>, Error> {
        let until = Instant::now() + self.op_timeout;
        let session = self.sessions.current_by(until, Phase::Inspect).await?;
        let path = layout::record(&self.prefix, name);
        let read = async {
            let connection = &*session.connection;
            let synced = (!any).then(|| connection.sync(&path));
            let read = connection.read_all(std::slice::from_ref(&path));
            if let Some(synced) = synced {
                synced.await?;
            }
            read.await
        };
        match timeout_at(until, read).await {
            Ok(Ok(mut nodes)) => {
                let node = nodes.pop().flatten();
                node.map(|node| record_in(&node, Phase::Inspect).map(|kept| kept.record)).transpose()
            }
            Ok(Err(failure)) => Err(error::of_request(failure, Phase::Inspect)),
            Err(_) => Err(Error::unavailable(Phase::Inspect, "no answer within the operation timeout")
                .with_backend(crate::guarantees::NAME)),
        }
    }

    pub(crate) async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Err(session_ended()) };
        let written = async {
            tokio::select! {
                biased;
                written = self.write_under(&registration, &attempt.name, token, data, retention) => written,
                () = registration.session.ended() => Err(error::out_of_time(Phase::Hold)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Hold, written).await
    }

    async fn write_under(
        &self,
        registration: &Registration,
        name: &LockName,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let (connection, path) = (&*registration.session.connection, layout::record(&self.prefix, name));
        let Some(holder) = registration.node() else { return Err(session_ended()) };
        for round in 0..ROUNDS {
            let of_request = |failure| error::of_request(failure, Phase::Hold);
            if round > 0 {
                // What has changed it may not have reached this server yet.
                connection.sync(&path).await.map_err(of_request)?;
            }
            let read = connection.read_all(&[holder.path.clone(), path.clone()]).await.map_err(of_request)?;
            let [Some(_), stored] = &read[..] else { return Ok(RecordWrite::NotHeld) };
            let version = stored.as_ref().map(|node| node.version);
            let stored = stored.as_ref().map(|node| record_in(node, Phase::Hold)).transpose()?;
            let before = stored.as_ref().map(|kept| kept.seconds);
            let Ok(next) = Record::next(stored.map(|kept| kept.record), token, data) else {
                return Ok(RecordWrite::NotHeld);
            };
            let next = KeptRecord::new(next, retention, before);
            match connection.write_beside(&holder.path, &path, &next.to_bytes(), version).await {
                Ok(()) => {
                    if version.is_none() {
                        self.sweep(&registration.session, path);
                    }
                    return Ok(RecordWrite::Done(next.record));
                }
                Err(failure) if failure.fate == Fate::Missing && version.is_none() => {
                    connection.make_directory(&layout::record_directory(&self.prefix)).await.map_err(of_request)?;
                }
                // One of them is gone, or somebody has changed the record.
                Err(Failure { fate: Fate::Missing | Fate::Exists | Fate::Changed, .. }) => {}
                Err(failure) => return Err(of_request(failure)),
            }
        }
        let what = "others change the record all the time";
        Err(Error::unavailable(Phase::Hold, what).with_backend(crate::guarantees::NAME))
    }

    /// Deletes records that have ended, in the background; `made` is a record that was made just now.
    fn sweep(&self, session: &Arc<Session>, made: String) {
        let now = SystemClock.now();
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|last| now.since(last) < SWEEP_EVERY) {
            return;
        }
        let Ok(alone) = self.sweeping.clone().try_lock_owned() else { return };
        *swept = Some(now);
        let (session, prefix) = (session.clone(), self.prefix.clone());
        tokio::spawn(async move {
            let _alone = alone;
            tokio::select! {
                () = session.ended() => {}
                swept = sweep_in_turn(&*session.connection, &prefix, &made) => if let Err(failure) = swept {
                    log(|| tracing::debug!(?failure, "records that have ended could not be looked for"));
                }
            }
        });
    }
}

/// Deletes the records that have ended, unless another client does so.
async fn sweep_in_turn(connection: &dyn Connection, prefix: &str, made: &str) -> Result<(), StepError> {
    let turn = layout::sweep_turn(prefix);
    let swept = match retry_unanswered(async || Ok(take_turn(connection, &turn).await?)).await {
        Ok(true) => sweep(connection, &layout::record_directory(prefix), made).await.map_err(StepError::from),
        Ok(false) => return Ok(()),
        // An earlier request may have made it.
        Err(failure) => Err(failure),
    };
    // Another one may have the turn by the time at which it is given back once more, since an answer was lost. If it may not be deleted,
    // it goes with the session.
    retry_unanswered(async || Ok(delete_own(connection, &turn).await?)).await?;
    swept
}

/// Takes the turn to sweep, and returns whether this session has it: then nobody else does until the session ends or gives it back. If that is
/// not answered, this session may have it, and is to ask once more.
async fn take_turn(connection: &dyn Connection, turn: &str) -> Result<bool, Failure> {
    match connection.create(turn, &[]).await {
        Ok(_) => Ok(true),
        // It may be this session's: an answer was lost, or an earlier one could not be deleted. The server that says so knows whose it is.
        Err(failure) if failure.fate == Fate::Exists => {
            let nodes = connection.read_all(&[turn.to_owned()]).await?;
            Ok(nodes.into_iter().flatten().any(|node| node.session == connection.id()))
        }
        Err(failure) => Err(failure),
    }
}

/// Deletes the records in this directory that have ended, by the time at which a record was made just now.
async fn sweep(connection: &dyn Connection, directory: &str, made: &str) -> Result<(), Failure> {
    let nodes = connection.read_all(&[made.to_owned()]).await?;
    let Some(Some(Node { made_at: now, .. })) = nodes.first() else { return Ok(()) };
    let names = connection.children(directory).await?;
    for names in names.chunks(SWEPT) {
        let paths: Vec<_> = names.iter().map(|name| format!("{directory}/{name}")).collect();
        let nodes = connection.read_all(&paths).await?;
        for (path, node) in paths.iter().zip(nodes).filter_map(|(path, node)| Some((path, node?))) {
            // Something else is not ours to delete.
            if KeptRecord::from_bytes(&node.data).is_some_and(|kept| kept.has_ended(node.changed_at, *now)) {
                connection.delete_unchanged(path, node.version).await?;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The error for a grant of which this client knows no node any more, though its holder was told of no loss yet: nodes go with their session.
fn session_ended() -> Error {
    Error::lost(Phase::Hold, LossReason::SessionExpired).with_backend(crate::guarantees::NAME)
}

pub(crate) fn record_in(node: &Node, phase: Phase) -> Result<KeptRecord, Error> {
    KeptRecord::from_bytes(&node.data).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, phase, "something else is in the record's place")
            .with_backend(crate::guarantees::NAME)
    })
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;
    use lock_core::driver::Kind;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use super::*;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;
    use crate::connect::connect;
    use crate::session::SessionAcquirer;

    /// The keeper was not told yet: nobody has taken the lock.
    #[tokio::test]
    async fn a_record_that_is_written_at_the_end_of_the_session_tells_that_it_has_ended() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let attempt = Attempt::new("ended".into(), Kind::Mutex, Owner::new(), Duration::from_secs(10)).unwrap();
        let session = backend.sessions.current().await;
        let token = backend.acquirer.try_in(&session, &attempt).await.unwrap().unwrap().token.unwrap();
        let registration = backend.registry.get(attempt.id).unwrap();
        backend.registry.end_session(&session);
        let (records, day) = (&backend.records, Duration::from_secs(24 * 60 * 60));
        let before = records.write(&attempt, token, Some(b"data"), day).await;
        let meanwhile = records.write_under(&registration, &attempt.name, token, Some(b"data"), day).await;
        for written in [before, meanwhile] {
            let error = written.unwrap_err();
            assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::SessionExpired)), "{error}");
        }
    }
}
