//! Workers with two jobs, each of which runs once per slot: one at most once, the other at least once.
//!
//! All workers have the same timers and ask for every slot, one after the other, until they are told what became of it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::fence::FenceGate;
use lock_core::{Error, FencingToken, Locks, RecordedMutex};
use lock_recipes::{Attempts, Failures, Once, OnceError, Outcome};
use lock_testkit::{HarnessError, SeededRng};
use lock_testkit_checker::history::event::{Call, Failed, Step, Text};
use lock_testkit_checker::history::recipe::{SlotAnswer, SlotAsk, Work};
use lock_testkit_checker::history::{Recorder, What, now};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::exchange::{self, Client};
use crate::plan::Plan;
use crate::readyz::Seen;
use crate::stalls;

/// The jobs, and what becomes of a slot that somebody has begun who is gone.
const JOBS: [(&str, Attempts); 2] = [("at most once", Attempts::AtMostOnce), ("at least once", Attempts::AtLeastOnce)];
/// The names of the records.
pub(crate) const RECORDS: [&str; 2] = [JOBS[0].0, JOBS[1].0];
/// Between two slots.
const PERIOD: Duration = Duration::from_millis(40);
/// The longest time that most jobs take when nothing is wrong.
const LENGTH: Duration = Duration::from_millis(10);

/// A job at work.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    id: Text,
    name: Text,
    slot: u64,
    token: u64,
    /// The worker.
    by: String,
    /// Whether it takes its time.
    is_long: bool,
}

/// Serves the resource on which the jobs work, which refuses old tokens; returns where, and who has just begun a job
/// that takes its time.
pub(crate) async fn serve(log: Recorder) -> io::Result<(SocketAddr, watch::Receiver<Seen>)> {
    let (at_work, seen) = watch::channel(None);
    let gates = Mutex::new(JOBS.map(|(name, _)| (name, FenceGate::new())));
    let address = exchange::serve(move |job: Job| {
        let gates = gates.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.iter().find(|(name, _)| **name == *job.name).map(|(_, gate)| gate);
        let token = FencingToken::new(job.token);
        let accepted = gate.zip(token).is_some_and(|(gate, token)| gate.admit_exclusive(token).is_ok());
        let Job { id, name, slot, token, by, is_long } = job;
        if is_long {
            at_work.send_replace(Some((by, token)));
        }
        log.record(What::Work(Work { id, job: name, slot, token, accepted }));
        accepted
    })
    .await?;
    Ok((address, seen))
}

/// Works until the plan's end, and closes the client.
pub(crate) async fn work(plan: &Plan, locks: Locks) -> Result<(), HarnessError> {
    let recorder = Recorder::append(&plan.history, plan.name.as_str())?;
    stalls::watch(recorder.clone());
    let mut tasks = Vec::new();
    for ((name, attempts), number) in JOBS.into_iter().zip(0..) {
        let mut rng = SeededRng::new(plan.seed.wrapping_add(number));
        let wait = rng.one_of(&[Duration::ZERO, plan.ttl * 2]);
        let once = once(locks.recorded(name)?.with_ttl(plan.ttl), attempts).with_wait(wait);
        let again = attempts == Attempts::AtLeastOnce;
        let timer = Timer { plan: plan.clone(), name: name.into(), once, again, recorder: recorder.clone(), rng };
        tasks.push(tokio::spawn(timer.run()));
    }
    for task in tasks {
        task.await?;
    }
    let _ = locks.close().await;
    if recorder.is_complete() { Ok(()) } else { Err(HarnessError::new("not everything could be written down")) }
}

/// A job with this policy. One that has not heard of its resource has failed: at least once, it is run again.
fn once(lock: RecordedMutex, attempts: Attempts) -> Once {
    let failures = if attempts == Attempts::AtLeastOnce { Failures::RunAgain } else { Failures::Count };
    Once::new(lock).with_attempts(attempts).with_failures(failures)
}

/// The timer of one job in one process.
struct Timer {
    plan: Plan,
    name: Text,
    once: Once,
    again: bool,
    recorder: Recorder,
    rng: SeededRng,
}

impl Timer {
    async fn run(mut self) {
        let mut slot = 0;
        while !self.plan.is_over() {
            let due = self.plan.from + nanos(PERIOD).saturating_mul(slot) + nanos(self.rng.up_to(PERIOD));
            sleep(Duration::from_nanos(due.saturating_sub(now()))).await;
            let Some(latest) = self.settle(slot).await else { return };
            // A process that has just started does not ask for the whole past.
            slot = if slot == 0 && latest > 0 { latest } else { slot + 1 };
        }
    }

    /// Asks until it is told what became of the slot, and returns the latest one that was begun; `None` at the run's end.
    async fn settle(&mut self, slot: u64) -> Option<u64> {
        while !self.plan.is_over() {
            if let Some(latest) = self.ask(slot).await {
                return Some(latest);
            }
            sleep(self.rng.up_to(LENGTH * 2)).await;
        }
        None
    }

    async fn ask(&mut self, slot: u64) -> Option<u64> {
        let id = self.recorder.fresh_id();
        self.note(&id, Step::Invoke(SlotAsk { job: self.name.clone(), slot, again: self.again }));
        let (job, at) = (self.job(&id, slot), self.plan.resources);
        let outcome = self.once.try_run(slot, |token| job.work(at, token)).await;
        let (step, latest) = answer(slot, &outcome);
        self.note(&id, step);
        latest
    }

    fn job(&mut self, id: &Text, slot: u64) -> Task {
        // Now and then a fault is to find somebody in the middle.
        let is_long = self.rng.once_in(50);
        let length =
            if is_long { self.plan.ttl / 2 + self.rng.up_to(self.plan.ttl / 2) } else { self.rng.up_to(LENGTH) };
        let (name, by) = (self.name.clone(), self.plan.name.clone());
        Task { id: id.clone(), name, slot, by, is_long, length }
    }

    fn note(&self, id: &Text, step: Step<SlotAsk, SlotAnswer>) {
        self.recorder.record(What::Slot(Call { id: id.clone(), step }));
    }
}

/// The work on one slot.
struct Task {
    id: Text,
    name: Text,
    slot: u64,
    by: String,
    is_long: bool,
    length: Duration,
}

impl Task {
    /// Works on the resource, over a connection of its own: a job may be dropped in the middle. Whether the resource has admitted it
    /// is in its log.
    ///
    /// # Errors
    /// If the resource was not reached, or has not answered: then nobody knows whether it worked.
    async fn work(self, resource: SocketAddr, token: FencingToken) -> io::Result<()> {
        let Self { id, name, slot, by, is_long, length } = self;
        let job = Job { id, name, slot, token: token.as_u64(), by, is_long };
        Client::<Job, bool>::connect(resource).await?.ask(&job).await?;
        sleep(length).await;
        Ok(())
    }
}

/// The answer for the history, and the latest slot that was begun if it is settled what became of this one.
fn answer(
    slot: u64,
    outcome: &Result<Outcome<io::Result<()>>, OnceError<io::Result<()>>>,
) -> (Step<SlotAsk, SlotAnswer>, Option<u64>) {
    match outcome {
        Ok(Outcome::Ran(Ok(()))) => (Step::Ok(SlotAnswer { ran: true, latest: slot }), Some(slot)),
        Ok(Outcome::Ran(Err(error))) => {
            (Step::Info(Failed { err: "no answer".into(), note: Some(error.to_string().into()) }), None)
        }
        Ok(Outcome::Skipped { slot: latest, .. }) => {
            let latest = latest.as_u64();
            (Step::Ok(SlotAnswer { ran: false, latest }), Some(latest))
        }
        Err(OnceError::NotRun(error)) => (Step::Fail(failed(error)), None),
        Err(error) => (Step::Info(failed(error.error())), None),
        // Somebody is at it, or at another slot.
        Ok(_) => (Step::Fail(Failed { err: "held".into(), note: None }), None),
    }
}

fn failed(error: &Error) -> Failed {
    Failed { err: format!("{:?}", error.kind()).into(), note: Some(error.to_string().into()) }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use lock_core::MemoryLocks;

    use super::*;

    fn task(slot: u64) -> Task {
        let length = Duration::ZERO;
        Task { id: "1".into(), name: "a job".into(), slot, by: "a worker".to_owned(), is_long: false, length }
    }

    /// Asks for a slot of a job whose resource is nowhere, and then for the same one when it is there.
    async fn without_and_with_its_resource(attempts: Attempts) -> [(Step<SlotAsk, SlotAnswer>, Option<u64>); 2] {
        let nowhere = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let resource = exchange::serve(|_: Job| true).await.unwrap();
        let once = once(MemoryLocks::new().recorded("a job").unwrap(), attempts);
        let first = once.try_run(7, |token| task(7).work(nowhere, token)).await;
        let second = once.try_run(7, |token| task(7).work(resource, token)).await;
        [answer(7, &first), answer(7, &second)]
    }

    #[tokio::test]
    async fn a_job_that_has_not_reached_its_resource_has_not_run() {
        let [(first, settled), (second, then)] = without_and_with_its_resource(Attempts::AtLeastOnce).await;
        assert!(matches!(first, Step::Info(_)) && settled.is_none(), "{first:?}");
        assert_eq!((second, then), (Step::Ok(SlotAnswer { ran: true, latest: 7 }), Some(7)), "it is run again");
        let [(first, settled), (second, then)] = without_and_with_its_resource(Attempts::AtMostOnce).await;
        assert!(matches!(first, Step::Info(_)) && settled.is_none(), "{first:?}");
        assert_eq!((second, then), (Step::Ok(SlotAnswer { ran: false, latest: 7 }), Some(7)), "it may have worked");
    }
}
