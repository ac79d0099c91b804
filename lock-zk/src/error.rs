//! ZooKeeper's errors, as the locks report them.
//!
//! | the servers or the client crate say | we say | outcome |
//! |---|---|---|
//! | no session within the operation timeout | `Unavailable`; `Denied` if the last try to open one was refused so | definite: nothing was sent |
//! | the client is closed, or the runtime in which it was connected is gone | `Closed`; `Indeterminate` for a wait that has asked for its place | definite: nothing was sent; the place goes with the session |
//! | connection lost, no answer, an answer that cannot be read | `Indeterminate` | the request may have been carried out |
//! | a session is over, by the servers' word or by our clock | `Indeterminate`; a wait goes on in the next session | its nodes may be there until the servers think so, too |
//! | `NoAuth`, `InvalidACL`, `AuthFailed` | `Denied` | definite |
//! | an argument that the client crate refuses | `InvalidArgument` | definite |
//! | quota exceeded, throttled, a read-only server | `Unavailable` | definite: refused |
//! | a node that is missing or there, where that cannot be | `Protocol` | not carried out, but `Protocol` is never reported as definite |

use std::time::Duration;

use lock_core::driver::{log, wait};
use lock_core::{Error, ErrorKind, Phase};

use crate::client::{Failure, Fate, Refusal};

/// The error of one request.
pub(crate) fn of_request(failure: Failure, phase: Phase) -> Error {
    let (kind, what) = match failure.fate {
        Fate::Missing => (ErrorKind::Protocol, "a node that must exist is missing"),
        Fate::Exists => (ErrorKind::Protocol, "a node exists that must not"),
        Fate::Changed => (ErrorKind::Protocol, "a node that nobody else changes was changed"),
        Fate::Denied => (ErrorKind::Denied, "the servers refuse the right to a node"),
        Fate::Invalid => (ErrorKind::InvalidArgument, "the client refuses an argument"),
        Fate::Refused => (ErrorKind::Unavailable, "the servers refused the request"),
        Fate::Unknown => (ErrorKind::Indeterminate, "the connection was lost before the answer came"),
        Fate::Ended => (ErrorKind::Indeterminate, "the session ended before the answer came"),
    };
    Error::new(kind, phase, what).with_backend(crate::guarantees::NAME).with_source(failure.source)
}

/// The error of an attempt to connect: then nothing was asked for yet.
pub(crate) fn of_connect(failure: Failure, servers: &str) -> Error {
    let (kind, what) = no_connection(failure.fate);
    Error::new(kind, Phase::Connect, what)
        .with_backend(crate::guarantees::NAME)
        .with_server(servers)
        .with_source(failure.source)
}

/// A request was refused after one for the same purpose had not been answered, which may have been carried out.
pub(crate) fn unsettled(failure: Failure, phase: Phase) -> Error {
    Error::indeterminate(phase, "a request was not answered, and its repetition was refused")
        .with_backend(crate::guarantees::NAME)
        .with_source(failure.source)
}

/// The session may not be believed in any longer, and no server has answered: what it held goes when they think so, too.
pub(crate) fn out_of_time(phase: Phase) -> Error {
    Error::indeterminate(phase, "the session's time was over before an answer came")
        .with_backend(crate::guarantees::NAME)
}

/// No session came about in time: nothing was sent. Carries the refusal of the last try to open one.
pub(crate) fn no_session(phase: Phase, refusal: Option<Refusal>) -> Error {
    let Some(Refusal { fate, cause }) = refusal else {
        return Error::unavailable(phase, "no server could be reached").with_backend(crate::guarantees::NAME);
    };
    let (kind, what) = no_connection(fate);
    Error::new(kind, phase, what).with_backend(crate::guarantees::NAME).with_source(cause)
}

/// The kind and the words for a session that could not be opened.
fn no_connection(fate: Fate) -> (ErrorKind, &'static str) {
    match fate {
        Fate::Denied => (ErrorKind::Denied, "the servers refuse the credentials, or the right to the chroot"),
        Fate::Invalid => (ErrorKind::InvalidArgument, "the address of the servers or the session's timeout is wrong"),
        Fate::Missing => (ErrorKind::InvalidArgument, "the chroot does not exist"),
        _ => (ErrorKind::Unavailable, "no session could be opened"),
    }
}

/// The first pause after a lost answer, and the longest one.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Returns the pauses between repetitions of what was not answered, without end.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> {
    wait::pauses(FIRST_PAUSE, LONGEST_PAUSE)
}

/// The failure of one step: of its request, or an error that is ready for the caller.
#[derive(Debug)]
pub(crate) enum StepError {
    Failure(Failure),
    Error(Error),
}

impl From<Failure> for StepError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl StepError {
    /// Whether it is a request's failure with this fate.
    pub(crate) fn is(&self, fate: Fate) -> bool {
        matches!(self, Self::Failure(failure) if failure.fate == fate)
    }

    /// Returns the error that is reported for it.
    pub(crate) fn error(self, phase: Phase) -> Error {
        match self {
            Self::Failure(failure) => of_request(failure, phase),
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
    let mut pauses = pauses();
    loop {
        match step().await {
            Err(error) if error.is(Fate::Unknown) => {
                log(|| tracing::debug!(?error, "no answer; asking again"));
                // The iterator is endless; the longest pause is its own last value.
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of a session that has ended may be there for a while, and what was asked of it may have been carried out.
    #[test]
    fn nothing_definite_is_said_of_a_request_whose_session_ended() {
        for fate in [Fate::Ended, Fate::Unknown] {
            let error = of_request(Failure { fate, source: "a test's".into() }, Phase::Downgrade);
            assert!(!error.is_definite(), "{error}");
        }
        let denied = of_request(Failure { fate: Fate::Denied, source: "a test's".into() }, Phase::Downgrade);
        assert!(denied.is_definite(), "{denied}");
    }
}
