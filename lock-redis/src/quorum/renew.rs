//! Renewals: leases are extended on all servers.
//!
//! A majority has to confirm. A minority that has lost the entry never gets it back by a renewal: only a new acquisition
//! may take what is free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Kind, Renewal, Renewed};
use lock_core::{Error, LossReason, Phase};

use super::member::Member;
use super::members::Members;
use super::release_requests::lost_by;
use super::ttl_limit::TtlLimit;
use crate::client::link::call::Call;
use crate::client::link::request::{Failed, Raw};
use crate::renew::renewal_of;
use crate::store::keys::KeySpace;
use crate::store::scripts::{self, Script};

/// One server's answer to one renewal.
enum RenewalVote {
    Extended,
    Gone(Option<LossReason>),
    Failed(Error),
}

/// All servers' answers to one renewal.
#[derive(Debug, Default)]
pub(super) struct RenewalVotes {
    pub(super) extended: usize,
    pub(super) gone: usize,
    pub(super) why: Option<LossReason>,
    pub(super) failures: Vec<Error>,
}

/// Renews leases.
#[derive(Debug)]
pub(super) struct Renewer {
    members: Arc<Members>,
    keys: Arc<KeySpace>,
    ttl: Arc<TtlLimit>,
}

impl Renewer {
    /// Renews at these servers.
    pub(super) fn new(members: &Arc<Members>, keys: &Arc<KeySpace>, ttl: &Arc<TtlLimit>) -> Self {
        Self { members: members.clone(), keys: keys.clone(), ttl: ttl.clone() }
    }

    /// Renews leases in groups of like urgency: a short one, which is to be tried again soon, does not end the patience of
    /// all others.
    pub(super) async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let mut renewed: Vec<_> = batch.iter().map(|_| None).collect();
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (i, renewal) in batch.iter().enumerate() {
            match self.ttl.check(renewal.ttl) {
                Ok(()) => groups.entry(self.patience(renewal).as_millis().max(1).ilog2()).or_default().push(i),
                Err(error) => renewed[i] = Some(Renewed::Unknown(error)),
            }
        }
        let asked = groups.into_values().map(async |group| {
            let these = group.iter().map(|i| &batch[*i]);
            let patience = these.clone().map(|renewal| self.patience(renewal)).min().unwrap_or_default();
            let call = |renewal: &Renewal<'_>| renewal_of(self.keys.of(&renewal.attempt.name, Kind::Mutex), renewal);
            let until = SystemClock.now().plus(patience);
            let answers = self.ask(&scripts::MUTEX.renew, these.map(call).collect(), until, Phase::Renew).await;
            (group, answers)
        });
        for (group, answers) in join_all(asked).await {
            for (i, answers) in group.into_iter().zip(answers) {
                renewed[i] = Some(self.renewed(&batch[i], answers));
            }
        }
        // Every renewal is in a group, or was refused.
        let missing = || Renewed::Unknown(Error::indeterminate(Phase::Renew, "there was no answer for one of many"));
        renewed.into_iter().map(|renewed| renewed.unwrap_or_else(missing)).collect()
    }

    /// The time for which a renewal may wait for its answers: if none come within a third of the lease, it is tried again
    /// meanwhile.
    fn patience(&self, renewal: &Renewal<'_>) -> Duration {
        self.members.op_timeout().min(renewal.attempt.ttl / 3)
    }

    fn renewed(&self, renewal: &Renewal<'_>, answers: RenewalVotes) -> Renewed {
        if answers.extended >= self.members.majority() {
            return Renewed::For(renewal.ttl);
        }
        if answers.gone >= self.members.majority() {
            return Renewed::Lost(answers.why.unwrap_or(LossReason::Taken));
        }
        let down = self.members.outages();
        Renewed::Unknown(self.members.too_few(Phase::Renew, answers.failures.into_iter().chain(down).collect()))
    }

    /// Asks the servers that can be reached to move the ends of leases, until each call has a majority for one answer or none can come.
    pub(super) async fn ask(
        &self,
        script: &'static Script,
        calls: Arc<[Call]>,
        until: BootInstant,
        phase: Phase,
    ) -> Vec<RenewalVotes> {
        let majority = self.members.majority();
        let mut answers: Vec<_> = calls.iter().map(|_| RenewalVotes::default()).collect();
        let mut asked = self.members.ask_reachable(|member| ask_one(member, script, calls.clone(), until, phase));
        while answers.iter().any(|answers| answers.extended < majority && answers.gone < majority) {
            let Some((_, of_one)) = asked.next_until(until).await else { break };
            answers.iter_mut().zip(of_one).for_each(|(answers, answer)| answers.count(answer));
        }
        answers
    }
}

impl RenewalVotes {
    fn count(&mut self, answer: RenewalVote) {
        match answer {
            RenewalVote::Extended => self.extended += 1,
            RenewalVote::Gone(why) => {
                self.gone += 1;
                self.why = self.why.take().or(why);
            }
            RenewalVote::Failed(error) => self.failures.push(error),
        }
    }
}

/// Asks one server to move the ends of leases.
async fn ask_one(
    member: Arc<Member>,
    script: &'static Script,
    calls: Arc<[Call]>,
    until: BootInstant,
    phase: Phase,
) -> Vec<RenewalVote> {
    let values = member.link.run_each(script, &calls, phase, until).await;
    let read = |(call, value): (&Call, Result<_, Failed>)| match value {
        Ok(raw) => {
            extended(&member, call.args().next().unwrap_or_default(), raw, phase).unwrap_or_else(RenewalVote::Failed)
        }
        Err(Failed { wrong_type: true, .. }) => RenewalVote::Gone(None),
        Err(Failed { error, .. }) => RenewalVote::Failed(error),
    };
    calls.iter().zip(values).map(read).collect()
}

/// Reads `{nonce, 1}` or `{nonce, 0, why}`.
fn extended(member: &Member, nonce: &str, raw: Raw, phase: Phase) -> Result<RenewalVote, Error> {
    let mut fields = member.fields(raw, nonce, phase)?;
    if fields.number()? == 1 {
        return Ok(RenewalVote::Extended);
    }
    Ok(RenewalVote::Gone(lost_by(&fields.text()?)))
}
