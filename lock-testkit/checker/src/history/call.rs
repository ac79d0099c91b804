//! Calls as they are written down: their questions, their answers, and what holders are told without asking.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Lease, LossReason};
use tokio::task::JoinHandle;

use super::event::{Ask, Call, Failed, Granted, Lost, Sample, Step, Text, What};
use super::recorder::{Recorder, now};

/// Acquisitions that were asked for together and have no answer. Dropped, they are written down as ones that will never
/// have one.
pub(super) struct Pending {
    recorder: Recorder,
    ids: Vec<Text>,
}

impl Pending {
    pub(super) fn begin(recorder: &Recorder, asks: impl IntoIterator<Item = (Text, Ask)>) -> Self {
        let (mut ids, t) = (Vec::new(), now());
        for (id, ask) in asks {
            record(recorder, t, What::Acquire, &id, Step::<_, Granted>::Invoke(ask));
            ids.push(id);
        }
        Self { recorder: recorder.clone(), ids }
    }

    /// Writes a refusal or an error down; of what was granted it says when, for the caller to do so.
    pub(super) fn end<G>(mut self, outcome: Result<Option<G>, Error>) -> Result<Option<(G, u64)>, Error> {
        let t = now();
        match &outcome {
            Ok(Some(_)) => self.ids.clear(),
            Ok(None) => self.answer(t, &Step::Fail(Failed { err: "held".into(), note: None })),
            Err(error) if error.is_definite() => self.answer(t, &Step::Fail(failed(error))),
            Err(error) => self.answer(t, &Step::Info(failed(error))),
        }
        outcome.map(|granted| granted.map(|guard| (guard, t)))
    }

    fn answer(&mut self, t: u64, step: &Step<Ask, Granted>) {
        for id in self.ids.drain(..) {
            record(&self.recorder, t, What::Acquire, &id, step.clone());
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer(now(), &Step::Info(Failed { err: "cancelled".into(), note: None }));
    }
}

pub(super) fn record<I, O>(
    recorder: &Recorder,
    t: u64,
    what: impl FnOnce(Call<I, O>) -> What,
    id: &Text,
    step: Step<I, O>,
) {
    recorder.record_at(t, what(Call { id: id.clone(), step }));
}

pub(super) fn failed(error: &Error) -> Failed {
    let err = match error.kind() {
        ErrorKind::NotHeld | ErrorKind::Lost => "not_held".to_owned(),
        kind => kind.to_string().replace(' ', "_"),
    };
    Failed { err: err.into(), note: Some(error.to_string().into()) }
}

/// Asks a holder. The instant must have been read before: then whoever still holds has held at that instant, too.
///
/// The remaining time is asked for first: a holder that holds after none has remained contradicts itself, and its deadline is
/// put before the instant for the checker to see it.
pub(super) fn sample(lease: &Lease, t: u64) -> Sample {
    let remaining = nanos(lease.remaining());
    let held = lease.is_held();
    let deadline = if remaining == 0 { t.saturating_sub(1) } else { t.saturating_add(remaining) };
    Sample { held: Some(held), deadline: held.then_some(deadline) }
}

/// Writes the loss down when the holder is told of it.
pub(super) fn watch(recorder: &Recorder, id: &Text, lease: &Lease) -> JoinHandle<()> {
    let (lost, pen, id) = (lease.lost(), recorder.clone(), id.clone());
    tokio::spawn(async move {
        let reason = word(&lost.await).into();
        pen.record(What::Lost(Lost { id, reason }));
    })
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn word(reason: &LossReason) -> &'static str {
    match reason {
        LossReason::Expired => "expired",
        LossReason::SessionExpired => "session_expired",
        LossReason::ForceReleased { .. } => "forced",
        _ => "taken",
    }
}
