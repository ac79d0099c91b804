//! Faults of a server's process.

use std::io;
use std::path::Path;

use lock_testkit::HarnessError;
use lock_testkit::faults::Data;
use lock_testkit_proxy::{Effect, Injected, Proof};
use serde::{Deserialize, Serialize};

use crate::memcached::MemcachedServer;
use crate::own::Own;
use crate::process::Process;
use crate::redis::RedisServer;
use crate::zookeeper::ZooKeeperServer;

/// Something that happens to a server's process until it is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ProcessFault {
    /// The server stands still (SIGSTOP) and goes on when healed (SIGCONT): connections stay, nothing is answered, and what was
    /// sent meanwhile is carried out afterwards.
    Freeze,
    /// The server is killed (SIGKILL) and started again when healed. Whoever needs an answer has to wait for it.
    Kill {
        /// The data that it finds then.
        data: Data,
    },
}

/// A server of the suite's own, for [`ProcessFault::inject`]: made of a reference to one.
#[derive(Debug, Clone, Copy)]
pub struct ServerProcess<'a> {
    own: &'a Own,
    /// The places in its directory where it keeps what it stores.
    data: &'static [&'static str],
}

impl<'a> From<&'a RedisServer> for ServerProcess<'a> {
    fn from(server: &'a RedisServer) -> Self {
        Self { own: server.own(), data: &["appendonlydir", "appendonly.aof", "dump.rdb"] }
    }
}

impl<'a> From<&'a ZooKeeperServer> for ServerProcess<'a> {
    fn from(server: &'a ZooKeeperServer) -> Self {
        Self { own: server.own(), data: &["version-2"] }
    }
}

/// It keeps nothing.
impl<'a> From<&'a MemcachedServer> for ServerProcess<'a> {
    fn from(server: &'a MemcachedServer) -> Self {
        Self { own: server.own(), data: &[] }
    }
}

impl ProcessFault {
    /// Injects this fault, until the guard is dropped.
    ///
    /// # Errors
    /// If the server does not run, or is not ours.
    pub fn inject<'a>(self, server: impl Into<ServerProcess<'a>>) -> Result<Injected<'a>, HarnessError> {
        let ServerProcess { own, data } = server.into();
        let process = own.process()?;
        let pid = process.pid().ok_or_else(|| HarnessError::new("the server does not run"))?;
        let proof = match self {
            Self::Freeze => {
                process.freeze()?;
                format!("process {pid} stands still")
            }
            Self::Kill { data: found } => {
                process.kill()?;
                if found == Data::Gone {
                    forget(process.directory(), data)?;
                }
                format!("process {pid} was killed")
            }
        };
        let proof = if process.is_running() { Proof::default() } else { Proof::of(proof) };
        Ok(Injected::new(format!("{self:?}"), OnProcess { fault: self, process, proof }))
    }
}

fn forget(directory: &Path, data: &[&str]) -> io::Result<()> {
    for path in data.iter().map(|name| directory.join(name)) {
        let outcome = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

struct OnProcess<'a> {
    fault: ProcessFault,
    process: &'a Process,
    proof: Proof,
}

impl Effect for OnProcess<'_> {
    fn proof(&self) -> Proof {
        self.proof.clone()
    }

    fn heal(&mut self) {
        // If the process is gone altogether, whoever needs it will say so.
        let _ = match self.fault {
            ProcessFault::Freeze => self.process.thaw(),
            ProcessFault::Kill { .. } => self.process.start(),
        };
    }
}
