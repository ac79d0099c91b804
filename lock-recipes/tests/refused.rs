//! Backends that can do less than the one in memory: locks cannot be left, or end by a coarse clock, and
//! records are not taken down, or answers are lost.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::clock::{Clock, Deadline, VirtualClock};
use lock_core::driver::{
    Attempt, Backend, Cancelled, Grant, MutexBackend, Record, RecordBackend, RecordWrite, Released, Renewal, Renewed,
    async_trait,
};
use lock_core::memory::{MemoryBackend, MemoryStore};
use lock_core::{
    Client, ClientOptions, Error, ErrorKind, FencingToken, Guarantees, LeaseOptions, LockName, MemoryLocks, Phase,
    Support,
};
use lock_recipes::{Attempts, Election, Once, OnceError, Outcome};
use lock_testkit::testing::{eventually, soon};

/// The memory backend without an ability.
#[derive(Debug)]
struct Lesser {
    name: &'static str,
    locks: MemoryLocks,
    leave: Support,
    granularity: Duration,
    /// The number of times that a record is written yet.
    writes: AtomicU64,
    /// Whether the last of these is carried out without an answer.
    loses_last_answer: bool,
    /// The time that a renewal takes.
    renewal: Duration,
    renewals: Arc<AtomicU64>,
    /// Whether releases are carried out without an answer.
    loses_releases: bool,
    /// The number of stamps.
    stamps: Arc<AtomicU64>,
    /// The clock that a write moves on by so much.
    write: Option<(VirtualClock, Duration)>,
}

impl Lesser {
    /// Everything that the memory backend can.
    fn named(name: &'static str) -> Self {
        let locks = MemoryLocks::new();
        let granularity = locks.backend().granularity();
        let writes = AtomicU64::new(u64::MAX);
        Self {
            name,
            locks,
            leave: Support::Yes,
            granularity,
            writes,
            loses_last_answer: false,
            renewal: Duration::ZERO,
            renewals: Arc::default(),
            loses_releases: false,
            stamps: Arc::default(),
            write: None,
        }
    }

    fn connect(self) -> Client<Self> {
        Client::new(self, ClientOptions::default()).unwrap()
    }

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
        self.renewals.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.renewal).await;
        self.inner().renew(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let released = self.inner().release(attempt).await;
        if self.loses_releases { Err(Error::indeterminate(Phase::Release, "the answer is lost")) } else { released }
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

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.inner().lock(attempt, deadline).await
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
        if data.is_none() {
            self.stamps.fetch_add(1, Ordering::SeqCst);
            return self.inner().write_record(attempt, token, data, retention).await;
        }
        if let Some((clock, time)) = &self.write {
            clock.advance(*time);
        }
        match self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Err(_) => Err(Error::new(ErrorKind::Unavailable, Phase::Hold, "the disk is full")),
            Ok(1) if self.loses_last_answer => {
                self.inner().write_record(attempt, token, data, retention).await?;
                Err(Error::indeterminate(Phase::Hold, "the answer is lost"))
            }
            Ok(_) => self.inner().write_record(attempt, token, data, retention).await,
        }
    }
}

#[tokio::test]
async fn a_job_whose_lock_cannot_be_left_is_refused_when_that_is_asked_for() {
    let locks = Lesser { leave: Support::No, ..Lesser::named("never leaves") }.connect();
    let once = Once::new(locks.recorded("job").unwrap());
    let refused = once.clone().with_at_least(Duration::from_secs(1)).unwrap_err();
    assert_eq!((refused.kind(), refused.phase()), (ErrorKind::Unsupported, Phase::Configure), "{refused}");
    assert_eq!(refused.backend(), Some("never leaves"));
    assert_eq!(once.run(1, |_| async { 1 }).await.unwrap(), Outcome::Ran(1));
}

/// A lease, or a patience, whose end is not the point.
const LONG: Duration = Duration::from_secs(30);

/// The TTL of a coarse client.
const COARSE: Duration = Duration::from_secs(5);

/// A client whose leases last five seconds, and are counted on for two of them.
fn coarse() -> Client<Lesser> {
    let backend = Lesser { granularity: Duration::from_secs(3), ..Lesser::named("coarse") };
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

/// Its first renewal comes when its margin has begun.
#[tokio::test]
async fn a_leader_whose_term_is_over_when_its_lock_is_confirmed_is_not_called() {
    let renewals = Arc::<AtomicU64>::default();
    let backend = Lesser {
        granularity: Duration::from_secs(3),
        renewal: Duration::from_millis(1500),
        renewals: renewals.clone(),
        ..Lesser::named("coarse and slow")
    };
    let lock = backend.connect().recorded("leader").unwrap().with_ttl(COARSE);
    let election = Election::new(lock).with_margin(COARSE / 3);
    let calls = AtomicU64::new(0);
    let run = election.run(|_| {
        calls.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    });
    let second_term = async {
        while renewals.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        second = tokio::time::timeout(Duration::from_secs(15), second_term) => second.expect("it campaigns again"),
        ended = run => panic!("{ended:?}"),
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
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
    let locks = Lesser { writes: AtomicU64::new(1), ..Lesser::named("full") }.connect();
    let once = Once::new(locks.recorded("job").unwrap().with_ttl(Duration::from_secs(3)));
    let run = once.run(1, |_| async { "receipt" });
    let error = tokio::time::timeout(Duration::from_secs(30), run).await.expect("it goes on for ever").unwrap_err();
    assert!(
        matches!(&error, OnceError::NotRecorded { source, .. } if source.kind() == ErrorKind::Unavailable),
        "{error:?}"
    );
    assert_eq!(error.into_value(), Some("receipt"));
}

/// A job whose record is written so often, the last time without an answer.
fn once_with_writes(writes: u64) -> Once {
    let backend =
        Lesser { writes: AtomicU64::new(writes), loses_last_answer: true, ..Lesser::named("loses an answer") };
    Once::new(backend.connect().recorded("job").unwrap().with_ttl(Duration::from_secs(3)))
}

#[tokio::test]
async fn slots_that_may_be_forgotten_are_not_said_to_be_kept() {
    // The first two are of the job.
    let once = once_with_writes(3);
    once.run(5, |_| async {}).await.unwrap();
    let error = once.forget().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    assert_eq!((error.name(), error.backend()), (Some("job"), Some("loses an answer")));
    let cause = std::error::Error::source(&error).expect("the last try's error");
    assert!(cause.to_string().contains("the disk is full"), "{cause}");
}

#[tokio::test]
async fn a_refused_forgetting_whose_lock_may_be_there_has_no_definite_outcome() {
    let backend = Lesser { writes: AtomicU64::new(0), loses_releases: true, ..Lesser::named("loses releases") };
    let once = Once::new(backend.connect().recorded("job").unwrap().with_ttl(Duration::from_secs(3)));
    assert_eq!(once.forget().await.unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn a_slot_that_may_be_begun_is_not_said_to_be_free() {
    let once = once_with_writes(1);
    let error = once.run(5, |_| async {}).await.unwrap_err();
    assert!(matches!(&error, OnceError::NotStarted(error) if !error.is_definite()), "{error:?}");
    assert!(matches!(once.run(5, |_| async {}).await.unwrap(), Outcome::Skipped { .. }));
}

#[tokio::test]
async fn an_end_that_may_be_recorded_is_not_said_to_be_missing() {
    let once = once_with_writes(2).with_attempts(Attempts::AtLeastOnce);
    let error = once.run(5, |_| async { "receipt" }).await.unwrap_err();
    assert!(
        matches!(&error, OnceError::NotRecorded { value: "receipt", source } if !source.is_definite()),
        "{error:?}"
    );
    assert!(matches!(once.run(5, |_| async { "again" }).await.unwrap(), Outcome::Skipped { .. }));
}

#[tokio::test]
async fn a_campaign_whose_lock_may_be_there_has_no_definite_outcome() {
    let backend = Lesser { writes: AtomicU64::new(0), loses_releases: true, ..Lesser::named("loses releases") };
    let error = Election::new(backend.connect().recorded("leader").unwrap()).campaign().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error:?}");
    assert_eq!((error.name(), error.backend()), (Some("leader"), Some("loses releases")));
}

/// A server of which half a second more is counted off than the clocks of both differ: it keeps the lock for a second, and a write that
/// fails takes longer than the lease.
fn slow(clock: &VirtualClock) -> Client<Lesser> {
    let backend = Lesser {
        locks: MemoryStore::with_clock(clock.clone()).connect(),
        granularity: Duration::from_millis(500),
        writes: AtomicU64::new(0),
        write: Some((clock.clone(), Duration::from_millis(600))),
        ..Lesser::named("slow")
    };
    backend.connect()
}

#[tokio::test]
async fn a_call_whose_lock_is_over_by_its_own_clock_alone_has_no_definite_outcome() {
    let locks = slow(&VirtualClock::new());
    let lock = |name: &'static str| locks.recorded(name).unwrap().with_ttl(Duration::from_secs(1));
    let error = Election::new(lock("leader")).campaign().await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error:?}");
    let error = Once::new(lock("forgotten")).forget().await.unwrap_err();
    assert!(!error.is_definite(), "{error:?}");
    let error = Once::new(lock("job")).run(5, |_| async {}).await.unwrap_err();
    assert!(matches!(&error, OnceError::NotStarted(error) if !error.is_definite()), "{error:?}");
}

#[tokio::test]
async fn a_campaign_that_failed_has_released_its_lock() {
    let backend = Lesser { writes: AtomicU64::new(0), ..Lesser::named("full") };
    let locks = backend.connect();
    let error = Election::new(locks.recorded("leader").unwrap()).campaign().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(locks.mutex("leader").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn an_election_leaves_the_record_of_a_job_as_it_is() {
    let locks = MemoryLocks::new();
    let once = Once::new(locks.recorded("nightly").unwrap());
    once.run(5, |_| async {}).await.unwrap();
    let error = Election::new(locks.recorded("nightly").unwrap()).campaign().await.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Protocol, Some("nightly")), "{error:?}");
    assert!(matches!(once.run(5, |_| async {}).await.unwrap(), Outcome::Skipped { .. }));
    assert_eq!(once.run(6, |_| async { 6 }).await.unwrap(), Outcome::Ran(6));
}

#[tokio::test]
async fn a_job_whose_lock_would_outlast_its_record_is_refused() {
    let locks = MemoryLocks::new();
    let minute = Duration::from_secs(60);
    let recorded = || locks.recorded("job").unwrap().with_retention(minute);
    let error = Once::new(recorded().with_ttl(minute / 2 + Duration::from_millis(1))).run(1, |_| async {}).await;
    let error = error.unwrap_err();
    assert!(matches!(&error, OnceError::NotRun(error) if error.kind() == ErrorKind::InvalidArgument), "{error:?}");
    assert_eq!(Once::new(recorded().with_ttl(minute / 2)).run(1, |_| async { 1 }).await.unwrap(), Outcome::Ran(1));
}

/// Each of them would take the lock, stamp its record and release it, one after the other.
#[tokio::test]
async fn clones_that_wait_while_a_cool_down_begins_leave_the_queue_to_others() {
    let (store, stamps) = (MemoryStore::new(), Arc::<AtomicU64>::default());
    let election = || {
        let locks = Lesser { locks: store.connect(), stamps: stamps.clone(), ..Lesser::named("counts") }.connect();
        Election::new(locks.recorded("leader").unwrap().with_ttl(LONG))
    };
    let (cooling, other, look) = (election().with_cool_down(LONG * 20), election(), store.connect().mutex("leader"));
    let campaign = |election: &Election| {
        let election = election.clone();
        tokio::spawn(async move { election.campaign().await })
    };
    let waiting = async |waiters| look.inspect().await.unwrap().waiter_count() == waiters;
    let leadership = cooling.campaign().await.unwrap();
    let clones: Vec<_> = (0..200).map(|_| campaign(&cooling)).collect();
    eventually("the clones wait", LONG, async || waiting(200).await).await;
    let next = campaign(&other);
    eventually("somebody else waits", LONG, async || waiting(201).await).await;
    let before = stamps.load(Ordering::SeqCst);
    leadership.step_down().await.unwrap();
    let leads = soon("somebody else leads", LONG, next).await.unwrap().unwrap();
    let stamped = stamps.load(Ordering::SeqCst) - before;
    assert!(stamped <= 3, "{stamped} took the lock before or as the next leader");
    eventually("no clone waits", LONG, async || waiting(0).await).await;
    clones.iter().for_each(tokio::task::JoinHandle::abort);
    leads.step_down().await.unwrap();
}
