//! The crate `zookeeper-async` behind our trait, with what it needs from outside.
//!
//! | what it lacks | what stands for it |
//! |---|---|
//! | its session's id | heartbeats: each makes a node, and the answer says of which session it is |
//! | the timeout as negotiated | [`handshake`]: a session of our own asks for it |
//! | a new session after an expiry is not announced | [`link_monitor`], and every node that is made is looked at |
//! | answers are not compared with requests: one too many, and each is taken for another | the same; then the servers are made to [end the connection](scheduler), and the next one is put to the proof first. What is counted is asked for with a proof behind it |
//! | containers | [`directories`]: a session of our own makes them |
//! | requests are sent when their answers are polled, too many at once hang it | [`scheduler`] |
//! | watches and credentials go with the connection | [`watches`] are called changed; the scheduler shows credentials again |
//! | transactions | [`exchange`] |
//! | a server that is silent | [`link_monitor`]; a client that hangs is given up when its session's lease ends |

mod directories;
mod error;
mod exchange;
mod handshake;
mod judged;
mod link_monitor;
mod raw_session;
mod requests;
mod scheduler;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{self, BoxFuture};
use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::{Mutex, watch};
use zookeeper_async::{Acl, CreateMode, Permission, ZooKeeper};

use super::departure::Departure;
use super::{
    Claim, ConnectOptions, Connection, Created, Failure, Fate, LONGEST_BACKLOG, LinkChange, LinkState, Names, NewNode,
    Node, NodeChange, Priority, ReadNodes, Response,
};
use crate::access::Access;
use directories::Directories;
use exchange::Exchanges;
use link_monitor::LinkMonitor;
use requests::Requests;
use scheduler::{Preamble, Scheduler};
use watches::{Subject, Watches};

/// Shorter sessions than this the crate cannot keep: it computes with whole seconds.
pub(crate) const SHORTEST_SESSION: Duration = Duration::from_secs(2);

/// Between two tries of the crate to connect.
const RETRY: Duration = Duration::from_millis(100);

/// One session, by `zookeeper-async`.
#[derive(Debug)]
pub(crate) struct ZookeeperAsync {
    requests: Arc<Requests>,
    asked_at: BootInstant,
    timeout: Duration,
    news: Mutex<watch::Receiver<LinkState>>,
    exchanges: Exchanges,
}

impl ZookeeperAsync {
    /// A new session with one of the servers.
    pub(crate) async fn connect(options: &ConnectOptions) -> Result<Self, Failure> {
        let late = |_| Err(Failure { fate: Fate::Unknown, source: "no server answered in time".into() });
        tokio::time::timeout(options.timeout, Self::open(options)).await.unwrap_or_else(late)
    }

    async fn open(options: &ConnectOptions) -> Result<Self, Failure> {
        let greeted = handshake::greet_all(&options.servers, options.timeout).await?;
        if greeted.timeout < SHORTEST_SESSION {
            let what = format!("the servers grant a session of {:?}, less than this client can keep", greeted.timeout);
            return Err(Failure { fate: Fate::Refused, source: what.into() });
        }
        let watches = Arc::<Watches>::default();
        let (links, news) = LinkMonitor::new(watches.clone());
        let changed = watches.clone();
        let directories = Directories::new(greeted.servers.clone(), greeted.timeout, options);
        let servers: Vec<_> = greeted.servers.iter().map(ToString::to_string).collect();
        let servers = format!("{}{}", servers.join(","), options.chroot);
        let fire = move |event| changed.fire(&event);
        let asked_at = SystemClock.now();
        let client = ZooKeeper::connect_with_retry_time(&servers, greeted.timeout, fire, RETRY).await?;
        let heard = links.clone();
        client.add_listener(move |state| heard.hear(state));
        let silence = greeted.timeout * 2 / 5;
        let id = GrantId::random().map_err(|error| Failure { fate: Fate::Refused, source: Box::new(error) })?;
        let directory = format!("/{}/sessions", options.prefix);
        let (sign, access) = (format!("{directory}/{id}-"), acl(&options.access));
        let preamble =
            Preamble { credentials: options.credentials.clone(), sign: sign.clone(), access: access.clone() };
        let (scheduler, sending) = Scheduler::new(client, links.clone(), preamble, silence);
        tokio::spawn(sending);
        let requests = Requests::new(scheduler, links, watches, directories, access, sign);
        requests.make_directory(&directory).await?;
        first_heartbeat(&requests).await?;
        let (timeout, news) = (greeted.timeout, Mutex::new(news));
        Ok(Self { requests, asked_at, timeout, news, exchanges: Exchanges::default() })
    }
}

#[cfg(test)]
impl ZookeeperAsync {
    /// A lasting session with the server at this address.
    async fn to(address: &str) -> Self {
        let options = ConnectOptions {
            servers: address.to_owned(),
            chroot: String::new(),
            prefix: "lock".to_owned(),
            timeout: Duration::from_secs(20),
            credentials: None,
            tls: None,
            access: Access::Everybody,
        };
        Self::connect(&options).await.unwrap()
    }
}

/// Asks whose session it is. The crate takes requests before it is connected, and their answers are not believed: asked again
/// then, until the time to connect is over.
async fn first_heartbeat(requests: &Arc<Requests>) -> Result<(), Failure> {
    loop {
        match requests.heartbeat().await {
            Err(failure) if failure.fate == Fate::Unknown => tokio::time::sleep(RETRY).await,
            answered => return answered,
        }
    }
}

impl Connection for ZookeeperAsync {
    fn id(&self) -> i64 {
        self.requests.session()
    }

    fn asked_at(&self) -> BootInstant {
        self.asked_at
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn link_changed(&self) -> LinkChange<'_> {
        Box::pin(async move {
            let mut news = self.news.lock().await;
            match news.changed().await {
                Ok(()) => *news.borrow_and_update(),
                // The sender lives in the listener, as long as this: nothing comes after the end.
                Err(_) => future::pending().await,
            }
        })
    }

    fn unanswered_since(&self) -> Option<BootInstant> {
        self.requests.unanswered_since()
    }

    fn close(&self) {
        self.requests.close();
    }

    fn heartbeat(&self) -> Response<'static, ()> {
        self.requests.heartbeat()
    }

    fn append(
        &self,
        stem: &str,
        data: &[u8],
        directory: &str,
        departure: &Departure,
    ) -> (Response<'static, Created>, Response<'static, Names>) {
        let created = self.requests.make(stem, data.to_vec(), CreateMode::EphemeralSequential, departure.clone());
        (created, self.requests.children(directory))
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Response<'a, Created> {
        self.requests.make(path, data.to_vec(), CreateMode::Ephemeral, Departure::default())
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Response<'a, ()> {
        self.requests.make_directory(path)
    }

    fn children<'a>(&'a self, path: &'a str) -> Response<'a, Names> {
        self.requests.children(path)
    }

    fn children_proven<'a>(&'a self, path: &'a str) -> Response<'a, Names> {
        let listed = self.requests.children_proven(path, false);
        Box::pin(async move { listed.await.map(Arc::new) })
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Response<'a, (Vec<String>, NodeChange)> {
        let watch = self.requests.watches.watch(path, Subject::Children);
        let listed = self.requests.children_proven(path, true);
        Box::pin(async move { Ok((listed.await?, watch.fired())) })
    }

    fn sync<'a>(&'a self, _path: &'a str) -> Response<'a, ()> {
        self.requests.sync()
    }

    fn watch<'a>(&'a self, path: &'a str) -> Response<'a, Option<NodeChange>> {
        let watch = self.requests.watches.watch(path, Subject::Node);
        let read = self.requests.watch(path);
        Box::pin(async move { Ok(read.await?.map(|_| watch.fired())) })
    }

    fn is_there<'a>(&'a self, path: &'a str) -> Response<'a, bool> {
        let read = self.requests.read_one(Priority::Normal, path);
        Box::pin(async move { Ok(read.await?.is_some()) })
    }

    fn read_all(&self, paths: &[String]) -> Response<'_, Vec<Option<Node>>> {
        self.requests.read_all(paths)
    }

    fn read_held(&self, paths: &[String]) -> Vec<Response<'static, ReadNodes>> {
        let read = |path: &String| {
            let (path, read) = (path.clone(), self.requests.read_one(Priority::Urgent, path));
            Box::pin(async move { Ok(vec![(path, read.await)]) }) as Response<'static, ReadNodes>
        };
        paths.iter().map(read).collect()
    }

    fn exchanged(&self, attempt: GrantId) -> BoxFuture<'_, ()> {
        Box::pin(self.exchanges.done(attempt))
    }

    fn exchange(&self, attempt: GrantId, old: &[String], new: &[NewNode], data: &[u8]) -> Response<'_, Vec<String>> {
        exchange::begin(&self.requests, &self.exchanges, attempt, old, new, data)
    }

    /// Needs a transaction. The next one in the queue is woken all the same, and looks.
    fn hand_over(&self, _from: &str, _to: &str) -> Response<'_, ()> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    /// Needs a transaction. Who asks for it is refused with the configuration.
    fn claim<'a>(&'a self, _directory: &'a str, _path: &'a str, _data: &[u8]) -> Response<'a, Option<Created>> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    fn claim_all(&self, _claims: &[Claim]) -> Response<'static, Option<Vec<Created>>> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    fn claim_beside(
        &self,
        _empty: &str,
        _new: &[NewNode],
        _data: &[u8],
        _directory: &str,
    ) -> (Response<'static, Option<Vec<Created>>>, Response<'static, Names>) {
        (Box::pin(future::ready(Err(no_transactions()))), Box::pin(future::ready(Err(no_transactions()))))
    }

    fn write_beside(&self, _holder: &str, _path: &str, _data: &[u8], _version: Option<i32>) -> Response<'_, ()> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    /// Needed for what only transactions make.
    fn delete_unchanged(&self, _path: &str, _version: i32) -> Response<'_, bool> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    fn delete(&self, path: &str) -> Response<'static, bool> {
        self.requests.delete(path)
    }
}

fn acl(access: &Access) -> Vec<Acl> {
    let all = |scheme: &str, id: &str| Acl::new(Permission::ALL, scheme, id);
    match access {
        Access::Everybody => vec![all("world", "anyone")],
        Access::Creator => vec![all("auth", "")],
        Access::Only(identities) => identities.iter().map(|(scheme, id)| all(scheme, id)).collect(),
    }
}

fn no_transactions() -> Failure {
    Failure { fate: Fate::Refused, source: "there are no transactions".into() }
}
