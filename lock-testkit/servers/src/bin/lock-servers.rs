//! Starts servers for as long as somebody wants them: says the URL of the deployment on one line, and ends it
//! together with its own standard input. For scripts, and for trying things out by hand.
//!
//! ```console
//! $ cargo run -p lock-testkit-servers --bin lock-servers -- sentinel
//! redis-sentinel://127.0.0.1:12063,127.0.0.1:12064,127.0.0.1:12065/mymaster
//! ```

use std::io;
use std::process::ExitCode;

use lock_testkit::{HarnessError, Missing};
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::{ClusterDeployment, IndependentServers, RedisServer, SentinelDeployment};
use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperServer};

const USAGE: &str = "usage: lock-servers single | sentinel | cluster | quorum (Redis)
                    | zookeeper | zookeeper-ensemble | memcached
says a URL (of a quorum: several, separated by commas), and ends with its standard input";

/// The number of servers in a quorum.
const QUORUM: usize = 5;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [kind] = words.as_slice() else { return complain(USAGE) };
    match run(kind) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

fn complain(what: &str) -> ExitCode {
    eprintln!("{what}");
    ExitCode::FAILURE
}

fn run(kind: &str) -> Result<(), HarnessError> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        match kind {
            "single" => keep(RedisServer::start_own().await, |server| server.url().to_owned()),
            "sentinel" => keep(SentinelDeployment::start_own().await, |deployment| deployment.url().to_owned()),
            "cluster" => keep(ClusterDeployment::start_own().await, |cluster| cluster.url().to_owned()),
            "quorum" => keep(IndependentServers::start_own(QUORUM).await, |servers| servers.urls().join(",")),
            "zookeeper" => keep(ZooKeeperServer::start_own().await, |server| server.url().to_owned()),
            "zookeeper-ensemble" => keep(ZooKeeperEnsemble::start_own().await, |ensemble| ensemble.url().to_owned()),
            "memcached" => keep(MemcachedServer::start_own().await, |server| server.url().to_owned()),
            _ => Err(HarnessError::new(USAGE)),
        }
    })
}

/// Keeps what was started until nothing more is said on the standard input.
fn keep<T>(started: Result<T, Missing>, url: impl Fn(&T) -> String) -> Result<(), HarnessError> {
    let started = started?;
    println!("{}", url(&started));
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
