//! The rejection of a backend by a case.

use std::fmt;
use std::panic::Location;

use lock_testkit_proxy::Unproven;

use crate::error::HarnessError;

/// A case's reason for rejecting a backend: one sentence, and where in the suite it was decided.
pub struct Failure {
    what: String,
    at: &'static Location<'static>,
    /// Whether it says nothing of the backend: what was to be tried did not happen.
    says_nothing: bool,
    /// Whether it counts however the machine ran: no standstill of a moment makes a task panic, or a case hang.
    is_timeless: bool,
}

/// A case's judgement of a backend.
pub(crate) type Verdict = Result<(), Failure>;

impl Failure {
    /// A failure, decided where this is called.
    #[must_use]
    #[track_caller]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), at: Location::caller(), says_nothing: false, is_timeless: false }
    }

    /// A failure to try what was to be tried: nothing is known of the backend.
    #[track_caller]
    pub(crate) fn unknown(what: impl Into<String>) -> Self {
        Self { says_nothing: true, ..Self::new(what) }
    }

    /// Whether it says nothing of the backend, because what was to be tried did not happen.
    pub(crate) fn says_nothing(&self) -> bool {
        self.says_nothing
    }

    /// Makes it count however the machine ran.
    pub(crate) fn timeless(mut self) -> Self {
        self.is_timeless = true;
        self
    }

    /// Whether it counts however the machine ran.
    pub(crate) fn is_timeless(&self) -> bool {
        self.is_timeless
    }

    /// Adds something to its message.
    pub(crate) fn and(mut self, more: impl fmt::Display) -> Self {
        self.what.push_str(&format!("; {more}"));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {}:{})", self.what, self.at.file(), self.at.line())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error of a call that must succeed at this place of the case, with its chain of causes.
impl<E: std::error::Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let mut what = format!("a call that must succeed here failed: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            what.push_str(&format!(": {error}"));
            cause = error.source();
        }
        Self::new(what)
    }
}

impl From<HarnessError> for Failure {
    #[track_caller]
    fn from(error: HarnessError) -> Self {
        Self::new(format!("the harness could not do its part: {error}"))
    }
}

/// Fails unless the proxy has seen such a request. Where it has not, nothing is known of the lock: the harness has led its client
/// elsewhere, or its requests show no names.
#[track_caller]
pub(crate) fn was_seen(seen: bool, request: &str) -> Verdict {
    if seen {
        return Ok(());
    }
    Err(Failure::unknown(format!(
        "the harness failed, not the lock: over the links of `Linked::connect_at` came no request of {request} that has its \
         namespace in it, as `Linked::shows_names` says"
    )))
}

/// Fails the case with this message unless the claim holds.
macro_rules! ensure {
    ($claim:expr, $($message:tt)+) => {
        if !$claim {
            return Err($crate::failure::Failure::new(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// The value, or a failure with this message.
pub(crate) trait OrFail<T> {
    fn or_fail(self, what: &str) -> Result<T, Failure>;
}

impl<T> OrFail<T> for Option<T> {
    #[track_caller]
    fn or_fail(self, what: &str) -> Result<T, Failure> {
        match self {
            Some(value) => Ok(value),
            None => Err(Failure::new(what)),
        }
    }
}

/// The value, or nothing is known of what was tried: the fault under which it was to be tried was not applied.
pub(crate) trait OrUnknown<T> {
    fn or_unknown(self) -> Result<T, Failure>;
}

impl<T> OrUnknown<T> for Result<T, Unproven> {
    #[track_caller]
    fn or_unknown(self) -> Result<T, Failure> {
        match self {
            Ok(value) => Ok(value),
            Err(unproven) => Err(Failure::unknown(unproven.to_string())),
        }
    }
}

/// Expects an error of this kind.
#[track_caller]
pub(crate) fn expect_kind<T: fmt::Debug>(
    what: &str,
    kind: lock_core::ErrorKind,
    result: Result<T, lock_core::Error>,
) -> Result<lock_core::Error, Failure> {
    match result {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(Failure::new(format!("{what}: expected the error kind {kind:?}, got: {error}"))),
        Ok(value) => Err(Failure::new(format!("{what}: expected the error kind {kind:?}, got success: {value:?}"))),
    }
}
