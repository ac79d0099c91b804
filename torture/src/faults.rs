//! The faults that can befall a run.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_testkit::HarnessError;
use lock_testkit_checker::history::event::Theft;
use rustix::process::{Pid, Signal, kill_process};

/// The time that a signal may take until its effect is seen.
const STOPPING: Duration = Duration::from_secs(1);

/// Something that is wrong for a while. Whatever began is healed, also when the run ends in between.
#[async_trait]
pub(crate) trait Fault: Send {
    /// The fault's name, on the command line and in the history.
    fn name(&self) -> &'static str;

    /// The process that it hits: a worker, or else the server.
    fn target(&self) -> &str {
        "server"
    }

    /// Whether it hits the links of its target only, which goes on meanwhile.
    fn is_on_links(&self) -> bool {
        false
    }

    /// The grants that it has taken from holders who cannot know it yet, once it has begun.
    fn theft(&self) -> Option<Theft> {
        None
    }

    /// Begins, and says by what it was seen that it did; nothing if it was not seen.
    async fn begin(&mut self) -> Result<Option<String>, HarnessError>;

    /// Ends it.
    async fn heal(&mut self) -> Result<(), HarnessError>;
}

/// A worker stands still (SIGSTOP).
pub(crate) struct FrozenWorker {
    pub(crate) name: String,
    pub(crate) pid: Pid,
}

#[async_trait]
impl Fault for FrozenWorker {
    fn name(&self) -> &'static str {
        FREEZE_WORKER
    }

    fn target(&self) -> &str {
        &self.name
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        kill_process(self.pid, Signal::STOP)?;
        let began = Instant::now();
        while state(self.pid) != Some('T') {
            if began.elapsed() >= STOPPING {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Some(format!("process {} is in state T", self.pid.as_raw_nonzero())))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }
}

/// The name of [`FrozenWorker`].
pub(crate) const FREEZE_WORKER: &str = "freeze-worker";
/// A worker is killed (SIGKILL), and another one takes its place.
pub(crate) const KILL_WORKER: &str = "kill-worker";

/// A process' state, as the kernel says it.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
