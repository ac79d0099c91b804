//! The part of a client that does not depend on the backend's type: one acquisition, from the checks to the lease.

mod own_releases;
mod several;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use self::own_releases::OwnReleases;
use crate::clock::{BootInstant, Deadline};
use crate::driver::bound::{self, bounded};
use crate::driver::{Attempt, Backend, Cancelled, Grant, Kind, Operator};
use crate::driver::{Guarantee, Support};
use crate::driver::{Holder, Inspection};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::keeper::{Keeper, KeeperHandle};
use crate::lease::state::LeaseState;
use crate::lease::{Lease, LiveGrant};
use crate::name::LockName;
use crate::options::{ClientOptions, LeaseOptions, check_text};
use crate::owner::{GrantId, Owner};
use crate::owners::Owners;
use crate::shutdown::UnderWay;
use crate::trace::Operation;

pub(crate) use several::{SeveralLeases, several};

/// The time that a wait that ran out may spend on confirming that nothing of it is left.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_millis(100);

/// The state that all locks of one client share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) owner: Owner,
    pub(crate) options: ClientOptions,
    pub(crate) owners: Owners,
    granularity: Duration,
}

/// The waiting of an acquisition: none, or until a deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// None; a refusal that this client may have caused itself is asked for once more.
    Try,
    /// None: one request, as at the end of a wait.
    Once,
    Until(Deadline),
}

impl Wait {
    /// The deadline, if it waits.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::Try | Self::Once => None,
            Self::Until(deadline) => Some(deadline),
        }
    }

    /// Whether no time is left at this instant.
    pub(crate) fn is_over(self, now: BootInstant) -> bool {
        self.deadline().is_none_or(|deadline| deadline.has_passed(now))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Try | Self::Once => "try",
            Self::Until(Deadline::NEVER) => "unlimited",
            Self::Until(_) => "limited",
        }
    }
}

type Acquired = Result<Option<Grant>, Error>;

impl Core {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: ClientOptions) -> Self {
        let owner = match &options.label {
            Some(label) => Owner::new().with_label(label),
            None => Owner::new(),
        };
        Self {
            granularity: backend.granularity(),
            keeper: KeeperHandle::open(backend),
            owner,
            options,
            owners: Owners::default(),
        }
    }

    /// The name by which the backend knows this lock.
    pub(crate) fn canonical(&self, name: impl Into<LockName>) -> LockName {
        self.keeper.backend.canonical(name.into())
    }

    /// The instant after `wait` on this client's clock.
    pub(crate) fn deadline(&self, wait: Duration) -> Wait {
        if wait.is_zero() {
            return Wait::Try;
        }
        Wait::Until(Deadline::after(self.keeper.clock.now(), wait))
    }

    /// One acquisition of any kind, from the checks to the guard's lease.
    ///
    /// From before the first request until the outcome is known, dropping this future hands the attempt to the reaper.
    pub(crate) async fn acquire<'a, F, T>(
        self: &'a Arc<Self>,
        request: AcquireRequest<'a>,
        wait: Wait,
        ask: F,
    ) -> Result<Option<Lease>, Error>
    where
        F: Fn(Arc<Attempt>, Wait) -> T,
        T: Future<Output = Acquired>,
    {
        let began = self.keeper.clock.now();
        let mut own_releases = match wait {
            Wait::Try => OwnReleases::of(self, [&request]),
            Wait::Once | Wait::Until(_) => None,
        };
        let mut limit = None;
        loop {
            let outcome = self.acquire_once(request, wait, began, limit, &ask).await;
            let Ok(None) = outcome else { return outcome };
            // The server may have refused because of a lock that this client was still releasing. Asked once more, and not again:
            // there is nothing left to take then.
            limit = match own_releases.take() {
                Some(own_releases) => own_releases.tried(self).await,
                None => None,
            };
            if limit.is_none() {
                self.keeper.meters.refused();
                return Ok(None);
            }
        }
    }

    /// One attempt of an acquisition that began at this instant. With a limit it is given up then.
    async fn acquire_once<F, T>(
        self: &Arc<Self>,
        request: AcquireRequest<'_>,
        wait: Wait,
        began: BootInstant,
        limit: Option<BootInstant>,
        ask: &F,
    ) -> Result<Option<Lease>, Error>
    where
        F: Fn(Arc<Attempt>, Wait) -> T,
        T: Future<Output = Acquired>,
    {
        let attempt = self.attempt(&request).map_err(|error| self.refuses(error, request.name))?;
        let mut operation = Operation::acquire(self.keeper.backend_name, &attempt, wait.name());
        // Pinned here: handed on by value, it would be a part of this future twice.
        let outcome = operation.run(pin!(self.ask(attempt, request.lease, wait, limit, ask))).await;
        match &outcome {
            Ok(Some(lease)) => {
                let waited = lease.since().since(began);
                self.keeper.meters.granted(waited);
                lease.describe(&mut operation, waited);
            }
            Ok(None) => operation.ends("refused"),
            Err(error) => {
                self.keeper.meters.failed(error.kind());
                operation.fails(error);
            }
        }
        outcome
    }

    /// Asks the backend until it answers or the client is closed, and undoes what remains of a request in vain.
    async fn ask<F, T>(
        self: &Arc<Self>,
        attempt: Arc<Attempt>,
        lease: &LeaseOptions,
        wait: Wait,
        limit: Option<BootInstant>,
        ask: &F,
    ) -> Result<Option<Lease>, Error>
    where
        F: Fn(Arc<Attempt>, Wait) -> T,
        T: Future<Output = Acquired>,
    {
        let undo = Undo::of(self, attempt);
        if self.keeper.shutdown.has_begun() {
            let error = self.named(closed(), &undo.attempt.name);
            undo.disarm();
            return Err(error);
        }
        // What is still to be given back, since its runtime has ended, may be this very lock.
        self.keeper.reaper.ensure_running();
        let (end, phase) = match wait.deadline() {
            // Long past, so that one operation timeout counts from the present instant.
            None => (BootInstant::from_origin(Duration::ZERO), Phase::Acquire),
            Some(deadline) => (deadline.instant(), Phase::Wait),
        };
        let answer = {
            let asked = pin!(ask(undo.attempt.clone(), wait));
            tokio::select! {
                // The answer first: a grant that is there is not given up because the client is closed at the same moment.
                biased;
                answer = bound::until(&*self.keeper.clock, end, self.options.op_timeout, limit, phase, asked) => answer,
                () = self.keeper.shutdown.begun() => Err(closed().ended_early()),
            }
        };
        match answer {
            Ok(Some(grant)) => self.into_lease(undo, lease, &grant).map(Some),
            Ok(None) => {
                match wait {
                    // Its place in the queue may still be there, and the lock be handed to it.
                    Wait::Until(_) => self.cancel_expired_wait(undo).await,
                    Wait::Try | Wait::Once => undo.disarm(),
                }
                Ok(None)
            }
            Err(error) => {
                let error = self.named(error, &undo.attempt.name);
                let answered = error.is_definite();
                // A wait is more than one request: that the last one has failed for certain says nothing of those before it.
                if wait.deadline().is_none() && answered {
                    undo.disarm();
                }
                Err(error)
            }
        }
    }

    /// [`acquire`](Core::acquire) without a deadline.
    pub(crate) async fn acquire_unbounded<'a, F, T>(
        self: &'a Arc<Self>,
        request: AcquireRequest<'a>,
        ask: F,
    ) -> Result<Lease, Error>
    where
        F: Fn(Arc<Attempt>, Wait) -> T,
        T: Future<Output = Acquired>,
    {
        self.acquire(request, Wait::Until(Deadline::NEVER), ask).await?.ok_or_else(|| {
            let what = "the backend ended a wait that has no deadline";
            self.named(Error::new(ErrorKind::Protocol, Phase::Wait, what), request.name)
        })
    }

    fn attempt(&self, request: &AcquireRequest<'_>) -> Result<Arc<Attempt>, Error> {
        request.name.check()?;
        self.keeper.check_lease(request.lease)?;
        let ttl = request.lease.ttl;
        if LeaseState::counted(ttl, self.granularity).is_zero() {
            let what = format!(
                "nothing is left of a TTL of {ttl:?}: the server's expiry is as coarse as {:?}",
                self.granularity
            );
            return Err(Error::invalid(Phase::Configure, what));
        }
        request.owner.check()?;
        if let Kind::Permits { permits, limit } = request.kind
            && (permits == 0 || limit == 0 || permits > limit)
        {
            let what = format!(
                "{permits} of {limit} permits asked for: both must be at least 1, and the first at most the second"
            );
            return Err(Error::invalid(Phase::Configure, what));
        }
        let mut attempt = Attempt::new(request.name.clone(), request.kind, request.owner.clone(), request.lease.ttl)?;
        attempt.op_timeout = self.options.op_timeout;
        attempt.patience = request.patience;
        Ok(Arc::new(attempt))
    }

    /// Turns a grant into a lease, unless it came so late that nothing is left of it.
    fn into_lease(self: &Arc<Self>, undo: Undo<'_>, lease: &LeaseOptions, grant: &Grant) -> Result<Lease, Error> {
        // On an error, dropping `undo` releases the grant.
        let live = self.live(&undo, lease, grant)?;
        Ok(self.leased(undo, live, grant))
    }

    /// The state of a grant that came in time.
    fn live(&self, undo: &Undo<'_>, lease: &LeaseOptions, grant: &Grant) -> Result<Arc<LiveGrant>, Error> {
        let now = self.keeper.clock.now();
        let live = LiveGrant::new(undo.attempt.clone(), grant, now, *lease, self.granularity);
        if now < live.deadline() {
            return Ok(live);
        }
        let what = "the grant arrived after its own lease had ended; it is being released";
        Err(self.named(Error::new(ErrorKind::TimedOut, Phase::Acquire, what), &live.attempt.name))
    }

    /// Has a grant kept from now on.
    fn leased(self: &Arc<Self>, undo: Undo<'_>, live: Arc<LiveGrant>, grant: &Grant) -> Lease {
        // From now on the lease releases the grant when it is dropped.
        undo.disarm();
        self.keeper.register(&live, grant.sent_at);
        let lease = Lease::new(self.keeper.clone(), live);
        if let Some(woken_at) = grant.woken_at {
            self.keeper.meters.woken(lease.since().since(woken_at));
        }
        lease
    }

    /// After a wait that ran out: confirms that nothing is left, or leaves that to the reaper.
    async fn cancel_expired_wait(&self, undo: Undo<'_>) {
        let clock = &self.keeper.clock;
        let grace = clock.sleep_until(clock.now().plus(CANCEL_GRACE));
        tokio::select! {
            biased;
            answer = self.keeper.backend.cancel(&undo.attempt) => {
                if let Ok(Cancelled::Settled) = answer {
                    undo.disarm();
                }
            }
            () = grace => {}
        }
    }

    /// See [`Client::close`](crate::Client::close).
    pub(crate) async fn close(&self) -> Result<(), Error> {
        let Keeper { shutdown, clock, reaper, .. } = &***self.keeper;
        shutdown.begin();
        reaper.end_left();
        reaper.ensure_running();
        tokio::select! {
            biased;
            () = shutdown.idle() => if reaper.discarded() == 0 {
                return Ok(());
            },
            () = clock.sleep_until(clock.now().plus(self.options.op_timeout)) => {}
        }
        let left = shutdown.under_way() + reaper.discarded();
        let what = format!("{left} releases or cancellations were not confirmed; what they left ends with its lease");
        Err(Error::indeterminate(Phase::Close, what).with_backend(self.keeper.backend_name))
    }

    /// Refuses a configuration that has no sound fencing tokens.
    pub(crate) fn require_fencing(&self, name: &LockName) -> Result<(), Error> {
        match self.keeper.backend.guarantees().of(Guarantee::Fencing) {
            Support::Yes | Support::Unless(_) => Ok(()),
            Support::No => {
                let what = "this configuration cannot give fencing tokens";
                Err(self.named(Error::new(ErrorKind::Unsupported, Phase::Configure, what), name))
            }
        }
    }

    /// Completes and counts the error of an acquisition that the backend was not asked for, or whose request was cut short.
    pub(crate) fn refuses(&self, error: Error, name: &LockName) -> Error {
        self.keeper.meters.failed(error.kind());
        self.named(error, name)
    }

    /// Completes an error with the names of lock and backend.
    pub(crate) fn named(&self, error: Error, name: &LockName) -> Error {
        self.keeper.named(error, name)
    }

    pub(crate) async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        name.check().map_err(|error| self.named(error, name))?;
        let seen = self.operate(self.operator()?.inspect(name, kind)).await.map_err(|error| self.named(error, name))?;
        Ok(seen.bounded())
    }

    pub(crate) async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        name.check().map_err(|error| self.named(error, name))?;
        self.operate(self.operator()?.holder(name)).await.map_err(|error| self.named(error, name))
    }

    pub(crate) async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        why: &str,
    ) -> Result<bool, Error> {
        name.check().and_then(|()| check_text("the reason", why)).map_err(|error| self.named(error, name))?;
        let freed = self.operator()?.force_release(name, kind, grant, &self.owner, why);
        self.operate(freed).await.map_err(|error| self.named(error, name))
    }

    /// Bounds an operator's request.
    pub(crate) async fn operate<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        bounded(&*self.keeper.clock, self.options.op_timeout, Phase::Inspect, request).await
    }

    fn operator(&self) -> Result<&dyn Operator, Error> {
        let backend = &self.keeper.backend;
        backend.operator().ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, Phase::Inspect, "this backend shows nothing to operators")
                .with_backend(self.keeper.backend_name)
        })
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, Phase::Acquire, "the client was closed")
}

/// A handle's request to the core.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcquireRequest<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) kind: Kind,
    pub(crate) owner: &'a Owner,
    pub(crate) lease: &'a LeaseOptions,
    /// The longest time for which a wait goes on without any answer.
    pub(crate) patience: Duration,
}

/// Hands an attempt to the reaper, unless it is disarmed first.
struct Undo<'a> {
    core: &'a Core,
    attempt: Arc<Attempt>,
    armed: bool,
    _under_way: UnderWay,
}

impl<'a> Undo<'a> {
    fn of(core: &'a Core, attempt: Arc<Attempt>) -> Self {
        Self { core, attempt, armed: true, _under_way: core.keeper.shutdown.track() }
    }

    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.core.keeper.reaper.cancel(self.attempt.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_tell_the_three_ways_to_wait_apart() {
        let limited = Deadline::after(BootInstant::from_origin(Duration::ZERO), Duration::from_secs(1));
        let names = [Wait::Try, Wait::Until(limited), Wait::Until(Deadline::NEVER)].map(Wait::name);
        assert_eq!(names, ["try", "limited", "unlimited"]);
    }
}
