//! The mutex without a queue: whoever claims it first when it is free has it.
//!
//! A claim is one transaction, which deletes the lock's directory, makes it anew, and makes a node in it. A directory with
//! anything in it cannot be deleted, so the claim fails as a whole while somebody holds the lock or waits in the queue for it.
//! The node has the name that it would have in the queue, and the number 0, so that everything else knows it: renewal, release,
//! cancellation, inspection, and whoever does wait in the queue. Nobody else ever makes a node of this name, so a late release
//! frees nobody else.
//!
//! A client that is refused waits for the node that is in the way, as everybody else does, and all of them claim again.

use lock_core::clock::{Clock, SystemClock};

use super::QueuePosition;
use crate::client::Fate;
use crate::error::StepError;
use crate::registry::{Registration, Registry};

/// Claims a lock for this registration. If somebody else has it, he is the one to wait for.
pub(crate) async fn claim(
    registry: &Registry,
    registration: &Registration,
    record: &[u8],
) -> Result<QueuePosition, StepError> {
    let (connection, directory) = (&registration.session.connection, &registration.lock.directory);
    let path = registration.lock.unnumbered(registration.grant);
    loop {
        let sent_at = SystemClock.now();
        match connection.claim(directory, &path, record).await {
            Ok(Some(node)) => {
                registry.set_node(registration, node);
                return Ok(QueuePosition::First(sent_at));
            }
            Ok(None) => {
                if let Some(path) = first_of(registration).await? {
                    return Ok(QueuePosition::Behind(path));
                }
            }
            Err(failure) if failure.fate == Fate::Missing => registry.make_directory(registration).await?,
            Err(failure) => return Err(registry.refused_node(registration, failure).into()),
        }
    }
}

/// Returns the node of whoever is first in the queue, or holds the lock; `None` if it has become free.
async fn first_of(registration: &Registration) -> Result<Option<String>, StepError> {
    let lock = &registration.lock;
    match registration.session.connection.children(&lock.directory).await {
        Ok(names) => Ok(lock.queue(names)?.first().map(|first| lock.queue_path(&first.name))),
        Err(failure) if failure.fate == Fate::Missing => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}
