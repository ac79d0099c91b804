//! What a client has seen of the server's epoch, and its verdicts on claims: decided without a clock or a server.

use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, ErrorKind, Phase};

use super::server_clock::{ClockLook, ServerClock};
use super::{Age, CLOSED_FOR, Epoch};

/// Longest pause of a waiter while nothing is granted.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Verdict on a claim that was sent before the epoch was read.
#[derive(Debug, Clone, Copy)]
pub enum GateVerdict {
    /// It counts.
    Counts(Option<Epoch>),
    /// It does not, now.
    No(NotNow),
}

/// Reason for which nothing is granted.
#[derive(Debug, Clone, Copy)]
pub enum NotNow {
    /// The server has no epoch: it was restarted or flushed, or never had one.
    Missing,
    /// The epoch is closed, for about this long yet.
    Closed(Duration),
    /// The server's clock stands, has not caught up yet, or was not seen to tick yet.
    ClockStands,
}

/// The epoch, as far as a client has seen it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct EpochWatch {
    clock: ServerClock,
    /// The closed epoch that was seen last, and since when.
    closed: Option<(u64, BootInstant)>,
}

impl EpochWatch {
    /// Whether looks go over a connection that was just opened, so that the first one is a measure of the server's clock.
    pub fn is_met_anew(&mut self, is: bool) {
        self.clock.is_met_anew(is);
    }

    /// Judges what was sent before this epoch was read, which lives on for `left` seconds.
    pub fn judges(
        &mut self,
        epoch: Epoch,
        left: i64,
        asked: BootInstant,
        now: BootInstant,
        since_1970: impl FnOnce() -> Duration,
    ) -> GateVerdict {
        if !epoch.open {
            return GateVerdict::No(NotNow::Closed(self.closed_for(epoch, left, now, since_1970())));
        }
        if self.clock.runs(ClockLook { epoch: epoch.id(), left, asked, answered: now }) {
            GateVerdict::Counts(Some(epoch))
        } else {
            GateVerdict::No(NotNow::ClockStands)
        }
    }

    /// Time for which a closed epoch has to stay so yet.
    pub fn closed_for(&mut self, epoch: Epoch, left: i64, now: BootInstant, since_1970: Duration) -> Duration {
        let since = self.closed.filter(|(id, _)| *id == epoch.id()).map_or(now, |(_, since)| since);
        self.closed = Some((epoch.id(), since));
        let age = i64::from(CLOSED_FOR).saturating_sub(left);
        epoch.closed_for(Age {
            watched: now.since(since),
            by_server: Duration::from_secs(u64::try_from(age).unwrap_or_default()),
            by_wall_clock: since_1970.saturating_sub(Duration::from_micros(epoch.id())),
        })
    }
}

impl GateVerdict {
    /// The epoch under which a claim counts, if it does; none with [`RestartPolicy::Off`](crate::RestartPolicy::Off).
    pub(crate) fn counts(self) -> Option<Option<Epoch>> {
        match self {
            Self::Counts(epoch) => Some(epoch),
            Self::No(_) => None,
        }
    }
}

impl NotNow {
    /// Whether something can be done about it now; `early` says whether a closed epoch may be opened before its time.
    #[must_use]
    pub fn can_be_tended(self, early: bool) -> bool {
        match self {
            Self::Missing | Self::ClockStands => true,
            Self::Closed(left) => left.is_zero() || early,
        }
    }

    /// Pause before the next claim.
    #[must_use]
    pub fn pause(self) -> Duration {
        match self {
            Self::Closed(left) => left.clamp(Duration::from_millis(1), LONGEST_PAUSE),
            Self::Missing | Self::ClockStands => Duration::from_millis(10),
        }
    }

    pub(crate) fn into_error(self, phase: Phase) -> Error {
        let what = match self {
            Self::Missing => {
                "the server was restarted or flushed: former holders may believe in their locks".to_owned()
            }
            Self::Closed(left) => format!(
                "the server was restarted or flushed, or is new: former holders may believe in their locks for {left:?}"
            ),
            Self::ClockStands => {
                "the server's clock was not seen to run: it was paused a moment ago, or nobody has met it before"
                    .to_owned()
            }
        };
        Error::new(ErrorKind::Unavailable, phase, what)
    }
}
