//! One Redis server: on a free loopback port, gone when the suite is gone.

pub(super) mod status;

use std::io;

use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::ports::free_port;

use crate::own::{Own, not_started, with_own_process};
use crate::ports::on_free_ports;
use crate::process::Process;
use crate::redis::options::{Ports, RedisOptions};
use crate::redis::program::Program;
use crate::resp::Resp;
use crate::until::promptly;
use crate::url::ServerUrl;

/// The variable that points the suite at an existing deployment (`redis://host:port/`) instead.
pub const URL_VARIABLE: &str = "LOCK_TESTKIT_REDIS_URL";

/// A running server. Stopped, with its directory removed, when this is dropped, and also if the process is killed.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    /// The way in for the suite's own client, which speaks neither TLS nor through Unix sockets.
    plain_url: String,
    address: String,
    /// `None` for an existing deployment.
    port: Option<u16>,
    own: Own,
}

with_own_process!(RedisServer);

impl RedisServer {
    /// The deployment that [`URL_VARIABLE`] names, or else a server of our own.
    ///
    /// # Errors
    /// [`Missing`], naming the package to install, if there is no `redis-server`, or what went wrong with it.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) => {
                let server = Self::existing(url);
                server.ready().await?;
                Ok(server)
            }
            Err(_) => Self::start_own().await,
        }
    }

    /// A server of our own even where [`URL_VARIABLE`] names a deployment: for tests that freeze, kill or starve it.
    ///
    /// # Errors
    /// As [`start`](RedisServer::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&RedisOptions::new()).await
    }

    /// A server of our own that runs like this.
    ///
    /// # Errors
    /// As [`start`](RedisServer::start), and if the server does not know an option. If it is built without TLS, as some
    /// are, the reason says so.
    pub async fn start_with(options: &RedisOptions) -> Result<Self, Missing> {
        let program = Program::find()?;
        let outcome = on_free_ports(|| async {
            let server = Self::prepare(options, &program).map_err(|error| not_started(&error))?;
            server.launch().await.map(|()| server)
        });
        outcome.await.map_err(|missing| explain(missing, &program))
    }

    /// The server that runs at this URL, which is not ours to stop. No traffic yet.
    #[must_use]
    pub fn existing(url: impl Into<String>) -> Self {
        let url = url.into();
        Self { plain_url: url.clone(), address: address_in(&url), url, port: None, own: Own::not() }
    }

    fn prepare(options: &RedisOptions, program: &Program) -> io::Result<Self> {
        let ports = Ports { plain: free_port()?, tls: free_port()? };
        let process = Process::new("redis", |directory| options.write(program, ports, directory))?;
        let url = options.url(ports, process.directory());
        let (port, own) = (Some(ports.plain), Own::new(process));
        Ok(Self { url, port, own, ..Self::existing(options.plain_url(ports)) })
    }

    /// The URL that clients connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `host:port`, where the suite's own client connects to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port of our own server (the one without TLS, if there are two); `None` for an existing deployment.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// A client for ground truth, with a connection of its own.
    ///
    /// # Errors
    /// If an existing deployment's URL is of a form that this small client does not know.
    pub fn client(&self) -> Result<Resp, HarnessError> {
        Resp::from_url(&self.plain_url)
    }

    /// Kills the server if it runs, and starts it again on the same port, with whatever its directory holds.
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

    pub(in crate::redis) async fn ready(&self) -> Result<(), Missing> {
        Ok(self.until_ready().await?)
    }

    /// Waits until the server answers.
    ///
    /// # Errors
    /// If it ends, or takes too long, with what it said last.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        let client = self.client()?;
        let answers = || client.command(&["PING"]);
        self.own.until(&format!("no answer from {}", self.url), promptly(), answers).await.map(drop)
    }
}

/// `host:port`, or nothing for a URL of another form, with which no client is made either.
fn address_in(url: &str) -> String {
    ServerUrl::parse(url, 6379).ok().and_then(|url| url.addresses.into_iter().next()).unwrap_or_default()
}

/// A server without TLS only says that it does not know the word.
fn explain(missing: Missing, program: &Program) -> Missing {
    if missing.to_string().contains(">>> 'tls-port") {
        return Missing::new(format!("{} is built without TLS", program.path.display()));
    }
    missing
}
