//! The read-write lock, in the layout of Curator's `InterProcessReadWriteLock`: readers and writers in one queue, in which
//! a reader waits for the writers before it only.

use async_trait::async_trait;
use lock_core::clock::{Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, RwLockBackend};
use lock_core::{Error, ErrorKind, Phase, driver::wait};

use crate::backend::ZkBackend;
use crate::client::{Created, NewNode};
use crate::error;
use crate::registry::{Registration, Registry};
use crate::store::record::HolderRecord;
use crate::wait::downgrade::{Downgrade, Downgraded};

#[async_trait]
impl RwLockBackend for ZkBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.wait(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.wait(attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        let Some(registration) = self.registry.get(attempt.id) else { return Err(gone(attempt)) };
        let changed = async {
            tokio::select! {
                biased;
                changed = change(&self.registry, attempt, &registration) => changed,
                // By our clock: nobody has said that it is gone.
                () = registration.session.ended() => Err(error::out_of_time(Phase::Downgrade)),
            }
        };
        wait::within(&SystemClock, attempt, Phase::Downgrade, changed).await
    }
}

/// Puts a reader's node into the writer's place in the queue, by one transaction.
async fn change(registry: &Registry, attempt: &Attempt, registration: &Registration) -> Result<(), Error> {
    let Some(write) = registration.node() else { return Err(gone(attempt)) };
    let path = registration.lock.downgraded(&write.path);
    if path == write.path {
        return Ok(());
    }
    let wanted = [NewNode::Named(path.clone())];
    let record =
        HolderRecord::new(attempt, registration.session.connection.timeout()).with_token(write.czxid).to_bytes();
    let mut downgrade = Downgrade::new(registration.is_changing());
    for pause in error::pauses() {
        let changed = registration.exchange(std::slice::from_ref(&write.path), &wanted, &record).await;
        let outcome = downgrade.answered(changed.as_ref().map(drop).map_err(|failure| failure.fate));
        match (outcome, changed) {
            (Downgraded::Again, _) => tokio::time::sleep(pause).await,
            (Downgraded::Gone, _) => return Err(gone(attempt)),
            (Downgraded::Unsettled, Err(failure)) => return Err(error::unsettled(failure, Phase::Downgrade)),
            (Downgraded::Refused, Err(failure)) => return Err(error::of_request(failure, Phase::Downgrade)),
            _ => break,
        }
    }
    registry.set_node(registration, Created { path, czxid: write.czxid });
    Ok(())
}

fn gone(attempt: &Attempt) -> Error {
    attempt.error(ErrorKind::NotHeld, Phase::Downgrade, "the servers have no such write lock (any more)")
}
