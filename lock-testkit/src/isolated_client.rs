//! A client on a thread and in a runtime of its own: what a separate process is to its locks.
//!
//! Blocking the thread pauses everything the client does, as SIGSTOP would. When the work ends, the runtime goes away
//! with its tasks and connections, and a guard that was forgotten is never renewed nor released, as after SIGKILL.

use std::future::Future;

use tokio::sync::oneshot;

use crate::failure::{Failure, OrFail};
use crate::panics::Run;

/// Runs this as an isolated client.
pub(crate) async fn in_isolation<W, F, T>(work: W) -> Result<T, Failure>
where
    W: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<T, Failure>>,
    T: Send + 'static,
{
    let (tell, told) = oneshot::channel();
    let run = Run::present();
    std::thread::Builder::new().name("isolated client".to_owned()).spawn(move || {
        let _working = Run::work(run);
        let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(work()),
            Err(error) => Err(error.into()),
        };
        // Whoever waited may have given up; its case has failed already.
        let _ = tell.send(outcome);
    })?;
    told.await.ok().or_fail("the isolated client's thread panicked")?
}
