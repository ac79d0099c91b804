//! Several locks at once, whose use is written down: each of them as an acquisition of its own, with what ties them together.

use std::fmt;
use std::time::Duration;

use lock_core::multi::{self, MultiGuard, OneGuard};
use lock_core::{Error, LockName, Mutex};
use tokio::task::JoinHandle;

use super::call::{self, Pending, failed, nanos, sample};
use super::event::{Ask, Check, Done, Failed, Granted, Kind, Sample, Step, Text, What};
use super::locks::RecordedLocks;
use super::recorder::{Recorder, now};

/// Several mutexes that are wanted at once.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupWish {
    /// The mutexes, in the order in which they are passed on.
    pub names: Vec<LockName>,
    /// The TTL of each; the leases are renewed.
    pub ttl: Duration,
    /// The time to wait in all; zero is a try.
    pub wait: Duration,
}

impl GroupWish {
    /// A try for all of these mutexes.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = impl Into<LockName>>, ttl: Duration) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ttl, wait: Duration::ZERO }
    }

    /// Waits for up to this long; [`Duration::MAX`] waits without limit.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Asks for all of them; `Ok(None)` if somebody else holds one of them until the wait is over.
    ///
    /// # Errors
    /// As [`multi::try_lock_all_for`].
    ///
    /// # Cancel safety
    /// As [`multi::try_lock_all_for`]; written down as acquisitions of which nobody knows the outcome.
    pub async fn acquire(&self, locks: &RecordedLocks) -> Result<Option<RecordedGroup>, Error> {
        let group = locks.recorder().fresh_id();
        let parts: Vec<_> = self.names.iter().map(|name| (name, locks.recorder().fresh_id())).collect();
        let asks = parts.iter().map(|(name, id)| (id.clone(), self.ask(name, id, &group)));
        let pending = Pending::begin(locks.recorder(), asks);
        let mutexes = self.names.iter().map(|name| locks.locks().mutex(name.clone()).with_ttl(self.ttl));
        let granted = pending.end(self.take(mutexes.collect()).await)?;
        Ok(granted.map(|(guard, t)| RecordedGroup::new(guard, t, parts, locks.recorder().clone())))
    }

    fn ask(&self, name: &LockName, id: &Text, group: &Text) -> Ask {
        Ask {
            owner: id.clone(),
            res: name.as_str().into(),
            kind: Kind::Mutex,
            permits: 1,
            limit: 1,
            ttl: nanos(self.ttl),
            wait: (self.wait != Duration::MAX).then(|| nanos(self.wait)),
            group: Some(group.clone()),
        }
    }

    async fn take(&self, mutexes: Vec<Mutex>) -> Result<Option<MultiGuard>, Error> {
        match self.wait {
            Duration::ZERO => multi::try_lock_all(mutexes).await,
            Duration::MAX => multi::lock_all(mutexes).await.map(Some),
            wait => multi::try_lock_all_for(mutexes, wait).await,
        }
    }
}

/// Holds several mutexes, and writes down what becomes of each.
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct RecordedGroup {
    /// `None` only once it was released.
    guard: Option<MultiGuard>,
    recorder: Recorder,
    /// The ids of the guards, in their order.
    ids: Vec<Text>,
    /// Wait for the losses.
    watches: Vec<JoinHandle<()>>,
}

impl RecordedGroup {
    /// Writes down what the guard has. What was asked for and is not there was refused, whatever the answer says.
    fn new(guard: MultiGuard, t: u64, mut parts: Vec<(&LockName, Text)>, recorder: Recorder) -> Self {
        let (mut ids, mut watches) = (Vec::new(), Vec::new());
        let answer = |id: &Text, step: Step<Ask, _>| call::record(&recorder, t, What::Acquire, id, step);
        for held in guard.guards() {
            let Some(place) = parts.iter().position(|(name, _)| *name == held.name()) else { continue };
            let (_, id) = parts.swap_remove(place);
            answer(&id, Step::Ok(granted(held, t)));
            watches.push(call::watch(&recorder, &id, held));
            ids.push(id);
        }
        for (_, id) in &parts {
            answer(id, Step::Fail(Failed { err: "missing".into(), note: None }));
        }
        Self { guard: Some(guard), recorder, ids, watches }
    }

    /// Asks whether each of them is held, and writes the answers down; whether all are.
    #[must_use]
    pub fn check(&self) -> bool {
        let mut all = true;
        for (id, t, sample) in self.samples() {
            self.recorder.record_at(t, What::Check(Check { id: id.clone(), sample }));
            all &= sample.held == Some(true);
        }
        all
    }

    /// Releases all of them. If that fails, nobody knows which ones are released.
    ///
    /// # Errors
    /// As [`MultiGuard::release`].
    ///
    /// # Cancel safety
    /// As [`MultiGuard::release`].
    pub async fn release(mut self) -> Result<(), Error> {
        self.begin_release();
        let Some(guard) = self.guard.take() else { return Ok(()) };
        let outcome = guard.release().await;
        self.end_release(&match &outcome {
            Ok(()) => Step::Ok(Done {}),
            Err(error) => Step::Info(failed(error)),
        });
        outcome
    }

    fn begin_release(&self) {
        for (id, t, sample) in self.samples() {
            call::record(&self.recorder, t, What::Release, id, Step::Invoke(sample));
        }
    }

    fn end_release(&self, step: &Step<Sample, Done>) {
        let t = now();
        for id in &self.ids {
            call::record(&self.recorder, t, What::Release, id, step.clone());
        }
    }

    /// Returns each holder's own word, and when it was asked.
    fn samples(&self) -> impl Iterator<Item = (&Text, u64, Sample)> {
        let guards = self.guard.iter().flat_map(|guard| guard.guards());
        self.ids.iter().zip(guards).map(|(id, guard)| {
            let t = now();
            (id, t, sample(guard, t))
        })
    }
}

fn granted(guard: &OneGuard, t: u64) -> Granted {
    let token = guard.fencing_token().map(lock_core::FencingToken::as_u64);
    let grant = Some(guard.grant_id().to_string().into());
    Granted { token, grant, sent: None, depth: None, sample: sample(guard, t) }
}

impl Drop for RecordedGroup {
    fn drop(&mut self) {
        self.watches.iter().for_each(JoinHandle::abort);
        if self.guard.is_some() {
            self.begin_release();
            self.end_release(&Step::Info(Failed { err: "dropped".into(), note: None }));
        }
    }
}

impl fmt::Debug for RecordedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedGroup").field("ids", &self.ids).finish_non_exhaustive()
    }
}
