//! Waiting with a deadline, and looking at processes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lock_testkit::servers::memcached::MemcachedServer;
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::servers::zookeeper::ZooKeeperServer;
use lock_testkit::{Missing, REQUIRE_VARIABLE, ms};

/// What was started; `None`, loudly, where no server is installed, or one that is built without TLS was told to speak it.
pub(crate) fn installed<T>(outcome: Result<T, Missing>) -> Option<T> {
    let missing = match outcome {
        Ok(started) => return Some(started),
        Err(missing) => missing.to_string(),
    };
    let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
    let skipped = missing.contains("without TLS") || missing.contains("not installed") && !required;
    assert!(skipped, "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

/// Asks until it is so.
#[track_caller]
pub(crate) fn eventually(what: &str, so: impl Fn() -> bool) {
    let (began, within) = (Instant::now(), ms(10_000));
    while !so() {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a server leaves behind if nobody cleans up: its process and its directory.
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
