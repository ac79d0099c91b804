//! Adapters: every kind of lock, presented as a mutex, so that the mutex cases run with each of them.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use lock_core::{
    Error, GrantId, Inspection, Lease, LeaseOptions, LockName, Locks, Mutex, MutexGuard, Owner, Permit, ReentrantGuard,
    ReentrantMutex, RwLock, Semaphore, WriteGuard,
};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OrFail};

/// As what a case meets its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// The mutex itself.
    Mutex,
    /// The write side of a read-write lock.
    Write,
    /// A semaphore of one permit.
    Single,
    /// A semaphore of three permits, two of which somebody else holds for the whole case.
    Drained,
    /// A reentrant lock, with a fresh owner for every contender.
    Reentrant,
}

/// Every form.
pub(crate) const ALL: &[Form] = &[Form::Mutex, Form::Write, Form::Single, Form::Drained, Form::Reentrant];
/// The forms that need no preparation: any number of names can be used.
pub(crate) const SIMPLE: &[Form] = &[Form::Mutex, Form::Write, Form::Single, Form::Reentrant];
/// The forms whose grants can be fenced by order.
pub(crate) const FENCED: &[Form] = &[Form::Mutex, Form::Write, Form::Reentrant];
/// The mutex alone, for cases that are not about a lock's kind, or about all kinds at once.
pub(crate) const ONCE: &[Form] = &[Form::Mutex];

impl Form {
    /// The name of this form in trials.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Write => "write",
            Self::Single => "semaphore of one",
            Self::Drained => "drained semaphore",
            Self::Reentrant => "reentrant",
        }
    }

    /// The number of permits of this form's semaphore.
    pub(crate) fn limit(self) -> u32 {
        if self == Self::Drained { 3 } else { 1 }
    }

    /// A handle of this form. Does not drain: see [`Cx`](crate::context::Cx).
    pub(crate) fn handle(self, locks: &Locks, name: impl Into<LockName>) -> Result<Exclusive, Failure> {
        let missing = "the backend declared a kind that this client does not have";
        let name = name.into();
        Ok(match self {
            Self::Mutex => Exclusive::Mutex(locks.mutex(name)),
            Self::Write => Exclusive::Write(locks.rwlock(name).or_fail(missing)?),
            Self::Single | Self::Drained => Exclusive::Permit(locks.semaphore(name, self.limit()).or_fail(missing)?),
            Self::Reentrant => Exclusive::Reentrant(locks.reentrant(name).or_fail(missing)?),
        })
    }
}

/// A handle of one lock that excludes all others.
#[derive(Debug, Clone)]
pub(crate) enum Exclusive {
    Mutex(Mutex),
    Write(RwLock),
    Permit(Semaphore),
    Reentrant(ReentrantMutex),
}

impl Exclusive {
    pub(crate) fn with_lease(self, lease: LeaseOptions) -> Self {
        match self {
            Self::Mutex(lock) => Self::Mutex(lock.with_lease(lease)),
            Self::Write(lock) => Self::Write(lock.with_lease(lease)),
            Self::Permit(lock) => Self::Permit(lock.with_lease(lease)),
            Self::Reentrant(lock) => Self::Reentrant(lock.with_lease(lease)),
        }
    }

    /// Makes its leases last this long, with renewal.
    pub(crate) fn with_ttl(self, ttl: Duration) -> Self {
        self.with_lease(LeaseOptions::new(ttl))
    }

    /// Makes its leases last this long, without renewal.
    pub(crate) fn unrenewed(self, ttl: Duration) -> Self {
        self.with_lease(LeaseOptions::new(ttl).with_auto_renew(false))
    }

    pub(crate) async fn lock(&self) -> Result<Held, Error> {
        Ok(match self {
            Self::Mutex(lock) => Held::Mutex(lock.lock().await?),
            Self::Write(lock) => Held::Write(lock.write().await?),
            Self::Permit(lock) => Held::Permit(lock.acquire().await?),
            Self::Reentrant(lock) => Held::Reentrant(lock.lock(&Owner::new()).await?),
        })
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Mutex(lock) => lock.try_lock().await?.map(Held::Mutex),
            Self::Write(lock) => lock.try_write().await?.map(Held::Write),
            Self::Permit(lock) => lock.try_acquire().await?.map(Held::Permit),
            Self::Reentrant(lock) => lock.try_lock(&Owner::new()).await?.map(Held::Reentrant),
        })
    }

    pub(crate) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Mutex(lock) => lock.try_lock_for(wait).await?.map(Held::Mutex),
            Self::Write(lock) => lock.try_write_for(wait).await?.map(Held::Write),
            Self::Permit(lock) => lock.try_acquire_many_for(1, wait).await?.map(Held::Permit),
            Self::Reentrant(lock) => lock.try_lock_for(&Owner::new(), wait).await?.map(Held::Reentrant),
        })
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        match self {
            Self::Mutex(lock) => lock.inspect().await,
            Self::Write(lock) => lock.inspect().await,
            Self::Permit(lock) => lock.inspect().await,
            Self::Reentrant(lock) => lock.inspect().await,
        }
    }

    pub(crate) async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, Error> {
        match self {
            Self::Mutex(lock) => lock.force_release(grant, reason).await,
            Self::Write(lock) => lock.force_release(grant, reason).await,
            Self::Permit(lock) => lock.force_release(grant, reason).await,
            Self::Reentrant(lock) => lock.force_release(grant, reason).await,
        }
    }
}

/// Holds an [`Exclusive`]; dereferences to its lease, as every guard does.
pub(crate) enum Held {
    Mutex(MutexGuard),
    Write(WriteGuard),
    Permit(Permit),
    Reentrant(ReentrantGuard),
}

impl Held {
    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Reentrant(guard) => guard.release().await,
        }
    }

    /// The fencing token, where the kind can have one.
    pub(crate) fn token(&self) -> Option<lock_core::FencingToken> {
        match self {
            Self::Mutex(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
            Self::Permit(_) => None,
            Self::Reentrant(guard) => guard.fencing_token(),
        }
    }
}

impl Deref for Held {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Mutex(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(guard) => guard,
            Self::Reentrant(guard) => guard,
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
