//! A semaphore of one permit that is shared with Curator, whose client is stopped beyond its session when it is about to make
//! its permit. It makes it in its next session, without a place in the queue, while ours has counted and not yet taken.

use std::fmt;
use std::future::Future;
use std::process::Stdio;
use std::time::Duration;

use lock_testkit::HarnessError;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
use lock_zk::{Dialect, LockName, Semaphore, ZkConfig, ZkLocks};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

const PATH: &str = "/late";
/// The directories of their nodes, and the data of a request for a permit.
const PLACES: &str = "/late/locks";
const PERMITS: &str = "/late/leases";
const PERMIT: &str = "-lease-";

const THEIR_SESSION: Duration = Duration::from_secs(1);
/// Ours lasts while its requests are held up.
const OUR_SESSION: Duration = Duration::from_secs(20);
/// For each step. Curator's client looks for its server after up to a second.
const PATIENCE: Duration = Duration::from_secs(15);

/// The outcome of the rounds.
#[derive(Debug)]
pub(crate) struct Outcome {
    rounds: u32,
    /// Rounds in which ours was granted the permit while Curator's client held it.
    overlaps: u32,
}

impl Outcome {
    pub(crate) fn is_clean(&self) -> bool {
        self.overlaps == 0
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, overlaps } = self;
        let told = if self.is_clean() { "met" } else { "**missed**" };
        writeln!(f, "- {rounds} late permits of Curator's client; ours beside it in {overlaps}: {told}")
    }
}

/// Plays so many rounds.
pub(crate) async fn run(rounds: u32) -> Result<Outcome, HarnessError> {
    let server = ZooKeeperServer::start_own().await?;
    let truth = server.client().await?;
    let (our_link, their_link) = (link(&server)?, link(&server)?);
    let config = ZkConfig::new(format!("zk://{}", our_link.address()))
        .with_session_timeout(OUR_SESSION)
        .with_tick_time(Duration::from_millis(200))
        .with_dialect_at(PATH, Dialect::Curator);
    let locks = ZkLocks::connect_with(config).await?;
    let ours = locks.semaphore(LockName::from_key(PATH)?, 1);
    // So that the directories are there.
    ours.acquire().await?.release().await?;
    let mut curator = Curator::start(&their_link).await?;
    let mut overlaps = 0;
    for _ in 0..rounds {
        curator.is_stopped_before_its_permit(&their_link, &truth).await?;
        overlaps += u32::from(!round(&ours, &our_link, &mut curator, &truth).await?);
    }
    locks.close().await?;
    Ok(Outcome { rounds, overlaps })
}

/// Lets Curator's client go on while ours takes the permit; whether ours waited until it was released.
async fn round(
    ours: &Semaphore,
    link: &Proxy,
    curator: &mut Curator,
    truth: &ZooKeeperClient,
) -> Result<bool, HarnessError> {
    let taking = link.inject(held(PERMIT));
    let waiter = ours.clone();
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    taking.applied(PATIENCE).await.map_err(|unproven| HarnessError::new(unproven.to_string()))?;
    curator.signal(Signal::CONT)?;
    curator.says("holds").await?;
    let before = changes(truth, PERMITS).await?;
    taking.heal().map_err(|unproven| HarnessError::new(unproven.to_string()))?;
    // It has made its permit and released it again, or believes that it has it.
    until("ours has counted once more", async || {
        Ok(waiting.is_finished() || changes(truth, PERMITS).await?.wrapping_sub(before) >= 2)
    })
    .await?;
    let waited = !waiting.is_finished();
    curator.is_told("release", "released").await?;
    within("ours is granted", waiting).await???.release().await?;
    Ok(waited)
}

/// A process with Curator's semaphore, killed when this is dropped.
struct Curator {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Curator {
    async fn start(link: &Proxy) -> Result<Self, HarnessError> {
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "CuratorPermit"]);
        command.args([&link.address(), PATH, &THEIR_SESSION.as_millis().to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(orders), Some(lines)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HarnessError::new("Curator's client has no pipes"));
        };
        let mut curator = Self { child, orders, lines: BufReader::new(lines).lines() };
        curator.says("ready").await?;
        Ok(curator)
    }

    /// It stands first in the queue, has asked for its permit, and has no session any more.
    async fn is_stopped_before_its_permit(
        &mut self,
        link: &Proxy,
        truth: &ZooKeeperClient,
    ) -> Result<(), HarnessError> {
        let making = link.inject(held(PERMIT));
        self.orders.write_all(b"acquire\n").await?;
        making.applied(PATIENCE).await.map_err(|unproven| HarnessError::new(unproven.to_string()))?;
        self.signal(Signal::STOP)?;
        until("its session is over", async || Ok(count(truth, PLACES).await? == 0)).await?;
        making.heal().map_err(|unproven| HarnessError::new(unproven.to_string()))?;
        Ok(())
    }

    async fn is_told(&mut self, order: &str, answer: &str) -> Result<(), HarnessError> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        self.says(answer).await
    }

    async fn says(&mut self, expected: &str) -> Result<(), HarnessError> {
        let said = within(expected, self.lines.next_line()).await??;
        match said {
            Some(said) if said == expected => Ok(()),
            said => Err(HarnessError::new(format!("Curator's client said {said:?}, not {expected:?}"))),
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), HarnessError> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(kill_process(id.ok_or_else(|| HarnessError::new("Curator's client has ended"))?, signal)?)
    }
}

fn link(server: &ZooKeeperServer) -> Result<Proxy, HarnessError> {
    Ok(Proxy::to(server.address(), Protocol::ZooKeeper)?)
}

/// Holds up the first request that contains this, and what follows it.
fn held(containing: &str) -> LinkFault {
    LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, containing)
}

async fn count(truth: &ZooKeeperClient, directory: &str) -> Result<usize, HarnessError> {
    Ok(truth.children(directory).await?.unwrap_or_default().len())
}

/// The number of nodes that were made or deleted in a directory.
async fn changes(truth: &ZooKeeperClient, directory: &str) -> Result<i32, HarnessError> {
    let node = truth.exists(directory).await?;
    Ok(node.ok_or_else(|| HarnessError::new(format!("{directory} is gone")))?.cversion)
}

async fn within<F: Future>(what: &str, future: F) -> Result<F::Output, HarnessError> {
    timeout(PATIENCE, future).await.map_err(|_| HarnessError::new(format!("not within {PATIENCE:?}: {what}")))
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool, HarnessError>) -> Result<(), HarnessError> {
    within(what, async {
        while !is_so().await? {
            sleep(Duration::from_millis(3)).await;
        }
        Ok(())
    })
    .await?
}
