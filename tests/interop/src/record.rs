//! The messages of a member, line by line, and what they amount to.

use std::time::Duration;

use lock_testkit::HarnessError;
use serde::{Deserialize, Serialize};

use crate::plan::Instant;

/// One line of a member's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    /// It is connected, and waits for the beginning.
    Ready { library: String, version: String },
    /// It wants the lock.
    Asks { at: Instant },
    /// The lock has been granted.
    Holds {
        at: Instant,
        /// As a reader.
        #[serde(default)]
        shared: bool,
    },
    /// It has counted, and is about to release the lock.
    Releases { at: Instant },
}

/// One member's part of the run.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) version: String,
    pub(crate) waits: Vec<Duration>,
    pub(crate) tenures: Vec<Tenure>,
    /// The number of times that it counted.
    pub(crate) counted: u64,
    /// The time at which it was killed, if it was: at the beginning of its last tenure.
    pub(crate) killed: Option<Instant>,
}

/// A time in which a member surely believed that it held the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    /// As a reader.
    pub(crate) shared: bool,
}

impl Tenure {
    pub(crate) fn length(self) -> Duration {
        self.to.since(self.from)
    }
}

impl Record {
    /// Reads a log.
    ///
    /// # Errors
    /// If it is no such log, or ends before a release although its member was not killed.
    pub(crate) fn read(name: &str, log: &str, killed: bool) -> Result<Self, HarnessError> {
        let mut record = Self {
            name: name.to_owned(),
            library: String::new(),
            version: String::new(),
            waits: Vec::new(),
            tenures: Vec::new(),
            counted: 0,
            killed: None,
        };
        let (mut asked, mut held) = (None, None);
        for line in log.lines() {
            match serde_json::from_str(line)
                .map_err(|error| HarnessError::new(format!("{name} said {line:?}: {error}")))?
            {
                Event::Ready { library, version } => (record.library, record.version) = (library, version),
                Event::Asks { at } => asked = Some(at),
                Event::Holds { at, shared } => {
                    let asked = asked
                        .take()
                        .ok_or_else(|| HarnessError::new(format!("{name} holds what it did not ask for")))?;
                    record.waits.push(at.since(asked));
                    held = Some((at, shared));
                }
                Event::Releases { at } => {
                    let (from, shared) = held
                        .take()
                        .ok_or_else(|| HarnessError::new(format!("{name} releases what it does not hold")))?;
                    record.tenures.push(Tenure { from, to: at, shared });
                    record.counted += u64::from(!shared);
                }
            }
        }
        match (held, killed) {
            (Some((at, shared)), true) => {
                record.tenures.push(Tenure { from: at, to: at, shared });
                record.killed = Some(at);
                Ok(record)
            }
            (None, false) => Ok(record),
            (Some(_), false) => Err(HarnessError::new(format!("{name} ended while it held the lock"))),
            (None, true) => Err(HarnessError::new(format!("{name} was killed while it did not hold the lock"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"{"event": "ready", "library": "some", "version": "1.0"}
{"event": "asks", "at": 10}
{"event": "holds", "at": 15}
{"event":"releases","at":25}
{"event":"asks","at":30}
{"event":"holds","at":37,"shared":true}"#;

    #[test]
    fn a_log_tells_waits_and_tenures() {
        let record = Record::read("one", LOG, true).unwrap();
        assert_eq!((record.library.as_str(), record.version.as_str()), ("some", "1.0"));
        assert_eq!(record.waits, [5, 7].map(Duration::from_nanos));
        let tenure = |from, to, shared| Tenure { from: Instant(from), to: Instant(to), shared };
        assert_eq!(record.tenures, [tenure(15, 25, false), tenure(37, 37, true)]);
        assert_eq!((record.counted, record.killed), (1, Some(Instant(37))));
    }

    #[test]
    fn a_log_that_does_not_fit_its_end_is_refused() {
        let released = LOG.rsplit_once('\n').unwrap().0;
        assert!(Record::read("one", released, false).is_ok());
        assert!(Record::read("one", LOG, false).is_err());
        assert!(Record::read("one", released, true).is_err());
        assert!(Record::read("one", "Traceback", false).is_err());
    }
}
