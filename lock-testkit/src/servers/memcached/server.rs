//! One memcached server: on a free loopback port, gone when the suite is gone.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::client::Memcached;
use super::options::MemcachedOptions;
use super::program;
use crate::harness::{Broken, Missing};
use crate::servers::own::Own;
use crate::servers::ports::{free_port, on_free_ports};
use crate::servers::process::Process;
use crate::servers::url::ServerUrl;
use crate::time::promptly;

/// The variable that points the suite at an existing server (`memcached://host:port/`) instead.
pub const URL_VARIABLE: &str = "LOCK_TESTKIT_MEMCACHED_URL";

/// A running server. Stopped, with its directory removed, when this is dropped, and also if the process is killed.
#[derive(Debug)]
pub struct MemcachedServer {
    url: String,
    address: String,
    own: Own,
}

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
            let server = Self::prepare(options, &program).map_err(|error| broken(&error))?;
            server.launch().await.map(|()| server)
        })
        .await
    }

    /// The server that runs at this URL, which is not ours to stop. No traffic yet.
    ///
    /// # Errors
    /// If the URL is of another form than `memcached://host:port/`.
    pub fn existing(url: impl Into<String>) -> Result<Self, Broken> {
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

    /// Where clients connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `host:port`, likewise.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process id of our own server while it runs; `None` for an existing one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.own.pid()
    }

    /// Whether our own server could answer: it was started, has not ended, and is not frozen. An existing one is taken to
    /// run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.own.is_running()
    }

    /// The directory of our own server, with what it said; `None` for an existing one.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.own.directory()
    }

    /// A client for ground truth, which opens a connection for every command.
    #[must_use]
    pub fn client(&self) -> Memcached {
        Memcached::new(&self.address)
    }

    /// Freezes the server (SIGSTOP): connections stay, nothing is answered, and its clock stands still.
    ///
    /// # Errors
    /// If it does not run, or is not ours.
    pub fn stop(&self) -> Result<(), Broken> {
        Ok(self.own.process()?.freeze()?)
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// If it does not run, or is not ours.
    pub fn cont(&self) -> Result<(), Broken> {
        Ok(self.own.process()?.thaw()?)
    }

    /// Kills the server (SIGKILL) and waits until it is gone, and with it every item.
    ///
    /// # Errors
    /// If it is not ours.
    pub fn kill(&self) -> Result<(), Broken> {
        Ok(self.own.process()?.kill()?)
    }

    /// Kills the server if it runs, and starts it again, empty, on the same port.
    ///
    /// # Errors
    /// If it is not ours, or does not start.
    pub async fn restart(&self) -> Result<(), Broken> {
        Ok(self.launch().await?)
    }

    async fn launch(&self) -> Result<(), Missing> {
        self.own.process()?.start().map_err(|error| broken(&error))?;
        self.ready().await
    }

    /// Waits for the server's first answer.
    async fn ready(&self) -> Result<(), Missing> {
        let (client, began) = (self.client(), Instant::now());
        while let Err(error) = client.command("version").await {
            if !self.is_running() || began.elapsed() >= promptly() {
                return Err(Missing::new(format!("no answer from {}: {error}{}", self.url, self.own.last_words())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

fn broken(error: &io::Error) -> Missing {
    Missing::new(format!("the server could not be started: {error}"))
}
