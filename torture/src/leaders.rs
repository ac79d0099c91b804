//! Workers of which one leads. Each is asked for its state, runs a body while it leads, and answers `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::Locks;
use lock_recipes::{Election, Term};
use lock_testkit::{HarnessError, SeededRng};
use lock_testkit_checker::history::recipe::Lead;
use lock_testkit_checker::history::{Recorder, What, now};
use tokio::time::{sleep, timeout};

use crate::plan::Plan;
use crate::readyz::ELECTION;
use crate::{readyz, stalls};

/// Between two questions to the state, and between two steps of the body.
const STEP: Duration = Duration::from_millis(5);

/// Campaigns, and leads, until the plan's end, and closes the client.
pub(crate) async fn work(plan: &Plan, locks: Locks) -> Result<(), HarnessError> {
    let recorder = Recorder::append(&plan.history, plan.name.as_str())?;
    stalls::watch(recorder.clone());
    let election = Election::new(locks.recorded(ELECTION)?.with_ttl(plan.ttl))
        .with_address(plan.name.as_str())
        .with_cool_down(plan.ttl / 10);
    readyz::serve(plan, election.clone()).await?;
    let ended = Arc::new(AtomicBool::new(false));
    let asking = ask_state(election.clone(), recorder.clone(), ended.clone());
    let mut rng = SeededRng::new(plan.seed);
    while !plan.is_over() {
        // One term in four ends by itself.
        let length = if rng.once_in(4) { plan.ttl + rng.up_to(plan.ttl * 4) } else { Duration::MAX };
        let left = Duration::from_nanos(plan.until.saturating_sub(now()));
        let led = election.run(|term| lead(term, length, recorder.clone()));
        // At the run's end the body is dropped, and the lock released.
        let _ = timeout(left, led).await;
    }
    ended.store(true, Ordering::Relaxed);
    let _ = tokio::task::spawn_blocking(move || asking.join()).await;
    let _ = locks.close().await;
    if recorder.is_complete() { Ok(()) } else { Err(HarnessError::new("not everything could be written down")) }
}

/// The body: whenever it is polled, it acts as the leader.
async fn lead(term: Term, length: Duration, recorder: Recorder) {
    let until = now().saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    // The question is put before each poll: a process that is stopped behind it was asked before.
    let mut after = now();
    while after < until {
        sleep(STEP).await;
        note(&recorder, "body", after, Some(term.number().as_u64()));
        after = now();
    }
}

/// A thread that asks all the time, whatever becomes of the runtime: also just after a SIGCONT.
fn ask_state(election: Election, recorder: Recorder, ended: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut led = false;
        while !ended.load(Ordering::Relaxed) {
            let after = now();
            let term = election.term().map(|term| term.as_u64());
            if term.is_some() || led {
                note(&recorder, "state", after, term);
            }
            led = term.is_some();
            std::thread::sleep(STEP);
        }
    })
}

fn note(recorder: &Recorder, by: &str, after: u64, term: Option<u64>) {
    let leader = recorder.proc().clone();
    recorder.record(What::Lead(Lead { election: ELECTION.into(), leader, term, after, by: by.into() }));
}
