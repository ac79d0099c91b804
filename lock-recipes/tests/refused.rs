//! Backends that can do less than the one in memory: locks cannot be left, or end by a coarse clock, and
//! records are not taken down.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::clock::Clock;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Grant, MutexBackend, Record, RecordBackend, RecordWrite, Released, Renewal, Renewed,
    async_trait,
};
use lock_core::memory::MemoryBackend;
use lock_core::{
    Client, ClientOptions, Error, ErrorKind, FencingToken, Guarantees, LeaseOptions, LockName, MemoryLocks, Phase,
    Support,
};
use lock_recipes::{Election, Once, OnceError, Outcome};

/// The memory backend without an ability.
#[derive(Debug)]
struct Lesser {
    name: &'static str,
    locks: MemoryLocks,
    leave: Support,
    granularity: Duration,
    /// The number of times that a record is written yet.
    writes: AtomicU64,
}

impl Lesser {
    fn inner(&self) -> &MemoryBackend {
        self.locks.backend()
    }
}

#[async_trait]
impl Backend for Lesser {
    fn name(&self) -> &'static str {
        self.name
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.inner().guarantees();
        guarantees.leave = self.leave;
        guarantees
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner().clock()
    }

    fn granularity(&self) -> Duration {
        self.granularity
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
impl MutexBackend for Lesser {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.inner().try_lock(attempt).await
    }
}

#[async_trait]
impl RecordBackend for Lesser {
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
        let is_refused = data.is_some()
            && self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err();
        if is_refused {
            return Err(Error::new(ErrorKind::Unavailable, Phase::Hold, "the disk is full"));
        }
        self.inner().write_record(attempt, token, data, retention).await
    }
}

#[tokio::test]
async fn a_job_whose_lock_cannot_be_left_is_refused_when_that_is_asked_for() {
    let locks = MemoryLocks::new();
    let backend = Lesser {
        name: "never leaves",
        granularity: locks.backend().granularity(),
        leave: Support::No,
        locks,
        writes: AtomicU64::new(u64::MAX),
    };
    let locks = Client::new(backend, ClientOptions::default()).unwrap();
    let once = Once::new(locks.recorded("job").unwrap());
    let refused = once.clone().with_at_least(Duration::from_secs(1)).unwrap_err();
    assert_eq!((refused.kind(), refused.phase()), (ErrorKind::Unsupported, Phase::Configure), "{refused}");
    assert_eq!(refused.backend(), Some("never leaves"));
    assert_eq!(once.run(1, |_| async { 1 }).await.unwrap(), Outcome::Ran(1));
}

/// The TTL of a coarse client.
const COARSE: Duration = Duration::from_secs(5);

/// A client whose leases last five seconds, and are counted on for two of them.
fn coarse() -> Client<Lesser> {
    let backend = Lesser {
        name: "coarse",
        locks: MemoryLocks::new(),
        leave: Support::Yes,
        granularity: Duration::from_secs(3),
        writes: AtomicU64::new(u64::MAX),
    };
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::new(COARSE);
    Client::new(backend, options).unwrap()
}

/// Its margin is more than what is left of its lease when a renewal is due.
#[tokio::test]
async fn a_leader_whose_margin_is_above_what_renewals_leave_leads_until_then() {
    let locks = coarse();
    let election = Election::new(locks.recorded("leader").unwrap()).with_margin(COARSE / 3);
    let run = election.run(|_| async {});
    let ran = tokio::time::timeout(Duration::from_secs(15), run).await;
    ran.expect("its term was over at once, again and again").unwrap();
}

#[tokio::test]
async fn an_end_is_told_when_it_leads_no_more_and_not_before() {
    let locks = coarse();
    let election = Election::new(locks.recorded("leader").unwrap()).with_margin(COARSE / 3);
    let leadership = election.campaign().await.unwrap();
    leadership.ended().await;
    assert!(!leadership.is_leading(), "it leads, and its end is told");
}

/// Its lock is renewed all the while.
#[tokio::test]
async fn a_value_whose_end_is_never_taken_down_comes_back_all_the_same() {
    let locks = MemoryLocks::new();
    let backend = Lesser {
        name: "full",
        granularity: locks.backend().granularity(),
        leave: Support::Yes,
        locks,
        writes: AtomicU64::new(1),
    };
    let locks = Client::new(backend, ClientOptions::default()).unwrap();
    let once = Once::new(locks.recorded("job").unwrap().with_ttl(Duration::from_secs(3)));
    let run = once.run(1, |_| async { "receipt" });
    let error = tokio::time::timeout(Duration::from_secs(30), run).await.expect("it goes on for ever").unwrap_err();
    assert!(
        matches!(&error, OnceError::NotRecorded { source, .. } if source.kind() == ErrorKind::Unavailable),
        "{error:?}"
    );
    assert_eq!(error.into_value(), Some("receipt"));
}
