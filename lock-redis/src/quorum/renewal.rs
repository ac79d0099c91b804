//! Extending leases on all servers.
//!
//! A majority has to confirm. A minority that has lost the entry never gets it back by a renewal: only a new acquisition
//! may take what is free.

use std::sync::Arc;

use lock_core::backend::{Renewal, Renewed};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, LossReason, Phase};

use super::asked::Asked;
use super::backend::QuorumBackend;
use super::member::Member;
use super::release::lost_by;
use crate::backend::renewal_of;
use crate::connection::request::{Call, Failed, Raw};
use crate::script;

/// One server's answer to one renewal.
enum Answer {
    Extended,
    Gone(Option<LossReason>),
    Failed(Error),
}

/// All servers' answers to one renewal.
#[derive(Debug, Default)]
struct Answers {
    extended: usize,
    gone: usize,
    why: Option<LossReason>,
    failures: Vec<Error>,
}

impl QuorumBackend {
    pub(super) async fn renew_on_all(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let allowed = |renewal: &&Renewal<'_>| self.check_ttl(renewal.ttl).is_ok();
        let call = |renewal: &Renewal<'_>| renewal_of(self.releases.keys(&renewal.attempt.name), renewal);
        let calls: Arc<[Call]> = batch.iter().filter(allowed).map(call).collect();
        // A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
        let shortest = batch.iter().map(|renewal| renewal.attempt.ttl).min().unwrap_or(self.op_timeout);
        let until = SystemClock.now().plus(self.op_timeout.min(shortest / 3));
        let mut answers = self.extend(calls, until).await.into_iter();
        let outcome = |renewal: &Renewal<'_>| match self.check_ttl(renewal.ttl) {
            // There is one for every call.
            Ok(()) => self.renewed(renewal, answers.next().unwrap_or_default()),
            Err(error) => Renewed::Unknown(error),
        };
        batch.iter().map(outcome).collect()
    }

    fn renewed(&self, renewal: &Renewal<'_>, answers: Answers) -> Renewed {
        if answers.extended >= self.majority() {
            return Renewed::For(renewal.ttl);
        }
        if answers.gone >= self.majority() {
            return Renewed::Lost(answers.why.unwrap_or(LossReason::Taken));
        }
        let down = self.members.iter().filter_map(|member| member.link.outage());
        Renewed::Unknown(self.too_few(Phase::Renew, answers.failures.into_iter().chain(down).collect()))
    }

    /// Asks the servers that can be reached, until each call has a majority for one answer or none can come.
    async fn extend(&self, calls: Arc<[Call]>, until: BootInstant) -> Vec<Answers> {
        let majority = self.majority();
        let mut answers: Vec<_> = calls.iter().map(|_| Answers::default()).collect();
        let reachable = self.members.iter().filter(|member| member.link.is_up());
        let mut asked =
            Asked::all(&self.background, reachable.map(|member| member.clone().extend(calls.clone(), until)));
        while answers.iter().any(|answers| answers.extended < majority && answers.gone < majority) {
            let Some((_, of_one)) = asked.next_until(until).await else { break };
            answers.iter_mut().zip(of_one).for_each(|(answers, answer)| answers.count(answer));
        }
        answers
    }
}

impl Answers {
    fn count(&mut self, answer: Answer) {
        match answer {
            Answer::Extended => self.extended += 1,
            Answer::Gone(why) => {
                self.gone += 1;
                self.why = self.why.take().or(why);
            }
            Answer::Failed(error) => self.failures.push(error),
        }
    }
}

impl Member {
    async fn extend(self: Arc<Self>, calls: Arc<[Call]>, until: BootInstant) -> Vec<Answer> {
        let values = self.link.run_each(&script::MUTEX.renew, &calls, Phase::Renew, until).await;
        let read = |(call, value): (&Call, Result<_, Failed>)| match value {
            Ok(raw) => self.extended(&call.args[0], raw).unwrap_or_else(Answer::Failed),
            Err(Failed { wrong_type: true, .. }) => Answer::Gone(None),
            Err(Failed { error, .. }) => Answer::Failed(error),
        };
        calls.iter().zip(values).map(read).collect()
    }

    /// `{nonce, 1}` or `{nonce, 0, why}`.
    fn extended(&self, nonce: &str, raw: Raw) -> Result<Answer, Error> {
        let mut fields = self.fields(raw, nonce, Phase::Renew)?;
        if fields.number()? == 1 {
            return Ok(Answer::Extended);
        }
        Ok(Answer::Gone(lost_by(&fields.text()?)))
    }
}
