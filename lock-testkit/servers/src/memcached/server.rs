//! One memcached server: on a free loopback port, gone when the suite is gone.

use std::io;
use std::path::Path;

use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::ports::free_port;

use super::client::Memcached;
use super::options::MemcachedOptions;
use super::program;
use crate::own::{Own, not_started, with_own_process};
use crate::ports::on_free_ports;
use crate::process::Process;
use crate::until::promptly;
use crate::url::ServerUrl;

/// The variable that points the suite at an existing server (`memcached://host:port/`) instead.
pub const URL_VARIABLE: &str = "LOCK_TESTKIT_MEMCACHED_URL";

/// A running server, whose clock stands still while it is frozen. Stopped, with its directory removed, when this is dropped, and also if the process is killed.
#[derive(Debug)]
pub struct MemcachedServer {
    url: String,
    address: String,
    own: Own,
}

with_own_process!(MemcachedServer);

impl MemcachedServer {
    /// The server that [`URL_VARIABLE`] names, or else one of our own.
    ///
    /// # Errors
    /// [`Missing`], naming the package to install, if there is no `memcached`, or what went wrong with it.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) => {
                let server = Self::existing(url)?;
                server.ready().await?;
                Ok(server)
            }
            Err(_) => Self::start_own().await,
        }
    }

    /// A server of our own even where [`URL_VARIABLE`] names one: for tests that freeze, kill, flush or starve it.
    ///
    /// # Errors
    /// As [`start`](MemcachedServer::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&MemcachedOptions::new()).await
    }

    /// A server of our own that runs like this.
    ///
    /// # Errors
    /// As [`start`](MemcachedServer::start), and if the server does not know a flag.
    pub async fn start_with(options: &MemcachedOptions) -> Result<Self, Missing> {
        let program = program::find()?;
        on_free_ports(|| async {
            let server = Self::prepare(options, &program).map_err(|error| not_started(&error))?;
            server.launch().await.map(|()| server)
        })
        .await
    }

    /// The server that runs at this URL, which is not ours to stop. No traffic yet.
    ///
    /// # Errors
    /// If the URL is of another form than `memcached://host:port/`.
    pub fn existing(url: impl Into<String>) -> Result<Self, HarnessError> {
        let url = url.into();
        let address = ServerUrl::parse(&url, 11211)?.addresses.remove(0);
        Ok(Self { url, address, own: Own::not() })
    }

    fn prepare(options: &MemcachedOptions, program: &Path) -> io::Result<Self> {
        // A port that outlives a restart: while the server is down, nobody is given it for an outgoing connection.
        let port = free_port()?;
        let process = Process::new("memcached", |_| Ok(options.command(program, port)))?;
        let address = format!("127.0.0.1:{port}");
        Ok(Self { url: format!("memcached://{address}/"), address, own: Own::new(process) })
    }

    /// The URL that clients connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `host:port`, likewise.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// A client for ground truth, which opens a connection for every command.
    #[must_use]
    pub fn client(&self) -> Memcached {
        Memcached::new(&self.address)
    }

    /// Kills the server if it runs, and starts it again, empty, on the same port.
    ///
    /// # Errors
    /// If it is not ours, or does not start.
    pub async fn restart(&self) -> Result<(), HarnessError> {
        Ok(self.launch().await?)
    }

    async fn launch(&self) -> Result<(), Missing> {
        self.own.process()?.start().map_err(|error| not_started(&error))?;
        self.ready().await
    }

    async fn ready(&self) -> Result<(), Missing> {
        Ok(self.until_ready().await?)
    }

    /// Waits until the server answers.
    ///
    /// # Errors
    /// If it ends, or takes too long, with what it said last.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        let client = self.client();
        let answers = || client.command("version");
        self.own.until(&format!("no answer from {}", self.url), promptly(), answers).await.map(drop)
    }
}
