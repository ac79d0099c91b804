//! The crate `zookeeper-async` behind our trait, with what it needs from outside.
//!
//! | what it lacks | what stands for it |
//! |---|---|
//! | its session's id | beats: each makes a node, and the answer says of which session it is |
//! | the timeout as negotiated | [`greeting`]: a session of our own asks for it |
//! | a new session after an expiry is not announced | [`links`], and every node that is made is looked at |
//! | answers are not compared with requests: one too many, and each is taken for another | the same; then the session is given up. A new connection is [put to the proof](outbox) first |
//! | containers | [`directories`]: a session of our own makes them |
//! | requests are sent when their answers are polled, too many at once hang it | [`outbox`] |
//! | watches and credentials go with the connection | [`watches`] are called changed; the outbox shows credentials again |
//! | transactions | [`exchange`] |
//! | a server that is silent | links again; a client that hangs is given up when its session's lease ends |

mod directories;
mod exchange;
mod fault;
mod greeting;
mod links;
mod outbox;
mod talk;
mod watches;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use lock_core::GrantId;
use lock_core::clock::BootInstant;
use tokio::sync::{Mutex, mpsc};
use zookeeper_async::{Acl, CreateMode, Permission, ZooKeeper};

use super::{Answer, Change, Connection, Created, Door, Fate, Fault, Found, Link, LinkChange, Manner, Node, Wanted};
use crate::access::Access;
use directories::Directories;
use links::Links;
use outbox::{Introduction, Outbox};
use watches::{Subject, Watches};
use wire::Wire;

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
        let directories = Directories::new(greeted.servers.clone(), greeted.timeout, door);
        let servers: Vec<_> = greeted.servers.iter().map(ToString::to_string).collect();
        let servers = format!("{}{}", servers.join(","), door.chroot);
        let fire = move |event| changed.fire(&event);
        let client = ZooKeeper::connect_with_retry_time(&servers, greeted.timeout, fire, RETRY).await?;
        let heard = links.clone();
        client.add_listener(move |state| heard.hear(state));
        let silence = greeted.timeout * 2 / 5;
        let id = GrantId::random().map_err(|error| Fault { fate: Fate::Refused, source: Box::new(error) })?;
        let directory = format!("/{}/sessions", door.prefix);
        let (sign, access) = (format!("{directory}/{id}-"), acl(&door.access));
        let introduction =
            Introduction { credentials: door.credentials.clone(), sign: sign.clone(), access: access.clone() };
        let (outbox, sending) = Outbox::new(client, links.clone(), introduction, silence);
        tokio::spawn(sending);
        let wire = Wire::new(outbox, links, watches, directories, access, sign);
        wire.make_directory(&directory).await?;
        first_beat(&wire).await?;
        Ok(Self { wire, timeout: greeted.timeout, news: Mutex::new(news), exchanges: Arc::default() })
    }
}

/// Asks whose session it is. The crate takes requests before it is connected, and their answers are not believed: asked again
/// then, until the time to connect is over.
async fn first_beat(wire: &Arc<Wire>) -> Result<(), Fault> {
    loop {
        match wire.beat().await {
            Err(fault) if fault.fate == Fate::Unknown => tokio::time::sleep(RETRY).await,
            answered => return answered,
        }
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

    fn unanswered_since(&self) -> Option<BootInstant> {
        self.wire.unanswered_since()
    }

    fn close(&self) {
        self.wire.close();
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

    fn sync<'a>(&'a self, _path: &'a str) -> Answer<'a, ()> {
        self.wire.sync()
    }

    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Change>> {
        let watch = self.wire.watches.watch(path, Subject::Node);
        let read = self.wire.read(Manner::InTurn, path, true);
        Box::pin(async move { Ok(read.await?.map(|_| watch.fired())) })
    }

    fn read_all(&self, paths: &[String]) -> Answer<'_, Vec<Option<Node>>> {
        self.wire.read_all(paths)
    }

    fn read_held(&self, paths: &[String]) -> Vec<Answer<'static, Found>> {
        let read = |path: &String| {
            let (path, read) = (path.clone(), self.wire.read(Manner::First, path, false));
            Box::pin(async move { Ok(vec![(path, read.await)]) }) as Answer<'static, Found>
        };
        paths.iter().map(read).collect()
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
