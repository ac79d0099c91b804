//! A backend whose locks cannot be left.

#![cfg(test)]

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::Clock;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Grant, MutexBackend, Record, RecordBackend, RecordWrite, Released, Renewal, Renewed,
    async_trait,
};
use lock_core::memory::MemoryBackend;
use lock_core::{
    Client, ClientOptions, Error, ErrorKind, FencingToken, Guarantees, LockName, MemoryLocks, Phase, Support,
};
use lock_recipes::{Once, Outcome};

/// The memory backend without that ability.
#[derive(Debug)]
struct NeverLeaves(MemoryLocks);

impl NeverLeaves {
    fn inner(&self) -> &MemoryBackend {
        self.0.backend()
    }
}

#[async_trait]
impl Backend for NeverLeaves {
    fn name(&self) -> &'static str {
        "never leaves"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.inner().guarantees();
        guarantees.leave = Support::No;
        guarantees
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner().clock()
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.inner().renew(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.inner().release(attempt).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.inner().cancel(attempt).await
    }
}

#[async_trait]
impl MutexBackend for NeverLeaves {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.inner().try_lock(attempt).await
    }
}

#[async_trait]
impl RecordBackend for NeverLeaves {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.inner().read_record(name).await
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        self.inner().write_record(attempt, token, data, retention).await
    }
}

#[tokio::test]
async fn a_job_whose_lock_cannot_be_left_is_refused_when_that_is_asked_for() {
    let locks = Client::new(NeverLeaves(MemoryLocks::new()), ClientOptions::default()).unwrap();
    let once = Once::new(locks.recorded("job").unwrap());
    let refused = once.clone().with_at_least(Duration::from_secs(1)).unwrap_err();
    assert_eq!((refused.kind(), refused.phase()), (ErrorKind::Unsupported, Phase::Configure), "{refused}");
    assert_eq!(refused.backend(), Some("never leaves"));
    assert_eq!(once.run(1, |_| async { 1 }).await.unwrap(), Outcome::Ran(1));
}
