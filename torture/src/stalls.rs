//! Writes down when this process did not run although nobody had stopped it: nobody can keep time then.

use std::time::Duration;

use lock_testkit::history::event::{Fault, FaultPhase, STALL};
use lock_testkit::history::{Recorder, What, now};

/// Between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);
/// What is written down.
const STALLED: Duration = Duration::from_millis(60);

/// Watches this runtime as long as it lives.
pub(crate) fn watch(recorder: Recorder) {
    tokio::spawn(async move {
        loop {
            let before = now();
            tokio::time::sleep(STEP).await;
            let after = now();
            let late = Duration::from_nanos(after.saturating_sub(before)).saturating_sub(STEP);
            if late >= STALLED {
                let fault = |phase| {
                    What::Fault(Fault {
                        id: format!("{}-stall-{before}", recorder.proc()).into(),
                        phase,
                        name: STALL.into(),
                        target: recorder.proc().clone(),
                        proof: Some(format!("{late:.0?} late").into()),
                    })
                };
                recorder.record_at(before, fault(FaultPhase::Start));
                recorder.record_at(after, fault(FaultPhase::Heal));
            }
        }
    });
}
