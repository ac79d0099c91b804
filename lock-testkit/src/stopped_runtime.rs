//! A runtime that stands still for a while.

#![expect(clippy::panic, reason = "that is how a test fails")]

use std::future::Future;
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::Error;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::time;

/// A runtime of one thread that stands still for a while, as all runtimes of a process do that is stopped.
#[derive(Debug)]
pub struct StoppedRuntime {
    stop: oneshot::Sender<Duration>,
    outcome: oneshot::Receiver<Result<(), Error>>,
}

impl StoppedRuntime {
    /// Runs the tasks that this begins.
    pub fn run<F>(begin: impl FnOnce() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Vec<JoinHandle<Result<(), Error>>>>,
    {
        let ((stop, told), (tell, outcome)) = (oneshot::channel(), oneshot::channel());
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
            runtime.block_on(async move {
                let tasks = begin().await;
                let Ok(time) = told.await else { return };
                thread::sleep(time);
                let outcomes = join_all(tasks).await;
                let outcome = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|error| panic!("{error}")));
                // The test may have failed meanwhile.
                let _ = tell.send(outcome.collect());
            });
        });
        Self { stop, outcome }
    }

    /// Stands still for so long, from now on. The future gives the outcome of its tasks: the first error, if there is one.
    ///
    /// # Panics
    /// If a task did, or if they have not ended within this time; with the place of the call.
    #[track_caller]
    pub fn stand_still(self, time: Duration, within: Duration) -> impl Future<Output = Result<(), Error>> {
        // It has ended with a panic otherwise, which the outcome tells.
        let _ = self.stop.send(time);
        let outcome = time::soon("the tasks of a runtime that stood still", within, self.outcome);
        async move {
            let told = outcome.await.unwrap_or_else(|failure| panic!("{failure}"));
            told.unwrap_or_else(|_| panic!("a task of a runtime that stood still has panicked"))
        }
    }
}
