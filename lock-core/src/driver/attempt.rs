//! A request of one lock, and what a backend answers to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::{Error, ErrorKind, Phase};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::options::ClientOptions;
use crate::owner::{GrantId, Owner};
use crate::token::FencingToken;

/// The kind of a request.
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
        /// The number of permits asked for; at least one, at most `limit`.
        permits: u32,
        /// The number of permits in all, as this client believes.
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

/// Stands for the first mark while there is none.
const NOTHING_SENT: u64 = u64::MAX;

/// Stands for the token while there is none.
const NO_TOKEN: u64 = 0;

/// One call's request for one lock, with an identity of its own.
#[derive(Debug)]
pub struct Attempt {
    /// The nonce: unique, random, and the grant's id once granted.
    pub id: GrantId,
    /// The lock.
    pub name: LockName,
    /// The kind of lock, and for a semaphore the number of permits.
    pub kind: Kind,
    /// The owner in whose name the lock is asked for.
    pub owner: Owner,
    /// The time to live of the grant at the server, without renewal.
    pub ttl: Duration,
    /// The longest time that one request may take.
    pub op_timeout: Duration,
    /// The longest time for which a wait goes on without any answer from the server.
    pub patience: Duration,
    /// The smallest mark of a request that may have been sent.
    first_sent: AtomicU64,
    /// The token of its grant, or [`NO_TOKEN`].
    token: AtomicU64,
}

impl Attempt {
    /// A fresh attempt, with the default time limits of [`ClientOptions`].
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn new(name: LockName, kind: Kind, owner: Owner, ttl: Duration) -> Result<Self, Error> {
        let ClientOptions { op_timeout, patience, .. } = ClientOptions::default();
        Ok(Self {
            id: GrantId::random()?,
            name,
            kind,
            owner,
            ttl,
            op_timeout,
            patience,
            first_sent: AtomicU64::new(NOTHING_SENT),
            token: AtomicU64::new(NO_TOKEN),
        })
    }

    /// The smallest [mark](Attempt::mark_sent) of a request for this attempt; `None` if none was ever sent.
    #[must_use]
    pub fn first_sent(&self) -> Option<u64> {
        Some(self.first_sent.load(Ordering::Acquire)).filter(|mark| *mark != NOTHING_SENT)
    }

    /// Marks a request for this attempt, before it is sent, by a number of the backend's own that grows: of the connection, or
    /// an instant. It is kept here rather than by the backend because every acquisition needs it, and no other state by
    /// attempt.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Owner, driver::{Attempt, Kind}};
    /// let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), std::time::Duration::from_secs(10))?;
    /// assert_eq!(attempt.first_sent(), None); // `cancel` has nothing to do
    /// attempt.mark_sent(7);
    /// attempt.mark_sent(8);
    /// assert_eq!(attempt.first_sent(), Some(7)); // a copy may be on its way since then
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    pub fn mark_sent(&self, mark: u64) {
        if mark < self.first_sent.load(Ordering::Acquire) {
            self.first_sent.fetch_min(mark, Ordering::AcqRel);
        }
    }

    /// The fencing token of the grant, once the core has made a lease of that, also after the end of the lease; `None` before, and where there
    /// are no tokens. For a backend whose server compares the whole entry of a grant that is released.
    ///
    /// # Examples
    /// ```
    /// # use lock_core::{Owner, driver::{Attempt, Kind}};
    /// let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), std::time::Duration::from_secs(10))?;
    /// // Nothing was granted yet: what is left of this attempt is not found by its token.
    /// assert_eq!(attempt.token(), None);
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        FencingToken::new(self.token.load(Ordering::Relaxed))
    }

    /// Notes the token of the grant.
    pub(crate) fn set_token(&self, token: Option<FencingToken>) {
        self.token.store(token.map_or(NO_TOKEN, FencingToken::as_u64), Ordering::Relaxed);
    }

    /// An error about this attempt.
    #[must_use]
    pub fn error(&self, kind: ErrorKind, phase: Phase, what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::new(kind, phase, what).with_name(&self.name)
    }
}

/// A backend's report that an attempt has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, where the configuration has them.
    pub token: Option<FencingToken>,
    /// The instant at which the request whose answer proves the grant was **sent**.
    pub sent_at: BootInstant,
    /// The time, counted from `sent_at`, for which the server keeps the grant at least.
    pub valid_for: Duration,
    /// The grant was handed over for a short claim time: renew at once to get the full TTL.
    pub claim: bool,
    /// The instant at which a push woke the waiter, if one did; for the metric `lock_wake_to_grant_seconds` only.
    pub woken_at: Option<BootInstant>,
}

impl Grant {
    /// A grant that the server keeps for `valid_for` from `sent_at`.
    #[must_use]
    pub const fn new(token: Option<FencingToken>, sent_at: BootInstant, valid_for: Duration) -> Self {
        Self { token, sent_at, valid_for, claim: false, woken_at: None }
    }

    /// Marks the grant as one to be claimed by a renewal at once.
    #[must_use]
    pub const fn with_claim(mut self) -> Self {
        self.claim = true;
        self
    }

    /// Notes that a push told the waiter of the grant at this instant.
    #[must_use]
    pub const fn with_woken_at(mut self, instant: BootInstant) -> Self {
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
    /// The time to live of the grant, from now.
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
    /// The grant is still there, and when it ends now is not known. The core asks again soon; an extension by hand is
    /// [`Indeterminate`](ErrorKind::Indeterminate).
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

/// The answer to a request that a grant be left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// The grant was there, and ends by itself after the time that was asked for.
    Done,
    /// The grant was there, and the server does not end it by itself: the core asks for its [release](super::Backend::release) when the time
    /// is over.
    UntilReleased,
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
