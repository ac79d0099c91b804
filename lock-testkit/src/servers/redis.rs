//! A Redis server of the suite's own: on a free loopback port, without persistence, gone when the suite is gone.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::resp::Resp;
use crate::harness::{Broken, Missing};
use crate::time::promptly;

/// The variable that points the suite at an existing deployment (`redis://host:port/`) instead.
pub const URL_VARIABLE: &str = "LOCK_TESTKIT_REDIS_URL";

/// How often another port is tried when somebody else was faster.
const TRIES: usize = 5;

/// The keeper of the server: it starts redis-server, says its process id, and waits for the end of its own standard
/// input, which comes when the suite closes the pipe, and also when the suite is killed. Then it kills the server.
///
/// Unless the last word that it was told is "keep", it removes the server's directory too, whose path is its `$0`.
///
/// (A parent-death signal would do the same, but needs `unsafe` code; a destructor alone does not run on SIGKILL.)
const KEEPER: &str = r#"
"$@" </dev/null >/dev/null 2>&1 &
server=$!
end() {
    kill -9 $server 2>/dev/null
    wait $server 2>/dev/null
    [ "$word" = keep ] || rm -rf "$0"
}
trap end EXIT
trap 'exit 1' HUP INT TERM
echo $server
while read -r line; do word=$line; done
"#;

/// A running server. Stopped, with its directory removed, when this is dropped, and also if the process is killed.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    /// `None` for an existing deployment, which is not ours to stop.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    port: u16,
    directory: PathBuf,
    running: Mutex<Option<Running>>,
}

/// The keeper and the server that it keeps.
#[derive(Debug)]
struct Running {
    keeper: Child,
    /// Closing it ends the server.
    lifeline: Option<ChildStdin>,
    server: Pid,
}

impl RedisServer {
    /// The deployment that [`URL_VARIABLE`] names, or else a server of our own.
    ///
    /// # Errors
    /// [`Missing`], naming the package to install, if there is no `redis-server`, or what went wrong with it.
    pub async fn start() -> Result<Self, Missing> {
        if let Ok(url) = std::env::var(URL_VARIABLE) {
            let server = Self { url, own: None };
            server.ready().await?;
            return Ok(server);
        }
        Self::start_own().await
    }

    /// A server of our own even where [`URL_VARIABLE`] names a deployment: for tests that freeze, kill or starve it.
    ///
    /// # Errors
    /// As [`start`](RedisServer::start).
    pub async fn start_own() -> Result<Self, Missing> {
        let mut outcome = Err(Missing::new("no port was free"));
        for _ in 0..TRIES {
            // Between our look and the server's own, somebody else may take the port; then another one is tried.
            outcome = Self::start_at(free_port().map_err(|error| broken(&error))?).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn start_at(port: u16) -> Result<Self, Missing> {
        let directory = fresh_directory().map_err(|error| broken(&error))?;
        let own = Own { port, directory, running: Mutex::new(None) };
        let server = Self { url: format!("redis://127.0.0.1:{port}/"), own: Some(own) };
        server.launch().await?;
        Ok(server)
    }

    /// Where clients connect to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The port of our own server; `None` for an existing deployment.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.own.as_ref().map(|own| own.port)
    }

    /// The process id of our own server while it runs; `None` for an existing deployment.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let running = self.own.as_ref()?.running();
        running.as_ref().and_then(|running| u32::try_from(running.server.as_raw_nonzero().get()).ok())
    }

    /// A client for ground truth, with a connection of its own.
    ///
    /// # Errors
    /// If an existing deployment's URL is of a form that this small client does not know.
    pub fn client(&self) -> Result<Resp, Broken> {
        Resp::from_url(&self.url)
    }

    /// Freezes the server (SIGSTOP): connections stay, nothing is answered.
    ///
    /// # Errors
    /// If it does not run, or is not ours.
    pub fn stop(&self) -> Result<(), Broken> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen server go on (SIGCONT).
    ///
    /// # Errors
    /// If it does not run, or is not ours.
    pub fn cont(&self) -> Result<(), Broken> {
        self.signal(Signal::CONT)
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// If it is not ours.
    pub fn kill(&self) -> Result<(), Broken> {
        let running = self.ours()?.running().take();
        if let Some(mut running) = running {
            if let Some(lifeline) = &mut running.lifeline {
                // If the keeper is gone, then so is the server.
                let _ = lifeline.write_all(b"keep\n");
            }
            drop(running);
        }
        Ok(())
    }

    /// Kills the server if it runs, and starts it again on the same port, with whatever its directory holds.
    ///
    /// # Errors
    /// If it is not ours, or does not start.
    pub async fn restart(&self) -> Result<(), Broken> {
        self.kill()?;
        Ok(self.launch().await?)
    }

    async fn launch(&self) -> Result<(), Missing> {
        if let Some(own) = &self.own {
            let running = own.launch()?;
            *own.running() = Some(running);
        }
        self.ready().await
    }

    /// Waits for the server's first answer.
    async fn ready(&self) -> Result<(), Missing> {
        let client = self.client().map_err(|error| Missing::new(error.to_string()))?;
        let began = Instant::now();
        // No `eventually`: the future of an asynchronous closure is not known to be `Send`, which a harness needs.
        while let Err(error) = client.command(&["PING"]).await {
            let ended = self.own.as_ref().is_some_and(Own::has_ended);
            if ended || began.elapsed() >= promptly() {
                return Err(Missing::new(format!("no answer from {}: {error}{}", self.url, self.last_words())));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The last line of our own server's log.
    fn last_words(&self) -> String {
        let log = self.own.as_ref().and_then(|own| std::fs::read_to_string(own.directory.join("log")).ok());
        log.and_then(|log| Some(format!(" ({})", log.lines().last()?))).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) -> Result<(), Broken> {
        let running = self.ours()?.running();
        let running = running.as_ref().ok_or_else(|| Broken::new("the server does not run"))?;
        Ok(kill_process(running.server, signal)?)
    }

    fn ours(&self) -> Result<&Own, Broken> {
        self.own.as_ref().ok_or_else(|| Broken::new("an existing deployment is not ours to stop"))
    }
}

impl Own {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        match &*self.running() {
            Some(running) => rustix::process::test_kill_process(running.server).is_err(),
            None => true,
        }
    }

    fn launch(&self) -> Result<Running, Missing> {
        let program = find("redis-server").ok_or_else(|| {
            Missing::new("redis-server is not installed (Debian package redis-server), and no URL is given")
        })?;
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER]).arg(&self.directory).arg(program);
        keeper.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        keeper.arg("--dir").arg(&self.directory).arg("--logfile").arg(self.directory.join("log"));
        keeper.args(["--enable-debug-command", "yes"]);
        let said = self.directory.join("pid");
        let output = File::create(&said).map_err(|error| broken(&error))?;
        let mut keeper = keeper.stdin(Stdio::piped()).stdout(output).spawn().map_err(|error| broken(&error))?;
        let lifeline = keeper.stdin.take();
        let server =
            wait_for_pid(&said).ok_or_else(|| Missing::new("the keeper of redis-server said no process id"))?;
        Ok(Running { keeper, lifeline, server })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.running().take());
        // The keeper has removed it, unless it never ran or was told to keep it. Best effort: it is no harm.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The end of its input makes the keeper kill the server, also a frozen one, and end itself.
        drop(self.lifeline.take());
        let _ = self.keeper.wait();
    }
}

/// The keeper writes the id before anything else; this takes microseconds, and has a second.
fn wait_for_pid(said: &std::path::Path) -> Option<Pid> {
    for _ in 0..1000 {
        let text = std::fs::read_to_string(said).ok()?;
        if text.ends_with('\n') {
            return Pid::from_raw(text.trim().parse().ok()?);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn fresh_directory() -> io::Result<PathBuf> {
    static SERVERS: AtomicU64 = AtomicU64::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("lock-testkit-redis-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn broken(error: &io::Error) -> Missing {
    Missing::new(format!("redis-server could not be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::eventually;

    fn is_alive(pid: u32) -> bool {
        // A killed process whose parent has not waited for it yet is no longer alive either.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_lives_as_long_as_its_handle() {
        let Ok(server) = RedisServer::start().await else { return };
        let Some(pid) = server.pid() else { return };
        assert!(is_alive(pid));
        let client = server.client().unwrap();
        assert_eq!(client.command(&["SET", "a", "1"]).await.unwrap().to_string(), "OK");
        server.restart().await.unwrap();
        assert!(!is_alive(pid));
        assert!(client.command(&["GET", "a"]).await.is_err(), "the old connection is gone");
        assert_eq!(client.command(&["GET", "a"]).await.unwrap().to_string(), "nil");
        let (pid, directory) = (server.pid().unwrap(), server.own.as_ref().unwrap().directory.clone());
        server.stop().unwrap();
        drop(server);
        assert!(!is_alive(pid) && !directory.exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_does_not_outlive_a_parent_that_was_killed() {
        let Ok(server) = RedisServer::start().await else { return };
        let Some(pid) = server.pid() else { return };
        // What the kernel does to the pipe of a killed parent: it closes it, and nothing else runs.
        server.own.as_ref().unwrap().running().as_mut().unwrap().lifeline.take();
        let directory = server.own.as_ref().unwrap().directory.clone();
        let gone = async || Ok((!is_alive(pid) && !directory.exists()).then_some(()));
        eventually("the server and its directory are gone", promptly(), gone).await.unwrap();
    }
}
