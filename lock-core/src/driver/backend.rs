//! The traits that a backend implements.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::attempt::{Attempt, Cancelled, Grant, Kind, Left, Released, Renewal, Renewed};
use super::doubts::Doubts;
use super::notices::Notices;
use super::several::SeveralOutcome;
use super::wait;
use crate::clock::{Clock, Deadline, SystemClock};
use crate::driver::Guarantees;
use crate::driver::{Holder, Inspection};
use crate::error::{Error, ErrorKind, Phase};
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::{GrantId, Owner};

/// The part of a backend that every one has, whatever the kinds it offers.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The backend's name in errors and metrics, such as `"redis"`.
    fn name(&self) -> &'static str;

    /// Returns the promises of this backend, as it is configured.
    fn guarantees(&self) -> Guarantees;

    /// The clock by which leases are judged.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// The coarseness of the server's expiry: subtracted from a lease, beside 1 % for the rates of two clocks.
    fn granularity(&self) -> Duration {
        Duration::from_millis(2)
    }

    /// The announcements of grants that were lost at the server, if the server can push that: a subscription to the
    /// backend's [`NoticeSource`](super::NoticeSource). The core asks when its keeper starts; a later call replaces the
    /// earlier subscription.
    ///
    /// The core listens for grants that it has: an announcement that overtakes the answer with its grant is not heard, and
    /// the next renewal finds the loss. So an attempt that lost its place may be granted the lock later under the same id.
    fn notices(&self) -> Option<Notices> {
        None
    }

    /// The occasions on which the server may have forgotten grants that it had confirmed, such as when another server took
    /// over: a subscription to the backend's [`DoubtSource`](super::DoubtSource), made with each client. Every lease is then verified by
    /// a renewal at once; one that is not renewed by choice asks for no more than what is left of it.
    fn doubts(&self) -> Option<Doubts> {
        None
    }

    /// Extends leases, each only if the server still has it under the same id; one answer for each, in order. Never
    /// shortens one: a renewal may be overtaken by an extension by hand.
    ///
    /// # Errors
    /// None: what went wrong with one lease is its answer, [`Renewed::Unknown`].
    ///
    /// # Cancel safety
    /// May be dropped; renewals that were sent may still be carried out.
    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed>;

    /// Tries several locks of one client in one step, without waiting: all attempts get their locks or none does, and nobody ever sees only
    /// some of them held. They are at least two different mutexes or write sides of read-write locks, in the order of their names. Each is
    /// granted, with its own token, or refused as by [`MutexBackend::try_lock`] or [`RwLockBackend::try_write`].
    ///
    /// [`SeveralOutcome::OneByOne`] by default, and wherever the server has no step that takes just these: they are on different servers, or too
    /// many for one request that holds nobody else up. An error about one of the locks may be told so as well: whoever asks for it by
    /// itself finds it again.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came.
    ///
    /// # Cancel safety
    /// May be dropped: the core then calls [`cancel`](Backend::cancel) for each attempt.
    async fn try_several(&self, _attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        Ok(SeveralOutcome::OneByOne)
    }

    /// The longest TTL that a grant can have. The core refuses a longer one before anything is asked of the server: of an acquisition,
    /// of a nested lock of an owner that is inside, and of an extension. It asks once for each client.
    fn longest_ttl(&self) -> Duration {
        LeaseOptions::MAX_TTL
    }

    /// Releases a grant, only if the server still has it under the attempt's id, and lets the next waiter in.
    /// Idempotent.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came; the core then
    /// repeats the call.
    ///
    /// # Cancel safety
    /// May be dropped; the core repeats it.
    async fn release(&self, attempt: &Attempt) -> Result<Released, Error>;

    /// Lets the grant of a mutex end `time` from now by the server's clock, sooner or later than it would have, only if the server still has
    /// it under the attempt's id. From then on it is under the id `left`: no renewal, release or cancellation of the attempt that comes later
    /// changes it. Idempotent: what is under `left` already gets the same time once more. Waiters are granted the lock when it ends.
    ///
    /// A server that cannot end a grant by itself answers [`Left::UntilReleased`], and keeps the attempt's id.
    ///
    /// The core asks only where [`Leave`](super::Guarantee::Leave) is promised, and for no more than [`longest_leave`](Backend::longest_leave).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default. [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer
    /// came; the core then repeats the call with what is left of the time.
    ///
    /// # Cancel safety
    /// May be dropped; the core repeats it.
    async fn leave(&self, attempt: &Attempt, _left: GrantId, _time: Duration) -> Result<Left, Error> {
        Err(attempt.error(ErrorKind::Unsupported, Phase::Release, "this backend's grants cannot be left"))
    }

    /// The longest time for which a grant can be left.
    fn longest_leave(&self) -> Duration {
        LeaseOptions::MAX_TTL
    }

    /// Takes care that nothing is left of an attempt that was given up: neither a queue entry nor a grant. If nothing of it
    /// was ever sent, that is [`Cancelled::Settled`] without asking the server: in an outage there are many of these.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came; the core then
    /// repeats the call.
    ///
    /// # Cancel safety
    /// May be dropped; the core repeats it.
    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error>;

    /// Whether nothing of this attempt is at the server, and no copy of a request of it can reach the server any more. The core asks when
    /// the grant has ended; after `false` it calls [`cancel`](Backend::cancel) until that says [`Cancelled::Settled`].
    ///
    /// Only for backends that may send an acquisition twice, over two connections: the copy that is late would take the
    /// lock again for somebody who has released it. And for those whose server keeps a part of a grant of which another part is lost.
    fn is_settled(&self, _attempt: &Attempt) -> bool {
        true
    }

    /// Whether every acquisition request of this attempt was answered or can no longer reach the server. The core asks before it passes on
    /// a held grant: a late copy would bring it back after its end. [`is_settled`](Backend::is_settled) by default, for backends whose
    /// answer does not depend on whether the grant is held.
    fn is_answered(&self, attempt: &Attempt) -> bool {
        self.is_settled(attempt)
    }

    /// Whether another client can go on with the grant of this attempt, where [`Adoption`](super::Guarantee::Adoption) is promised. The core asks
    /// before it passes a grant on. By default every one can.
    fn is_adoptable(&self, _attempt: &Attempt) -> bool {
        true
    }

    /// The time beyond its lease for which something of an attempt may block others at the server, if nobody takes it back:
    /// the core repeats a [`release`](Backend::release) or a [`cancel`](Backend::cancel) for that much longer.
    ///
    /// Nothing by default: the server ends a grant with its lease.
    fn outlasts_lease(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether something of an attempt may still be at the server although the time of its clean-up is over. The core asks
    /// then; while this is true it goes on, at its slowest pace (about once a second).
    ///
    /// Only for backends whose server keeps things for as long as a session lives, whatever their lease.
    fn may_remain(&self, _attempt: &Attempt) -> bool {
        false
    }

    /// The number of the place that serves this attempt at present, such as a hash of a shard's address. A clean-up
    /// that got no answer is tried again one at a time for each place, until the place answers, and each place has
    /// renewals of its own: one that is away does not hold up what is to be done at the others. There are few of them:
    /// clean-ups wait for at most 1,024 places at a time, and those of a further one wait with those of another. At
    /// most about 65,536 of one client wait, for all places together; when a place has left as many, those of any other
    /// have one try.
    ///
    /// One place by default.
    fn place(&self, _attempt: &Attempt) -> u64 {
        0
    }

    /// Drops whatever this client remembers of an attempt. The core calls it when it gives up on an attempt for good: its
    /// release or cancellation was not confirmed in time, or there is no runtime to do it on. Nothing else is asked of that
    /// attempt afterwards. Not called after [`Released`] or [`Cancelled::Settled`], of which the backend knows by itself.
    fn forget(&self, _attempt: &Attempt) {}

    /// The one spelling of a lock's name, where several name the same lock. Every handle has its name from here, so
    /// that two spellings are one lock to the core, too. The name may be one that the core will refuse.
    fn canonical(&self, name: LockName) -> LockName {
        name
    }

    /// The operator's side, if the backend has one.
    fn operator(&self) -> Option<&dyn Operator> {
        None
    }
}

/// Looking into a lock, and freeing a grant by force.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Holders and waiters of a lock of this kind. More than [`Inspection::MOST`] of each need not be looked for, only
    /// counted; the core lists no more.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came,
    /// [`ErrorKind::Protocol`] if the key holds foreign data.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error>;

    /// The holder of a mutex, without its waiters; `None` if it is free. By default the first one of an
    /// [inspection](Operator::inspect), which costs more the more waiters there are.
    ///
    /// # Errors
    /// Those of [`inspect`](Operator::inspect).
    ///
    /// # Cancel safety
    /// Reads only.
    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        Ok(self.inspect(name, Kind::Mutex).await?.holders.into_iter().next())
    }

    /// Frees exactly this grant and lets the next waiter in; `false` if it is not there.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error>;
}

macro_rules! pair_docs {
    (try) => {
        "One try, without waiting; `Ok(None)` if it cannot be had now, and then nothing of the attempt is left. Tried again after an \
         error, an attempt that the server has granted the lock already is told of its grant.\n\n\
         # Errors\n[`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came.\n\n\
         # Cancel safety\nMay be dropped: the core then calls [`Backend::cancel`]."
    };
    (wait) => {
        "Waits until the lock is granted; `Ok(None)` at the deadline. A backend whose server can queue or push \
         overrides this; the default polls.\n\n\
         # Errors\nAs the try, but [`ErrorKind::Unavailable`] and [`ErrorKind::Indeterminate`] only if no answer came for \
         [`Attempt::patience`] or by the deadline.\n\n\
         # Cancel safety\nMay be dropped: the core then calls [`Backend::cancel`]."
    };
}

/// Offers the mutex.
#[async_trait]
pub trait MutexBackend: Backend {
    #[doc = pair_docs!(try)]
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error>;

    #[doc = pair_docs!(wait)]
    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        wait::poll(&*self.clock(), attempt, deadline, || self.try_lock(attempt)).await
    }
}

/// Offers the reentrant lock: a mutex between owners.
///
/// The core counts the depth, so that one client asks once for each owner.
#[async_trait]
pub trait ReentrantBackend: Backend {
    #[doc = pair_docs!(try)]
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error>;

    #[doc = pair_docs!(wait)]
    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        wait::poll(&*self.clock(), attempt, deadline, || self.try_enter(attempt)).await
    }
}

/// Offers the read-write lock.
#[async_trait]
pub trait RwLockBackend: Backend {
    #[doc = pair_docs!(try)]
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error>;

    #[doc = pair_docs!(try)]
    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error>;

    #[doc = pair_docs!(wait)]
    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        wait::poll(&*self.clock(), attempt, deadline, || self.try_read(attempt)).await
    }

    #[doc = pair_docs!(wait)]
    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        wait::poll(&*self.clock(), attempt, deadline, || self.try_write(attempt)).await
    }

    /// Turns the write grant of this attempt into a read grant without a gap, and lets waiting readers in. The id and
    /// the token stay. Idempotent.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the write grant is gone, [with the reason](Error::with_loss) if it is known; otherwise as
    /// [`Backend::release`].
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped: the grant is then a read grant.
    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error>;
}

/// Offers the semaphore.
#[async_trait]
pub trait SemaphoreBackend: Backend {
    #[doc = pair_docs!(try)]
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error>;

    #[doc = pair_docs!(wait)]
    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        wait::poll(&*self.clock(), attempt, deadline, || self.try_acquire(attempt)).await
    }

    /// Releases permits of this grant until it has `keep` left, which is at least one. A grant that has fewer keeps
    /// what it has: a repetition may come after a later call that left it less.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the grant is gone, [with the reason](Error::with_loss) if it is known; otherwise as
    /// [`Backend::release`].
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error>;

    /// The number of permits that are held at this instant, of a semaphore that has this many. Those of a lease that
    /// has ended count until the server has let go of them: at once where it ends a grant with its lease, later
    /// elsewhere (memcached keeps an item 5 s longer, ZooKeeper a node until it is deleted or its session ends).
    ///
    /// The default adds up what [`Operator::inspect`] lists. A backend whose server can count, or whose inspection leaves
    /// holders out, overrides it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell; otherwise as [`Operator::inspect`].
    ///
    /// # Cancel safety
    /// Changes nothing that counts.
    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let unsupported = |what: &'static str| Error::new(ErrorKind::Unsupported, Phase::Inspect, what);
        let operator = self
            .operator()
            .ok_or_else(|| unsupported("this backend shows nothing to operators, nor counts permits"))?;
        let seen = operator.inspect(name, Kind::Permits { permits: 1, limit }).await?;
        if seen.more_holders > 0 {
            return Err(unsupported("this backend lists a part of the holders, and does not count permits"));
        }
        Ok(seen.holders.iter().map(|holder| u64::from(holder.permits)).sum())
    }
}
