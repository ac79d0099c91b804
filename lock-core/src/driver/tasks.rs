//! The background tasks of a backend, which outlive a panic.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

/// The pauses between a panic of a task and its next start: the first one, and the longest. Each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs a background task until it returns. Starts it again after each panic, after a pause of 0.2 s that grows to 5 s while panics
/// follow each other. For tasks that a client depends on: if one of them ended by a panic, the client would look alive and its work
/// would never be done again.
///
/// `start` makes the task anew. A panic drops what the task owns: whatever must survive is kept outside of the task, or handled when
/// it is dropped.
///
/// # Cancel safety
/// Dropping it drops the task.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use lock_core::driver::supervised;
///
/// let mut starts = 0;
/// let heartbeats = supervised("heartbeats", move || {
///     starts += 1;
///     async move { assert_eq!(starts, 2, "a mistake") }
/// });
/// tokio::spawn(heartbeats).await.unwrap();
/// # }
/// ```
pub async fn supervised<F>(name: &'static str, mut start: impl FnMut() -> F + Send)
where
    F: Future<Output = ()> + Send,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        if AssertUnwindSafe(async { start().await }).catch_unwind().await.is_ok() {
            return;
        }
        if began.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        log(|| tracing::error!(task = name, ?pause, "a background task panicked; it is started again after a pause"));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Tells `tracing` of something in the background, or while something is dropped. A subscriber that panics has not heard it, and costs nobody
/// a lock.
///
/// # Examples
/// ```
/// lock_core::driver::log(|| tracing::info!("reconnected"));
/// ```
pub fn log(event: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(event));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_is_started_again_after_each_panic_until_it_returns() {
        let starts = Arc::<AtomicU32>::default();
        let (counted, began) = (starts.clone(), Instant::now());
        supervised("a test's", move || {
            // A panic at its start, and one when it is polled.
            let start = counted.fetch_add(1, Ordering::SeqCst);
            assert_ne!(start, 0, "planted by the test");
            async move { assert_ne!(start, 1, "planted by the test") }
        })
        .await;
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        assert_eq!(began.elapsed(), FIRST_PAUSE * 3, "the second pause is longer");
    }

    #[test]
    fn a_panic_while_something_is_told_is_kept_from_the_task() {
        log(|| panic!("planted by the test"));
    }
}
