//! The records beside mutexes: a node each that outlives sessions, changed in one transaction with a look at the holder's node.
//!
//! A record that nobody has touched for [`Record::LONGEST_RETENTION`], by the servers' clock, is deleted by a client that makes another
//! one: at most once an hour, and a few hundred at a time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Record, RecordWrite, wait};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Phase};
use tokio::time::{Instant, timeout_at};

use crate::client::{Connection, Failure, Fate, Node};
use crate::error;
use crate::registry::{Registration, Registry};
use crate::session::{Session, Sessions};
use crate::store::layout;

/// Rounds of reading and changing, when others change the record at the same time.
const ROUNDS: usize = 5;

/// The time between two looks for records that have ended.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// The most records that are looked at in one such look.
const SWEPT: usize = 256;

/// The records of one client.
#[derive(Debug)]
pub(crate) struct Records {
    sessions: Arc<Sessions>,
    registry: Arc<Registry>,
    prefix: String,
    op_timeout: Duration,
    swept: Mutex<Option<BootInstant>>,
}

impl Records {
    pub(crate) fn new(sessions: Arc<Sessions>, registry: Arc<Registry>, prefix: String, op_timeout: Duration) -> Self {
        Self { sessions, registry, prefix, op_timeout, swept: Mutex::default() }
    }

    /// Reads as the leader has it, within one operation timeout.
    pub(crate) async fn read(&self, name: &LockName) -> Result<Option<Record>, Error> {
        let until = Instant::now() + self.op_timeout;
        let session = self.sessions.current_by(until, Phase::Inspect).await?;
        let path = layout::record(&self.prefix, name);
        let read = async {
            let connection = &*session.connection;
            let synced = connection.sync(&path);
            let read = connection.read_all(std::slice::from_ref(&path));
            synced.await?;
            read.await
        };
        let late = || Err(Error::unavailable(Phase::Inspect, "no answer within the operation timeout"));
        match timeout_at(until, read).await {
            Ok(Ok(mut nodes)) => nodes.pop().flatten().map(|node| record_in(&node, Phase::Inspect)).transpose(),
            Ok(Err(failure)) => Err(error::of_request(failure, Phase::Inspect)),
            Err(_) => late().map_err(|error: Error| error.with_backend(crate::guarantees::NAME)),
        }
    }

    pub(crate) async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
    ) -> Result<RecordWrite, Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Ok(RecordWrite::NotHeld) };
        let written = async {
            tokio::select! {
                biased;
                written = self.write_under(&registration, &attempt.name, token, data) => written,
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
    ) -> Result<RecordWrite, Error> {
        let (connection, path) = (&*registration.session.connection, layout::record(&self.prefix, name));
        let Some(holder) = registration.node() else { return Ok(RecordWrite::NotHeld) };
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
            let Ok(next) = Record::next(stored, token, data) else { return Ok(RecordWrite::NotHeld) };
            match connection.write_beside(&holder.path, &path, &next.to_bytes(), version).await {
                Ok(()) => {
                    if version.is_none() {
                        self.sweep(&registration.session, path);
                    }
                    return Ok(RecordWrite::Done(next));
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
        *swept = Some(now);
        let (session, directory) = (session.clone(), layout::record_directory(&self.prefix));
        tokio::spawn(async move {
            tokio::select! {
                () = session.ended() => {}
                swept = sweep(&*session.connection, &directory, &made) => if let Err(failure) = swept {
                    tracing::debug!(?failure, "records that have ended could not be looked for");
                }
            }
        });
    }
}

/// Deletes some of the records in this directory that have ended, by the time at which a record was made just now.
async fn sweep(connection: &dyn Connection, directory: &str, made: &str) -> Result<(), Failure> {
    let mut names = connection.children(directory).await?;
    // Another part of them each time.
    let from = usize::try_from(SystemClock.now().since(BootInstant::from_origin(Duration::ZERO)).subsec_nanos());
    let from = from.unwrap_or_default() % names.len().max(1);
    names.rotate_left(from);
    names.truncate(SWEPT);
    let mut paths = vec![made.to_owned()];
    paths.extend(names.iter().map(|name| format!("{directory}/{name}")));
    let nodes = connection.read_all(&paths).await?;
    let Some(Some(made)) = nodes.first() else { return Ok(()) };
    let retention = i64::try_from(Record::LONGEST_RETENTION.as_millis()).unwrap_or(i64::MAX);
    let oldest = made.made_at.saturating_sub(retention);
    let ended = paths.iter().zip(&nodes).filter_map(|(path, node)| Some((path, node.as_ref()?)));
    for (path, node) in ended.filter(|(_, node)| node.changed_at < oldest) {
        connection.delete_unchanged(path, node.version).await?;
    }
    Ok(())
}

pub(crate) fn record_in(node: &Node, phase: Phase) -> Result<Record, Error> {
    Record::from_bytes(&node.data).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, phase, "something else is in the record's place")
            .with_backend(crate::guarantees::NAME)
    })
}
