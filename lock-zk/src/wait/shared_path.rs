//! Paths that are shared with clients of other libraries.

use std::sync::Arc;

use futures_util::future::join;

use crate::client::Fate;
use crate::error::StepError;
use crate::session::Session;
use crate::store::layout::LockPaths;

/// Whether everybody at a shared path speaks our dialect. Asked before anything is made there: whoever speaks another one would
/// fail because of us, as long as our node is there.
pub(crate) async fn check_dialect(session: &Session, lock: &LockPaths) -> Result<(), StepError> {
    let names = async |directory: &str| match session.connection.children(directory).await {
        Err(failure) if failure.fate == Fate::Missing => Ok(Vec::new()),
        names => names.map(Arc::unwrap_or_clone),
    };
    let beside = async {
        match lock.semaphore_directory() {
            // Whoever may not read it has nothing to disturb there.
            Some(directory) => match names(directory).await {
                Err(failure) if failure.fate == Fate::Denied => Ok(Vec::new()),
                names => names,
            },
            None => Ok(Vec::new()),
        }
    };
    let (queue, beside) = join(names(&lock.directory), beside).await;
    lock.check_beside(&beside?)?;
    Ok(lock.queue(queue?).map(drop)?)
}
