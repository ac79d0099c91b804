//! The content of the record beside a job's lock: the slot that was begun last, by whom, and how far it came.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::{Error, ErrorKind, LockName, Owner, Phase, Record};
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::slot::Slot;

/// The most bytes of the text that says who has run a job.
const LONGEST_NAME: usize = 256;

/// The stage to which a slot came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stage {
    /// A job was begun. If the lock is free, whoever began it has gone without saying how it ended.
    Started,
    /// The job is done.
    Done,
    /// The job has failed, and may be run again.
    Failed,
}

/// The latest slot of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) slot: Slot,
    pub(crate) stage: Stage,
    by: String,
    /// ms since 1970, by the clock of that process: to be shown, not to be compared.
    at: u64,
    /// The time of the last refreshment, likewise, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refreshed: Option<u64>,
}

impl Progress {
    pub(crate) fn new(slot: Slot, stage: Stage, owner: &Owner) -> Self {
        // A control character takes six bytes in JSON.
        let mut by = owner.to_string().replace(char::is_control, " ");
        if by.len() > LONGEST_NAME {
            let end = (0..=LONGEST_NAME).rev().find(|at| by.is_char_boundary(*at)).unwrap_or_default();
            by.truncate(end);
        }
        Self { slot, stage, by, at: now(), refreshed: None }
    }

    /// Reads what the record of this job says; `None` if nothing was written yet, or all was forgotten.
    ///
    /// # Errors
    /// If it holds something else.
    pub(crate) fn of(record: Option<&Record>, job: &LockName) -> Result<Option<Self>, Error> {
        let Some(record) = record.filter(|record| !record.data.is_empty()) else { return Ok(None) };
        serde_json::from_slice(&record.data).map(Some).map_err(|error| {
            let what = "the record beside the lock is not of a job that runs once";
            Error::new(ErrorKind::Protocol, Phase::Inspect, what).with_name(job).with_source(error)
        })
    }

    /// Whether somebody may be at this slot now.
    pub(crate) fn is_open(&self, slot: Slot) -> bool {
        self.slot == slot && self.stage == Stage::Started
    }

    /// Returns this progress, refreshed now: its record is kept for its retention from then on.
    pub(crate) fn refreshed(&self) -> Self {
        Self { refreshed: Some(now()), ..self.clone() }
    }

    /// Whether it was written longer ago than this, by the clocks of its writer and of this process. One that is of the future, by a
    /// clock that is as far ahead, may be as old.
    pub(crate) fn is_older_than(&self, age: Duration) -> bool {
        now().abs_diff(self.refreshed.unwrap_or(self.at)) > u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Numbers and a text always have a form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn skipped<T>(self) -> Outcome<T> {
        Outcome::Skipped { slot: self.slot, by: self.by, at: UNIX_EPOCH + Duration::from_millis(self.at) }
    }
}

/// The present time, in ms since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(now).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;
    use lock_testkit::fuzz;

    use super::*;

    #[test]
    fn a_record_is_old_by_its_age_or_by_a_clock_that_is_as_far_ahead() {
        let day = Duration::from_secs(86_400);
        let is_old = |refreshed| {
            let record = Progress::new(Slot::from(1), Stage::Done, &Owner::new());
            Progress { refreshed: Some(refreshed), ..record }.is_older_than(day)
        };
        let minute = 60_000;
        assert!(!is_old(now()) && !is_old(now() - minute) && !is_old(now() + minute), "clocks may be a minute apart");
        assert!(is_old(now() - 2 * 86_400_000));
        // It would never be refreshed, and end with its retention.
        assert!(is_old(now() + 2 * 86_400_000));
    }

    #[test]
    fn whatever_a_record_says_is_a_progress_or_an_error() {
        let job = LockName::from("job");
        let sample = Progress::new(Slot::from(u64::MAX), Stage::Started, &Owner::new());
        let samples = [sample.to_bytes(), sample.refreshed().to_bytes()];
        fuzz::bytes("progress of jobs", &samples.each_ref().map(|sample| &**sample), |bytes| {
            let mut record = Record::new(FencingToken::new(1).unwrap());
            record.data = bytes.to_vec();
            match Progress::of(Some(&record), &job) {
                Ok(Some(read)) => {
                    record.data = read.to_bytes();
                    assert_eq!(Progress::of(Some(&record), &job).unwrap(), Some(read.clone()));
                    let _: Outcome<()> = read.skipped();
                }
                Ok(None) => assert!(bytes.is_empty()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Protocol, "{error}"),
            }
        });
    }

    #[test]
    fn the_longest_name_fits_into_a_record() {
        let owner = Owner::new().with_label("\u{1}\"é".repeat(250));
        let bytes = Progress::new(Slot::from(u64::MAX), Stage::Started, &owner).to_bytes();
        assert!(bytes.len() <= Record::MAX_BYTES, "{}", bytes.len());
        assert!(serde_json::from_slice::<Progress>(&bytes).is_ok());
    }
}
