//! Renewals: is it still mine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Renewal, Renewed};
use lock_core::{Error, LossReason, Phase};

use crate::client::link::request::{Failed, Raw};
use crate::client::links::Links;
use crate::client::push;
use crate::store::call::{Call, milliseconds};
use crate::store::keys::{Form, KeySpace, Keys};

/// Renews leases.
#[derive(Debug)]
pub(crate) struct Renewer {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
}

impl Renewer {
    /// Renews over these links.
    pub(crate) fn new(links: &Arc<Links>, keys: &Arc<KeySpace>) -> Self {
        Self { links: links.clone(), keys: keys.clone() }
    }

    /// Renews leases in groups of like urgency and form, one pipeline for each server.
    pub(crate) async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let now = SystemClock.now();
        let mut groups: HashMap<(u32, Form), Vec<usize>> = HashMap::new();
        for (i, renewal) in batch.iter().enumerate() {
            self.links.note_lease(renewal.ttl);
            let form = self.keys.form(&renewal.attempt.name, renewal.attempt.kind);
            let urgency = self.patience(renewal).as_millis().checked_ilog2().unwrap_or_default();
            groups.entry((urgency, form)).or_default().push(i);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|((urgency, _), _)| *urgency);
        let renewed = groups.into_iter().map(async |((_, form), group)| {
            let these: Vec<_> = group.iter().map(|i| &batch[*i]).collect();
            let patience = these.iter().map(|renewal| self.patience(renewal)).min().unwrap_or_default();
            (group, self.renew_each(form, these, now.plus(patience)).await)
        });
        let mut answers: Vec<_> = batch.iter().map(|_| None).collect();
        for (group, outcomes) in join_all(renewed).await {
            for (i, outcome) in group.into_iter().zip(outcomes) {
                answers[i] = Some(outcome);
            }
        }
        let missing = || Renewed::Unknown(Error::indeterminate(Phase::Renew, "there was no answer for one of many"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// The time for which a renewal may wait for its answer: if none comes within a third of the lease, it is tried again
    /// meanwhile.
    fn patience(&self, renewal: &Renewal<'_>) -> Duration {
        self.links.op_timeout().min(renewal.attempt.ttl / 3)
    }

    async fn renew_each(&self, form: Form, batch: Vec<&Renewal<'_>>, until: BootInstant) -> Vec<Renewed> {
        if batch.is_empty() {
            return Vec::new();
        }
        let calls: Vec<_> = batch.iter().map(|renewal| self.call(renewal)).collect();
        let answers = self.links.run_each(&form.scripts().renew, &calls, Phase::Renew, until).await;
        batch.iter().zip(answers).map(|(renewal, answer)| self.renewed(renewal, answer)).collect()
    }

    /// The call of a renewal script for this lease.
    fn call(&self, renewal: &Renewal<'_>) -> Call {
        renewal_of(self.keys.of(&renewal.attempt.name, renewal.attempt.kind), renewal)
    }

    /// Reads the answer to a renewal.
    pub(crate) fn renewed(&self, renewal: &Renewal<'_>, answer: Result<Raw, Failed>) -> Renewed {
        let value = match answer {
            Ok(value) => value,
            Err(Failed { wrong_type: true, .. }) => return Renewed::Lost(LossReason::Taken),
            Err(Failed { error, .. }) => return Renewed::Unknown(error),
        };
        let read = || {
            let mut fields = self.links.fields(value, &renewal.attempt.id.to_string(), Phase::Renew)?;
            if fields.number()? == 1 {
                return Ok(Renewed::For(renewal.ttl));
            }
            let why = fields.text()?;
            Ok(Renewed::Lost(if why.is_empty() { LossReason::Taken } else { push::forced(&why) }))
        };
        read().unwrap_or_else(Renewed::Unknown)
    }
}

/// The call of a renewal script for the lease of this lock.
pub(crate) fn renewal_of(keys: Keys, Renewal { attempt, ttl, .. }: &Renewal<'_>) -> Call {
    Call::of([&*keys.lock]).with([&*attempt.id.to_string(), &milliseconds(*ttl), &keys.forced()])
}
