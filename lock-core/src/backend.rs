//! For authors of backends: the traits that a backend implements.
//!
//! A backend answers only five questions: may this attempt have the lock now, tell me when it may, is this grant still
//! its holder's (renew), give it back (release), and undo what an abandoned attempt left (cancel). Deadlines, renewal,
//! loss, guards, names, errors and drop are written once, in this crate.
//!
//! Start with [`Backend`] and [`MutexBackend`]; each further kind is one more trait. A kind whose trait is not
//! implemented does not compile for the user, rather than fail at run time. `docs/writing-a-backend.md` walks from an
//! empty crate to a green suite.
//!
//! # What the core guarantees to a backend
//! - Each [`Attempt`] has a random [`GrantId`]; that id is the nonce to store at the server, to compare on renewal and
//!   release, and by which a repeated request is recognised.
//! - When the future of `try_lock` or `lock` is dropped, or its outcome is unknown, [`Backend::cancel`] is called until
//!   it says [`Cancelled::Settled`], or until nothing of the attempt can be left ([`Backend::outlasts_lease`]).
//! - When `lock` returns `Ok(None)` at its deadline, `cancel` is called before the caller is told.
//! - Every request is bounded: one that has not ended half a second after its [`Attempt::op_timeout`] is dropped, and its
//!   outcome unknown; a wait with a deadline half a second and one such timeout after that. A backend keeps the operation
//!   timeout by itself; the bound is for the one that hangs.
//! - A clean-up that is given up is told to the backend ([`Backend::forget`]), which may ask for more time before
//!   ([`Backend::may_remain`]).
//! - Texts of users (labels, reasons) have at most 1 KiB.
//! - When a grant has ended and [`Backend::is_settled`] says that a late copy of one of its requests may still be on its
//!   way, `cancel` is called in the same manner.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::{BootInstant, Clock, Deadline, SystemClock};
use crate::error::{Error, ErrorKind, Phase};
use crate::guarantees::Guarantees;
use crate::inspect::Inspection;
use crate::lease::LossReason;
use crate::name::LockName;
use crate::options::ClientOptions;
use crate::owner::{GrantId, Owner};
use crate::token::FencingToken;
use crate::wait;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Exclusive.
    Mutex,
    /// Exclusive between owners.
    Reentrant,
    /// Shared among readers.
    Read,
    /// Exclusive, on the same lock as [`Kind::Read`].
    Write,
    /// `permits` of `limit`, all or nothing.
    Permits {
        /// How many are asked for; at least one, at most `limit`.
        permits: u32,
        /// How many there are in all, as this client believes.
        limit: u32,
    },
}

impl Kind {
    /// A short name that is the same for all requests to one lock: names of different spaces never collide.
    #[must_use]
    pub const fn space(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Reentrant => "reentrant",
            Self::Read | Self::Write => "rwlock",
            Self::Permits { .. } => "semaphore",
        }
    }

    /// The kind's own name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Reentrant => "reentrant",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permits { .. } => "permits",
        }
    }
}

/// One call's wish for one lock, with an identity of its own.
#[derive(Debug)]
pub struct Attempt {
    /// The nonce: unique, random, and the grant's id once granted.
    pub id: GrantId,
    /// The lock.
    pub name: LockName,
    /// What is asked for.
    pub kind: Kind,
    /// Who asks.
    pub owner: Owner,
    /// How long the grant is to live at the server without renewal.
    pub ttl: Duration,
    /// How long one request may take.
    pub op_timeout: Duration,
    /// How long a wait may go on without any answer from the server.
    pub patience: Duration,
    note: AtomicU64,
}

impl Attempt {
    /// A fresh attempt, with the default time limits of [`ClientOptions`].
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn new(name: LockName, kind: Kind, owner: Owner, ttl: Duration) -> Result<Self, Error> {
        let ClientOptions { op_timeout, patience, .. } = ClientOptions::default();
        Ok(Self { id: GrantId::random()?, name, kind, owner, ttl, op_timeout, patience, note: AtomicU64::new(0) })
    }

    /// A number that the backend keeps with the attempt, such as the connection over which it was sent first; 0 at first.
    #[must_use]
    pub fn note(&self) -> u64 {
        self.note.load(Ordering::Acquire)
    }

    /// Sets [`note`](Attempt::note).
    pub fn set_note(&self, note: u64) {
        self.note.store(note, Ordering::Release);
    }

    /// An error about this attempt.
    #[must_use]
    pub fn error(&self, kind: ErrorKind, phase: Phase, what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::new(kind, phase, what).with_name(&self.name)
    }
}

/// What a backend reports when an attempt has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, where the configuration has them.
    pub token: Option<FencingToken>,
    /// When the request whose answer proves the grant was **sent**.
    pub sent_at: BootInstant,
    /// How long from `sent_at` the server keeps the grant at least.
    pub valid_for: Duration,
    /// The grant was handed over for a short claim time: renew at once to get the full TTL.
    pub claim: bool,
    /// When the waiter was woken, if it was by a push; for the metric `lock_wake_to_grant_seconds` only.
    pub woken_at: Option<BootInstant>,
}

impl Grant {
    /// A grant that the server keeps for `valid_for` from `sent_at`.
    #[must_use]
    pub const fn new(token: Option<FencingToken>, sent_at: BootInstant, valid_for: Duration) -> Self {
        Self { token, sent_at, valid_for, claim: false, woken_at: None }
    }

    /// The same grant, to be claimed by a renewal at once.
    #[must_use]
    pub const fn to_be_claimed(mut self) -> Self {
        self.claim = true;
        self
    }

    /// The same grant, of which the waiter was told by a push at this instant.
    #[must_use]
    pub const fn woken_at(mut self, instant: BootInstant) -> Self {
        self.woken_at = Some(instant);
        self
    }
}

/// One lease in a batch of renewals.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Renewal<'a> {
    /// The grant's attempt.
    pub attempt: &'a Attempt,
    /// How long the grant is to live from now.
    pub ttl: Duration,
}

impl<'a> Renewal<'a> {
    /// A renewal of this grant.
    #[must_use]
    pub const fn new(attempt: &'a Attempt, ttl: Duration) -> Self {
        Self { attempt, ttl }
    }
}

/// The answer to one renewal.
#[derive(Debug)]
#[non_exhaustive]
pub enum Renewed {
    /// The server keeps the grant for this long from the instant at which the renewal was sent. If that is less than was
    /// asked for, the core asks again in time for the rest; so does it after a [`Grant`] that is valid for less than its
    /// attempt's TTL.
    For(Duration),
    /// The grant is still there, its end was not moved. The core asks again soon.
    Held,
    /// The grant is gone.
    Lost(LossReason),
    /// No answer, or one that says nothing about the grant. Never extends a lease.
    Unknown(Error),
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The grant was there and is gone now.
    Done,
    /// The grant was not there; nothing was changed.
    NotHeld(Option<LossReason>),
}

/// The answer to a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// Nothing of the attempt is left, and nothing of it can appear any more.
    Settled,
    /// Nothing of the attempt was seen, but an earlier request of it may still be on its way (another connection):
    /// ask again.
    AskAgain,
}

/// What every backend has, whatever the kinds it offers.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The backend's name in errors and metrics, such as `"redis"`.
    fn name(&self) -> &'static str;

    /// What this backend promises as it is configured.
    fn guarantees(&self) -> Guarantees;

    /// The clock by which leases are judged.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }

    /// What to subtract from a lease, beside 1 % for the rates of two clocks: how coarse the server's expiry is.
    fn granularity(&self) -> Duration {
        Duration::from_millis(2)
    }

    /// A fresh channel on which grants that were lost at the server are announced, if the server can push that. The
    /// core asks when its keeper starts; a later call replaces the earlier channel.
    fn notices(&self) -> Option<Notices> {
        None
    }

    /// Changes whenever the server may have forgotten grants that it had confirmed, such as when another server took over:
    /// everything that is renewed at all is then renewed at once, and so verified.
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

    /// Gives a grant back, only if the server still has it under the attempt's id, and lets the next waiter in.
    /// Idempotent.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came; the core then
    /// repeats the call.
    ///
    /// # Cancel safety
    /// May be dropped; the core repeats it.
    async fn release(&self, attempt: &Attempt) -> Result<Released, Error>;

    /// Takes care that nothing is left of an attempt that was given up: neither a queue entry nor a grant. If nothing of it
    /// was ever sent, that is [`Cancelled::Settled`] without asking the server: in an outage there are many of these.
    ///
    /// # Errors
    /// As [`release`](Backend::release).
    ///
    /// # Cancel safety
    /// May be dropped; the core repeats it.
    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error>;

    /// Whether no copy of a request of this attempt can reach the server any more. The core asks when the grant has ended;
    /// after `false` it calls [`cancel`](Backend::cancel) until that says [`Cancelled::Settled`].
    ///
    /// Only for backends that may send an acquisition twice, over two connections: the copy that is late would take the
    /// lock again for somebody who has given it back.
    fn is_settled(&self, _attempt: &Attempt) -> bool {
        true
    }

    /// For how much longer than its lease something of an attempt may block others at the server, if nobody takes it back:
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

    /// The number of the place that serves this attempt at present, such as a hash of a shard's address. A clean-up that got
    /// no answer is tried again one at a time for each place, until the place answers, and each place has renewals of its own:
    /// one that is away does not hold up what is to be done at the others. There are few of them: clean-ups wait for at most 1,024
    /// places at a time, and those of a further one wait with those of another. At most about 65,536 of one client wait, for
    /// all places together; when a place has left as many, those of any other have one try.
    ///
    /// One place by default.
    fn place(&self, _attempt: &Attempt) -> u64 {
        0
    }

    /// Drops whatever this client remembers of an attempt. The core calls it when it gives up on an attempt for good: its
    /// release or cancellation was not confirmed in time, or there is no runtime to do it on. Nothing else is asked of that
    /// attempt afterwards. Not called after [`Released`] or [`Cancelled::Settled`], of which the backend knows by itself.
    fn forget(&self, _attempt: &Attempt) {}

    /// The one spelling of a lock's name, where several name the same lock. Every handle has its name from here, so that two
    /// spellings are one lock to the core, too. The name may be one that the core will refuse.
    fn canonical(&self, name: LockName) -> LockName {
        name
    }

    /// The operator's side, if the backend has one.
    fn operator(&self) -> Option<&dyn Operator> {
        None
    }
}

/// Announcements of grants that the server took away.
pub type Notices = tokio::sync::mpsc::UnboundedReceiver<(GrantId, LossReason)>;

/// Counts the occasions on which the server may have forgotten grants.
pub type Doubts = tokio::sync::watch::Receiver<u64>;

/// Looking into a lock, and freeing a grant by force.
#[async_trait]
pub trait Operator: Send + Sync {
    /// Holders and waiters of a lock of this kind. More than [`Inspection::MOST`] of each need not be looked for, only counted;
    /// the core lists no more.
    ///
    /// # Errors
    /// As [`Backend::release`]; [`ErrorKind::Protocol`] if the key holds foreign data.
    ///
    /// # Cancel safety
    /// Reads only.
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error>;

    /// Frees exactly this grant and lets the next waiter in; `false` if it is not there.
    ///
    /// # Errors
    /// As [`Backend::release`].
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
        "One try, without waiting; `Ok(None)` if it cannot be had now, and then nothing of the attempt is left.\n\n\
         # Errors\n[`ErrorKind::Unavailable`] if nothing was sent, [`ErrorKind::Indeterminate`] if no answer came.\n\n\
         # Cancel safety\nMay be dropped: the core then calls [`Backend::cancel`]."
    };
    (wait) => {
        "Waits until the lock is granted; `Ok(None)` at the deadline. A backend whose server can queue or push \
         overrides this; the default polls.\n\n\
         # Errors\nAs the try; also [`ErrorKind::Unavailable`] if no answer came for [`Attempt::patience`].\n\n\
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
    /// [`ErrorKind::NotHeld`] if the write grant is gone; otherwise as [`Backend::release`].
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

    /// Gives permits of this grant back until it has `keep` left, which is at least one. A grant that has fewer keeps
    /// what it has: a repetition may come after a later call that left it less.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the grant is gone; otherwise as [`Backend::release`].
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error>;

    /// The number of permits that are held at this instant, of a semaphore that has this many. Those of a lease that has ended
    /// count until the server has let go of them: at once where it ends a grant with its lease, later elsewhere (memcached
    /// keeps an item 5 s longer, ZooKeeper a node until it is deleted or its session ends).
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
