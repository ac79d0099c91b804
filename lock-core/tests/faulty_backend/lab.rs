//! A memory backend behind a line that can be made to fail, and a count of what was asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{Clock, Deadline, VirtualClock};
use lock_core::driver::{
    Attempt, Backend, Cancelled, DoubtSource, Doubts, Grant, Kind, Left, MutexBackend, Notices, Operator, Record,
    RecordBackend, RecordWrite, ReentrantBackend, Released, Renewal, Renewed, RwLockBackend, SemaphoreBackend,
    SeveralOutcome,
};
use lock_core::memory::{MemoryBackend, MemoryStore};
use lock_core::{
    Client, ClientOptions, Error, ErrorKind, FencingToken, GrantId, Guarantees, Inspection, LockName, MemoryLocks,
    Owner, Phase, Support,
};

/// The line's treatment of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Carries it, and the answer back.
    #[default]
    None,
    /// Loses it: a request is given up after its operation timeout, a wait after its patience.
    Silent,
    /// Carries it and loses the answer, at once.
    LosesAnswers,
    /// Says at once that it carries nothing.
    Down,
    /// Never says anything, and gives nothing up: a backend without timeouts.
    Hangs,
    /// Carries it, and keeps the answer until the fault changes.
    KeepsAnswers,
    /// Carries it after this time.
    Late(Duration),
    /// Panics: a backend with a mistake.
    Panics,
}

/// The server's part in leaving a lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It ends the lock by itself.
    #[default]
    ByItself,
    /// It keeps the lock until it is released.
    UntilReleased,
    /// It cannot.
    No,
}

/// The time for which a lock is kept that the server does not end by itself.
const KEPT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug, Default)]
struct State {
    fault: Fault,
    asked: HashMap<&'static str, usize>,
    copies_on_their_way: usize,
    late: Duration,
    outlasts_lease: Duration,
    may_remain: bool,
    /// The beginning of the names whose place is away.
    away: Option<&'static str>,
    /// The fault that its requests meet.
    far: Fault,
    has_one_place: bool,
    panics_at_questions: bool,
    has_no_tokens: bool,
    takes_several: Option<usize>,
    leaves: Leaves,
    longest_ttl: Option<Duration>,
    granularity: Option<Duration>,
    confirms_no_end: bool,
    announces_losses: bool,
    doubts: DoubtSource,
    forgotten: Vec<GrantId>,
}

/// The line's switches, in the test's hands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Arc<Mutex<State>>);

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.state().fault = fault;
    }

    /// From now on so many cancellations answer that a copy of the acquisition may still be on its way.
    pub(crate) fn keeps_copies(&self, copies: usize) {
        self.state().copies_on_their_way = copies;
    }

    /// Grants say that they were sent this long ago.
    pub(crate) fn is_late_by(&self, late: Duration) {
        self.state().late = late;
    }

    /// Lets things at the server outlast their lease by so much.
    pub(crate) fn outlasts_leases_by(&self, time: Duration) {
        self.state().outlasts_lease = time;
    }

    /// Whether what is left of an attempt may stay however much time has passed.
    pub(crate) fn lets_remain(&self, may_remain: bool) {
        self.state().may_remain = may_remain;
    }

    /// The place of the names that begin like this is away from now on; its requests are lost at once. Another one serves the
    /// others.
    pub(crate) fn is_away(&self, away: Option<&'static str>) {
        (self.state().away, self.state().far) = (away, Fault::Down);
    }

    /// The place of the names that begin like this says nothing from now on. Another one serves the others.
    pub(crate) fn is_silent(&self, away: &'static str) {
        (self.state().away, self.state().far) = (Some(away), Fault::Silent);
    }

    /// All names have the same place, also those whose requests are lost.
    pub(crate) fn has_one_place(&self) {
        self.state().has_one_place = true;
    }

    /// Panics at every question that needs no server.
    pub(crate) fn panics_at_questions(&self) {
        self.state().panics_at_questions = true;
    }

    fn panics(&self) {
        let panics = self.state().panics_at_questions;
        assert!(!panics, "a mistake in the backend, planted by the test");
    }

    /// The server may have forgotten grants.
    pub(crate) fn raises_doubts(&self) {
        self.state().doubts.raise();
    }

    /// Clients that are not in use yet hear of losses.
    pub(crate) fn announces_losses(&self) {
        self.state().announces_losses = true;
    }

    /// The server's expiry is as coarse as this, for clients that connect from now on.
    pub(crate) fn counts_in(&self, step: Duration) {
        self.state().granularity = Some(step);
    }

    /// Promises no fencing tokens.
    pub(crate) fn has_no_tokens(&self) {
        self.state().has_no_tokens = true;
    }

    /// Several locks are taken in one step from now on, of whose grants this many do not come back.
    pub(crate) fn takes_several(&self, short_of: usize) {
        self.state().takes_several = Some(short_of);
    }

    /// From now on locks are left like this.
    pub(crate) fn leaves(&self, leaves: Leaves) {
        self.state().leaves = leaves;
    }

    /// Clients that connect from now on allow no longer TTL, and renew for none.
    pub(crate) fn allows_ttls_up_to(&self, longest: Duration) {
        self.state().longest_ttl = Some(longest);
    }

    /// Whether renewals are carried out and answered by a server that does not say when they end: its clock stands still.
    pub(crate) fn confirms_no_end(&self, is_so: bool) {
        self.state().confirms_no_end = is_so;
    }

    /// The attempts that the core has given up on.
    pub(crate) fn forgotten(&self) -> Vec<GrantId> {
        self.state().forgotten.clone()
    }

    /// The number of times that this was asked.
    pub(crate) fn asked(&self, what: &str) -> usize {
        self.state().asked.get(what).copied().unwrap_or_default()
    }

    /// Waits until this was asked so often.
    pub(crate) async fn asked_times(&self, what: &str, times: usize) {
        eventually(&format!("{what} asked {times} times"), || self.asked(what) >= times).await;
    }
}

/// Lets other tasks run until the claim holds, for at most ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A store in virtual time, and a line to it.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    pub(crate) clock: VirtualClock,
    pub(crate) store: MemoryStore,
    pub(crate) line: Line,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::new();
        Self { store: MemoryStore::with_clock(clock.clone()), clock, line: Line::default() }
    }

    /// A client over the link.
    pub(crate) fn connect(&self) -> Client<Faulty> {
        let backend = Faulty { inner: self.store.connect(), clock: self.clock.clone(), line: self.line.clone() };
        Client::new(backend, ClientOptions::default()).unwrap()
    }

    /// Moves the clock in steps, so that whoever wakes can go on before the next one.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        let end = self.clock.now().plus(time);
        while self.clock.now() < end {
            self.clock.advance(step);
            self.settle().await;
        }
    }

    /// Lets whoever is awake go on.
    pub(crate) async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

/// The backend on the near side of the link.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: MemoryLocks,
    clock: VirtualClock,
    line: Line,
}

impl Faulty {
    fn inner(&self) -> &MemoryBackend {
        self.inner.backend()
    }

    /// Whether the place of this attempt is away.
    fn is_away(&self, attempt: &Attempt) -> bool {
        self.line.state().away.is_some_and(|beginning| attempt.name.as_str().starts_with(beginning))
    }

    async fn carry<T>(
        &self,
        what: &'static str,
        attempt: &Attempt,
        phase: Phase,
        patience: Duration,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        *self.line.state().asked.entry(what).or_default() += 1;
        let is_away = self.is_away(attempt);
        let fault = if is_away { self.line.state().far } else { self.line.state().fault };
        match fault {
            Fault::None => {
                let answer = request.await;
                if self.line.state().fault == Fault::Silent {
                    // Went silent while the request was waiting.
                    return self.unanswered(attempt, phase, attempt.op_timeout).await;
                }
                answer
            }
            Fault::Down => Err(attempt.error(ErrorKind::Unavailable, phase, "the link is down")),
            Fault::Silent => self.unanswered(attempt, phase, patience).await,
            Fault::Hangs => std::future::pending().await,
            Fault::KeepsAnswers => {
                let answer = request.await;
                while self.line.state().fault == Fault::KeepsAnswers {
                    self.clock.sleep_until(self.clock.now().plus(Duration::from_millis(50))).await;
                }
                answer
            }
            Fault::Late(time) => {
                self.clock.sleep_until(self.clock.now().plus(time)).await;
                request.await
            }
            Fault::Panics => panic!("a mistake in the backend, planted by the test"),
            Fault::LosesAnswers => {
                request.await?;
                Err(attempt.error(ErrorKind::Indeterminate, phase, "the answer was lost"))
            }
        }
    }

    async fn unanswered<T>(&self, attempt: &Attempt, phase: Phase, patience: Duration) -> Result<T, Error> {
        self.clock.sleep_until(self.clock.now().plus(patience)).await;
        Err(attempt.error(ErrorKind::Unavailable, phase, "no answer"))
    }

    async fn take(
        &self,
        what: &'static str,
        attempt: &Attempt,
        patience: Duration,
        request: impl Future<Output = Result<Option<Grant>, Error>>,
    ) -> Result<Option<Grant>, Error> {
        let grant = self.carry(what, attempt, Phase::Acquire, patience, request).await?;
        Ok(grant.map(|mut grant| {
            grant.sent_at = grant.sent_at.minus(self.line.state().late);
            grant
        }))
    }

    /// The longest time for which a wait goes on without an answer.
    fn patience(&self, attempt: &Attempt, deadline: Deadline) -> Duration {
        attempt.patience.min(deadline.left(self.clock.now()).saturating_add(attempt.op_timeout))
    }
}

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.line.panics();
        "faulty"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = self.inner().guarantees();
        if self.line.state().has_no_tokens {
            guarantees.fencing = Support::No;
        }
        if self.line.state().leaves == Leaves::No {
            guarantees.leave = Support::No;
        }
        guarantees
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(self.clock.clone())
    }

    fn granularity(&self) -> Duration {
        self.line.state().granularity.unwrap_or(Duration::from_millis(2))
    }

    fn doubts(&self) -> Option<Doubts> {
        self.line.panics();
        Some(self.line.state().doubts.subscribe())
    }

    fn notices(&self) -> Option<Notices> {
        self.line.panics();
        if self.line.state().announces_losses { self.inner().notices() } else { None }
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let mut answers = Vec::new();
        for renewal in batch {
            let attempt = renewal.attempt;
            let renewed = async {
                if self.longest_ttl() < renewal.ttl {
                    return Err(attempt.error(
                        ErrorKind::InvalidArgument,
                        Phase::Renew,
                        "a longer TTL than is allowed",
                    ));
                }
                let renewed = self.inner().renew(&[*renewal]).await.pop().unwrap();
                let is_unsure = self.line.state().confirms_no_end && matches!(renewed, Renewed::For(_));
                Ok(if is_unsure { Renewed::Held } else { renewed })
            };
            let answer = self.carry("renew", attempt, Phase::Renew, attempt.op_timeout, renewed).await;
            answers.push(answer.unwrap_or_else(Renewed::Unknown));
        }
        answers
    }

    fn longest_ttl(&self) -> Duration {
        self.line.state().longest_ttl.unwrap_or_else(|| self.inner().longest_ttl())
    }

    async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        let Some(short_of) = self.line.state().takes_several else { return Ok(SeveralOutcome::OneByOne) };
        let (first, taken) = (attempts[0], self.inner().try_several(attempts));
        let answer = self.carry("several", first, Phase::Acquire, first.op_timeout, taken).await?;
        let SeveralOutcome::Granted(mut grants) = answer else { return Ok(answer) };
        grants.truncate(attempts.len() - short_of);
        // The first of them came in time.
        for grant in grants.iter_mut().skip(1) {
            grant.sent_at = grant.sent_at.minus(self.line.state().late);
        }
        Ok(SeveralOutcome::Granted(grants))
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.carry("release", attempt, Phase::Release, attempt.op_timeout, self.inner().release(attempt)).await
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        let leave = async {
            if self.line.state().leaves == Leaves::ByItself {
                return self.inner().leave(attempt, left, time).await;
            }
            let kept = self.inner().leave(attempt, attempt.id, KEPT).await?;
            Ok(if kept == Left::Done { Left::UntilReleased } else { kept })
        };
        self.carry("leave", attempt, Phase::Release, attempt.op_timeout, leave).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.carry("cancel", attempt, Phase::Cancel, attempt.op_timeout, self.inner().cancel(attempt)).await?;
        let copies = &mut self.line.state().copies_on_their_way;
        *copies = copies.saturating_sub(1);
        Ok(if *copies == 0 { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    fn is_settled(&self, _attempt: &Attempt) -> bool {
        self.line.panics();
        self.line.state().copies_on_their_way == 0
    }

    fn outlasts_lease(&self) -> Duration {
        self.line.panics();
        self.line.state().outlasts_lease
    }

    fn may_remain(&self, _attempt: &Attempt) -> bool {
        self.line.panics();
        self.line.state().may_remain
    }

    fn place(&self, attempt: &Attempt) -> u64 {
        self.line.panics();
        let one = self.line.state().has_one_place;
        u64::from(!one && self.is_away(attempt))
    }

    fn forget(&self, attempt: &Attempt) {
        self.line.panics();
        self.line.state().forgotten.push(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

#[async_trait]
impl Operator for Faulty {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        let attempt = Attempt::new(name.clone(), kind, Owner::new(), Duration::from_secs(1))?;
        let operator = self.inner().operator().unwrap();
        self.carry("inspect", &attempt, Phase::Inspect, attempt.op_timeout, operator.inspect(name, kind)).await
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        let attempt = Attempt::new(name.clone(), kind, Owner::new(), Duration::from_secs(1))?;
        let freed = self.inner().operator().unwrap().force_release(name, kind, grant, by, why);
        self.carry("force_release", &attempt, Phase::Inspect, attempt.op_timeout, freed).await
    }
}

#[async_trait]
impl MutexBackend for Faulty {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_lock", attempt, attempt.op_timeout, self.inner().try_lock(attempt)).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.take("lock", attempt, self.patience(attempt, deadline), self.inner().lock(attempt, deadline)).await
    }
}

#[async_trait]
impl RecordBackend for Faulty {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.inner().read_record(name).await
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let written = self.inner().write_record(attempt, token, data, retention);
        self.carry("write_record", attempt, Phase::Hold, attempt.op_timeout, written).await
    }
}

#[async_trait]
impl ReentrantBackend for Faulty {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_enter", attempt, attempt.op_timeout, self.inner().try_enter(attempt)).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.take("enter", attempt, self.patience(attempt, deadline), self.inner().enter(attempt, deadline)).await
    }
}

#[async_trait]
impl SemaphoreBackend for Faulty {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_acquire", attempt, attempt.op_timeout, self.inner().try_acquire(attempt)).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        self.carry("shrink", attempt, Phase::Release, attempt.op_timeout, self.inner().shrink(attempt, keep)).await
    }
}

#[async_trait]
impl RwLockBackend for Faulty {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_read", attempt, attempt.op_timeout, self.inner().try_read(attempt)).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_write", attempt, attempt.op_timeout, self.inner().try_write(attempt)).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.carry("downgrade", attempt, Phase::Downgrade, attempt.op_timeout, self.inner().downgrade(attempt)).await
    }
}
