//! One opaque error for every backend.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use crate::loss::LossReason;
use crate::name::LockName;

/// The kinds of errors, as far as a program must tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server could not be reached, or answered that it cannot serve now. Nothing was taken or changed; a place in a
    /// queue, if the wait had one, is given up in the background.
    Unavailable,
    /// The request was sent and its answer never came: it may or may not have been carried out. The library goes on
    /// cleaning up in the background. Also told by `?` if work under a lock had run to its end when the lock was found lost: it may have
    /// run beside another holder's.
    Indeterminate,
    /// The grant arrived after its own lease had ended: it is being released in the background; ask again, with a longer TTL if it recurs.
    ///
    /// A wait that ran out is `Ok(None)`; a server that does not answer is [`Unavailable`](ErrorKind::Unavailable) or
    /// [`Indeterminate`](ErrorKind::Indeterminate).
    TimedOut,
    /// The lock was lost while it was held: a call that needs it found the lease over. [`Error::loss`] tells the reason.
    ///
    /// Some calls say [`NotHeld`](ErrorKind::NotHeld) instead: match `Lost | NotHeld`, or ask [`Error::loss`].
    Lost,
    /// The caller does not hold the lock (any more). Returned by every release of a lost lock, and by a downgrade, a release of some
    /// permits or an adoption that learns of the loss from the server's answer. [`Error::loss`] tells the reason, if it is known.
    NotHeld,
    /// The server refused the credentials or the right to a command or key; on Redis also a secure connection that cannot be agreed on,
    /// by its certificates, names or versions.
    Denied,
    /// The caller's input is wrong: a name, a duration, a count, a URL; or it does not agree with that of other clients, as the longest
    /// lease on memcached must.
    InvalidArgument,
    /// Clients disagree on the limit of one semaphore.
    LimitMismatch,
    /// The backend, or its configuration, cannot do this.
    Unsupported,
    /// The server answered something that the protocol does not allow, or the key holds foreign data.
    Protocol,
    /// The client was [closed](crate::Client::close), or the runtime that its connections need is gone: it takes no locks any more. What a wait that this ended has at the server is
    /// undone in the background, and `close` waits for that.
    Closed,
}

impl ErrorKind {
    /// All kinds, in the order of their declaration.
    pub(crate) const ALL: [Self; 11] = [
        Self::Unavailable,
        Self::Indeterminate,
        Self::TimedOut,
        Self::Lost,
        Self::NotHeld,
        Self::Denied,
        Self::InvalidArgument,
        Self::LimitMismatch,
        Self::Unsupported,
        Self::Protocol,
        Self::Closed,
    ];
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unavailable => "unavailable",
            Self::Indeterminate => "outcome unknown",
            Self::TimedOut => "granted too late",
            Self::Lost => "lock lost",
            Self::NotHeld => "not held",
            Self::Denied => "denied",
            Self::InvalidArgument => "invalid argument",
            Self::LimitMismatch => "limit mismatch",
            Self::Unsupported => "unsupported",
            Self::Protocol => "protocol error",
            Self::Closed => "closed",
        })
    }
}

/// The library's activity when the error occurred, for messages and logs: a program decides by [`ErrorKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Checking names, options and limits.
    Configure,
    /// Reaching the server for the first time.
    Connect,
    /// Asking for a lock.
    Acquire,
    /// Waiting in the queue for a lock.
    Wait,
    /// Extending a lease.
    Renew,
    /// Releasing a lock.
    Release,
    /// Undoing an acquisition that was given up.
    Cancel,
    /// Turning a write lock into a read lock.
    Downgrade,
    /// Reading or changing a lock as an operator.
    Inspect,
    /// Working while the lock is held.
    Hold,
    /// Closing a client.
    Close,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configure => "configure",
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Wait => "wait",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Cancel => "cancel",
            Self::Downgrade => "downgrade",
            Self::Inspect => "inspect",
            Self::Hold => "hold",
            Self::Close => "close",
        })
    }
}

/// Whether calling again can help. Whether the failed call left something at the server is told by [`Error::is_definite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// Calling again may succeed. Work that was done under a lock that was [`Lost`](ErrorKind::Lost) may have had effects.
    Later,
    /// Calling again is safe (every attempt has its own identity) and may succeed, but what the first attempt left at the server may
    /// stand in the way until its lease ends, or the client has taken it back in the background.
    AfterLease,
    /// Calling again fails until something is changed, or would do work once more that was done already.
    Never,
}

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// The error of every operation.
///
/// "Somebody else holds the lock" is no error but `Ok(None)`. No secret (password, user part of a URL) is ever part
/// of an error.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::{ErrorKind, Retry};
///
/// let error = locks.mutex("").lock().await.unwrap_err();
/// assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidArgument, Retry::Never));
/// assert!(error.is_definite()); // nothing was taken
/// assert_eq!(error.to_string(), "invalid argument: configure \"\" on memory: the lock's name is empty");
/// # Ok(()) }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    phase: Phase,
    what: Cow<'static, str>,
    backend: Option<&'static str>,
    server: Option<String>,
    name: Option<String>,
    loss: Option<LossReason>,
    source: Option<Source>,
    /// The call ended while a request was under way, whatever its kind says.
    ended_early: bool,
    /// The caller's work had run to its end: to call again would do it once more.
    work_ended: bool,
}

impl Error {
    /// A new error: its kind, what was being done, and one clause that says what was wrong.
    #[must_use]
    pub fn new(kind: ErrorKind, phase: Phase, what: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            phase,
            what: what.into(),
            backend: None,
            server: None,
            name: None,
            loss: None,
            source: None,
            ended_early: false,
            work_ended: false,
        }))
    }

    /// [`ErrorKind::InvalidArgument`].
    #[must_use]
    pub fn invalid(phase: Phase, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, phase, what)
    }

    /// [`ErrorKind::Unavailable`].
    #[must_use]
    pub fn unavailable(phase: Phase, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Unavailable, phase, what)
    }

    /// [`ErrorKind::Indeterminate`].
    #[must_use]
    pub fn indeterminate(phase: Phase, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Indeterminate, phase, what)
    }

    /// [`ErrorKind::Lost`], with the reason.
    #[must_use]
    pub fn lost(phase: Phase, reason: LossReason) -> Self {
        Self::new(ErrorKind::Lost, phase, reason.to_string()).with_loss(Some(reason))
    }

    /// Keeps the reason of a loss, if it is known.
    #[must_use]
    pub fn with_loss(mut self, reason: Option<LossReason>) -> Self {
        self.0.loss = reason;
        self
    }

    /// The error of a call whose work had ended all the same.
    pub(crate) fn after_the_work(self) -> Self {
        let what = "the work has run to its end, but its lock was lost or is not known to be released";
        let Inner { phase, backend, server, name, loss, .. } = &*self.0;
        let mut error = Self::indeterminate(*phase, what).with_loss(loss.clone());
        (error.0.backend, error.0.server, error.0.name) = (*backend, server.clone(), name.clone());
        error.0.work_ended = true;
        error.with_source(self)
    }

    /// Repeats the words, for another lock that the same event concerns.
    pub(crate) fn repeated(&self) -> Self {
        Self::new(self.0.kind, self.0.phase, self.0.what.clone())
    }

    /// Names the backend.
    #[must_use]
    pub fn with_backend(mut self, backend: &'static str) -> Self {
        self.0.backend.get_or_insert(backend);
        self
    }

    /// Names the server, without secrets.
    #[must_use]
    pub fn with_server(mut self, server: impl Into<String>) -> Self {
        self.0.server.get_or_insert_with(|| server.into());
        self
    }

    /// Names the lock.
    #[must_use]
    pub fn with_name(mut self, name: &LockName) -> Self {
        self.0.name.get_or_insert_with(|| name.for_an_error());
        self
    }

    /// Ended while a request was under way, whose outcome is unknown.
    pub(crate) fn ended_early(mut self) -> Self {
        self.0.ended_early = true;
        self
    }

    /// Returns this error of a call that took a lock, failed under it and then released it, with the `outcome` of that release: definite only
    /// if the server is known not to have the lock any more. A release that fails because the lease, or the session, is over by this
    /// client's clock has asked nobody: the server may keep the lock a little longer. `what` says so, in one clause.
    ///
    /// For recipes, which take locks on behalf of others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::{Error, Phase};
    ///
    /// let guard = locks.mutex("report").lock().await?;
    /// let failed = Error::unavailable(Phase::Hold, "the disk is full");
    /// let failed = failed.after_release(&guard.release().await, "the call failed, and its lock may be held");
    /// assert!(failed.is_definite()); // nothing is left of the call
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn after_release(self, outcome: &Result<(), Self>, what: impl Into<Cow<'static, str>>) -> Self {
        if Self::tells_that_it_is_gone(outcome) { self } else { self.in_doubt(what) }
    }

    /// Whether a release with this outcome has left nothing at the server. A lease or a session that is over by our clock may still be
    /// kept there.
    pub(crate) fn tells_that_it_is_gone(outcome: &Result<(), Self>) -> bool {
        let Err(error) = outcome else { return true };
        error.kind() == ErrorKind::NotHeld
            && !matches!(error.loss(), Some(LossReason::Expired | LossReason::SessionExpired))
    }

    /// Returns this error as one of a call of which something may be left; it is the cause, except of an end that stays what it was.
    pub(crate) fn in_doubt(self, what: impl Into<Cow<'static, str>>) -> Self {
        if !self.is_definite() {
            return self;
        }
        if matches!(self.kind(), ErrorKind::Closed | ErrorKind::Lost) {
            return self.ended_early();
        }
        let mut unknown = Self::indeterminate(self.phase(), what);
        let Inner { backend, server, name, .. } = &*self.0;
        (unknown.0.backend, unknown.0.server, unknown.0.name) = (*backend, server.clone(), name.clone());
        unknown.with_source(self)
    }

    /// Keeps the first cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source.get_or_insert_with(|| source.into());
        self
    }

    /// Returns the kind of the error, by which a program decides.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the activity in which the error occurred.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// The backend that reports it, such as `"redis"`.
    #[must_use]
    pub fn backend(&self) -> Option<&'static str> {
        self.0.backend
    }

    /// The server that was asked, such as `"127.0.0.1:6379"`; without secrets.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    /// The message without what the other fields say: what happened.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The name of the lock concerned.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the reason why the lock was lost: always for [`Lost`](ErrorKind::Lost); for [`NotHeld`](ErrorKind::NotHeld) if it is
    /// known, as it is after a release. So a holder can tell a lock that an operator freed
    /// ([`ForceReleased`](LossReason::ForceReleased)) from a lease that ran out ([`Expired`](LossReason::Expired)).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::LossReason;
    ///
    /// let report = locks.mutex("report");
    /// let guard = report.lock().await?;
    /// report.force_release(guard.grant_id(), "its machine hangs").await?;
    /// guard.lost().await;
    /// let error = guard.release().await.unwrap_err();
    /// assert!(matches!(error.loss(), Some(LossReason::ForceReleased { reason, .. }) if reason == "its machine hangs"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        self.0.loss.as_ref()
    }

    /// Returns whether the failed call is known to have taken and changed nothing at the server (a waiter's place in the queue may still
    /// be given up in the background). Says nothing about the caller's own work, which may have had effects under a lock that was
    /// [`Lost`](ErrorKind::Lost).
    ///
    /// False if no answer came ([`Indeterminate`](ErrorKind::Indeterminate)) or one that makes no sense
    /// ([`Protocol`](ErrorKind::Protocol)): the server may have carried out the request. Also false if the client was closed during a
    /// request ([`Closed`](ErrorKind::Closed)), and for a grant that came too late ([`TimedOut`](ErrorKind::TimedOut)): it stays taken
    /// until the background has released it.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        use ErrorKind::{Indeterminate, Protocol, TimedOut};
        !self.0.ended_early && !matches!(self.0.kind, Indeterminate | Protocol | TimedOut)
    }

    /// Returns whether calling again can help. It can after a loss, be it [`Lost`](ErrorKind::Lost) or
    /// [`NotHeld`](ErrorKind::NotHeld): the next acquisition is a new one. It cannot if work under the lock had run to its end when the
    /// loss was noticed: look at what the work has done first.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self.0.kind {
            _ if self.0.work_ended => Retry::Never,
            ErrorKind::NotHeld if self.0.loss.is_some() => Retry::Later,
            ErrorKind::Unavailable | ErrorKind::Lost => Retry::Later,
            ErrorKind::Indeterminate | ErrorKind::TimedOut => Retry::AfterLease,
            _ => Retry::Never,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, phase, what, backend, server, name, .. } = &*self.0;
        write!(f, "{kind}: {phase}")?;
        if let Some(name) = name {
            write!(f, " {name:?}")?;
        }
        match (backend, server) {
            (Some(backend), Some(server)) => write!(f, " on {backend} at {server}")?,
            (Some(backend), None) => write!(f, " on {backend}")?,
            (None, Some(server)) => write!(f, " at {server}")?,
            (None, None) => {}
        }
        write!(f, ": {what}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, phase, what, backend, server, name, loss, source, ended_early, work_ended } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("phase", phase)
            .field("what", what)
            .field("backend", backend)
            .field("server", server)
            .field("name", name)
            .field("loss", loss)
            .field("source", source)
            .field("ended_early", ended_early)
            .field("work_ended", work_ended)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests;
