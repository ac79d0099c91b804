//! Servers that may be missing, and looking at processes.

use std::path::PathBuf;

use lock_testkit::{Missing, testing};
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;

/// Returns what was started; `None`, loudly, if no server is installed, or one that is built without TLS was told to
/// speak it.
pub(crate) fn installed<T>(outcome: Result<T, Missing>) -> Option<T> {
    match outcome {
        Err(missing) if missing.to_string().contains("without TLS") => {
            eprintln!("SKIPPED: {missing}");
            None
        }
        outcome => testing::installed(outcome),
    }
}

/// The traces that a server leaves behind if nobody cleans up: its process and its directory.
#[derive(Debug)]
pub(crate) struct Traces {
    pid: u32,
    directory: PathBuf,
}

impl Traces {
    pub(crate) fn of(server: &RedisServer) -> Self {
        Self::new(server.pid().unwrap(), server.directory().unwrap().to_owned())
    }

    pub(crate) fn of_memcached(server: &MemcachedServer) -> Self {
        Self::new(server.pid().unwrap(), server.directory().unwrap().to_owned())
    }

    pub(crate) fn of_zookeeper(server: &ZooKeeperServer) -> Self {
        Self::new(server.pid().unwrap(), server.directory().unwrap().to_owned())
    }

    pub(crate) fn new(pid: u32, directory: PathBuf) -> Self {
        let traces = Self { pid, directory };
        assert!(traces.process() && traces.directory.is_dir(), "{traces:?}");
        traces
    }

    pub(crate) fn process(&self) -> bool {
        // A process that ended, but that nobody has looked after yet, has no memory and no files.
        std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| !stat.contains(") Z "))
    }

    pub(crate) fn are_gone(&self) -> bool {
        !self.process() && !self.directory.exists()
    }
}
