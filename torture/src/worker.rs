//! A worker: tasks that take, use and release every kind of lock, in every way.

use std::time::Duration;

use lock_core::{Locks, Owner};
use lock_testkit::{HarnessError, SeededRng};
use lock_testkit_checker::history::event::Kind;
use lock_testkit_checker::history::{GroupWish, RecordedGroup, RecordedGuard, RecordedLocks, Recorder, Wish};
use tokio::time::{sleep, timeout};

use crate::exchange::Client;
use crate::plan::Plan;
use crate::resource::{CounterName, Usage, Value};
use crate::stalls;

/// The number of tasks that share the client.
const TASKS: u64 = 4;
/// The mutex before the counters.
pub(crate) const COUNTERS: &str = "counters";
/// The names of all other locks.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
const PERMITS: u32 = 3;

/// Works until the plan's end, and closes the client.
pub(crate) async fn work(plan: &Plan, locks: Locks) -> Result<(), HarnessError> {
    let recorder = Recorder::append(&plan.history, plan.name.as_str())?;
    stalls::watch(recorder.clone());
    let recorded = RecordedLocks::new(locks.clone(), recorder.clone());
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let rng = SeededRng::new(plan.seed.wrapping_add(task));
        let hand = Hand { plan: plan.clone(), locks: recorded.clone(), rng };
        tasks.push(tokio::spawn(hand.toil(task)));
    }
    for task in tasks {
        task.await??;
    }
    // What was not confirmed in time ends with its lease; that nothing is left is looked at afterwards.
    let _ = locks.close().await;
    if recorder.is_complete() { Ok(()) } else { Err(HarnessError::new("not everything could be written down")) }
}

/// One task.
struct Hand {
    plan: Plan,
    locks: RecordedLocks,
    rng: SeededRng,
}

impl Hand {
    /// The first task of each worker counts; the others use locks for their own sake.
    async fn toil(mut self, task: u64) -> Result<(), HarnessError> {
        let mut counters = Client::connect(self.plan.resources).await?;
        while !self.plan.is_over() {
            if task == 0 {
                self.count(&mut counters).await?;
            } else if self.rng.once_in(5) {
                self.take_several().await;
            } else {
                self.take_any().await;
            }
            sleep(self.rng.up_to(Duration::from_millis(20))).await;
        }
        Ok(())
    }

    /// Reads all counters, thinks, and writes one more into each: whatever becomes of the lock meanwhile.
    async fn count(&mut self, counters: &mut Client<Usage, Value>) -> Result<(), HarnessError> {
        let wish = Wish::new(COUNTERS, Kind::Mutex, self.plan.ttl).with_wait(self.plan.ttl * 5);
        let Ok(Some(guard)) = self.locks.acquire(&wish).await else { return Ok(()) };
        let usage = |target, write| Usage { id: guard.id().to_string(), target, token: guard.token(), write };
        let mut values = Vec::new();
        for target in CounterName::ALL {
            values.push((target, counters.ask(&usage(target, None)).await?));
        }
        let most = if self.rng.once_in(30) { self.plan.ttl * 2 } else { Duration::from_millis(30) };
        sleep(self.rng.up_to(most)).await;
        for (target, value) in values {
            if let Some(value) = value {
                counters.ask(&usage(target, Some(value + 1))).await?;
            }
        }
        self.release(guard).await;
        Ok(())
    }

    async fn take_any(&mut self) {
        let kind = self.rng.one_of(&[Kind::Mutex, Kind::Mutex, Kind::Reentrant, Kind::Read, Kind::Write, Kind::Sem]);
        let (name, wait) = (self.rng.one_of(&NAMES), self.wait());
        let owner = Owner::new();
        let mut wish = Wish::new(name, kind, self.plan.ttl).with_wait(wait).with_owner(&owner);
        if kind == Kind::Sem {
            let permits = 1 + u32::try_from(self.rng.below(u64::from(PERMITS))).unwrap_or_default();
            wish = wish.with_permits(permits, PERMITS);
        }
        let Ok(Ok(Some(guard))) = timeout(self.patience(), self.locks.acquire(&wish)).await else { return };
        self.hold(guard, &wish).await;
    }

    /// Takes two or three mutexes at once: the same ones that are taken alone, named in any order.
    async fn take_several(&mut self) {
        let mut names = NAMES.to_vec();
        names.rotate_left(usize::try_from(self.rng.below(3)).unwrap_or_default());
        if self.rng.once_in(2) {
            names.reverse();
        }
        names.truncate(self.rng.one_of(&[2, 2, 3]));
        let wish = GroupWish::new(names, self.plan.ttl).with_wait(self.wait());
        let Ok(Ok(Some(group))) = timeout(self.patience(), wish.acquire(&self.locks)).await else { return };
        self.stay(|| group.check()).await;
        self.release_all(group).await;
    }

    fn wait(&mut self) -> Duration {
        let ttl = self.plan.ttl;
        self.rng.one_of(&[Duration::ZERO, ttl / 10, ttl, ttl * 5, Duration::MAX])
    }

    /// Now and then nobody waits for the answer any more.
    fn patience(&mut self) -> Duration {
        if self.rng.once_in(20) { self.rng.up_to(Duration::from_millis(20)) } else { Duration::MAX }
    }

    /// Holds for a while and asks now and then, whatever the kind; and does what only this kind can.
    async fn hold(&mut self, mut guard: RecordedGuard, wish: &Wish) {
        self.stay(|| guard.check()).await;
        match guard.kind() {
            Kind::Write if self.rng.once_in(3) => match guard.downgrade().await {
                Ok(reader) => guard = reader,
                Err(_) => return,
            },
            Kind::Sem if wish.permits > 1 && self.rng.once_in(3) => drop(guard.release_some(1).await),
            Kind::Reentrant if self.rng.once_in(3) => {
                if let Ok(Some(inner)) = self.locks.acquire(wish).await {
                    self.stay(|| inner.check()).await;
                    self.release(inner).await;
                }
            }
            _ => {}
        }
        self.stay(|| guard.check()).await;
        self.release(guard).await;
    }

    async fn stay(&mut self, is_held: impl Fn() -> bool) {
        let most = if self.rng.once_in(40) { self.plan.ttl * 2 } else { Duration::from_millis(20) };
        for _ in 0..2 {
            sleep(self.rng.up_to(most / 2)).await;
            if !is_held() {
                // To be told of it, which is to happen soon.
                sleep(Duration::from_millis(200)).await;
                return;
            }
        }
    }

    async fn release(&mut self, guard: RecordedGuard) {
        if self.rng.once_in(6) {
            drop(guard);
        } else {
            // What became of it is in the history.
            drop(guard.release().await);
        }
    }

    async fn release_all(&mut self, group: RecordedGroup) {
        if self.rng.once_in(6) {
            drop(group);
        } else {
            drop(group.release().await);
        }
    }
}
