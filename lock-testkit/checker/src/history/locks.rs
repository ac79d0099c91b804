//! Locks whose use is written down.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use lock_core::{
    Error, ErrorKind, Lease, LockName, Locks, MutexGuard, Owner, Permit, Phase, ReadGuard, ReentrantGuard, WriteGuard,
};
use tokio::task::JoinHandle;

use super::call::{self, Pending, failed, nanos, sample};
use super::event::{Ask, Call, Change, Check, Done, Failed, Granted, Kind, Sample, Step, Text, What};
use super::recorder::{Recorder, now};

/// A client's locks, with a pen that writes down what is done with them.
#[derive(Debug, Clone)]
pub struct RecordedLocks {
    locks: Locks,
    recorder: Recorder,
}

/// The request for one lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Wish {
    /// The lock.
    pub name: LockName,
    /// The lock's kind.
    pub kind: Kind,
    /// The number of permits, of a semaphore.
    pub permits: u32,
    /// The number of permits in all, of a semaphore.
    pub limit: u32,
    /// The TTL; the lease is renewed.
    pub ttl: Duration,
    /// The time to wait; zero is a try.
    pub wait: Duration,
    /// The owner, of a reentrant lock.
    pub owner: Owner,
}

impl Wish {
    /// A try for this lock.
    #[must_use]
    pub fn new(name: impl Into<LockName>, kind: Kind, ttl: Duration) -> Self {
        let (permits, limit, wait) = (1, 1, Duration::ZERO);
        Self { name: name.into(), kind, permits, limit, ttl, wait, owner: Owner::new() }
    }

    /// Asks for so many permits of so many in all.
    #[must_use]
    pub fn with_permits(mut self, permits: u32, limit: u32) -> Self {
        (self.permits, self.limit) = (permits, limit);
        self
    }

    /// Waits for up to this long; [`Duration::MAX`] waits without limit.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Asks for this owner of a reentrant lock.
    #[must_use]
    pub fn with_owner(mut self, owner: &Owner) -> Self {
        self.owner = owner.clone();
        self
    }

    fn ask(&self, id: &Text) -> Ask {
        Ask {
            // Only a reentrant lock knows owners: to every other kind each request is somebody else's.
            owner: if self.kind == Kind::Reentrant { self.owner.id().to_string().into() } else { id.clone() },
            res: self.name.as_str().into(),
            kind: self.kind,
            permits: self.permits,
            limit: self.limit,
            ttl: nanos(self.ttl),
            wait: (self.wait != Duration::MAX).then(|| nanos(self.wait)),
            group: None,
        }
    }

    async fn take(&self, locks: &Locks) -> Result<Option<Guard>, Error> {
        let Self { name, ttl, wait, .. } = self;
        let name = name.clone();
        Ok(match self.kind {
            Kind::Mutex => locks.mutex(name).with_ttl(*ttl).try_lock_for(*wait).await?.map(Guard::Mutex),
            Kind::Reentrant => {
                let lock = locks.reentrant(name).ok_or_else(|| missing("reentrant"))?.with_ttl(*ttl);
                lock.try_lock_for(&self.owner, *wait).await?.map(Guard::Reentrant)
            }
            Kind::Read => {
                let lock = locks.rwlock(name).ok_or_else(|| missing("read-write"))?.with_ttl(*ttl);
                lock.try_read_for(*wait).await?.map(Guard::Read)
            }
            Kind::Write => {
                let lock = locks.rwlock(name).ok_or_else(|| missing("read-write"))?.with_ttl(*ttl);
                lock.try_write_for(*wait).await?.map(Guard::Write)
            }
            Kind::Sem => {
                let lock = locks.semaphore(name, self.limit).ok_or_else(|| missing("semaphore"))?.with_ttl(*ttl);
                lock.try_acquire_many_for(self.permits, *wait).await?.map(Guard::Permit)
            }
        })
    }
}

fn missing(kind: &str) -> Error {
    Error::new(ErrorKind::Unsupported, Phase::Configure, format!("this backend has no {kind} locks"))
}

impl RecordedLocks {
    /// Writes down what is done with these locks.
    #[must_use]
    pub fn new(locks: Locks, recorder: Recorder) -> Self {
        Self { locks, recorder }
    }

    /// The locks themselves: what is done with them directly is not written down.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Asks for a lock; `Ok(None)` if somebody else holds it until the wait is over.
    ///
    /// # Errors
    /// As the lock's own call.
    ///
    /// # Cancel safety
    /// As the lock's own call; written down as an acquisition of which nobody knows the outcome.
    pub async fn acquire(&self, wish: &Wish) -> Result<Option<RecordedGuard>, Error> {
        let id = self.recorder.fresh_id();
        let pending = Pending::begin(&self.recorder, [(id.clone(), wish.ask(&id))]);
        let granted = pending.end(wish.take(&self.locks).await)?;
        Ok(granted.map(|(guard, t)| {
            call::record(&self.recorder, t, What::Acquire, &id, Step::<Ask, _>::Ok(guard.granted(t)));
            RecordedGuard::new(guard, wish.kind, self.recorder.clone(), id)
        }))
    }
}

enum Guard {
    Mutex(MutexGuard),
    Reentrant(ReentrantGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Guard {
    fn token(&self) -> Option<u64> {
        let token = match self {
            Self::Mutex(guard) => guard.fencing_token(),
            Self::Reentrant(guard) => guard.fencing_token(),
            Self::Read(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Permit(_) => None,
        };
        token.map(lock_core::FencingToken::as_u64)
    }

    fn granted(&self, t: u64) -> Granted {
        let depth = match self {
            Self::Reentrant(guard) => Some(guard.depth()),
            _ => None,
        };
        let grant = Some(self.grant_id().to_string().into());
        Granted { token: self.token(), grant, sent: None, depth, sample: sample(self, t) }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Reentrant(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
    }
}

impl Deref for Guard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Mutex(guard) => guard,
            Self::Reentrant(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(guard) => guard,
        }
    }
}

/// Holds a lock, and writes down what becomes of it. Dereferences to the lease.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct RecordedGuard {
    /// `None` only once it was released, and while it is downgraded.
    guard: Option<Guard>,
    is_changing: bool,
    kind: Kind,
    recorder: Recorder,
    id: Text,
    /// Waits for the loss.
    watch: JoinHandle<()>,
}

impl RecordedGuard {
    fn new(guard: Guard, kind: Kind, recorder: Recorder, id: Text) -> Self {
        let watch = call::watch(&recorder, &id, &guard);
        Self { guard: Some(guard), is_changing: false, kind, recorder, id, watch }
    }

    /// The acquisition's id in the history.
    #[must_use]
    pub fn id(&self) -> &Text {
        &self.id
    }

    /// The kind of the grant.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The fencing token, where the kind and the configuration have one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.lock().token()
    }

    /// Asks whether the lock is held, and writes the answer down.
    #[must_use]
    pub fn check(&self) -> bool {
        let t = now();
        let sample = sample(self, t);
        self.recorder.record_at(t, What::Check(Check { id: self.id.clone(), sample }));
        sample.held == Some(true)
    }

    /// Turns a write grant into a read grant.
    ///
    /// # Errors
    /// As [`WriteGuard::downgrade`]; the guard is dropped then. [`ErrorKind::Unsupported`] of another kind.
    ///
    /// # Cancel safety
    /// As [`WriteGuard::downgrade`].
    pub async fn downgrade(mut self) -> Result<Self, Error> {
        let Some(Guard::Write(guard)) = self.guard.take_if(|guard| matches!(guard, Guard::Write(_))) else {
            return Err(Error::new(ErrorKind::Unsupported, Phase::Downgrade, "only a writer can become a reader"));
        };
        self.begin_change(Change { kind: Kind::Read, permits: 1 });
        self.is_changing = true;
        let downgraded = guard.downgrade().await;
        self.is_changing = false;
        match downgraded {
            Ok(guard) => {
                (self.guard, self.kind) = (Some(Guard::Read(guard)), Kind::Read);
                self.end_change(&Ok(()));
                Ok(self)
            }
            Err(failed) => {
                self.guard = Some(Guard::Write(failed.guard));
                self.end_change(&Err(&failed.error));
                Err(failed.error)
            }
        }
    }

    /// Releases some permits and keeps the rest.
    ///
    /// # Errors
    /// As [`Permit::release_some`]; [`ErrorKind::Unsupported`] of another kind.
    ///
    /// # Cancel safety
    /// As [`Permit::release_some`].
    pub async fn release_some(&mut self, permits: u32) -> Result<(), Error> {
        let Some(Guard::Permit(permit)) = &self.guard else {
            return Err(Error::new(ErrorKind::Unsupported, Phase::Release, "only permits can be split"));
        };
        self.begin_change(Change { kind: Kind::Sem, permits: permit.permits().saturating_sub(permits) });
        let outcome = match &mut self.guard {
            Some(Guard::Permit(permit)) => permit.release_some(permits).await,
            _ => Ok(()),
        };
        self.end_change(&outcome.as_ref().copied());
        outcome
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// As the guard's own call.
    ///
    /// # Cancel safety
    /// As the guard's own call.
    pub async fn release(mut self) -> Result<(), Error> {
        self.begin_release();
        let Some(guard) = self.guard.take() else { return Ok(()) };
        let outcome = guard.release().await;
        let step = match &outcome {
            Ok(()) => Step::Ok(Done {}),
            Err(error) if matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Lost) => Step::Fail(failed(error)),
            Err(error) => Step::Info(failed(error)),
        };
        self.record(now(), What::Release, step);
        outcome
    }

    fn begin_release(&self) {
        let t = now();
        self.record(t, What::Release, Step::Invoke(sample(self, t)));
    }

    fn begin_change(&self, change: Change) {
        self.record(now(), What::Change, Step::Invoke(change));
    }

    fn end_change(&self, outcome: &Result<(), &Error>) {
        let step = match outcome {
            Ok(()) => Step::Ok(Done {}),
            Err(error) if error.is_definite() => Step::Fail(failed(error)),
            Err(error) => Step::Info(failed(error)),
        };
        self.record(now(), What::Change, step);
    }

    fn record<I, O>(&self, t: u64, what: impl FnOnce(Call<I, O>) -> What, step: Step<I, O>) {
        call::record(&self.recorder, t, what, &self.id, step);
    }

    fn lock(&self) -> &Guard {
        // Taken by `release` and `downgrade` only, which own the guard and put it back or end with it.
        self.guard.as_ref().expect("a guard has its lock until it is released")
    }
}

impl Deref for RecordedGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.lock()
    }
}

impl Drop for RecordedGuard {
    fn drop(&mut self) {
        self.watch.abort();
        // A downgrade that is dropped drops the guard, of which nothing more can be said.
        let (t, is_dropped) = (now(), self.guard.is_some() || self.is_changing);
        if is_dropped {
            let said = self.guard.as_ref().map(|guard| sample(guard, t)).unwrap_or_default();
            self.record::<Sample, Done>(t, What::Release, Step::Invoke(said));
            let dropped = Failed { err: "dropped".into(), note: None };
            self.record::<Sample, Done>(now(), What::Release, Step::Info(dropped));
        }
    }
}

impl fmt::Debug for RecordedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedGuard").field("id", &self.id).finish_non_exhaustive()
    }
}
