//! The one task per client that finishes, in the background, what callers no longer wait for: releases of dropped
//! guards, releases whose answer never came, permits that were released without an answer, locks that were left, and the
//! undoing of acquisitions that were given up.
//!
//! Each job is tried at once; [`Backlog`] says when those that are not done by then are tried again, place by place. About
//! [`MOST`] of them wait for that, whatever their places: one that comes on top has had its one try. As many are tried for the
//! first time. What there is no room for is left to the server's expiry, and `close` tells of it. Neither limit is for jobs of
//! which something would remain: there is one for each that the backend keeps anyway.

mod backlog;
mod job;
mod lane;
mod left;
mod untried;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::backlog::Backlog;
use self::job::{Job, Progress, Task};
use self::left::LeftGrants;
use self::untried::UntriedJobs;
use super::LiveGrant;
use super::background::{self, Background, Carried};
use super::runtime::BackgroundRuntime;
use crate::clock::{BootInstant, Clock};
use crate::driver::bound::asked;
use crate::driver::{Attempt, Backend, Kind, SemaphoreBackend, log};
use crate::metrics::Meters;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::shutdown::Shutdown;
use crate::sync::locked;

/// The limit of jobs that wait for their next try, and that of the others.
const MOST: usize = 65_536;

/// The shortest time for which a cancellation is tried.
const QUEUED: Duration = Duration::from_secs(60);

/// Takes jobs from anywhere, also from `Drop` and outside a runtime.
#[derive(Debug)]
pub(crate) struct Reaper(Arc<Jobs>);

/// The jobs of one client. They outlive the task that tries them, and the runtime that it runs on.
#[derive(Debug)]
struct Jobs {
    backend: Arc<dyn Backend>,
    backend_name: &'static str,
    clock: Arc<dyn Clock>,
    meters: Meters,
    shutdown: Arc<Shutdown>,
    background: Background,
    /// The runtime on which the keeper runs: it finds one by its leases when the client's own has ended.
    keepers_runtime: Mutex<Option<Handle>>,
    queue: Mutex<JobQueue>,
    untried: Arc<UntriedJobs>,
    wake: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct JobQueue {
    /// Not tried yet.
    fresh: VecDeque<Job>,
    backlog: Backlog<Job>,
    /// The number of jobs that are being tried.
    trying: usize,
    /// The grants that were left, and are to be released when their time is over.
    left: LeftGrants,
    /// The number of jobs that there was no room for, and until when what the last of them left may stay.
    discarded: usize,
    remains_until: Option<BootInstant>,
}

impl JobQueue {
    fn len(&self) -> usize {
        self.fresh.len() + self.backlog.len() + self.trying + self.left.len()
    }
}

impl Reaper {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        backend_name: &'static str,
        clock: Arc<dyn Clock>,
        meters: Meters,
        shutdown: Arc<Shutdown>,
        runtime: BackgroundRuntime,
    ) -> Self {
        Self(Arc::new(Jobs {
            backend,
            backend_name,
            clock,
            meters,
            shutdown,
            background: Background::at(runtime),
            keepers_runtime: Mutex::default(),
            queue: Mutex::default(),
            untried: Arc::default(),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
        }))
    }

    /// Takes note of the keeper's runtime, which is the present one, and starts the task there if it does not run. One that ends later
    /// goes on there.
    pub(crate) fn follow_keeper(&self) {
        *locked(&self.0.keepers_runtime) = Handle::try_current().ok();
        self.ensure_running();
    }

    /// Starts the task if it does not run. Without a runtime the jobs wait for one.
    pub(crate) fn ensure_running(&self) {
        if !self.0.background.is_running() {
            background::start(&self.0);
        }
    }

    /// Releases the grant in the background, until it is confirmed or the server, which may keep it to `lasts_until`, has
    /// ended it by itself.
    pub(crate) fn release(&self, attempt: Arc<Attempt>, lasts_until: BootInstant) {
        let now = self.0.clock.now();
        let until = self.0.gone_by(&attempt, lasts_until.max(now.plus(attempt.ttl)));
        self.push(attempt, Task::Release, until);
    }

    /// Has the grant end at this instant in the background, under the id `left`, until that is confirmed or the server, which may keep it to
    /// `lasts_until` if it never hears of that, has ended it by itself.
    pub(crate) fn leave(&self, attempt: Arc<Attempt>, left: GrantId, ends_at: BootInstant, lasts_until: BootInstant) {
        let now = self.0.clock.now();
        let until = self.0.gone_by(&attempt, lasts_until.max(now.plus(attempt.ttl)));
        self.push(attempt, Task::Leave { left, ends_at }, until);
    }

    /// Releases a grant that was left at this instant, or when the client is closed.
    pub(crate) fn release_at(&self, attempt: Arc<Attempt>, ends_at: BootInstant) {
        self.0.release_at(attempt, ends_at);
        self.ensure_running();
    }

    /// Releases the grants that were left: the client is being closed.
    pub(crate) fn end_left(&self) {
        // Counted before they are taken, as where they are due: another call that closes the client waits for them.
        let _under_way = self.0.shutdown.track();
        let left = locked(&self.0.queue).left.take_all();
        left.into_iter().for_each(|attempt| self.0.release_left(attempt));
    }

    /// Undoes an attempt in the background, until that is confirmed or whatever it left is over.
    pub(crate) fn cancel(&self, attempt: Arc<Attempt>) {
        let until = self.0.cancelled_by(&attempt);
        self.push(attempt, Task::Cancel, until);
    }

    /// After the end of a grant: sees to it that no late copy of its request takes the lock again.
    pub(crate) fn ended(&self, attempt: &Arc<Attempt>) {
        if !asked(|| self.0.backend.is_settled(attempt)) {
            self.cancel(attempt.clone());
        }
    }

    /// Leaves the grant `keep` permits in the background, until that is confirmed or the grant has ended.
    pub(crate) fn shrink(&self, semaphore: Arc<dyn SemaphoreBackend>, live: Arc<LiveGrant>, keep: u32) {
        self.push(live.attempt.clone(), Task::Shrink { semaphore, live, keep }, BootInstant::FAR_FUTURE);
    }

    /// The end of the first tries of the releases and cancellations of this lock that are pending now; `None` if none is.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub(crate) fn first_tries(&self, name: &LockName, kind: Kind) -> Option<impl Future<Output = ()> + use<>> {
        self.0.untried.tried(name, kind)
    }

    /// Whether any release or cancellation was not tried yet.
    pub(crate) fn has_untried(&self) -> bool {
        !self.0.untried.is_empty()
    }

    /// The number of jobs that there was no room for and that may have left something.
    pub(crate) fn discarded(&self) -> usize {
        let queue = locked(&self.0.queue);
        let remains = queue.remains_until.is_some_and(|until| self.0.clock.now() < until);
        if remains { queue.discarded } else { 0 }
    }

    fn push(&self, attempt: Arc<Attempt>, task: Task, until: BootInstant) {
        self.0.take_in(self.0.job(attempt, task, until));
        self.ensure_running();
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.wake.notify_one();
    }
}

impl Jobs {
    /// Has a job tried, if there is room for it.
    fn take_in(&self, job: Job) {
        let must_stay = self.must_stay(&job);
        let mut queue = locked(&self.queue);
        if queue.fresh.len() + queue.trying >= MOST && !must_stay {
            drop(queue);
            return self.leave(job);
        }
        queue.fresh.push_back(job);
        drop(queue);
        self.wake.notify_one();
    }

    /// Releases a grant that was left at this instant. Nothing is under way until then.
    fn release_at(&self, attempt: Arc<Attempt>, ends_at: BootInstant) {
        let mut queue = locked(&self.queue);
        if self.shutdown.has_begun() {
            drop(queue);
            return self.release_left(attempt);
        }
        queue.left.put(attempt, ends_at);
        drop(queue);
        self.wake.notify_one();
    }

    /// Releases a grant that was left: its time is over.
    fn release_left(&self, attempt: Arc<Attempt>) {
        let until = self.gone_by(&attempt, self.clock.now().plus(attempt.ttl));
        self.take_in(self.job(attempt, Task::Release, until));
    }

    /// A job that begins now.
    fn job(&self, attempt: Arc<Attempt>, task: Task, until: BootInstant) -> Job {
        let untried = task.frees().then(|| self.untried.begin(&attempt));
        Job::new(self.backend_name, attempt, task, until, untried, self.shutdown.track())
    }

    /// Whether there must be room for this job: what it undoes does not end with a lease by itself.
    fn must_stay(&self, job: &Job) -> bool {
        matches!(job.task, Task::Shrink { .. }) || asked(|| self.backend.may_remain(&job.attempt))
    }

    /// Leaves a job that there is no room for to the server.
    fn leave(&self, job: Job) {
        let now = self.clock.now();
        let mut queue = locked(&self.queue);
        if queue.remains_until.is_none_or(|until| now >= until) {
            (queue.discarded, queue.remains_until) = (0, None);
        }
        queue.discarded += 1;
        queue.remains_until = queue.remains_until.max(Some(job.until));
        drop(queue);
        self.meters.cleanup_given_up();
        let Job { attempt, .. } = &job;
        log(|| tracing::debug!(name = %attempt.name, grant = %attempt.id, "too many clean-ups: left to the server"));
        job.give_up(&*self.backend);
    }

    /// The end of trying a cancellation. A place in a queue has no TTL of its own: it goes on for longer.
    fn cancelled_by(&self, attempt: &Attempt) -> BootInstant {
        self.gone_by(attempt, self.clock.now().plus(attempt.ttl.max(QUEUED)))
    }

    /// The instant at which nothing is left of what a lease that ends at this instant has at the server, whoever takes it back.
    fn gone_by(&self, attempt: &Attempt, lease_ends: BootInstant) -> BootInstant {
        lease_ends.plus(attempt.op_timeout).plus(asked(|| self.backend.outlasts_lease()))
    }

    /// Takes the jobs that are to be tried now, and tells when to look again.
    fn due(self: &Arc<Self>) -> (Vec<Trying>, BootInstant) {
        let now = self.clock.now();
        let over = locked(&self.queue).backlog.over(now);
        for job in over {
            self.note_over(job, now, false);
        }
        // Counted before they are taken: a client that is being closed finds them either left or under way.
        let under_way = self.shutdown.track();
        let left = locked(&self.queue).left.take_due(now);
        left.into_iter().for_each(|attempt| self.release_left(attempt));
        drop(under_way);
        let mut queue = locked(&self.queue);
        let mut due: Vec<_> = queue.fresh.drain(..).map(|job| (job, None)).collect();
        due.append(&mut queue.backlog.due(now));
        queue.trying += due.len();
        let next = queue.backlog.wake_at().min(queue.left.wake_at());
        drop(queue);
        let trying = |(job, probe)| Trying { jobs: self.clone(), job: Some(job), probe };
        (due.into_iter().map(trying).collect(), next)
    }

    /// Notes that the job's time is over: it is given up, unless something of its attempt may remain. That is asked after each try.
    fn note_over(&self, job: Job, now: BootInstant, answered: bool) {
        if asked(|| self.backend.may_remain(&job.attempt)) {
            let (tries, place) = (job.tries, asked(|| self.backend.place(&job.attempt)));
            let backlog = &mut locked(&self.queue).backlog;
            if answered {
                backlog.again(now, job, tries, BootInstant::FAR_FUTURE);
            } else {
                backlog.unanswered(now, place, job, tries, BootInstant::FAR_FUTURE);
            }
            return;
        }
        self.meters.cleanup_given_up();
        let Job { attempt, .. } = &job;
        log(|| tracing::warn!(name = %attempt.name, grant = %attempt.id, "clean-up given up: the lease is over"));
        job.give_up(&*self.backend);
    }

    /// Goes on with a job that was tried.
    fn settle(&self, mut job: Job, probe: Option<u64>, progress: &Progress) {
        job.note_tried();
        let now = self.clock.now();
        let answered = !matches!(progress, Progress::Unanswered);
        // It may have moved since.
        let place = asked(|| self.backend.place(&job.attempt));
        let mut queue = locked(&self.queue);
        queue.trying -= 1;
        if let Some(lane) = probe {
            queue.backlog.tried(now, lane, answered);
        }
        match progress {
            Progress::Done => {
                drop(queue);
                return job.ends("done");
            }
            &Progress::Left { ends_at } => {
                drop(queue);
                self.release_at(job.attempt.clone(), ends_at);
                return job.ends("done");
            }
            Progress::Returned => {
                job.task = Task::Cancel;
                job.until = self.cancelled_by(&job.attempt);
            }
            Progress::Again | Progress::Refused | Progress::Unanswered => {}
        }
        let (tries, until) = (job.tries, job.until);
        if now >= until {
            drop(queue);
            return self.note_over(job, now, answered);
        }
        // No room for one more that waits: the newcomer is left to its lease, and those before it keep their places.
        if tries == 1 && queue.backlog.len() >= MOST {
            drop(queue);
            if !self.must_stay(&job) {
                return self.leave(job);
            }
            queue = locked(&self.queue);
        }
        if answered {
            queue.backlog.again(now, job, tries, until);
        } else {
            queue.backlog.unanswered(now, place, job, tries, until);
        }
    }
}

/// A job that is being tried. It goes back to the others if its runtime ends meanwhile.
struct Trying {
    jobs: Arc<Jobs>,
    job: Option<Job>,
    /// The lane that it waited in, if it got no answer before and is tried again for that.
    probe: Option<u64>,
}

impl Trying {
    async fn once(mut self) {
        let Some(job) = &self.job else { return };
        let progress = job.attempt_once(&*self.jobs.backend, &*self.jobs.clock).await;
        if let Some(job) = self.job.take() {
            self.jobs.settle(job, self.probe, &progress);
        }
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let mut queue = locked(&self.jobs.queue);
            queue.trying -= 1;
            if let Some(lane) = self.probe {
                queue.backlog.tried(self.jobs.clock.now(), lane, false);
            }
            queue.fresh.push_back(job);
        }
    }
}

impl Carried for Jobs {
    fn background(&self) -> &Background {
        &self.background
    }

    fn runtimes(&self) -> Vec<Handle> {
        locked(&self.keepers_runtime).iter().cloned().collect()
    }

    fn is_needed(&self) -> bool {
        !self.closed.load(Ordering::SeqCst) || locked(&self.queue).len() > 0
    }

    fn run(self: Arc<Self>) -> impl Future<Output = ()> + Send + 'static {
        run(self)
    }
}

/// The task. It ends when the client is gone and every job is done.
async fn run(jobs: Arc<Jobs>) {
    let mut under_way = FuturesUnordered::new();
    while jobs.is_needed() {
        let (due, next) = jobs.due();
        under_way.extend(due.into_iter().map(Trying::once));
        tokio::select! {
            Some(()) = under_way.next() => {}
            () = jobs.wake.notified() => {}
            () = jobs.clock.sleep_until(next) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::owner::Owner;

    /// A reaper of the present runtime, if there is one, and an attempt.
    fn reaper() -> (Reaper, Arc<Attempt>) {
        let backend = Arc::new(MemoryStore::new().backend(String::new(), Duration::from_secs(2)));
        let reaper = Reaper::new(
            backend.clone(),
            "memory",
            backend.clock(),
            Meters::new("memory"),
            Arc::default(),
            BackgroundRuntime::current(),
        );
        let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(30)).unwrap();
        (reaper, Arc::new(attempt))
    }

    #[test]
    fn it_goes_on_where_the_keeper_is_when_its_runtime_ends_after_the_keepers() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (home, keepers) = (runtime(), runtime());
        let (reaper, attempt) = home.block_on(async { reaper() });
        reaper.cancel(attempt.clone());
        // The keeper has moved already, and will not look again soon.
        keepers.block_on(async { reaper.follow_keeper() });
        std::thread::spawn(move || drop(home)).join().unwrap();
        let tried = reaper.first_tries(&attempt.name, attempt.kind).expect("tried already");
        keepers.block_on(async { tokio::time::timeout(Duration::from_secs(10), tried).await }).expect("nobody tries");
    }

    /// Without a runtime nothing is tried.
    #[test]
    fn so_many_are_waiting_for_their_first_try_at_most() {
        let (reaper, attempt) = reaper();
        for _ in 0..MOST {
            reaper.cancel(attempt.clone());
        }
        assert_eq!(reaper.discarded(), 0);
        reaper.cancel(attempt);
        assert_eq!(reaper.discarded(), 1);
    }
}
