//! The system under test: a backend with its servers, as a run needs it.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::HarnessError;
use rustix::process::Pid;
use tokio::process::Child;

use crate::faults::Fault;
use crate::links::WorkerLinks;
use crate::plan::Plan;

/// A backend with its servers.
#[async_trait]
pub(crate) trait SystemUnderTest: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    /// The URL that workers connect to.
    fn url(&self) -> String;

    /// A client of this process, which no fault hits but those of the servers.
    async fn connect(&self, namespace: &str) -> Result<Locks, Error>;

    /// Whether workers are processes of their own.
    fn has_processes(&self) -> bool;

    /// The time, beyond the leases, until all goes on after a fault.
    fn recovery(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The time for which the servers keep the lock of a holder with this TTL who is away, at the longest.
    fn kept_for(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// Whether tries may get in each other's way, because they take several requests.
    fn tries_meet(&self) -> bool {
        false
    }

    /// The faults of the servers, and of the workers' links; whatever is left to chance is drawn from this seed.
    fn faults(&self, seed: u64) -> Vec<Box<dyn Fault>>;

    /// Links to the servers for one worker alone; `None` where there are none.
    fn links(&self) -> Result<Option<WorkerLinks>, HarnessError> {
        Ok(None)
    }

    /// The grant that the server has under this mutex, by its own words; nothing if it does not answer.
    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>>;

    /// The entries that the servers have under this namespace; `None` where only the clients know.
    async fn residue(&self, namespace: &str) -> Option<Result<Vec<String>, HarnessError>>;
}

/// A worker at work.
pub(crate) struct Worker {
    pub(crate) plan: Plan,
    pub(crate) body: Body,
    /// `None` of a task.
    pub(crate) pid: Option<Pid>,
    /// The worker's way to the servers, if it shares it with nobody.
    pub(crate) links: Option<WorkerLinks>,
}

/// As what it works.
pub(crate) enum Body {
    Process(Child),
    Task(tokio::task::JoinHandle<Result<(), HarnessError>>),
}
