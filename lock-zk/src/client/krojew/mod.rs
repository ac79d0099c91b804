//! The crate `zookeeper-async` behind our trait, with what it needs from outside.
//!
//! | what it lacks | what stands for it |
//! |---|---|
//! | its session's id | beats: each makes a node, and the answer says of which session it is |
//! | the timeout as negotiated | [`greeting`]: a session of our own asks for it |
//! | a new session after an expiry is not announced | [`links`], and every node that is made is looked at |
//! | answers are not compared with requests: one too many, and each is taken for another | the same; then the session is given up |
//! | requests are sent when their answers are polled, too many at once hang it | [`outbox`] |
//! | watches and credentials go with the connection | [`watches`] are called changed; the outbox shows credentials again |
//! | transactions | [`exchange`] |
//! | a server that is silent | links again; a client that hangs is given up when its session's lease ends |

mod exchange;
mod fault;
mod greeting;
mod links;
mod outbox;
mod watches;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{self, join_all};
use lock_core::GrantId;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use zookeeper_async::{Acl, CreateMode, Permission, Stat, ZkError, ZkResult, ZooKeeper};

use super::{Answer, Change, Connection, Created, Door, Fate, Fault, Link, LinkChange, Node, Wanted};
use crate::access::Access;
use links::Links;
use outbox::Outbox;
use watches::{Subject, Watches};

/// Shorter sessions than this the crate cannot keep: it computes with whole seconds.
pub(crate) const SHORTEST_SESSION: Duration = Duration::from_secs(2);

/// Between two tries of the crate to connect.
const RETRY: Duration = Duration::from_millis(100);

/// One session, by `zookeeper-async`.
#[derive(Debug)]
pub(crate) struct Krojew {
    wire: Arc<Wire>,
    timeout: Duration,
    news: Mutex<mpsc::UnboundedReceiver<Link>>,
    exchanges: Arc<Mutex<()>>,
}

/// What requests need; it outlives the connection by those that are under way.
#[derive(Debug)]
struct Wire {
    outbox: Outbox,
    links: Arc<Links>,
    watches: Arc<Watches>,
    runtime: Handle,
    /// 0 until the first beat has said it.
    session: AtomicU64,
    /// Who may touch what is made.
    access: Vec<Acl>,
    /// What the paths of beats begin with.
    sign: String,
    beats: AtomicU64,
}

impl Krojew {
    /// A new session with one of the servers.
    pub(crate) async fn connect(door: &Door) -> Result<Self, Fault> {
        let late = |_| Err(Fault { fate: Fate::Unknown, source: "no server answered in time".into() });
        tokio::time::timeout(door.timeout, Self::open(door)).await.unwrap_or_else(late)
    }

    async fn open(door: &Door) -> Result<Self, Fault> {
        let greeted = greeting::greet_all(&door.servers, door.timeout).await?;
        if greeted.timeout < SHORTEST_SESSION {
            let what = format!("the servers grant a session of {:?}, less than this client can keep", greeted.timeout);
            return Err(Fault { fate: Fate::Refused, source: what.into() });
        }
        let watches = Arc::<Watches>::default();
        let (links, news) = Links::new(watches.clone());
        let changed = watches.clone();
        let servers = format!("{}{}", greeted.servers, door.chroot);
        let fire = move |event| changed.fire(&event);
        let client = ZooKeeper::connect_with_retry_time(&servers, greeted.timeout, fire, RETRY).await?;
        let heard = links.clone();
        client.add_listener(move |state| heard.hear(state));
        let silence = greeted.timeout * 2 / 5;
        let (outbox, sending) = Outbox::new(client, links.clone(), door.credentials.clone(), silence);
        let runtime = Handle::current();
        runtime.spawn(sending);
        let sign = GrantId::random().map_err(|error| Fault { fate: Fate::Refused, source: Box::new(error) })?;
        let directory = format!("/{}/sessions", door.prefix);
        let wire = Wire {
            outbox,
            links,
            watches,
            runtime,
            session: AtomicU64::new(0),
            access: acl(&door.access),
            sign: format!("{directory}/{sign}-"),
            beats: AtomicU64::new(0),
        };
        let wire = Arc::new(wire);
        wire.make_directory(&directory).await?;
        wire.beat().await?;
        Ok(Self { wire, timeout: greeted.timeout, news: Mutex::new(news), exchanges: Arc::default() })
    }
}

impl Wire {
    /// Hands a request in, and answers what became of it.
    fn ask<T, F>(&self, request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send,
    {
        self.outbox.send(request)
    }

    fn session(&self) -> i64 {
        self.session.load(Ordering::Acquire).cast_signed()
    }

    /// Makes a node, provided that our session is what makes it.
    fn make(self: &Arc<Self>, path: &str, data: Vec<u8>, mode: CreateMode) -> Answer<'static, Created> {
        let (wire, stem) = (self.clone(), path.to_owned());
        let access = self.access.clone();
        let made = self.ask({
            let stem = stem.clone();
            async move |client| client.create2(&stem, data, access, mode).await
        });
        Box::pin(async move {
            let (path, stat) = made.await?;
            wire.judge(&stem, &path, &stat)?;
            Ok(Created { path, czxid: stat.czxid })
        })
    }

    /// Whether the answer is to this request, and of our session. If not, the crate has opened another one, or takes answers
    /// for those to other requests, and nothing that it says counts any more.
    fn judge(&self, stem: &str, path: &str, stat: &Stat) -> Result<(), Fault> {
        let session = stat.ephemeral_owner.cast_unsigned();
        let known = self.session.compare_exchange(0, session, Ordering::AcqRel, Ordering::Acquire);
        if path.starts_with(stem) && known.map_or_else(|known| known == session, |_| session != 0) {
            return Ok(());
        }
        self.links.end();
        if path.starts_with(stem) {
            drop(self.delete(path));
        }
        Err(Fault { fate: Fate::Ended, source: "the client crate has gone on in another session".into() })
    }

    /// Makes a node, whose answer names the session that made it, and deletes the one of the beat before.
    fn beat(self: &Arc<Self>) -> Answer<'static, ()> {
        let number = self.beats.fetch_add(1, Ordering::Relaxed);
        let made = self.make(&format!("{}{number}", self.sign), Vec::new(), CreateMode::Ephemeral);
        if let Some(before) = number.checked_sub(1) {
            drop(self.delete(&format!("{}{before}", self.sign)));
        }
        let links = self.links.clone();
        Box::pin(async move {
            let made = made.await;
            if let Err(Fault { fate: Fate::Missing | Fate::Exists, .. }) = made {
                // Nobody else makes it, and its directory is not empty: the crate takes answers for those to other requests.
                links.end();
            }
            made.map(drop)
        })
    }

    /// Asks for every directory on the way at once. One that is there answers so, or that it may not be made.
    fn make_directory(&self, path: &str) -> Answer<'static, ()> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        let made = ends.map(|end| {
            let (directory, access) = (path[..end].to_owned(), self.access.clone());
            self.ask(async move |client| client.create(&directory, Vec::new(), access, CreateMode::Container).await)
        });
        let made = join_all(made.collect::<Vec<_>>());
        Box::pin(async move {
            let mut refusal = None;
            for outcome in made.await {
                match outcome {
                    Ok(_) | Err(Fault { fate: Fate::Exists, .. }) => refusal = None,
                    // What is missing here has been refused above.
                    Err(fault) if fault.fate != Fate::Missing || refusal.is_none() => refusal = Some(fault),
                    Err(_) => {}
                }
            }
            refusal.map_or(Ok(()), Err)
        })
    }

    fn children(&self, path: &str, watch: bool) -> Answer<'static, Vec<String>> {
        let path = path.to_owned();
        self.ask(async move |client| client.get_children(&path, watch).await)
    }

    fn read(&self, path: &str, watch: bool) -> Answer<'static, Option<Node>> {
        let path = path.to_owned();
        let read = self.ask(async move |client| client.get_data(&path, watch).await);
        Box::pin(async move {
            match read.await {
                Ok((data, stat)) => {
                    let Stat { czxid, ctime: made_at, ephemeral_owner: session, .. } = stat;
                    Ok(Some(Node { data, czxid, made_at, session }))
                }
                Err(fault) if fault.fate == Fate::Missing => Ok(None),
                Err(fault) => Err(fault),
            }
        })
    }

    fn read_all(&self, paths: &[String]) -> Answer<'static, Vec<Option<Node>>> {
        let read: Vec<_> = paths.iter().map(|path| self.read(path, false)).collect();
        Box::pin(async move { join_all(read).await.into_iter().collect() })
    }

    fn delete(&self, path: &str) -> Answer<'static, bool> {
        let path = path.to_owned();
        self.ask(async move |client| match client.delete(&path, None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(error),
        })
    }
}

impl Connection for Krojew {
    fn id(&self) -> i64 {
        self.wire.session()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn link_changed(&self) -> LinkChange<'_> {
        Box::pin(async move {
            // The sender lives in the listener, as long as this: nothing comes after the end.
            match self.news.lock().await.recv().await {
                Some(link) => link,
                None => future::pending().await,
            }
        })
    }

    fn beat(&self) -> Answer<'static, ()> {
        self.wire.beat()
    }

    fn create_in_line<'a>(&'a self, prefix: &'a str, data: &[u8]) -> Answer<'a, Created> {
        self.wire.make(prefix, data.to_vec(), CreateMode::EphemeralSequential)
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Answer<'a, Created> {
        self.wire.make(path, data.to_vec(), CreateMode::Ephemeral)
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Answer<'a, ()> {
        self.wire.make_directory(path)
    }

    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>> {
        self.wire.children(path, false)
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Change)> {
        let watch = self.wire.watches.watch(path, Subject::Children);
        let listed = self.wire.children(path, true);
        Box::pin(async move { Ok((listed.await?, watch.fired())) })
    }

    /// A write of this session's, which its server answers when it knows all that was committed before.
    fn sync<'a>(&'a self, _path: &'a str) -> Answer<'a, ()> {
        self.wire.beat()
    }

    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Change>> {
        let watch = self.wire.watches.watch(path, Subject::Node);
        let read = self.wire.read(path, true);
        Box::pin(async move { Ok(read.await?.map(|_| watch.fired())) })
    }

    fn read_all(&self, paths: &[String]) -> Answer<'_, Vec<Option<Node>>> {
        self.wire.read_all(paths)
    }

    fn exchange(&self, old: &[String], new: &[Wanted], data: &[u8]) -> Answer<'_, Vec<String>> {
        exchange::begin(&self.wire, &self.exchanges, old, new, data)
    }

    /// Needs a transaction. The next one in line is woken all the same, and looks.
    fn hand_over(&self, _from: &str, _to: &str) -> Answer<'_, ()> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    /// Needs a transaction. Who asks for it is refused with the configuration.
    fn claim<'a>(&'a self, _directory: &'a str, _path: &'a str, _data: &[u8]) -> Answer<'a, Option<Created>> {
        Box::pin(future::ready(Err(no_transactions())))
    }

    fn delete(&self, path: &str) -> Answer<'static, bool> {
        self.wire.delete(path)
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

fn no_transactions() -> Fault {
    Fault { fate: Fate::Refused, source: "there are no transactions".into() }
}
