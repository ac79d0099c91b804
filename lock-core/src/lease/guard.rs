//! The holder's side of a lease: the methods of every guard.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::debug;

use super::keeper::{Keeper, KeeperHandle};
use super::state::{Answer, Event};
use super::{Ended, ExpiresWithin, LiveGrant, Lost, WorkError, drop_when};
use crate::clock::BootInstant;
use crate::driver::bound::{asked, bounded};
use crate::driver::{Attempt, Guarantee, Released, Renewal, Renewed, Support, wait};
use crate::error::{Error, ErrorKind, Phase};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::trace::Operation;

/// The lease behind a guard. Every guard dereferences to it.
///
/// # When the lock is lost
/// [`is_held`](Lease::is_held) turns false at the local deadline at the latest, without any network traffic and without
/// any timer: it is computed from the clock at each call. A passed deadline is final. [`lost`](Lease::lost) resolves
/// with the reason, at most 100 ms later on a runtime that is not starved.
///
/// # Drop
/// Dropping a guard releases the lock in the background. It never blocks and reports nothing, not even that the lock was
/// already lost. The lock stays taken until that release has reached the server or the lease has ended. A `try_lock` of the
/// same client waits for the first try of that release, for at most half of the operation timeout. Call `release` to learn
/// the outcome, and [`Client::close`](crate::Client::close) before the program ends.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use std::time::Duration;
///
/// let guard = locks.mutex("report").with_ttl(Duration::from_secs(5)).lock().await?;
/// assert!(guard.is_held());
/// assert!(guard.remaining() <= Duration::from_secs(5));
/// guard.release().await?;
/// # Ok(()) }
/// ```
pub struct Lease {
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) live: Arc<LiveGrant>,
    since: BootInstant,
    /// Whether dropping this must release the lock.
    armed: bool,
}

impl Lease {
    pub(crate) fn new(keeper: Arc<KeeperHandle>, live: Arc<LiveGrant>) -> Self {
        let since = keeper.clock.now();
        Self { keeper, live, since, armed: true }
    }

    /// The instant at which the lock was granted to the caller.
    pub(crate) fn since(&self) -> BootInstant {
        self.since
    }

    /// Tells the span of an acquisition how it ended: with this lease.
    pub(crate) fn describe(&self, operation: &mut Operation, waited: Duration) {
        if let Some(token) = self.live.token() {
            operation.note("token", token.as_u64());
        }
        operation.note("waited", debug(waited));
        operation.ends("granted");
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.live.attempt.name
    }

    /// The identity of this grant: what [`inspect`](crate::Mutex::inspect) shows and
    /// [`force_release`](crate::Mutex::force_release) takes.
    #[must_use]
    pub fn grant_id(&self) -> GrantId {
        self.live.attempt.id
    }

    /// Whether the lock is held at this instant, computed from the end of the lease and the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.keeper.ensure_running();
        self.live.is_held(&*self.keeper.clock)
    }

    /// Returns for how long the lock stays held at least, even if no renewal succeeds any more; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.live.remaining(&*self.keeper.clock)
    }

    /// Resolves with the reason when the lock is lost; never after a normal release.
    ///
    /// A `release` that finds the lock gone reports the loss here too. A release in the background (after a drop, or when no
    /// answer came) reports nothing: an earlier request of the same release may have freed the lock.
    ///
    /// The future is independent of the guard (`Send + 'static`); ask for as many as you like, each resolves once and
    /// is pending for ever afterwards. One that is asked for after the loss resolves at once.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.mutex("report");
    /// let guard = report.lock().await?;
    /// report.force_release(guard.grant_id(), "its machine hangs").await?;
    /// println!("the lock was lost: {}", guard.lost().await);
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn lost(&self) -> Lost {
        Lost::of(self.live.clone(), &self.keeper)
    }

    /// Resolves when the lock is lost or released, and tells which. A task that waits for this ends with the hold; one that waits for
    /// [`lost`](Lease::lost) would wait for ever after a release. It resolves when the release begins: the server may refuse a `try_lock`
    /// that is made then.
    ///
    /// The future is independent of the guard (`Send + 'static`); ask for as many as you like, each resolves once and is pending for
    /// ever afterwards.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.mutex("report").lock().await?;
    /// let watcher = tokio::spawn(guard.ended());
    /// guard.release().await?;
    /// assert_eq!(watcher.await.unwrap(), lock_core::Ending::Released);
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn ended(&self) -> Ended {
        Ended::of(self.live.clone(), &self.keeper)
    }

    /// Resolves when no more than `time` of the lease is left: renewals have failed, or there are none. Then there is that much time to
    /// come to an end, before anybody else can have the lock. It resolves too when the lock is lost or released.
    ///
    /// The future is independent of the guard (`Send + 'static`), and goes by the clock, whatever has become of the client's runtime. A
    /// renewal may still succeed after it has resolved.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// use std::time::Duration;
    /// use lock_core::{clock::VirtualClock, memory::MemoryStore};
    ///
    /// let clock = VirtualClock::new();
    /// let store = MemoryStore::with_clock(clock.clone());
    /// let guard = store.connect().mutex("report").with_ttl(Duration::from_secs(30)).lock().await?;
    /// let warning = guard.expires_within(Duration::from_secs(5))?;
    /// store.set_reachable(false); // no renewal succeeds any more
    /// clock.advance(Duration::from_secs(26));
    /// warning.await;
    /// assert!(guard.is_held()); // for almost 5 s yet
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the warning would come although all is well. `time` must be less than what is left of the
    /// lease when a renewal is due (about two thirds of the TTL by default) or, without renewal, less than the TTL. Where the server
    /// keeps a lock for less than its TTL at a time, as ZooKeeper does with a shorter session, that shorter time counts, as its last
    /// answer gave it. It varies there: with a `time` near the limit the warning may come although all is well.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn expires_within(&self, time: Duration) -> Result<ExpiresWithin, Error> {
        let least = self.live.least_left();
        if time >= least {
            let what = format!(
                "a warning {time:?} before the end would come on a healthy lease, of which only {least:?} may be left"
            );
            return Err(self.named(Error::invalid(Phase::Hold, what)));
        }
        Ok(ExpiresWithin::of(self.live.clone(), &self.keeper, time))
    }

    /// Extends the lease now, to `ttl` from this call, of which [`remaining`](Self::remaining) leaves out the margin for clocks; never to
    /// less than what is left, and never beyond [`max_hold`](crate::LeaseOptions::max_hold). The automatic renewal, if on, begins again when
    /// the extension comes to its end.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let guard = locks.mutex("report").lock().await?;
    /// guard.extend(Duration::from_secs(60)).await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] if the lock is lost, with the reason;
    /// - [`ErrorKind::InvalidArgument`] if `ttl` is below 100 ms, above 24 h or above the configuration's longest lease;
    /// - [`ErrorKind::Unavailable`] if the server cannot be reached, or refuses for now, and [`ErrorKind::Indeterminate`] if no answer
    ///   came, or one that did not confirm the new end: the lease ends as it would have without the call.
    ///
    /// # Cancel safety
    /// The extension may be carried out at the server although the future was dropped; the guard then does not count
    /// on it.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let keeper = &self.keeper;
        keeper.check_ttl(ttl).map_err(|error| self.named(error))?;
        self.check(Phase::Renew)?;
        let ask = ttl.max(self.live.remaining(&*keeper.clock));
        let sent_at = self.live.asks(&*keeper.clock, ask);
        let mut answers = keeper.ask(&[Renewal::new(&self.live.attempt, ask)]).await;
        let (answer, outcome) = match answers.pop() {
            Some(Renewed::For(valid_for)) => (Answer::kept(valid_for, ask), Ok(())),
            Some(Renewed::Lost(reason)) => (Answer::Lost(reason.clone()), Err(Error::lost(Phase::Renew, reason))),
            Some(Renewed::Unknown(error)) => (Answer::Unknown, Err(error)),
            Some(Renewed::Held) => {
                let what = "the lock is held, and the server did not confirm when it ends";
                (Answer::Held, Err(Error::indeterminate(Phase::Renew, what)))
            }
            None => (Answer::Unknown, Err(Error::indeterminate(Phase::Renew, "the backend gave no answer"))),
        };
        keeper.settle(&self.live, Event::Answer { sent_at, answer });
        outcome.map_err(|error| self.named(error))?;
        self.check(Phase::Renew)
    }

    /// Runs `work`, and drops it at its next await point when the lock is lost.
    ///
    /// `Ok` means that the lock was held when `work` ended. `work` may still have had effects after a loss, between two
    /// of its await points; only a fencing token protects a resource from that. Tasks and threads that it has started (`spawn`,
    /// `spawn_blocking`) are not stopped by dropping it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.mutex("report").lock().await?;
    /// let pages = guard.while_held(async { 42 }).await?;
    /// assert_eq!(pages, 42);
    /// guard.release().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], with the reason and, if `work` had ended by then, its value. [`ErrorKind::Indeterminate`] after a
    /// [`downgrade`](crate::WriteGuard::downgrade) that was not answered.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; the guard is not touched.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, WorkError<T>> {
        let lost = async { Error::lost(Phase::Hold, self.lost().await) };
        drop_when(lost, || self.check(Phase::Hold), work).await.map_err(|failed| failed.map(|error| self.named(error)))
    }

    /// An error unless the lock is held.
    pub(crate) fn check(&self, phase: Phase) -> Result<(), Error> {
        if self.is_held() {
            return Ok(());
        }
        // The deadline may have passed without anybody having said so yet.
        self.keeper.look(&self.live);
        let error = match self.live.loss() {
            Some(reason) => Error::lost(phase, reason),
            None if self.live.is_doubtful() => Error::indeterminate(
                phase,
                "a downgrade was not answered: it is unknown whether the grant is still exclusive",
            ),
            None => Error::new(ErrorKind::NotHeld, phase, "the lock was released"),
        };
        Err(self.named(error))
    }

    /// Notes that the server has said, to a request that was sent at `sent_at`, that the grant is gone, and why if that is known.
    pub(crate) fn mark_gone(&self, sent_at: BootInstant, reason: Option<&LossReason>) {
        let reason = reason.cloned().unwrap_or(LossReason::Taken);
        self.keeper.settle(&self.live, Event::Answer { sent_at, answer: Answer::Lost(reason) });
    }

    pub(crate) fn named(&self, error: Error) -> Error {
        self.keeper.named(error, self.name())
    }

    /// Releases the lock; see [`MutexGuard::release`](crate::MutexGuard::release).
    ///
    /// Dropping this future, or an error, leaves the lease armed: its drop hands the release to the reaper.
    pub(crate) async fn release(self) -> Result<(), Error> {
        let keeper = self.keeper.clone();
        // Declared before the lease, so dropped after it: what the lease hands to the reaper is counted by then.
        let _under_way = keeper.shutdown.track();
        let mut lease = self;
        let mut operation = Operation::release(keeper.backend_name, &lease.live.attempt);
        let outcome = operation.run(pin!(lease.release_once(&keeper))).await;
        match &outcome {
            Ok(()) => operation.ends("released"),
            Err(error) => operation.fails(error),
        }
        outcome
    }

    async fn release_once(&mut self, keeper: &Keeper) -> Result<(), Error> {
        let Keeper { backend, clock, meters, reaper, .. } = keeper;
        self.keeper.end(&self.live, || ());
        if let Some(reason) = self.live.loss() {
            self.armed = false;
            return Err(self.not_held(reason.to_string(), reason));
        }
        let Attempt { op_timeout, .. } = *self.live.attempt;
        let released = backend.release(&self.live.attempt);
        match bounded(&**clock, op_timeout, Phase::Release, released).await {
            Ok(answer) => {
                self.armed = false;
                match answer {
                    Released::Done => {
                        reaper.ended(&self.live.attempt);
                        meters.held(clock.now().since(self.since));
                        Ok(())
                    }
                    Released::NotHeld(reason) => {
                        let what = match &reason {
                            Some(reason) => reason.to_string(),
                            None => "the server has no such grant (any more)".to_owned(),
                        };
                        let loss = reason.unwrap_or(LossReason::Taken);
                        meters.held(clock.now().since(self.since));
                        keeper.settle(&self.live, Event::NotHeld(loss.clone()));
                        Err(self.not_held(what, loss))
                    }
                }
            }
            Err(cause) => {
                let what = "no confirmation from the server; the release goes on in the background";
                Err(self.named(Error::indeterminate(Phase::Release, what).with_source(cause)))
            }
        }
    }

    /// Returns the TTL with which the lock was asked for.
    pub(crate) fn attempt_ttl(&self) -> Duration {
        self.live.attempt.ttl
    }

    /// Whether another client can go on with this grant.
    pub(crate) fn is_adoptable(&self) -> bool {
        let backend = &self.keeper.backend;
        backend.guarantees().of(Guarantee::Adoption) != Support::No
            && asked(|| backend.is_adoptable(&self.live.attempt))
    }

    /// Whether no request by which this lock was asked for can be carried out any more.
    pub(crate) fn is_answered(&self) -> bool {
        asked(|| self.keeper.backend.is_answered(&self.live.attempt))
    }

    /// Waits for answers that are on their way until [`is_answered`](Self::is_answered), for an operation timeout or a quarter of what is left
    /// of the lease at most.
    pub(crate) async fn answered_soon(&self) {
        let clock = &*self.keeper.clock;
        let until = clock.now().plus(self.live.attempt.op_timeout.min(self.remaining() / 4));
        for pause in wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE) {
            let next = clock.now().plus(pause);
            if next > until || self.is_answered() {
                return;
            }
            clock.sleep_until(next).await;
        }
    }

    /// Ends the lease without releasing the lock. A lease whose deadline has passed meanwhile comes back with the loss.
    pub(crate) fn detach(mut self) -> Result<(), (Self, Error)> {
        self.keeper.end(&self.live, || ());
        if let Some(reason) = self.live.loss() {
            let error = self.named(Error::lost(Phase::Release, reason));
            return Err((self, error));
        }
        self.disarm();
        // Nothing is asked of this attempt any more: another one has the lock.
        asked(|| self.keeper.backend.forget(&self.live.attempt));
        Ok(())
    }

    /// Has the drop of this release nothing any more; the hold is over.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
        self.keeper.meters.held(self.keeper.clock.now().since(self.since));
    }

    fn not_held(&self, what: String, reason: LossReason) -> Error {
        self.named(Error::new(ErrorKind::NotHeld, Phase::Release, what).with_loss(Some(reason)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let keeper = &self.keeper;
        // A lost lease was handed to the reaper when the loss was noticed.
        keeper.end(&self.live, || {
            keeper.meters.held(keeper.clock.now().since(self.since));
            keeper.reaper.release(self.live.attempt.clone(), self.live.may_last_until());
        });
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("grant", &self.grant_id())
            .field("token", &self.live.token())
            .field("remaining", &self.remaining())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;
    use crate::memory::MemoryStore;

    #[tokio::test]
    async fn a_lease_whose_deadline_has_passed_is_not_detached() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let guard = store.connect().mutex("a").with_ttl(Duration::from_secs(1)).lock().await.unwrap();
        clock.advance(Duration::from_secs(2));
        let (lease, error) = guard.into_lease().detach().unwrap_err();
        assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Expired)), "{error}");
        assert!(!lease.is_held());
    }
}
