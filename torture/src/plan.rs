//! The plan of a worker.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lock_testkit_checker::history::now;
use serde::{Deserialize, Serialize};

/// The task of a worker. It travels as JSON, as an argument of its process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) url: String,
    pub(crate) namespace: String,
    /// The worker's name in the history.
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    /// On the clock of the history.
    pub(crate) until: u64,
    pub(crate) history: PathBuf,
    /// The address of the resources.
    pub(crate) resources: SocketAddr,
}

impl Plan {
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.until
    }
}
