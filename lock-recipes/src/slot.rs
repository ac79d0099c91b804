//! The slot of a job.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One run of a job: a number, or the time for which the run was planned. Every process must name the same slot for the same run; a
/// later run has a greater one.
///
/// # Examples
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use lock_recipes::Slot;
///
/// let planned = UNIX_EPOCH + Duration::from_secs(86_400);
/// assert!(Slot::at(planned) > Slot::at(planned - Duration::from_secs(60)));
/// let hour = Duration::from_secs(3600);
/// assert_eq!(Slot::every(hour, planned + Duration::from_secs(5)), Slot::every(hour, planned + Duration::from_secs(3599)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(u64);

impl Slot {
    /// The slot of a run that was planned for this time, in ms since 1970: the planned time, such as a cron expression names it, and not
    /// the present time, which every process sees differently. Earlier times are the slot 0.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let planned = UNIX_EPOCH + Duration::from_secs(86_400);
    /// assert_eq!(lock_recipes::Slot::at(planned).as_u64(), 86_400_000);
    /// ```
    #[must_use]
    pub fn at(planned: SystemTime) -> Self {
        Self(milliseconds(planned.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }

    /// The slot of the period in which this time lies, of periods of this length since 1970; they have a ms at least. A process whose
    /// clock is ahead begins a period early; the others then find it begun.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use lock_recipes::Slot;
    ///
    /// let (hour, midnight) = (Duration::from_secs(3600), UNIX_EPOCH + Duration::from_secs(86_400));
    /// assert_eq!(Slot::every(hour, midnight + Duration::from_secs(5)), Slot::at(midnight));
    /// ```
    #[must_use]
    pub fn every(period: Duration, time: SystemTime) -> Self {
        let period = milliseconds(period).max(1);
        let Self(time) = Self::at(time);
        Self(time - time % period)
    }

    /// The slot as a number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<u64> for Slot {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
