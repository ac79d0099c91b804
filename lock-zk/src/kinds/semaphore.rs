//! The semaphore, in the layout of Curator's `InterProcessSemaphoreV2`: all or nothing, first come, first served.

use async_trait::async_trait;
use lock_core::clock::{Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, SemaphoreBackend};
use lock_core::{Error, ErrorKind, LockName, Phase, driver::wait};

use crate::backend::ZkBackend;
use crate::client::{Fate, NewNode};
use crate::error;
use crate::error::{StepError, retry_unanswered};
use crate::registry::{Registration, Registry};

#[async_trait]
impl SemaphoreBackend for ZkBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.wait(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Err(gone(attempt)) };
        let shrunk = async {
            tokio::select! {
                biased;
                shrunk = retry_unanswered(|| shrink(&self.registry, attempt, &registration, keep)) => match shrunk {
                    // An earlier request may have done it.
                    Err(StepError::Failure(failure)) if registration.is_changing() => {
                        Err(error::unsettled(failure, Phase::Release))
                    }
                    shrunk => shrunk.map_err(|failure| failure.error(Phase::Release)),
                },
                // By our clock: nobody has said that they are gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Release)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Release, shrunk).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.inspector.permits_held(name, limit).await
    }
}

/// Releases what is more than this, by one transaction. What is there is looked for each time: an earlier sending may
/// have done it, and its answer been lost.
async fn shrink(
    registry: &Registry,
    attempt: &Attempt,
    registration: &Registration,
    keep: u32,
) -> Result<(), StepError> {
    // A call that was dropped is finished in the background, while the next one may come.
    let _turn = registration.changes.lock().await;
    let (mut left, mut kept, mut given) = (0_u32, Vec::new(), Vec::new());
    let mut data = Vec::new();
    for (lease, node) in registration.own_nodes(registration.lock.permit_directory()).await? {
        let path = registration.lock.permit_path(&lease.name);
        if lease.permits <= keep - left.min(keep) {
            left += lease.permits;
            kept.push(path);
        } else {
            given.push(path);
        }
        data = node.data;
    }
    if kept.is_empty() && given.is_empty() {
        return Err(gone(attempt).into());
    }
    if given.is_empty() {
        registry.set_permits(registration, kept);
        return Ok(());
    }
    // Behind a `sync`: an earlier sending has not done it.
    registry.set_permits(registration, kept.iter().chain(&given).cloned().collect());
    // One node for many permits: one for fewer takes its place.
    let fewer = (left < keep).then(|| {
        registration.lock.permit_path(&registration.lock.dialect.stem_of_many(registration.grant, keep - left))
    });
    let fewer: Vec<_> = fewer.into_iter().map(NewNode::Sequential).collect();
    match registration.exchange(&given, &fewer, &data).await {
        Ok(new) => {
            kept.extend(new);
            registry.set_permits(registration, kept);
            Ok(())
        }
        Err(failure) if failure.fate == Fate::Missing => Err(gone(attempt).into()),
        Err(failure) => Err(failure.into()),
    }
}

fn gone(attempt: &Attempt) -> Error {
    attempt.error(ErrorKind::NotHeld, Phase::Release, "the servers have no such permits (any more)")
}
