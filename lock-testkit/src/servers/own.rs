//! The process of a server, if it is one of ours.

use std::path::Path;

use super::process::Process;
use crate::harness::Broken;

/// How many lines are the last words of a server.
const LAST: usize = 4;

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

    /// The process.
    ///
    /// # Errors
    /// If it is not ours.
    pub(crate) fn process(&self) -> Result<&Process, Broken> {
        self.0.as_ref().ok_or_else(|| Broken::new("an existing deployment is not ours to stop"))
    }
}
