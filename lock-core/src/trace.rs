//! The spans that `tracing` is told of: one for each acquisition, release, batch of renewals and clean-up.
//!
//! All are at level `DEBUG`. Their values are made only if somebody listens: without a subscriber a span costs a branch. A
//! subscriber that panics hears no more of that span; it ends nothing that is done for holders in the background.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

use tracing::field::{Empty, display};
use tracing::{Span, Value, debug_span};

use crate::driver::{Attempt, Renewed, log};
use crate::error::Error;

/// A span that ends with an outcome: `cancelled` if it is dropped before it has one.
#[derive(Debug)]
pub(crate) struct Operation {
    span: Span,
    told: bool,
}

impl Operation {
    /// One acquisition; `wait` is how the caller waits.
    pub(crate) fn acquire(backend: &'static str, attempt: &Attempt, wait: &'static str) -> Self {
        Self::of(|| {
            debug_span!(
                "lock.acquire",
                name = %attempt.name,
                kind = attempt.kind.name(),
                backend,
                wait,
                grant = %attempt.id,
                token = Empty,
                waited = Empty,
                outcome = Empty,
            )
        })
    }

    /// One step for so many acquisitions at once.
    pub(crate) fn acquire_several(backend: &'static str, locks: usize) -> Self {
        Self::of(|| debug_span!("lock.acquire_several", locks, backend, waited = Empty, outcome = Empty))
    }

    /// One release that its caller waits for.
    pub(crate) fn release(backend: &'static str, attempt: &Attempt) -> Self {
        let (name, kind) = (&attempt.name, attempt.kind.name());
        Self::of(|| debug_span!("lock.release", %name, kind, backend, grant = %attempt.id, outcome = Empty))
    }

    /// One mutex that its holder leaves.
    pub(crate) fn leave(backend: &'static str, attempt: &Attempt) -> Self {
        let (name, kind) = (&attempt.name, attempt.kind.name());
        Self::of(|| debug_span!("lock.leave", %name, kind, backend, grant = %attempt.id, outcome = Empty))
    }

    /// One job of the reaper, which belongs to no caller any more.
    pub(crate) fn reap(backend: &'static str, attempt: &Attempt, job: &'static str) -> Self {
        let (name, kind) = (&attempt.name, attempt.kind.name());
        let grant = &attempt.id;
        Self::of(
            || debug_span!(parent: None, "lock.reap", %name, kind, backend, %grant, job, tries = Empty, outcome = Empty),
        )
    }

    /// One request for several renewals.
    pub(crate) fn renew(backend: &'static str, leases: usize) -> Self {
        Self::of(|| {
            debug_span!(
                parent: None,
                "lock.renew",
                backend,
                leases,
                renewed = Empty,
                held = Empty,
                lost = Empty,
                unknown = Empty,
                outcome = Empty,
            )
        })
    }

    fn of(span: impl FnOnce() -> Span) -> Self {
        Self { span: heard(span).unwrap_or_else(Span::none), told: false }
    }

    /// Runs the work in the span.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let entered = heard(|| self.span.enter());
            let answer = work.as_mut().poll(cx);
            heard(|| drop(entered));
            answer
        })
        .await
    }

    /// Adds a value to the span.
    pub(crate) fn note(&self, field: &'static str, value: impl Value) {
        heard(|| self.span.record(field, value));
    }

    /// The answers to a batch of renewals.
    pub(crate) fn answered(mut self, answers: &[Renewed]) {
        if self.span.is_disabled() {
            return;
        }
        let count = |which: fn(&Renewed) -> bool| answers.iter().filter(|answer| which(answer)).count();
        let lost = count(|answer| matches!(answer, Renewed::Lost(_)));
        let unknown = count(|answer| matches!(answer, Renewed::Unknown(_)));
        self.note("renewed", count(|answer| matches!(answer, Renewed::For(_))));
        self.note("held", count(|answer| matches!(answer, Renewed::Held)));
        self.note("lost", lost);
        self.note("unknown", unknown);
        self.ends("answered");
    }

    pub(crate) fn ends(&mut self, outcome: impl Value) {
        self.told = true;
        self.note("outcome", outcome);
    }

    /// Ends with the kind of this error; the error itself is an event in the span.
    pub(crate) fn fails(&mut self, error: &Error) {
        self.ends(display(error.kind()));
        log(|| tracing::debug!(parent: &self.span, %error, "failed"));
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.told {
            self.note("outcome", "cancelled");
        }
        // Closed here, where a panic is kept from whoever drops this.
        heard(|| drop(std::mem::replace(&mut self.span, Span::none())));
    }
}

/// Calls a subscriber, and returns its answer; `None` if it panics.
fn heard<T>(told: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(told)).ok()
}
