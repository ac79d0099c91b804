//! The memory backend's side of the traits.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::server::Server;
use crate::clock::{Clock, Deadline};
use crate::driver::Inspection;
use crate::driver::bound::before;
use crate::driver::wait;
use crate::driver::{
    AdoptBackend, Attempt, Backend, Cancelled, Grant, Kind, Left, MutexBackend, Notices, Operator, Record,
    RecordBackend, RecordWrite, ReentrantBackend, Released, Renewal, Renewed, RwLockBackend, SemaphoreBackend,
    SeveralOutcome,
};
use crate::driver::{Guarantees, Support};
use crate::error::{Error, ErrorKind, Phase};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::owner::{GrantId, Owner};
use crate::token::FencingToken;

/// The mark of an attempt that has reached the store: any other one left nothing there.
const REACHED: u64 = 1;

/// One client's connection to a [`MemoryStore`](super::MemoryStore).
#[derive(Debug)]
pub struct MemoryBackend {
    server: Arc<Server>,
    client: u64,
    namespace: Arc<str>,
    /// The bound of an operator's request; an attempt brings its own.
    op_timeout: Duration,
}

impl MemoryBackend {
    pub(super) fn new(server: Arc<Server>, client: u64, namespace: String, op_timeout: Duration) -> Self {
        Self { server, client, namespace: namespace.into(), op_timeout }
    }

    /// A request's way to the store, which may take one operation timeout.
    async fn reach(&self, attempt: &Attempt, phase: Phase) -> Result<(), Error> {
        wait::within(&**self.server.clock(), attempt, phase, self.server.reach(phase)).await
    }

    /// An operator's way to the store.
    async fn reach_as_operator(&self) -> Result<(), Error> {
        let reached = self.server.reach(Phase::Inspect);
        let reached = before(&**self.server.clock(), |now| now.plus(self.op_timeout), reached).await;
        let what = "no answer within the operation timeout";
        reached.unwrap_or_else(|| Err(Error::indeterminate(Phase::Inspect, what)))
    }

    async fn ask(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.reach(attempt, Phase::Acquire).await?;
        attempt.mark_sent(REACHED);
        self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, now, fence| {
            lock.ask(attempt, self.client, now, fence)
        })
    }

    async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.reach(attempt, Phase::Acquire).await?;
        attempt.mark_sent(REACHED);
        let mut told = match self.join(attempt)? {
            Ok(grant) => return Ok(Some(grant)),
            Err(told) => told,
        };
        loop {
            let (sooner, until) = self.watch(attempt);
            tokio::select! {
                biased;
                grant = &mut told => {
                    // The sender is dropped without a word only when this attempt was cancelled.
                    return grant.map(Some).map_err(|_| attempt.error(ErrorKind::Unavailable, Phase::Wait, "the place in the queue is gone"));
                }
                () = self.server.clock().sleep_until(deadline.instant()) => return Ok(None),
                () = sooner => {}
                () = self.server.clock().sleep_until(until) => {}
            }
        }
    }

    /// The lock at once, or a place in the queue.
    fn join(&self, attempt: &Attempt) -> Result<Result<Grant, oneshot::Receiver<Grant>>, Error> {
        self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, now, fence| {
            Ok(match lock.ask(attempt, self.client, now, fence)? {
                Some(grant) => Ok(grant),
                None => Err(lock.enqueue(attempt, self.client, now)),
            })
        })
    }

    /// Settles what has expired, and says until when nothing will.
    fn watch(&self, attempt: &Attempt) -> (OwnedNotified, crate::clock::BootInstant) {
        self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, _, _| lock.watch())
    }

    /// A change of a grant that is there.
    async fn change(
        &self,
        attempt: &Attempt,
        phase: Phase,
        change: impl FnOnce(&mut super::rules::Lock) -> bool + Send,
    ) -> Result<(), Error> {
        self.reach(attempt, phase).await?;
        if self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, _, _| change(lock)) {
            return Ok(());
        }
        Err(attempt.error(ErrorKind::NotHeld, phase, "the store has no such grant (any more)"))
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        self.server.forget(self.client);
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn guarantees(&self) -> Guarantees {
        let mut guarantees = Guarantees::none();
        guarantees.fencing = Support::Yes;
        guarantees.fifo = Support::Yes;
        guarantees.push = Support::Yes;
        guarantees.limit_check = Support::Yes;
        guarantees.inspect = Support::Yes;
        guarantees.force_release = Support::Yes;
        guarantees.shared_owner = Support::Yes;
        guarantees.renewal_across_runtimes = Support::Yes;
        guarantees.record = Support::Yes;
        guarantees.adoption = Support::Yes;
        guarantees.leave = Support::Yes;
        guarantees
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.server.clock().clone()
    }

    fn granularity(&self) -> Duration {
        Duration::ZERO
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.server.notices(self.client))
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let Some(first) = batch.first() else { return Vec::new() };
        if let Err(error) = self.reach(first.attempt, Phase::Renew).await {
            let unknown = |r: &Renewal<'_>| r.attempt.error(error.kind(), Phase::Renew, "the store gave no answer");
            return batch.iter().map(|renewal| Renewed::Unknown(unknown(renewal))).collect();
        }
        let renew = |Renewal { attempt, ttl }: &Renewal<'_>| {
            let there = self
                .server
                .with(&self.namespace, &attempt.name, attempt.kind, |lock, now, _| lock.renew(attempt.id, *ttl, now));
            if there { Renewed::For(*ttl) } else { Renewed::Lost(LossReason::Taken) }
        };
        batch.iter().map(renew).collect()
    }

    async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        let Some(first) = attempts.first() else { return Ok(SeveralOutcome::OneByOne) };
        self.reach(first, Phase::Acquire).await?;
        attempts.iter().for_each(|attempt| attempt.mark_sent(REACHED));
        self.server.ask_several(&self.namespace, attempts, self.client)
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.reach(attempt, Phase::Release).await?;
        let held = self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, _, _| lock.remove(attempt.id));
        Ok(if held.is_some() { Released::Done } else { Released::NotHeld(None) })
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.reach(attempt, Phase::Release).await?;
        let (name, kind) = (&attempt.name, attempt.kind);
        let leave = |lock: &mut super::rules::Lock, now| lock.leave(attempt.id, left, time, now);
        let is_left = self.server.with(&self.namespace, name, kind, |lock, now, _| leave(lock, now));
        Ok(if is_left { Left::Done } else { Left::NotHeld(None) })
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        if attempt.first_sent().is_none() {
            return Ok(Cancelled::Settled);
        }
        self.reach(attempt, Phase::Cancel).await?;
        self.server.with(&self.namespace, &attempt.name, attempt.kind, |lock, _, _| lock.remove(attempt.id));
        Ok(Cancelled::Settled)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}

#[async_trait]
impl Operator for MemoryBackend {
    async fn inspect(&self, name: &LockName, kind: Kind) -> Result<Inspection, Error> {
        self.reach_as_operator().await?;
        Ok(self.server.with(&self.namespace, name, kind, |lock, now, _| lock.inspect(now)))
    }

    async fn force_release(
        &self,
        name: &LockName,
        kind: Kind,
        grant: GrantId,
        by: &Owner,
        why: &str,
    ) -> Result<bool, Error> {
        self.reach_as_operator().await?;
        let reason = LossReason::ForceReleased { by: by.to_string(), reason: why.to_owned() };
        Ok(self.server.take_away(&self.namespace, name, kind, grant, reason))
    }
}

#[async_trait]
impl MutexBackend for MemoryBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.ask(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }
}

#[async_trait]
impl AdoptBackend for MemoryBackend {
    async fn adopt(
        &self,
        attempt: &Attempt,
        from: GrantId,
        _token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error> {
        self.reach(attempt, Phase::Acquire).await?;
        attempt.mark_sent(REACHED);
        let (name, kind) = (&attempt.name, attempt.kind);
        Ok(self.server.with(&self.namespace, name, kind, |lock, now, _| lock.adopt(from, attempt, self.client, now)))
    }
}

#[async_trait]
impl ReentrantBackend for MemoryBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.ask(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }
}

#[async_trait]
impl RwLockBackend for MemoryBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.ask(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.ask(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.change(attempt, Phase::Downgrade, |lock| lock.downgrade(attempt.id)).await
    }
}

#[async_trait]
impl SemaphoreBackend for MemoryBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.ask(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        self.change(attempt, Phase::Release, |lock| lock.shrink(attempt.id, keep)).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.reach_as_operator().await?;
        let kind = Kind::Permits { permits: 1, limit };
        Ok(self.server.with(&self.namespace, name, kind, |lock, _, _| lock.used()))
    }
}

#[async_trait]
impl RecordBackend for MemoryBackend {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.reach_as_operator().await?;
        Ok(self.server.record(&self.namespace, name))
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        self.reach(attempt, Phase::Hold).await?;
        Ok(self.server.write_record(&self.namespace, attempt, token, data, retention))
    }
}
