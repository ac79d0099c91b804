//! The reentrant lock: a mutex between owners, with a depth that is counted in the client.
//!
//! One client asks the server once for each owner and name. Its first request holds the entry's gate while it asks;
//! requests of the same owner that come meanwhile wait at the gate and then find the grant. Only the last release goes
//! to the server.
//!
//! If the future that has the gate is not polled, those behind it notice that it gives no sign of life, and ask for themselves.
//!
//! A task at the gate has no answer of its own. So when its deadline comes it asks once for itself, and when the request
//! before it ended without an answer, that time counts as its own: its patience never begins anew.

mod guard;

use std::convert::Infallible;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

pub use self::guard::ReentrantGuard;
use crate::acquire::{AcquireRequest, Core, Wait};
use crate::clock::{BootInstant, Deadline};
use crate::driver::Inspection;
use crate::driver::{Attempt, Grant, Kind, ReentrantBackend, log};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::lease::state::Event;
use crate::locks::Fenced;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::{GrantId, Owner};
use crate::owners::{Entry, GateTurn, Owned, Silence};

/// A handle for one reentrant lock.
///
/// Exclusion is between [`Owner`]s, which the caller passes explicitly, never between threads or tasks: two tasks that
/// use one owner are inside together, by design. Two handles on one name in one client share the depth. Whether one
/// owner may also enter from a second process is [`Guarantee::SharedOwner`](crate::Guarantee::SharedOwner); elsewhere
/// it waits there like another owner.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::Owner;
///
/// let (me, you) = (Owner::new(), Owner::new());
/// let tree = locks.reentrant("tree");
/// let outer = tree.lock(&me).await?;
/// let inner = tree.lock(&me).await?; // at once
/// assert_eq!(inner.depth(), 2);
/// assert!(tree.try_lock(&you).await?.is_none());
/// inner.release().await?;
/// outer.release().await // only now is it free
/// # }
/// ```
///
/// # When the lock is lost
/// Every guard of the owner reports it; see [`Lease`].
#[derive(Clone)]
pub struct ReentrantMutex {
    core: Arc<Core>,
    backend: Arc<dyn ReentrantBackend>,
    name: LockName,
    lease: LeaseOptions,
    max_depth: u32,
}

impl ReentrantMutex {
    pub(crate) fn new(core: Arc<Core>, backend: Arc<dyn ReentrantBackend>, name: LockName) -> Self {
        let lease = core.options.lease;
        Self { core, backend, name, lease, max_depth: u32::MAX }
    }

    /// Sets the lease options of the grants that are taken through this handle.
    ///
    /// All levels of an owner share one lease, for which the strongest request of all of them counts until its end: the
    /// longest TTL, the shortest interval, renewal if one of them wants it. The longest hold is that of the outermost
    /// level alone.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_core::{LeaseOptions, Owner};
    ///
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).with_max_hold(Duration::from_secs(3600));
    /// let guard = locks.reentrant("tree").with_lease(lease).lock(&Owner::new()).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the TTL of the grants that are taken through this handle. A nested lock never shortens the lease of the
    /// outer one.
    ///
    /// The client's [`renew_every`](LeaseOptions::renew_every), if it has one, stays: one of more than half of the new TTL is refused when
    /// the lock is taken. [`with_lease`](ReentrantMutex::with_lease) sets both.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (ttl, me) = (std::time::Duration::from_secs(60), lock_core::Owner::new());
    /// let guard = locks.reentrant("tree").with_ttl(ttl).lock(&me).await?;
    /// assert!(guard.remaining() > ttl / 2);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// Sets the number of levels that one owner may be inside at most, at least 1; without a limit by default.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (tree, me) = (locks.reentrant("tree").with_max_depth(1), lock_core::Owner::new());
    /// let guard = tree.lock(&me).await?;
    /// assert!(tree.lock(&me).await.is_err()); // a second level
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_max_depth(mut self, max_depth: u32) -> Self {
        self.max_depth = max_depth;
        self
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Turns the handle into one whose guards carry a fencing token by their type.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.reentrant("tree").fenced()?.lock(&lock_core::Owner::new()).await?;
    /// assert!(guard.fencing_token().as_u64() > 0); // not an `Option`
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the configuration has no fencing tokens. Whether they keep growing when a server
    /// restarts or another one takes over is another question: [`Guarantee::FencingAcrossRestart`](crate::Guarantee::FencingAcrossRestart),
    /// [`Guarantee::FencingAcrossFailover`](crate::Guarantee::FencingAcrossFailover).
    pub fn fenced(self) -> Result<Fenced<Self>, Error> {
        self.core.require_fencing(&self.name)?;
        Ok(Fenced::new(self))
    }

    /// Waits for the lock; at once if the owner is inside already.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let me = lock_core::Owner::new();
    /// let tree = locks.reentrant("tree");
    /// let outer = tree.lock(&me).await?;
    /// let inner = tree.lock(&me).await?; // does not wait
    /// inner.release().await?;
    /// outer.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer for the client's patience;
    /// [`ErrorKind::InvalidArgument`] beyond [`with_max_depth`](ReentrantMutex::with_max_depth); the others of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. A nested one that lengthens the lease keeps its
    /// level, and so the lock, for as long as it is kept. Spawn it, or drop it.
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantGuard, Error> {
        self.enter(owner, Wait::Until(Deadline::NEVER)).await?.ok_or_else(|| {
            let what = "the backend ended a wait that has no deadline";
            self.core.named(Error::new(ErrorKind::Protocol, Phase::Wait, what), &self.name)
        })
    }

    /// Takes the lock if no other owner holds it; `Ok(None)` if one does.
    ///
    /// If this client is itself still releasing the lock in the background (after a dropped guard, say), a refused try waits until that release
    /// was tried and asks once more, unless half of the operation timeout is over by then.
    ///
    /// It does not wait for another task of the same owner that is waiting in the queue.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let tree = locks.reentrant("tree");
    /// let guard = tree.lock(&me).await?;
    /// assert!(tree.try_lock(&you).await?.is_none());
    /// assert!(tree.try_lock(&me).await?.is_some());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer within one operation
    /// timeout; [`ErrorKind::InvalidArgument`] beyond [`with_max_depth`](ReentrantMutex::with_max_depth); the others of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    pub async fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantGuard>, Error> {
        self.enter(owner, Wait::Try).await
    }

    /// Waits for the lock for at most this long; `Ok(None)` if another owner still holds it then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let tree = locks.reentrant("tree");
    /// let guard = tree.lock(&me).await?;
    /// assert!(tree.try_lock_for(&you, std::time::Duration::from_millis(10)).await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer, at the latest one
    /// operation timeout after the deadline; [`ErrorKind::InvalidArgument`] beyond
    /// [`with_max_depth`](ReentrantMutex::with_max_depth); the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    pub async fn try_lock_for(&self, owner: &Owner, wait: Duration) -> Result<Option<ReentrantGuard>, Error> {
        self.enter(owner, self.core.deadline(wait)).await
    }

    /// Shows the holders and the waiters: at most [`Inspection::MOST`] of each, and the number of the others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let me = lock_core::Owner::new().with_label("nightly import");
    /// let tree = locks.reentrant("tree");
    /// let guard = tree.lock(&me).await?;
    /// assert_eq!(tree.inspect().await?.holders[0].owner, Some(me));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell; [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if
    /// the server does not answer within one operation timeout.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.core.inspect(&self.name, Kind::Reentrant).await
    }

    /// Frees exactly this grant, tells its holder where the backend can, and lets the next waiter in. `Ok(false)` if
    /// the lock is not held under this grant.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let tree = locks.reentrant("tree");
    /// let stuck = tree.lock(&me).await?;
    /// assert!(tree.force_release(stuck.grant_id(), "its machine hangs").await?);
    /// assert!(tree.try_lock(&you).await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot do it; [`ErrorKind::InvalidArgument`] if the reason has more than
    /// 1 KiB; [`ErrorKind::Indeterminate`] if no answer came.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, Error> {
        self.core.force_release(&self.name, Kind::Reentrant, grant, reason).await
    }

    async fn enter(&self, owner: &Owner, wait: Wait) -> Result<Option<ReentrantGuard>, Error> {
        if self.max_depth == 0 {
            let what = "no level is allowed: with_max_depth is 0";
            return Err(self.core.refuses(Error::invalid(Phase::Configure, what), &self.name));
        }
        // A nested lock asks nobody: options that cannot be met would end the lease of all levels.
        self.core.keeper.check_lease(&self.lease).map_err(|error| self.core.refuses(error, &self.name))?;
        let entry = self.core.owners.inside.shared(&self.name, owner.id());
        let arrived = self.core.keeper.clock.now();
        let passage = match self.pass_gate(&entry, wait).await? {
            Passage::Inside(guard) => return Ok(Some(guard)),
            passage => passage,
        };
        if let Some(guard) = self.join(&entry, wait).await? {
            return Ok(Some(guard));
        }
        let guard = if matches!(passage, Passage::Over) {
            // Whether somebody else holds the lock or the server is silent, only the server can tell.
            let patience = self.core.options.patience;
            let once = wait.deadline().map_or(wait, |_| Wait::Once);
            match self.acquire(owner, once, patience).await? {
                Some(lease) => Some(self.install(&entry, lease)?),
                None => self.join(&entry, wait).await?,
            }
        } else {
            let patience = self.patience_left(&entry, arrived, wait)?;
            self.ask_for_all(&entry, &passage, owner, wait, patience).await?
        };
        if guard.is_some() && !matches!(passage, Passage::Turn(_)) {
            entry.passes_by();
        }
        Ok(guard)
    }

    /// Enters one level deeper, if the owner is inside.
    async fn join(&self, entry: &Arc<Owned<Entry>>, wait: Wait) -> Result<Option<ReentrantGuard>, Error> {
        let guard = entry.join(self.max_depth)?.map(|lease| ReentrantGuard::new(entry.clone(), lease));
        if let Some(guard) = &guard {
            let before = guard.live.options();
            self.core.keeper.settle(&guard.live, Event::Require(self.lease));
            self.keep_at_least(guard, &before, wait).await;
        }
        // That may be how the loss is noticed.
        Ok(guard.filter(|guard| guard.is_held()))
    }

    /// Inside with this lease, or with the one that the owner has by now.
    fn install(&self, entry: &Arc<Owned<Entry>>, lease: Lease) -> Result<ReentrantGuard, Error> {
        Ok(ReentrantGuard::new(entry.clone(), entry.install(lease, self.max_depth)?))
    }

    /// A nested lock with a longer TTL lengthens the lease, if there is time for that; with a shorter one it changes
    /// nothing. A renewal that is due anyway does as well, unless too little is left; where no level renews, there is none. `before` are
    /// the options of the levels that were there.
    async fn keep_at_least(&self, guard: &ReentrantGuard, before: &LeaseOptions, wait: Wait) {
        let (ttl, left) = (self.lease.ttl, guard.remaining());
        let is_short = left < ttl / 2 && ttl > guard.live.attempt.ttl;
        let is_renewed = before.auto_renew || self.lease.auto_renew;
        let is_longest = !is_renewed && ttl > before.ttl && left < ttl;
        if !is_short && !is_longest {
            return;
        }
        let until = wait.deadline().map_or(BootInstant::FAR_FUTURE, Deadline::instant);
        // Best effort: without the extension the next renewal asks for the longer TTL; where there is none, the next level does so once less
        // than half of it is left.
        tokio::select! {
            biased;
            extended = guard.extend(ttl) => if let Err(error) = extended {
                log(|| tracing::debug!(%error, "a nested lock could not lengthen the lease"));
            },
            () = self.core.keeper.clock.sleep_until(until) => {}
        }
    }

    /// Waits until the owner is inside, or until no other task of it asks the server, or none that is polled. A try does not wait for a
    /// request that waits itself.
    async fn pass_gate<'a>(&'a self, entry: &'a Arc<Owned<Entry>>, wait: Wait) -> Result<Passage<'a>, Error> {
        let (clock, op_timeout) = (&*self.core.keeper.clock, self.core.options.op_timeout);
        let until = wait.deadline().map_or_else(|| clock.now().plus(op_timeout), Deadline::instant);
        let mut began_to_wait = pin!(entry.began_to_wait());
        let mut turn = pin!(entry.gate.pass(clock, op_timeout));
        loop {
            let passed_by = entry.passed_by();
            // Whoever gets inside after this look is heard.
            if let Some(guard) = self.join(entry, wait).await? {
                return Ok(Passage::Inside(guard));
            }
            if wait.deadline().is_none() && entry.is_queued() {
                return Ok(entry.gate.try_pass(clock).map_or(Passage::Over, Passage::Turn));
            }
            return Ok(tokio::select! {
                biased;
                turn = &mut turn => turn.map_or(Passage::Abandoned, Passage::Turn),
                () = passed_by => continue,
                () = &mut began_to_wait, if wait.deadline().is_none() => Passage::Over,
                () = clock.sleep_until(until) => Passage::Over,
                () = self.core.keeper.shutdown.begun() => Passage::Over,
            });
        }
    }

    /// The time for which this call, which came at `arrived`, may go on without an answer. What it has spent at the
    /// gate, behind requests that got none, is not granted again.
    fn patience_left(&self, entry: &Entry, arrived: BootInstant, wait: Wait) -> Result<Duration, Error> {
        let patience = self.core.options.patience;
        let Some(silent) = entry.silence_since(arrived) else { return Ok(patience) };
        let left = patience.saturating_sub(silent);
        if left.is_zero() || wait.deadline().is_none() {
            let what = "the server gave no answer to the request of another task of this owner";
            return Err(self.core.refuses(Error::unavailable(Phase::Wait, what), &self.name));
        }
        Ok(left)
    }

    /// The request of whoever has passed the gate, on behalf of all tasks of the owner.
    async fn ask_for_all(
        &self,
        entry: &Arc<Owned<Entry>>,
        passage: &Passage<'_>,
        owner: &Owner,
        wait: Wait,
        patience: Duration,
    ) -> Result<Option<ReentrantGuard>, Error> {
        let _queued = matches!(wait, Wait::Until(_)).then(|| entry.queued());
        loop {
            let (entered, before) = (entry.entered(), entry.take_silence());
            // Whoever gets inside after this look is heard.
            if let Some(guard) = self.join(entry, wait).await? {
                return Ok(Some(guard));
            }
            let began = self.core.keeper.clock.now();
            let lease = tokio::select! {
                biased;
                lease = self.acquire(owner, wait, patience) => lease,
                () = entered => continue,
                never = passage.keep_alive(self.core.options.op_timeout) => match never {},
            };
            if let Err(error) = &lease
                && matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
            {
                entry.was_silent(self.silence(began, wait, patience).after(before));
            }
            return lease?.map(|lease| self.install(entry, lease)).transpose();
        }
    }

    /// The silence that a failed request, begun at `began`, proves: no answer for its patience or, if its deadline
    /// ended it, for one operation timeout.
    fn silence(&self, began: BootInstant, wait: Wait, patience: Duration) -> Silence {
        let until = self.core.keeper.clock.now();
        let known = if wait.is_over(until) { self.core.options.op_timeout } else { patience };
        Silence { since: began.max(until.minus(known)), until }
    }

    async fn acquire(&self, owner: &Owner, wait: Wait, patience: Duration) -> Result<Option<Lease>, Error> {
        let request = AcquireRequest { name: &self.name, kind: Kind::Reentrant, owner, lease: &self.lease, patience };
        self.core.acquire(request, wait, |attempt, wait| self.ask(attempt, wait)).await
    }

    async fn ask(&self, attempt: Arc<Attempt>, wait: Wait) -> Result<Option<Grant>, Error> {
        match wait.deadline() {
            None => self.backend.try_enter(&attempt).await,
            Some(deadline) => self.backend.enter(&attempt, deadline).await,
        }
    }
}

/// The outcome of waiting at an owner's gate.
enum Passage<'a> {
    /// No turn, as the owner is inside.
    Inside(ReentrantGuard),
    /// The turn to ask the server.
    Turn(GateTurn<'a>),
    /// No turn, as the future that has it is not polled: whoever finds that asks for itself.
    Abandoned,
    /// No turn until the deadline, or until the client was closed.
    Over,
}

impl Passage<'_> {
    /// Tells those at the gate that the turn is used, until this is dropped.
    async fn keep_alive(&self, op_timeout: Duration) -> Infallible {
        match self {
            Self::Turn(turn) => turn.keep_alive(op_timeout).await,
            Self::Inside(_) | Self::Abandoned | Self::Over => std::future::pending().await,
        }
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantMutex").field("name", &self.name).field("backend", &self.backend.name()).finish()
    }
}
