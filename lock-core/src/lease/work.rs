//! Work under a lock.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::task::Poll;

use super::Lease;
use crate::error::Error;

/// The error of work that was to be done while a lock was held. Work that had ended all the same gives its value back.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// use std::time::Duration;
/// use lock_core::{ErrorKind, MemoryLocks};
///
/// let guard = MemoryLocks::new().mutex("orders/42").with_ttl(Duration::from_millis(100)).lock().await?;
/// let work = async {
///     std::thread::sleep(Duration::from_millis(200)); // it stands still for longer than its lease, which nobody renews
///     "receipt"
/// };
/// let failed = guard.while_held(work).await.unwrap_err();
/// assert_eq!((failed.error.kind(), failed.value), (ErrorKind::Lost, Some("receipt"))); // it was paid
/// assert!(!lock_core::Error::from(failed).is_definite()); // as `?` says: do not pay again without looking
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub struct WorkError<T> {
    /// The value, if the work had ended when it was found that the lock was not held any more.
    pub value: Option<T>,
    /// The reason of the failure.
    pub error: Error,
}

impl<T> fmt::Debug for WorkError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkError").field("had_ended", &self.value.is_some()).field("error", &self.error).finish()
    }
}

impl<T> fmt::Display for WorkError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for WorkError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// For callers that have no use for the value. Of work that had ended it is [`Indeterminate`](crate::ErrorKind::Indeterminate), with the
/// failure as its source: to call again would be to do the work again.
impl<T> From<WorkError<T>> for Error {
    fn from(failed: WorkError<T>) -> Self {
        match failed.value {
            None => failed.error,
            Some(_) => failed.error.after_the_work(),
        }
    }
}

impl<T> WorkError<T> {
    /// Completes the error of the failure.
    pub(crate) fn map(self, complete: impl FnOnce(Error) -> Error) -> Self {
        Self { error: complete(self.error), ..self }
    }
}

/// Runs `body` under a lock, and releases the lock. The body's value comes back also if the lock is not known to be released in order.
pub(crate) async fn scoped<G, T>(
    guard: Result<G, Error>,
    body: impl AsyncFnOnce(&G) -> T,
    release: impl AsyncFnOnce(G) -> Result<(), Error>,
) -> Result<T, WorkError<T>>
where
    G: Deref<Target = Lease>,
{
    let guard = guard.map_err(|error| WorkError { value: None, error })?;
    let value = guard.while_held(body(&guard)).await?;
    match release(guard).await {
        Ok(()) => Ok(value),
        Err(error) => Err(WorkError { value: Some(value), error }),
    }
}

/// Runs `work` and drops it when `lost` resolves, or when `check` fails before or after one of its polls.
pub(crate) async fn drop_when<T>(
    lost: impl Future<Output = Error>,
    mut check: impl FnMut() -> Result<(), Error>,
    work: impl Future<Output = T>,
) -> Result<T, WorkError<T>> {
    let (mut lost, mut work) = (pin!(lost), pin!(work));
    let dropped = |error| Poll::Ready(Err(WorkError { value: None, error }));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(error) = lost.as_mut().poll(cx) {
            return dropped(error);
        }
        if let Err(error) = check() {
            return dropped(error);
        }
        match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(match check() {
                Ok(()) => Ok(value),
                Err(error) => Err(WorkError { value: Some(value), error }),
            }),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::error::{ErrorKind, Phase, Retry};
    use crate::lease::LeaveError;

    fn failure() -> Error {
        Error::indeterminate(Phase::Release, "no answer")
            .with_source(Error::unavailable(Phase::Release, "the link is down"))
    }

    #[test]
    fn an_error_that_brings_something_back_reads_as_its_reason_does() {
        let work = WorkError { value: Some("a secret"), error: failure() };
        let leave = LeaveError { guard: None::<()>, error: failure() };
        assert_eq!(work.to_string(), failure().to_string());
        assert_eq!(leave.to_string(), failure().to_string());
        for source in [work.source(), leave.source()] {
            assert!(source.is_some_and(|source| source.to_string().contains("the link is down")));
        }
        let shown = format!("{work:?}");
        assert!(
            shown.contains("had_ended: true") && shown.contains("no answer") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn an_error_of_work_that_had_ended_does_not_say_that_it_can_be_done_again() {
        let lost = || Error::lost(Phase::Hold, crate::LossReason::Expired).with_name(&"orders/42".into());
        let dropped = Error::from(WorkError::<()> { value: None, error: lost() });
        assert_eq!((dropped.kind(), dropped.is_definite()), (ErrorKind::Lost, true));
        assert_eq!(dropped.retry(), Retry::Later);
        let ended = Error::from(WorkError { value: Some("receipt"), error: lost() });
        assert_eq!((ended.kind(), ended.is_definite()), (ErrorKind::Indeterminate, false));
        assert_eq!(ended.retry(), Retry::Never);
        assert_eq!((ended.name(), ended.loss()), (Some("orders/42"), Some(&crate::LossReason::Expired)));
        assert_eq!(ended.source().unwrap().to_string(), lost().to_string());
    }
}
