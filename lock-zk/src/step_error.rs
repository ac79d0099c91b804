//! Why a step of the recipe could not be taken, and the patience with answers that are lost.

use std::time::Duration;

use lock_core::{Error, Phase, driver::wait};

use crate::client::{Fate, Fault};
use crate::error;

/// Pauses after a lost answer: the first one, and the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why a step could not be taken.
#[derive(Debug)]
pub(crate) enum StepError {
    Fault(Fault),
    Error(Error),
}

impl From<Fault> for StepError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl StepError {
    pub(crate) fn is(&self, fate: Fate) -> bool {
        matches!(self, Self::Fault(fault) if fault.fate == fate)
    }

    pub(crate) fn error(self, phase: Phase) -> Error {
        match self {
            Self::Fault(fault) => error::of_request(fault, phase),
            Self::Error(error) => error,
        }
    }
}

/// Repeats a step whose answer was lost, with growing pauses. Whoever calls gives up at its deadline, or when the session
/// ends.
pub(crate) async fn retry_unanswered<T, F>(mut step: impl FnMut() -> F) -> Result<T, StepError>
where
    F: Future<Output = Result<T, StepError>>,
{
    let mut pauses = wait::pauses(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match step().await {
            Err(trouble) if trouble.is(Fate::Unknown) => {
                tracing::debug!(?trouble, "no answer; asking again");
                // The iterator is endless; the longest pause is its own last value.
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            outcome => return outcome,
        }
    }
}
