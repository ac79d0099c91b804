//! The simulated memcached at a port of its own.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::SystemTime;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit_servers::Deployment;
use simulation::memcached::server;
use simulation::memcached::store::Store;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

use crate::harness::Arrangement;

/// The time for which the server says that it has been up, in µs: longer than any lease, so that quarantines end early.
const UP_FOR: u64 = 3_600_000_000;

/// A server, in a thread of its own until this is dropped.
pub(crate) struct Simulated {
    url: String,
    _alive: oneshot::Sender<()>,
}

#[async_trait]
impl Deployment for Simulated {
    const NAME: &'static str = "simulated memcached";

    async fn start() -> Result<Self, Missing> {
        let missing = |error: io::Error| Missing::new(error.to_string());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(missing)?;
        listener.set_nonblocking(true).map_err(missing)?;
        let url = format!("memcached://{}/", listener.local_addr().map_err(missing)?);
        let (alive, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(missing)?;
        std::thread::spawn(move || runtime.block_on(LocalSet::new().run_until(serve(listener, ended))));
        Ok(Self { url, _alive: alive })
    }

    fn url(&self) -> &str {
        &self.url
    }
}

/// Nothing can be done to it that the seeds do not do.
impl Arrangement for Simulated {}

async fn serve(listener: std::net::TcpListener, mut ended: oneshot::Receiver<()>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let store = Rc::new(RefCell::new(Store::started(now().saturating_sub(UP_FOR))));
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted?,
            _ = &mut ended => return Ok(()),
        };
        stream.set_nodelay(true)?;
        let store = store.clone();
        // However it ends, the client sees it.
        spawn_local(async move { server::serve(&store, stream, now).await });
    }
}

/// µs since 1970; a clock before it stands still.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
