//! The treatments of a slot that was begun, or whose job has failed.

/// The treatment of a slot that was begun by somebody who has gone without saying how it ended: a process that crashed, a task
/// that was dropped, a holder that was paused for longer than its lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempts {
    /// Skips it: a job runs at most once per slot.
    #[default]
    AtMostOnce,
    /// Runs it again: a job that is asked for often enough runs at least once per slot, unless a later slot was begun by then. A
    /// process whose clock is ahead by more than a period begins slots later than those of the others, which are then skipped.
    AtLeastOnce,
}

/// The treatment of a slot whose job has failed or panicked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failures {
    /// Counts as done: the job is not run again.
    #[default]
    Count,
    /// The next caller that asks for the slot runs the job again.
    RunAgain,
}
