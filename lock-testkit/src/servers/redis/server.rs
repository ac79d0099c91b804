//! One Redis server: on a free loopback port, gone when the suite is gone.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::options::{Ports, RedisOptions};
use super::program::Program;
use crate::harness::{Broken, Missing};
use crate::servers::own::Own;
use crate::servers::ports::{free_port, on_free_ports};
use crate::servers::process::Process;
use crate::servers::resp::Resp;
use crate::servers::url::ServerUrl;
use crate::time::promptly;

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
            let server = Self::prepare(options, &program).map_err(|error| broken(&error))?;
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

    /// Where clients connect to.
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

    /// The process id of our own server while it runs; `None` for an existing deployment.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.own.pid()
    }

    /// Whether our own server could answer: it was started, has not ended, and is not frozen. An existing deployment is
    /// taken to run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.own.is_running()
    }

    /// The directory of our own server, with its log and its files; `None` for an existing deployment.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.own.directory()
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// A client for ground truth, with a connection of its own.
    ///
    /// # Errors
    /// If an existing deployment's URL is of a form that this small client does not know.
    pub fn client(&self) -> Result<Resp, Broken> {
        Resp::from_url(&self.plain_url)
    }

    /// Freezes the server (SIGSTOP): connections stay, nothing is answered.
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

    /// Kills the server (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// If it is not ours.
    pub fn kill(&self) -> Result<(), Broken> {
        Ok(self.own.process()?.kill()?)
    }

    /// Kills the server if it runs, and starts it again on the same port, with whatever its directory holds.
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
    pub(super) async fn ready(&self) -> Result<(), Missing> {
        let client = self.client()?;
        let began = Instant::now();
        // No `eventually`: the future of an asynchronous closure is not known to be `Send`, which a harness needs.
        while let Err(error) = client.command(&["PING"]).await {
            if !self.is_running() || began.elapsed() >= promptly() {
                return Err(Missing::new(format!("no answer from {}: {error}{}", self.url, self.own.last_words())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
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

fn broken(error: &io::Error) -> Missing {
    Missing::new(format!("the server could not be started: {error}"))
}
