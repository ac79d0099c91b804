//! Writes a history down, while it happens.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_core::clock::{Clock, SystemClock};

use super::event::{Event, Text, What};

/// The present instant, on the clock of all histories: nanoseconds of boot time.
#[must_use]
pub fn now() -> u64 {
    // 2^64 ns are 584 years.
    u64::try_from(SystemClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// One process' pen. Clones write to the same file.
///
/// Each event is one `write` to a file that is opened to append, so processes can share it, and one that is killed loses
/// nothing that it has written down.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Pen>);

#[derive(Debug)]
struct Pen {
    file: File,
    proc: Text,
    last_id: AtomicU64,
    broken: AtomicBool,
}

impl Recorder {
    /// Appends to this file, which is made if it is not there, in the name of this process. Names are unique within a
    /// history.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn append(path: impl AsRef<Path>, proc: impl Into<Text>) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let (last_id, broken) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self(Arc::new(Pen { file, proc: proc.into(), last_id, broken })))
    }

    /// The process in whose name it writes.
    #[must_use]
    pub fn proc(&self) -> &Text {
        &self.0.proc
    }

    /// An id that no other acquisition of the history has.
    #[must_use]
    pub fn fresh_id(&self) -> Text {
        let number = self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}.{number}", self.0.proc).into()
    }

    /// Writes down what happens at this instant.
    pub fn record(&self, what: What) {
        self.record_at(now(), what);
    }

    /// Writes down what happened at an instant of the past.
    pub fn record_at(&self, t: u64, what: What) {
        let event = Event { t, proc: self.0.proc.clone(), what };
        let written = serde_json::to_vec(&event).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            (&self.0.file).write_all(&line)
        });
        if written.is_err() {
            self.0.broken.store(true, Ordering::Relaxed);
        }
    }

    /// Whether everything was written down so far. A lock's user is not bothered by a full disk, but a history with a
    /// gap is none.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.0.broken.load(Ordering::Relaxed)
    }
}
