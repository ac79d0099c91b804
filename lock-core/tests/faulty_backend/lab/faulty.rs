//! The backend on the near side of the line.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{Clock, Deadline, VirtualClock};
use lock_core::driver::{
    Attempt, Backend, Cancelled, Doubts, Grant, Kind, Left, Notices, Operator, Released, Renewal, Renewed,
    SeveralOutcome,
};
use lock_core::memory::MemoryBackend;
use lock_core::{Error, ErrorKind, GrantId, Guarantees, Inspection, LockName, MemoryLocks, Owner, Phase, Support};

use super::line::{Fault, KEPT, Leaves, Line};

/// The backend on the near side of the link.
#[derive(Debug)]
pub(crate) struct Faulty {
    pub(super) inner: MemoryLocks,
    pub(super) clock: VirtualClock,
    pub(super) line: Line,
}

impl Faulty {
    pub(super) fn inner(&self) -> &MemoryBackend {
        self.inner.backend()
    }

    /// Whether the place of this attempt is away.
    fn is_away(&self, attempt: &Attempt) -> bool {
        self.line.state().away.is_some_and(|beginning| attempt.name.as_str().starts_with(beginning))
    }

    pub(super) async fn carry<T>(
        &self,
        what: &'static str,
        attempt: &Attempt,
        phase: Phase,
        patience: Duration,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        *self.line.state().asked.entry(what).or_default() += 1;
        let is_away = self.is_away(attempt);
        let hangs = what == "write_record" && self.line.state().hangs_at_records;
        let fault = if is_away { self.line.state().far } else { self.line.state().fault };
        let fault = if hangs { Fault::Hangs } else { fault };
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

    pub(super) async fn take(
        &self,
        what: &'static str,
        attempt: &Attempt,
        patience: Duration,
        request: impl Future<Output = Result<Option<Grant>, Error>>,
    ) -> Result<Option<Grant>, Error> {
        let grant = self.carry(what, attempt, Phase::Acquire, patience, request).await?;
        Ok(grant.map(|mut grant| {
            let state = self.line.state();
            grant.sent_at = grant.sent_at.minus(state.late);
            if state.has_no_tokens {
                grant.token = None;
            }
            grant
        }))
    }

    /// The longest time for which a wait goes on without an answer.
    pub(super) fn patience(&self, attempt: &Attempt, deadline: Deadline) -> Duration {
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
        let panics = self.line.state().panics_at_doubts;
        assert!(!panics, "a mistake in the backend, planted by the test");
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
