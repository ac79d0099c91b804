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
/// # Ok(()) }
/// ```
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

/// For callers that have no use for the value.
impl<T> From<WorkError<T>> for Error {
    fn from(failed: WorkError<T>) -> Self {
        failed.error
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
    check: impl Fn() -> Result<(), Error>,
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
