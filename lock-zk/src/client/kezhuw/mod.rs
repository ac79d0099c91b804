//! The crate `zookeeper-client` behind our trait.

mod door;
mod fault;
#[cfg(feature = "tls")]
mod tls;

use std::future::Future;
use std::time::Duration;

use futures_util::future;
use tokio::sync::Mutex;
use zookeeper_client::{
    Acl, Acls, Client, CreateMode, Error, MultiReadResult, MultiWriteError, MultiWriteResult, SessionState,
    StateWatcher,
};

#[cfg(feature = "tls")]
pub(crate) use tls::check as check_tls;

use super::{Answer, Change, Connection, Created, Door, Fate, Fault, Link, LinkChange, Node, Wanted};

/// How many nodes are read by one request: far below the 1 MiB that a request may have.
const CHUNK: usize = 500;

/// Where beats go. Nobody makes this node, so that a beat changes nothing; the refusal is agreed upon by a quorum as any
/// other outcome of a write is.
const NO_NODE: &str = "/lock-zk-beat";

/// The version of a node's data that nobody has changed; we never change any.
const NEVER_CHANGED: i32 = 0;

/// One session, by `zookeeper-client`.
#[derive(Debug)]
pub(crate) struct Kezhuw {
    client: Client,
    states: Mutex<StateWatcher>,
    /// Who may touch what is made.
    access: Vec<Acl>,
}

impl Kezhuw {
    /// A new session with one of the servers.
    pub(crate) async fn connect(door: &Door) -> Result<Self, Fault> {
        let client = door::open(door).await?;
        let mut states = client.state_watcher();
        states.state();
        Ok(Self { client, states: Mutex::new(states), access: door::acl(&door.access) })
    }

    fn access(&self) -> Acls<'_> {
        Acls::new(&self.access)
    }

    fn make<'a>(&'a self, path: &'a str, data: &[u8], mode: CreateMode) -> Answer<'a, Created> {
        let made = self.client.create(path, data, &mode.with_acls(self.access()));
        Box::pin(async move {
            let (stat, sequence) = made.await?;
            let path =
                if mode == CreateMode::EphemeralSequential { format!("{path}{sequence}") } else { path.to_owned() };
            Ok(Created { path, czxid: stat.czxid })
        })
    }

    fn read_chunk(
        &self,
        paths: &[String],
    ) -> Result<impl Future<Output = Result<Vec<MultiReadResult>, Error>> + Send + use<'_>, Fault> {
        let mut reader = self.client.new_multi_reader();
        for path in paths {
            reader.add_get_data(path)?;
        }
        Ok(reader.commit())
    }

    fn write_all(
        &self,
        old: &[String],
        new: &[Wanted],
        data: &[u8],
    ) -> Result<impl Future<Output = Result<Vec<MultiWriteResult>, MultiWriteError>> + Send + use<'_>, Fault> {
        let mut writer = self.client.new_multi_writer();
        for wanted in new {
            let (path, mode) = match wanted {
                Wanted::Exactly(path) => (path, CreateMode::Ephemeral),
                Wanted::Numbered(path) => (path, CreateMode::EphemeralSequential),
            };
            writer.add_create(path, data, &mode.with_acls(self.access()))?;
        }
        for path in old {
            writer.add_delete(path, None)?;
        }
        Ok(writer.commit())
    }

    fn write_claim(
        &self,
        directory: &str,
        path: &str,
        data: &[u8],
    ) -> Result<impl Future<Output = Result<Vec<MultiWriteResult>, MultiWriteError>> + Send + use<'_>, Fault> {
        let mut writer = self.client.new_multi_writer();
        writer.add_delete(directory, None)?;
        writer.add_create(directory, &[], &CreateMode::Container.with_acls(self.access()))?;
        writer.add_set_data(directory, &[], None)?;
        writer.add_create(path, data, &CreateMode::Ephemeral.with_acls(self.access()))?;
        Ok(writer.commit())
    }
}

impl Connection for Kezhuw {
    fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    fn link_changed(&self) -> LinkChange<'_> {
        Box::pin(async move {
            match self.states.lock().await.changed().await {
                SessionState::SyncConnected => Link::Connected,
                // A read-only server commits nothing.
                SessionState::Disconnected | SessionState::ConnectedReadOnly => Link::Suspended,
                SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => Link::Ended,
            }
        })
    }

    fn beat(&self) -> Answer<'static, ()> {
        let deleted = self.client.delete(NO_NODE, None);
        Box::pin(async move {
            match deleted.await.map_err(Fault::from) {
                // Missing rights, too, are found by the leader.
                Ok(()) | Err(Fault { fate: Fate::Missing | Fate::Denied, .. }) => Ok(()),
                Err(fault) => Err(fault),
            }
        })
    }

    fn create_in_line<'a>(&'a self, prefix: &'a str, data: &[u8]) -> Answer<'a, Created> {
        self.make(prefix, data, CreateMode::EphemeralSequential)
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Answer<'a, Created> {
        self.make(path, data, CreateMode::Ephemeral)
    }

    fn claim<'a>(&'a self, directory: &'a str, path: &'a str, data: &[u8]) -> Answer<'a, Option<Created>> {
        match self.write_claim(directory, path, data) {
            Ok(written) => Box::pin(async move {
                let results = match written.await.map_err(Error::from) {
                    Err(Error::NotEmpty) => return Ok(None),
                    written => written?,
                };
                // Before ZooKeeper 3.8.2 a creation's own answer lacks the number of the transaction; a change's has it.
                let transaction = results.iter().find_map(|result| match result {
                    MultiWriteResult::SetData { stat } => Some(stat.mzxid),
                    _ => None,
                });
                let lacking = || Fault { fate: Fate::Unknown, source: "the answer to a change is missing".into() };
                Ok(Some(Created { path: path.to_owned(), czxid: transaction.ok_or_else(lacking)? }))
            }),
            Err(fault) => Box::pin(future::ready(Err(fault))),
        }
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.client.mkdir(path, &CreateMode::Container.with_acls(self.access())).await?) })
    }

    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        let listed = self.client.list_children(path);
        Box::pin(async move { Ok(listed.await?) })
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Change)> {
        let listed = self.client.list_and_watch_children(path);
        Box::pin(async move {
            let (names, watcher) = listed.await?;
            Ok((names, Box::pin(async move { drop(watcher.changed().await) }) as Change))
        })
    }

    fn sync<'a>(&'a self, path: &'a str) -> Answer<'a, ()> {
        let synced = self.client.sync(path);
        Box::pin(async move { Ok(synced.await?) })
    }

    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Change>> {
        // Not by asking whether it exists: that would leave a watch on a node that is gone, and wake nobody.
        let watched = self.client.get_and_watch_data(path);
        Box::pin(async move {
            match watched.await {
                Ok((_, _, watcher)) => Ok(Some(Box::pin(async move { drop(watcher.changed().await) }) as Change)),
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read_all(&self, paths: &[String]) -> Answer<'_, Vec<Option<Node>>> {
        let chunks: Result<Vec<_>, Fault> = paths.chunks(CHUNK).map(|chunk| self.read_chunk(chunk)).collect();
        Box::pin(async move {
            let mut nodes = Vec::new();
            for read in chunks? {
                nodes.extend(read.await?.into_iter().map(node).collect::<Result<Vec<_>, _>>()?);
            }
            Ok(nodes)
        })
    }

    fn exchange(&self, old: &[String], new: &[Wanted], data: &[u8]) -> Answer<'_, Vec<String>> {
        match self.write_all(old, new, data) {
            Ok(written) => Box::pin(async move {
                let results = written.await.map_err(Error::from)?;
                let path = |result| if let MultiWriteResult::Create { path, .. } = result { Some(path) } else { None };
                Ok(results.into_iter().filter_map(path).collect())
            }),
            Err(fault) => Box::pin(future::ready(Err(fault))),
        }
    }

    fn hand_over(&self, from: &str, to: &str) -> Answer<'_, ()> {
        let mut writer = self.client.new_multi_writer();
        let added = writer.add_check_version(to, NEVER_CHANGED).and_then(|()| writer.add_delete(from, None));
        if let Err(error) = added {
            return Box::pin(future::ready(Err(error.into())));
        }
        let written = writer.commit();
        Box::pin(async move {
            written.await.map_err(Error::from)?;
            Ok(())
        })
    }

    fn delete(&self, path: &str) -> Answer<'static, bool> {
        let deleted = self.client.delete(path, None);
        Box::pin(async move {
            match deleted.await {
                Ok(()) => Ok(true),
                Err(Error::NoNode) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }
}

fn node(result: MultiReadResult) -> Result<Option<Node>, Fault> {
    match result {
        MultiReadResult::Data { data, stat } => {
            Ok(Some(Node { data, czxid: stat.czxid, made_at: stat.ctime, session: stat.ephemeral_owner }))
        }
        MultiReadResult::Error { err: Error::NoNode } => Ok(None),
        MultiReadResult::Error { err } => Err(err.into()),
        _ => Err(Fault { fate: Fate::Refused, source: "the answer is not to what was asked".into() }),
    }
}
