//! Writes down when something did not run although nobody had stopped it: this process, which can keep no time then, or the
//! server, which lets leases end then.

use std::time::Duration;

use lock_testkit_checker::history::event::{Fault, FaultPhase, STALL, Text};
use lock_testkit_checker::history::{Recorder, What, now};

/// Between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);
/// The shortest standstill of a process that is written down.
const STALLED: Duration = Duration::from_millis(60);
/// The shortest silence of a server that is written down; its answers also take their way here.
const SILENT: Duration = Duration::from_millis(250);

/// Watches this runtime as long as it lives.
pub(crate) fn watch(recorder: Recorder) {
    tokio::spawn(async move {
        loop {
            let before = now();
            tokio::time::sleep(STEP).await;
            let after = now();
            let late = Duration::from_nanos(after.saturating_sub(before)).saturating_sub(STEP);
            if late >= STALLED {
                note(&recorder, recorder.proc().clone(), before, after, late);
            }
        }
    });
}

/// To be told of each question to the server that takes no way through a proxy: when it was asked and answered, or given up.
pub(crate) fn note_answer(recorder: &Recorder, asked: u64, answered: u64) {
    let took = Duration::from_nanos(answered.saturating_sub(asked));
    if took >= SILENT {
        note(recorder, "server".into(), asked, answered, took);
    }
}

fn note(recorder: &Recorder, target: Text, from: u64, to: u64, late: Duration) {
    let fault = |phase| {
        What::Fault(Fault {
            id: format!("{target}-stall-{from}").into(),
            phase,
            name: STALL.into(),
            target: target.clone(),
            on_links: false,
            proof: Some(format!("{late:.0?} late").into()),
        })
    };
    recorder.record_at(from, fault(FaultPhase::Start));
    recorder.record_at(to, fault(FaultPhase::Heal));
}
