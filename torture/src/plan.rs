//! The plan of a worker.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lock_testkit_checker::history::now;
use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// The task of a worker. It travels as JSON, as an argument of its process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) url: String,
    pub(crate) namespace: String,
    /// Whether the servers were there before.
    pub(crate) named: bool,
    /// The worker's name in the history.
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) ttl: Duration,
    /// The beginning and the end of the run, on the clock of the history.
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) history: PathBuf,
    /// The address of the resources, or of whoever asks the leaders.
    pub(crate) resources: SocketAddr,
}

impl Plan {
    pub(crate) fn is_over(&self) -> bool {
        now() >= self.until
    }
}
