//! The one task per client that renews leases in batches and tells holders of a loss.

mod task;
mod unclaimed;

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use self::task::run;
use self::unclaimed::UnclaimedNotices;
use super::LiveGrant;
use super::background::{self, Background, Carried};
use super::reaper::Reaper;
use super::runtime::BackgroundRuntime;
use super::state::{Actions, Event};
use super::table::LeaseTable;
use crate::clock::{BootInstant, Clock};
use crate::driver::bound::{asked, bounded, caught};
use crate::driver::{Backend, Doubts, Notice, Renewal, Renewed, log};
use crate::error::{Error, Phase};
use crate::metrics::Meters;
use crate::name::LockName;
use crate::options::{LeaseOptions, check_ttl};
use crate::owner::GrantId;
use crate::shutdown::Shutdown;
use crate::sync::locked;
use crate::trace::Operation;

/// Wake-ups are rounded up to this, so that leases that are due one after the other share a batch.
const SLOT: Duration = Duration::from_millis(20);

/// The time for which the keeper stays up after the last lease, so that a client that locks and releases in a loop does
/// not wake it each time.
const LINGER: Duration = Duration::from_secs(1);

/// The keeper as a client and its guards share it: the end of the last of them ends its task.
#[derive(Debug)]
pub(crate) struct KeeperHandle(Arc<Keeper>);

impl KeeperHandle {
    pub(crate) fn open(backend: Arc<dyn Backend>) -> Arc<Self> {
        Arc::new(Self(Keeper::new(backend)))
    }
}

impl Deref for KeeperHandle {
    type Target = Arc<Keeper>;

    fn deref(&self) -> &Arc<Keeper> {
        &self.0
    }
}

impl Drop for KeeperHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Knows every held lease of a client.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) backend: Arc<dyn Backend>,
    /// The backend's name, asked for once: one that panics at the question ends nothing that goes on by itself.
    pub(crate) backend_name: &'static str,
    longest_ttl: Duration,
    /// Those since the client was made: its first grant may be asked for before one of them, and come after it.
    doubts: Option<Doubts>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reaper: Reaper,
    pub(crate) meters: Meters,
    pub(crate) shutdown: Arc<Shutdown>,
    registry: Mutex<Registry>,
    /// The number of leases that were found lost.
    losses: AtomicU64,
    background: Background,
    /// Whether a task was started before.
    has_started: AtomicBool,
    wake: Notify,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Registry {
    leases: LeaseTable<GrantId, Arc<LiveGrant>>,
    /// The instant at which the task looks by itself; a lease that needs it more than a slot earlier wakes it.
    looks_at: BootInstant,
    /// Whether a lease was registered since the task looked last, even if it is gone again.
    in_use: bool,
    /// The instant of the last doubt: what was asked for before may be a grant of a server that does not count any more.
    doubted_at: BootInstant,
    /// The losses that were announced lately, and for which there was no lease.
    unclaimed: UnclaimedNotices,
}

impl Keeper {
    fn new(backend: Arc<dyn Backend>) -> Arc<Self> {
        let (clock, runtime) = (backend.clock(), BackgroundRuntime::current());
        let (shutdown, backend_name) = (Arc::<Shutdown>::default(), backend.name());
        let meters = Meters::new(backend_name);
        Arc::new(Self {
            reaper: Reaper::new(
                backend.clone(),
                backend_name,
                clock.clone(),
                meters.clone(),
                shutdown.clone(),
                runtime.clone(),
            ),
            shutdown,
            meters,
            registry: Mutex::new(Registry {
                leases: LeaseTable::default(),
                looks_at: BootInstant::FAR_FUTURE,
                in_use: false,
                doubted_at: BootInstant::from_origin(Duration::ZERO),
                unclaimed: UnclaimedNotices::default(),
            }),
            longest_ttl: backend.longest_ttl(),
            doubts: asked(|| backend.doubts()),
            losses: AtomicU64::new(0),
            background: Background::at(runtime),
            has_started: AtomicBool::new(false),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
            backend,
            backend_name,
            clock,
        })
    }

    /// Keeps a lease from now on, which was asked for at `sent_at`.
    pub(crate) fn register(self: &Arc<Self>, live: &Arc<LiveGrant>, sent_at: BootInstant) {
        let mut registry = locked(&self.registry);
        self.schedule(&mut registry, live);
        // Under the same lock: a doubt or a notice of this moment finds the lease in the table, or is found here.
        let is_doubtful = sent_at < registry.doubted_at;
        let unclaimed = registry.unclaimed.take(live.attempt.id);
        drop(registry);
        if let Some(Notice { reason, lost_by, .. }) = unclaimed {
            self.settle(live, Event::Notice { lost_by, reason });
        }
        if is_doubtful {
            self.settle(live, Event::Suspect);
        }
        if !self.background.is_running() {
            self.start();
        }
    }

    /// Starts the task again if its runtime has ended, for holders whose runtimes nobody knew by then.
    pub(crate) fn ensure_running(self: &Arc<Self>) {
        if !self.background.is_up() && !self.is_closed() {
            self.start();
        }
        self.reaper.ensure_running();
    }

    /// Notes that the holder of this lease waits on the present runtime.
    pub(super) fn mark_watched_here(self: &Arc<Self>, live: &LiveGrant) {
        live.mark_watched_here();
        self.ensure_running();
    }

    fn start(self: &Arc<Self>) {
        background::start(self);
        // Both, so that a guard that is dropped outside a runtime finds a reaper.
        self.reaper.ensure_running();
    }

    /// Refuses options by which no grant can be kept, by the core or by the backend.
    pub(crate) fn check_lease(&self, lease: &LeaseOptions) -> Result<(), Error> {
        lease.check()?;
        self.check_ttl(lease.ttl)
    }

    /// Refuses a TTL that no grant can have.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        check_ttl(ttl)?;
        if ttl > self.longest_ttl {
            let what =
                format!("the TTL is {ttl:?}, the longest that this client can ask for is {:?}", self.longest_ttl);
            return Err(Error::invalid(Phase::Configure, what));
        }
        Ok(())
    }

    /// Completes an error with the names of lock and backend.
    pub(crate) fn named(&self, error: Error, name: &LockName) -> Error {
        error.with_name(name).with_backend(self.backend_name)
    }

    /// Returns the number of this client's leases that were found lost until now. As long as it is the same, a lease that was held is held
    /// to its deadline, unless its holder ends it; and no deadline ever comes nearer.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes an event for a lease and does what follows from it.
    pub(crate) fn settle(&self, live: &Arc<LiveGrant>, event: Event) -> Actions {
        // The hold of a lock that is found lost by its release ended with that.
        let is_over = matches!(event, Event::NotHeld(_));
        let actions = live.step(&*self.clock, event);
        self.follow(live, &actions, is_over);
        actions
    }

    /// Ends a lease that its holder releases, and has `release` do that at the server, unless it was lost. Those who wait for its end
    /// are told afterwards: a try of this client that one of them makes waits for the release.
    pub(crate) fn end(&self, live: &Arc<LiveGrant>, release: impl FnOnce()) {
        let is_lost = self.settle(live, Event::Release).lost.is_some();
        if live.is_released() {
            release();
        }
        if !is_lost {
            live.tell_end();
        }
    }

    /// Takes note of a deadline that has passed. Unlike a tick it never makes a renewal due, which only the task can send.
    pub(crate) fn look(&self, live: &Arc<LiveGrant>) {
        let actions = live.look(&*self.clock);
        self.follow(live, &actions, false);
    }

    fn follow(&self, live: &Arc<LiveGrant>, actions: &Actions, is_over: bool) {
        if let Some(reason) = &actions.lost {
            // Before anything else: others look at this number in order not to look at each lease.
            self.losses.fetch_add(1, Ordering::AcqRel);
            if !is_over {
                self.meters.held(live.held_for(&*self.clock));
            }
            // A subscriber that panics keeps nobody from being told.
            log(|| tracing::warn!(name = %live.attempt.name, grant = %live.attempt.id, %reason, "lock lost"));
            // Counted first: whoever is told finds it counted.
            self.meters.lost(reason);
            if actions.discard {
                self.reaper.release(live.attempt.clone(), live.may_last_until());
            } else {
                self.reaper.ended(&live.attempt);
            }
            // Told last: a try of this client waits for the release.
            live.tell_end();
        }
        self.schedule(&mut locked(&self.registry), live);
    }

    /// Sends one request for these renewals.
    pub(super) async fn ask(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let Some(first) = batch.first() else { return Vec::new() };
        let operation = Operation::renew(self.backend_name, batch.len());
        let asked = caught(Phase::Renew, async { Ok(self.backend.renew(batch).await) });
        let asked = bounded(&*self.clock, first.attempt.op_timeout, Phase::Renew, asked);
        let answers = operation.run(asked).await.unwrap_or_else(|error| {
            batch.iter().map(|renewal| Renewed::Unknown(error.repeated().with_name(&renewal.attempt.name))).collect()
        });
        operation.answered(&answers);
        answers
    }

    /// Stops the task: the client is gone, and with it every guard.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    fn schedule(&self, registry: &mut Registry, live: &Arc<LiveGrant>) {
        let mut scheduled = locked(&live.scheduled);
        // Asked for under both locks: of two steps at once, the one that is scheduled last has seen both.
        let wake_at = live.wake_at();
        if *scheduled == wake_at {
            return;
        }
        let id = live.attempt.id;
        if let Some(before) = scheduled.take() {
            registry.leases.take(id, before);
        }
        if let Some(at) = wake_at {
            registry.leases.put(id, at, live.clone());
            registry.in_use = true;
            *scheduled = Some(at);
            if at.plus(SLOT) <= registry.looks_at {
                registry.looks_at = at;
                self.wake.notify_one();
            }
        }
    }

    /// Every lease that is due, and when to look again.
    fn due(&self, idle_since: &mut Option<BootInstant>) -> (Vec<Arc<LiveGrant>>, BootInstant) {
        let mut registry = locked(&self.registry);
        let now = self.clock.now();
        registry.unclaimed.forget(now);
        let mut leases = Vec::new();
        while let Some(live) = registry.leases.take_due(now) {
            locked(&live.scheduled).take();
            leases.push(live);
        }
        if std::mem::take(&mut registry.in_use) {
            *idle_since = None;
        }
        let next = match registry.leases.next() {
            // At the end of the slot, so that leases due within it share a batch; 1 ns before that, so that another lease of this very
            // instant is no reason to wake the task.
            Some(at) => at.plus(SLOT.saturating_sub(Duration::from_nanos(1))),
            None if !leases.is_empty() => now.plus(LINGER),
            None if now.since(*idle_since.get_or_insert(now)) < LINGER => now.plus(LINGER),
            None => registry.unclaimed.forgets_at(),
        };
        registry.looks_at = next;
        (leases, next)
    }

    /// Has every lease verified.
    fn suspect_all(&self) {
        let mut registry = locked(&self.registry);
        registry.doubted_at = self.clock.now();
        let all: Vec<_> = registry.leases.leases().cloned().collect();
        drop(registry);
        for live in all {
            self.settle(&live, Event::Suspect);
        }
    }

    /// Takes note of a loss that was announced. If the lease is not here, it may be about to be registered.
    fn hear(&self, notice: Notice) {
        let mut registry = locked(&self.registry);
        match registry.leases.get(notice.grant).cloned() {
            Some(live) => {
                drop(registry);
                self.settle(&live, Event::Notice { lost_by: notice.lost_by, reason: notice.reason });
            }
            None => registry.unclaimed.keep(self.clock.now(), notice),
        }
    }
}

impl Carried for Keeper {
    fn background(&self) -> &Background {
        &self.background
    }

    fn runtimes(&self) -> Vec<Handle> {
        let mut runtimes: Vec<Handle> = Vec::new();
        for runtime in locked(&self.registry).leases.leases().filter_map(|live| live.runtime()) {
            if runtimes.iter().all(|known| known.id() != runtime.id()) {
                runtimes.push(runtime);
            }
        }
        // Others run only while somebody drives them.
        runtimes.sort_by_key(|runtime| runtime.runtime_flavor() != RuntimeFlavor::MultiThread);
        runtimes
    }

    fn is_needed(&self) -> bool {
        !self.is_closed()
    }

    fn run(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        // Before anything else happens: what is announced from now on finds a listener.
        let (notices, doubts) = (asked(|| self.backend.notices()), self.doubts.clone());
        let starts_again = self.has_started.swap(true, Ordering::AcqRel);
        run(self, notices, doubts, starts_again)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;
    use crate::clock::VirtualClock;
    use crate::driver::{Attempt, Grant, Kind};
    use crate::loss::LossReason;
    use crate::memory::MemoryStore;
    use crate::owner::Owner;

    /// A keeper without a runtime: there is no task, and the looks are made by the tests.
    fn keeper(clock: &VirtualClock) -> Arc<Keeper> {
        let store = MemoryStore::with_clock(clock.clone());
        Keeper::new(Arc::new(store.backend(String::new(), Duration::from_secs(2))))
    }

    /// A grant that was asked for just now, and is not registered yet.
    fn grant(keeper: &Keeper) -> Arc<LiveGrant> {
        let (lease, now) = (LeaseOptions::default(), keeper.clock.now());
        let attempt = Attempt::new("loop".into(), Kind::Mutex, Owner::new(), lease.ttl).unwrap();
        let grant = Grant::new(None, now, lease.ttl);
        LiveGrant::new(Arc::new(attempt), &grant, now, lease, Duration::ZERO)
    }

    /// A lease that was asked for just now.
    fn lease(keeper: &Arc<Keeper>) -> Arc<LiveGrant> {
        let live = grant(keeper);
        keeper.register(&live, keeper.clock.now());
        live
    }

    #[test]
    fn a_notice_that_comes_before_its_grant_is_registered_ends_it() {
        let clock = VirtualClock::new();
        let keeper = keeper(&clock);
        let (live, healthy) = (grant(&keeper), grant(&keeper));
        let notice = |grant: &LiveGrant, lost_by| Notice {
            grant: grant.attempt.id,
            reason: LossReason::SessionExpired,
            lost_by,
        };
        let asked_at = clock.now();
        clock.advance(Duration::from_millis(1));
        keeper.hear(notice(&live, clock.now()));
        keeper.register(&live, asked_at);
        assert_eq!(live.loss(), Some(LossReason::SessionExpired));
        // One of an earlier session, as below.
        let asked_again_at = clock.now();
        keeper.hear(notice(&healthy, BootInstant::from_origin(Duration::ZERO)));
        keeper.register(&healthy, asked_again_at);
        assert_eq!(healthy.loss(), None, "a healthy grant was ended");
    }

    /// As a waiter may have it whose session ended, and who was granted the lock in the next one.
    #[test]
    fn a_notice_that_was_announced_before_a_grant_was_asked_for_does_not_end_it() {
        let clock = VirtualClock::new();
        let (keeper, announced_at) = (keeper(&clock), clock.now());
        clock.advance(Duration::from_millis(1));
        let live = lease(&keeper);
        let notice = |lost_by| Notice { grant: live.attempt.id, reason: LossReason::SessionExpired, lost_by };
        keeper.hear(notice(announced_at));
        assert!(live.is_held(&clock), "a healthy grant was ended");
        keeper.hear(notice(clock.now()));
        assert_eq!(live.loss(), Some(LossReason::SessionExpired));
    }

    #[test]
    fn a_holders_runtime_that_drives_itself_is_the_first_to_carry_the_task() {
        let keeper = keeper(&VirtualClock::new());
        let single = || Builder::new_current_thread().build().unwrap();
        let many: Vec<_> = (0..8).map(|_| single()).collect();
        let (several, more) = (Builder::new_multi_thread().worker_threads(1).build().unwrap(), single());
        let all: Vec<_> = many.iter().chain([&several, &more]).collect();
        for runtime in &all {
            let _entered = runtime.enter();
            lease(&keeper).mark_watched_here();
        }
        let runtimes = keeper.runtimes();
        assert_eq!((runtimes.len(), runtimes[0].id()), (all.len(), several.handle().id()));
    }

    #[test]
    fn a_client_that_locks_and_releases_in_a_loop_does_not_wake_it_each_time() {
        let clock = VirtualClock::new();
        let keeper = keeper(&clock);
        let cycle = || keeper.end(&lease(&keeper), || ());
        let mut idle_since = None;
        for _ in 0..3 {
            cycle();
            let (_, next) = keeper.due(&mut idle_since);
            assert_eq!(next, clock.now().plus(LINGER), "sooner than any lease, so that no registration wakes it");
            clock.advance(LINGER);
        }
        assert_eq!(keeper.due(&mut idle_since).1, BootInstant::FAR_FUTURE, "nobody uses the client any more");
    }
}
