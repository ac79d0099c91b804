//! A specimen's session, which is replaced when it has ended.

use std::sync::Arc;
use std::time::Duration;

use lock_testkit::{HarnessError, ms};
use lock_testkit_servers::zookeeper::{Change, NodeKind, ZooKeeperClient};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The silence after which the server ends a session: twice the lease of the cases.
pub(super) const TIMEOUT: Duration = Duration::from_secs(4);

/// The number of times that a repeatable request is made: on a connection that is closed, in a session that is over, and
/// in a new one. A session that is fought for loses more than one connection before it is over.
const TRIES: u32 = 6;

/// The number of times that a session to be given up is closed: no server may lead just then.
const GIVING_UP: usize = 100;

/// One request after the other. Each is carried through in a task of its own: a caller that is gone neither tears it from
/// its connection nor lets what comes next overtake it.
#[derive(Debug, Clone)]
pub(super) struct Session {
    url: String,
    timeout: Duration,
    /// Whether it is given up with its connection.
    hasty: bool,
    /// Nothing after the session's end.
    client: Arc<Mutex<Option<Arc<ZooKeeperClient>>>>,
}

impl Session {
    pub(super) async fn open(url: &str, timeout: Duration) -> Result<Self, HarnessError> {
        let client = ZooKeeperClient::connect_with(url, timeout).await?;
        Ok(Self { url: url.to_owned(), timeout, hasty: false, client: Arc::new(Mutex::new(Some(Arc::new(client)))) })
    }

    /// Gives the session up for a new one whenever a request fails.
    pub(super) fn hasty(mut self) -> Self {
        self.hasty = true;
        self
    }

    /// Makes a node, and its parents if they are missing; its path, or `None` if there is one already.
    pub(super) async fn create(&self, path: String, kind: NodeKind) -> Result<Option<String>, HarnessError> {
        // Who cannot say whether it was done must not do it again.
        self.request(1, move |client| {
            let path = path.clone();
            async move {
                match (client.create(&path, b"", kind).await, path.rsplit_once('/')) {
                    (Err(error), Some((directory, _))) if error.to_string().contains("NoNode") => {
                        client.create_all(directory).await?;
                        client.create(&path, b"", kind).await
                    }
                    (made, _) => made,
                }
            }
        })
        .await
    }

    /// The names in a directory; none if there is no such directory.
    pub(super) async fn children(&self, directory: String) -> Result<Vec<String>, HarnessError> {
        self.request(TRIES, move |client| {
            let directory = directory.clone();
            async move { Ok(client.children(&directory).await?.unwrap_or_default()) }
        })
        .await
    }

    /// Lists the children, and watches for a change of them.
    pub(super) async fn watch_children(
        &self,
        directory: String,
    ) -> Result<(Vec<String>, Option<Change>), HarnessError> {
        self.request(TRIES, move |client| {
            let directory = directory.clone();
            async move { Ok(client.watch_children(&directory).await?.unzip()) }
        })
        .await
        .map(|(names, change)| (names.unwrap_or_default(), change))
    }

    /// Watches for a node's deletion; nothing if it is gone already.
    pub(super) async fn watch(&self, path: String) -> Result<Option<Change>, HarnessError> {
        self.request(TRIES, move |client| {
            let path = path.clone();
            async move { client.watch_data(&path).await }
        })
        .await
    }

    /// Waits for a change. Whoever waits is not woken before: what keeps the session alive meanwhile is a task.
    pub(super) async fn until(self, mut change: Change) {
        let mut waiting = JoinSet::new();
        waiting.spawn(async move {
            // Without an answer, another look finds out what there is.
            while timeout(self.timeout / 4, change.happened()).await.is_err() && self.is_answered().await {}
        });
        waiting.join_next().await;
    }

    async fn is_answered(&self) -> bool {
        self.request(TRIES, |client| async move { client.exists("/").await }).await.is_ok()
    }

    /// Deletes a node; whether there was one.
    pub(super) async fn delete(&self, path: String) -> Result<bool, HarnessError> {
        self.request(TRIES, move |client| {
            let path = path.clone();
            async move { client.delete(&path).await }
        })
        .await
    }

    async fn request<T, F>(
        &self,
        tries: u32,
        ask: impl Fn(Arc<ZooKeeperClient>) -> F + Send + Sync + 'static,
    ) -> Result<T, HarnessError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HarnessError>> + Send + 'static,
    {
        let (url, timeout, hasty) = (self.url.clone(), self.timeout, self.hasty);
        let mut slot = self.client.clone().lock_owned().await;
        let carried = tokio::spawn(async move {
            let mut outcome = Err(HarnessError::new("there was no try"));
            for _ in 0..tries {
                let client = match &*slot {
                    Some(client) => client.clone(),
                    None => slot.insert(Arc::new(ZooKeeperClient::connect_with(&url, timeout).await?)).clone(),
                };
                outcome = ask(client).await;
                match &outcome {
                    Ok(_) => break,
                    Err(error) if error.to_string().contains("SessionExpired") => *slot = None,
                    Err(_) if hasty => give_up(&url, slot.take()).await,
                    Err(_) => {}
                }
            }
            outcome
        });
        carried.await?
    }
}

/// Closes a session for good, on another connection.
async fn give_up(url: &str, session: Option<Arc<ZooKeeperClient>>) {
    let Some(session) = session else { return };
    for _ in 0..GIVING_UP {
        let ended = async { ZooKeeperClient::take_over(url, session.session()).await?.close().await };
        match ended.await {
            Ok(()) => return,
            Err(error) if error.to_string().contains("SessionExpired") => return,
            Err(_) => tokio::time::sleep(ms(50)).await,
        }
    }
}
