//! The answer to a request for several locks at once.

use super::attempt::Grant;

/// A backend's report of what became of several attempts in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeveralOutcome {
    /// Each has its lock: one grant for each attempt, in their order.
    Granted(Vec<Grant>),
    /// One of them cannot be had now, and nothing of any of them is left.
    Held,
    /// This backend has no such step for these locks, or not at present, and nothing of any of them is left: they are taken one after
    /// the other.
    OneByOne,
}
