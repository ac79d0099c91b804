//! The errors of a harness: servers that are missing, and whatever else keeps it from doing its part.

use std::fmt;

/// The reason that there is no server to test against.
#[derive(Debug, Clone)]
pub struct Missing {
    reason: String,
    /// Something is there, and does not work.
    is_broken: bool,
}

impl Missing {
    /// The reason, as it is shown with the ignored trials; name what to install.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_broken: false }
    }

    /// Whether something is there, but could not be made ready: no reason to skip a test.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Missing {}

/// A server that could be started or found, but not be made ready.
impl From<HarnessError> for Missing {
    fn from(error: HarnessError) -> Self {
        Self { reason: error.0, is_broken: true }
    }
}

/// An error that keeps a harness from doing its part; any error becomes one through `?`. A case that meets it fails:
/// missing ground truth is no green.
#[derive(Debug)]
pub struct HarnessError(String);

impl HarnessError {
    /// The harness could not do its part, for this reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for HarnessError {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
