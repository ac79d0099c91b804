//! The process of a server, if it is one of ours.

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lock_testkit::{HarnessError, Missing};

use super::process::Process;

/// The number of lines that count as the last words of a server.
const LAST: usize = 4;
/// Between two questions to a server that has just been started.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The process of a server, or nothing for one of an existing deployment, which is not ours to stop.
#[derive(Debug)]
pub(crate) struct Own(Option<Process>);

impl Own {
    pub(crate) fn new(process: Process) -> Self {
        Self(Some(process))
    }

    pub(crate) fn not() -> Self {
        Self(None)
    }

    /// The process id while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.0.as_ref()?.pid()
    }

    /// Whether it could answer. A server that is not ours is taken to run.
    pub(crate) fn is_running(&self) -> bool {
        self.0.as_ref().is_none_or(Process::is_running)
    }

    pub(crate) fn directory(&self) -> Option<&Path> {
        self.0.as_ref().map(Process::directory)
    }

    /// The last lines of what it said, in brackets; nothing if it is not ours.
    pub(crate) fn last_words(&self) -> String {
        let Some(directory) = self.directory() else { return String::new() };
        let said = ["output", "log"].map(|file| std::fs::read_to_string(directory.join(file)).unwrap_or_default());
        // Where in a program an error came from stands behind a tab.
        let lines = |text: &str| {
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('\t')).map(str::to_owned).collect();
            lines[lines.len().saturating_sub(LAST)..].join("; ")
        };
        format!(" ({})", said.map(|text| lines(&text)).join("; "))
    }

    /// Asks until there is an answer; an error if the server ends, or takes too long, with what it said last.
    pub(crate) async fn until<T, F>(&self, what: &str, within: Duration, ask: impl Fn() -> F) -> Result<T, HarnessError>
    where
        F: Future<Output = Result<T, HarnessError>>,
    {
        let began = Instant::now();
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) if !self.is_running() || began.elapsed() >= within => {
                    return Err(HarnessError::new(format!("{what}: {error}{}", self.last_words())));
                }
                Err(_) => tokio::time::sleep(ASK_EVERY).await,
            }
        }
    }

    /// The process.
    ///
    /// # Errors
    /// If it is not ours.
    pub(crate) fn process(&self) -> Result<&Process, HarnessError> {
        self.0.as_ref().ok_or_else(|| HarnessError::new("an existing deployment is not ours to stop"))
    }
}

/// The process could not be made, or not be started.
pub(crate) fn not_started(error: &io::Error) -> Missing {
    HarnessError::new(format!("the server could not be started: {error}")).into()
}

/// Methods to look at a server's process and to act on it: the same for every kind of server that has an `own`.
macro_rules! with_own_process {
    ($server:ty) => {
        impl $server {
            /// The process id of our own server while it runs; `None` for an existing deployment.
            #[must_use]
            pub fn pid(&self) -> Option<u32> {
                self.own.pid()
            }

            /// Whether our own server could answer: it was started, has not ended, and is not frozen. An existing
            /// deployment is taken to run.
            #[must_use]
            pub fn is_running(&self) -> bool {
                self.own.is_running()
            }

            /// The directory of our own server, with its log and its files; `None` for an existing deployment.
            #[must_use]
            pub fn directory(&self) -> Option<&std::path::Path> {
                self.own.directory()
            }

            /// Freezes the server (SIGSTOP): connections stay, nothing is answered.
            ///
            /// # Errors
            /// If it does not run, or is not ours.
            pub fn stop(&self) -> Result<(), lock_testkit::HarnessError> {
                Ok(self.own.process()?.freeze()?)
            }

            /// Lets a frozen server go on (SIGCONT).
            ///
            /// # Errors
            /// If it does not run, or is not ours.
            pub fn cont(&self) -> Result<(), lock_testkit::HarnessError> {
                Ok(self.own.process()?.thaw()?)
            }

            /// Kills the server (SIGKILL) and waits until it is gone. What it keeps on disk stays.
            ///
            /// # Errors
            /// If it is not ours.
            pub fn kill(&self) -> Result<(), lock_testkit::HarnessError> {
                Ok(self.own.process()?.kill()?)
            }
        }
    };
}

pub(crate) use with_own_process;
