//! Nothing is left of a suite that is killed, of any deployment.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lock_testkit::testing::{PROMPTLY, eventually};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use crate::support::{Traces, installed};

#[tokio::test(flavor = "multi_thread")]
async fn no_server_outlives_a_killed_suite() {
    let mut kinds = Vec::new();
    if installed(RedisServer::start_own().await).is_some() {
        kinds.extend([("single", 1), ("sentinel", 6), ("cluster", 6), ("quorum", 5)]);
    }
    if installed(ZooKeeperServer::start_own().await).is_some() {
        kinds.extend([("zookeeper", 1), ("zookeeper-ensemble", 3)]);
    }
    for (kind, servers) in kinds {
        let mut suite = Suite::start(kind);
        let left = suite.servers();
        assert_eq!(left.len(), servers, "{kind}: {left:?}");
        suite.process.kill().unwrap();
        suite.process.wait().unwrap();
        let gone = async || left.iter().all(Traces::are_gone);
        eventually(&format!("the end of all servers of {kind}"), PROMPTLY, gone).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suite_that_is_told_to_end_leaves_nothing() {
    if installed(RedisServer::start_own().await).is_none() {
        return;
    }
    let mut suite = Suite::start("single");
    let left = suite.servers();
    assert!(suite.url.starts_with("redis://127.0.0.1:") && left.len() == 1, "{suite:?}, {left:?}");
    drop(suite.process.stdin.take());
    assert!(suite.process.wait().unwrap().success());
    assert!(left.iter().all(Traces::are_gone), "{left:?}");
}

/// A process that has started a deployment, and does nothing more.
#[derive(Debug)]
struct Suite {
    process: Child,
    url: String,
}

impl Suite {
    fn start(kind: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lock-servers"));
        let mut process = command.arg(kind).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(!url.is_empty(), "no {kind} was started");
        Self { process, url }
    }

    /// The servers are its grandchildren: each has a keeper, a shell that knows the server's directory as its `$0`.
    fn servers(&self) -> Vec<Traces> {
        let parents: BTreeMap<u32, u32> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let keepers = parents.iter().filter(|(_, parent)| **parent == self.process.id()).map(|(keeper, _)| *keeper);
        let servers = keepers.flat_map(|keeper| {
            let servers = parents.iter().filter(move |(_, parent)| **parent == keeper);
            servers.map(move |(pid, _)| Traces::new(*pid, directory_of(keeper)))
        });
        servers.collect()
    }
}

/// Returns the argument after `sh`, `-c` and its script.
fn directory_of(keeper: u32) -> PathBuf {
    let words = std::fs::read_to_string(format!("/proc/{keeper}/cmdline")).unwrap();
    words.split('\0').nth(3).unwrap().into()
}

fn processes() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The second number after the name, which may hold anything: `1 (name) S 0`.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/stat"))).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
