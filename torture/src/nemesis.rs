//! Faults, one after the other: which, at whom and for how long follows from the seed.

use std::time::Duration;

use lock_testkit::{HarnessError, SeededRng};
use lock_testkit_checker::history::event::{Death, Fault as FaultEvent, FaultPhase, Text};
use lock_testkit_checker::history::{Recorder, What, now};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::faults::{FREEZE_WORKER, Fault, FrozenWorker, KILL_WORKER};
use crate::progress::Progress;
use crate::readyz::Seen;
use crate::system::{Body, SystemUnderTest, Worker};

/// The time without a fault when everything has settled after one: waiters are judged then.
const CALM: Duration = Duration::from_secs(3);
/// The time within which somebody leads again after a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// The workers that are to be hit.
#[derive(Debug, Clone)]
pub(crate) enum Prey {
    /// The leader, as soon as it leads, for long enough to lose its lock.
    Leader(watch::Receiver<Seen>),
    /// The worker that has just begun a job that takes its time.
    AtWork(watch::Receiver<Seen>),
}

/// Brings faults over a run.
pub(crate) struct Nemesis {
    pub(crate) names: Vec<&'static str>,
    pub(crate) rng: SeededRng,
    pub(crate) ttl: Duration,
    pub(crate) recorder: Recorder,
    /// The time until which a fault may begin, on the history's clock.
    pub(crate) until: u64,
    /// The prey, where it is not left to chance.
    pub(crate) prey: Option<Prey>,
}

impl Nemesis {
    /// Chooses those of this system's faults that are wanted.
    pub(crate) fn choose(system: &dyn SystemUnderTest, wanted: &str) -> Result<Vec<&'static str>, HarnessError> {
        let mut names: Vec<_> = system.faults(0).iter().map(|fault| fault.name()).collect();
        if system.has_processes() {
            names.extend([FREEZE_WORKER, FREEZE_WORKER, KILL_WORKER]);
        }
        match wanted {
            "all" => return Ok(names),
            "none" => return Ok(Vec::new()),
            _ => {}
        }
        if let Some(unknown) = wanted.split(',').find(|name| !names.contains(name)) {
            names.dedup();
            return Err(HarnessError::new(format!(
                "there is no fault {unknown}; there are: all, none, {}",
                names.join(", ")
            )));
        }
        names.retain(|name| wanted.split(',').any(|wanted| wanted == *name));
        Ok(names)
    }

    /// Rages until its end. `replace` starts a worker for one that was killed.
    pub(crate) async fn run(
        mut self,
        system: &dyn SystemUnderTest,
        workers: &mut Vec<Worker>,
        progress: &Progress,
        mut replace: impl FnMut() -> Result<Worker, HarnessError>,
    ) -> Result<(), HarnessError> {
        while !self.names.is_empty() {
            let Next { pause, name, victim, length, seed } = self.draw(workers.len());
            let (victim, length) = match &mut self.prey {
                None => {
                    sleep(system.recovery() + self.ttl + CALM + pause).await;
                    (victim, length)
                }
                Some(Prey::Leader(seen)) => {
                    sleep(self.ttl / 2 + pause).await;
                    let lost_after = system.kept_for(self.ttl) * 5 / 4;
                    (hunt(seen, workers).await.unwrap_or(victim), length.max(lost_after))
                }
                Some(Prey::AtWork(seen)) => {
                    sleep(self.ttl * 2 + pause).await;
                    seen.mark_unchanged();
                    let left = Duration::from_nanos(self.until.saturating_sub(now()));
                    // Without anybody at work it is left to chance again.
                    let _ = timeout(left.min(PATIENCE), seen.changed()).await;
                    (place(&seen.borrow(), workers).unwrap_or(victim), length)
                }
            };
            if now() + nanos(length) >= self.until {
                return Ok(());
            }
            if name == KILL_WORKER {
                let dead = workers.swap_remove(victim);
                progress.say(&format!("kill-worker {}", dead.plan.name));
                self.kill(dead).await?;
                workers.push(replace()?);
                continue;
            }
            // Those of its own links first: they have the names of those of all.
            let mut faults = match &workers[victim] {
                Worker { links: Some(links), plan, .. } => links.faults_of(&plan.name, seed),
                _ => Vec::new(),
            };
            faults.extend(system.faults(seed));
            if let Some((name, pid)) = process(&workers[victim]) {
                faults.push(Box::new(FrozenWorker { name, pid }));
            }
            if let Some(fault) = faults.iter_mut().find(|fault| fault.name() == name) {
                progress.say(&format!("{name} {} for {length:.1?}", fault.target()));
                self.apply(&mut **fault, length).await?;
            }
        }
        Ok(())
    }

    /// The next fault: nothing but the seed, the TTL and what there is to choose from decides.
    fn draw(&mut self, workers: usize) -> Next {
        let (rng, ttl) = (&mut self.rng, self.ttl);
        Next {
            pause: rng.up_to(ttl),
            length: rng.one_of(&[ttl / 4, ttl * 9 / 10, ttl * 11 / 10, ttl * 3]),
            name: rng.one_of(&self.names),
            victim: usize::try_from(rng.below(workers as u64)).unwrap_or(0),
            seed: rng.next_u64(),
        }
    }

    async fn apply(&self, fault: &mut dyn Fault, length: Duration) -> Result<(), HarnessError> {
        let id: Text = format!("fault-{}", now()).into();
        let (name, target, on_links) = (Text::from(fault.name()), Text::from(fault.target()), fault.is_on_links());
        let event = |phase, proof| {
            What::Fault(FaultEvent {
                id: id.clone(),
                phase,
                name: name.clone(),
                target: target.clone(),
                on_links,
                proof,
            })
        };
        self.recorder.record(event(FaultPhase::Start, None));
        let proof = fault.begin().await;
        if let Some(theft) = fault.theft() {
            self.recorder.record(What::Theft(theft));
        }
        if proof.is_ok() {
            sleep(length).await;
        }
        let healed = fault.heal().await;
        self.recorder.record(event(FaultPhase::Heal, proof?.map(Text::from)));
        healed
    }

    async fn kill(&self, worker: Worker) -> Result<(), HarnessError> {
        if let (Body::Process(mut child), Some(pid)) = (worker.body, worker.pid) {
            kill_process(pid, Signal::KILL)?;
            child.wait().await?;
            self.recorder.record(What::Death(Death { victim: worker.plan.name.into() }));
        }
        Ok(())
    }
}

/// A fault, as it was drawn.
#[derive(Debug, PartialEq, Eq)]
struct Next {
    pause: Duration,
    name: &'static str,
    /// The worker, if it hits one.
    victim: usize,
    length: Duration,
    /// For chance within the fault: the jitter of a delay.
    seed: u64,
}

/// Waits for somebody who leads and is still there.
async fn hunt(leader: &mut watch::Receiver<Seen>, workers: &[Worker]) -> Option<usize> {
    let found = timeout(PATIENCE, leader.wait_for(|seen| place(seen, workers).is_some())).await;
    found.ok()?.ok().and_then(|seen| place(&seen, workers))
}

fn place(seen: &Seen, workers: &[Worker]) -> Option<usize> {
    let (name, _) = seen.as_ref()?;
    workers.iter().position(|worker| worker.plan.name == *name)
}

fn process(worker: &Worker) -> Option<(String, Pid)> {
    Some((worker.plan.name.clone(), worker.pid?))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_its_faults() {
        let draw = |seed| {
            let history = std::env::temp_dir().join(format!("torture-{}-{seed}.jsonl", std::process::id()));
            let recorder = Recorder::append(&history, "test").unwrap();
            std::fs::remove_file(history).unwrap();
            let names = vec!["one", "other", KILL_WORKER];
            let mut nemesis = Nemesis {
                names,
                rng: SeededRng::new(seed),
                ttl: Duration::from_secs(2),
                recorder,
                until: u64::MAX,
                prey: None,
            };
            (0..50).map(|_| nemesis.draw(4)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        for wanted in ["one", "other", KILL_WORKER] {
            assert!(draw(3).iter().any(|next| next.name == wanted), "{wanted} is never drawn");
        }
    }
}
