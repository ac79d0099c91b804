//! Renewals: leases are extended on all servers.
//!
//! A majority has to confirm. A minority that has lost the entry never gets it back by a renewal: only a new acquisition
//! may take what is free. If a majority has lost it, the others release it: nobody else would, until the end of the lease.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Kind, Renewal, Renewed};
use lock_core::{Error, GrantId, LossReason, Phase};

use super::client::member::Member;
use super::client::members::Members;
use super::release::requests::{ReleaseRequests, Tells, lost_by};
use crate::client::link::request::{Failed, Raw};
use crate::renew::renewal_of;
use crate::store::call::Call;
use crate::store::keys::KeySpace;
use crate::store::scripts;

/// One server's answer to a request to move the end of a lease.
pub(super) enum RenewalVote {
    Extended,
    Gone(Option<LossReason>),
    Failed(Error),
}

/// Requests to renew leases, one call for each.
#[derive(Debug, Clone)]
struct RenewalCalls {
    calls: Arc<[Call]>,
    /// The grants, in the order of the calls, of which no release may be pending for a server that is asked.
    ids: Arc<[GrantId]>,
}

/// All servers' answers to one renewal.
#[derive(Debug, Default)]
struct RenewalVotes {
    extended: usize,
    /// The servers that do not have it.
    gone: Vec<usize>,
    why: Option<LossReason>,
    failures: Vec<Error>,
}

/// Renews leases.
#[derive(Debug)]
pub(super) struct Renewer {
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    keys: Arc<KeySpace>,
}

impl Renewer {
    /// Renews at these servers; what is left of a lost lease is released by these requests.
    pub(super) fn new(members: &Arc<Members>, requests: &Arc<ReleaseRequests>, keys: &Arc<KeySpace>) -> Self {
        Self { members: members.clone(), requests: requests.clone(), keys: keys.clone() }
    }

    /// Renews leases in groups of like urgency: a short one, which is to be tried again soon, does not end the patience of
    /// all others.
    pub(super) async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let mut renewed: Vec<_> = batch.iter().map(|_| None).collect();
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (i, renewal) in batch.iter().enumerate() {
            match self.members.check_ttl(renewal.ttl) {
                Ok(()) => groups.entry(self.patience(renewal).as_millis().max(1).ilog2()).or_default().push(i),
                Err(error) => renewed[i] = Some(Renewed::Unknown(error)),
            }
        }
        let asked = groups.into_values().map(async |group| {
            let these = group.iter().map(|i| &batch[*i]);
            let patience = these.clone().map(|renewal| self.patience(renewal)).min().unwrap_or_default();
            let call = |renewal: &Renewal<'_>| renewal_of(self.keys.of(&renewal.attempt.name, Kind::Mutex), renewal);
            let until = SystemClock.now().plus(patience);
            let ids = these.clone().map(|renewal| renewal.attempt.id).collect();
            let calls = RenewalCalls { calls: these.map(call).collect(), ids };
            let answers = self.ask(calls, until).await;
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
        if answers.gone.len() >= self.members.majority() {
            self.members.unanswered.forget(renewal.attempt.id);
            // The release stays pending for a server that does not answer.
            let release = self.requests.release(renewal.attempt, Phase::Cancel, Tells::Nobody);
            drop(self.requests.send_except(&release, &answers.gone));
            return Renewed::Lost(answers.why.unwrap_or(LossReason::Taken));
        }
        let down = self.members.outages();
        Renewed::Unknown(self.members.too_few(Phase::Renew, answers.failures.into_iter().chain(down).collect()))
    }

    /// Asks the servers that can be reached to renew leases, until each call has a majority for one answer or none can come.
    async fn ask(&self, calls: RenewalCalls, until: BootInstant) -> Vec<RenewalVotes> {
        let majority = self.members.majority();
        let mut answers: Vec<_> = calls.calls.iter().map(|_| RenewalVotes::default()).collect();
        let mut asked = self.members.ask_reachable(|member| ask_one(member, calls.clone(), until));
        while answers.iter().any(|answers| answers.extended < majority && answers.gone.len() < majority) {
            let Some((server, of_one)) = asked.next_until(until).await else { break };
            answers.iter_mut().zip(of_one).for_each(|(answers, answer)| answers.count(server, answer));
        }
        answers
    }
}

impl RenewalVote {
    /// Reads `{nonce, 1}` or `{nonce, 0, why}`.
    pub(super) fn read(member: &Member, nonce: &str, raw: Raw, phase: Phase) -> Self {
        let vote = member.fields(raw, nonce, phase).and_then(|mut fields| {
            Ok(if fields.number()? == 1 { Self::Extended } else { Self::Gone(lost_by(&fields.text()?)) })
        });
        vote.unwrap_or_else(Self::Failed)
    }

    /// The vote of a server that did not carry it out.
    pub(super) fn of(failed: Failed) -> Self {
        if failed.wrong_type { Self::Gone(None) } else { Self::Failed(failed.error) }
    }
}

impl RenewalVotes {
    fn count(&mut self, server: usize, answer: RenewalVote) {
        match answer {
            RenewalVote::Extended => self.extended += 1,
            RenewalVote::Gone(why) => {
                self.gone.push(server);
                self.why = self.why.take().or(why);
            }
            RenewalVote::Failed(error) => self.failures.push(error),
        }
    }
}

/// Asks one server to renew leases. A pending release of a grant that goes on comes first: an entry of a round that is still to be undone
/// is no vote.
async fn ask_one(
    member: Arc<Member>,
    RenewalCalls { calls, ids }: RenewalCalls,
    until: BootInstant,
) -> Vec<RenewalVote> {
    let mut unreleased =
        if member.has_pending() { Box::pin(release_pending(&member, &ids, until)).await } else { HashMap::new() };
    let values = member.link.run_each(&scripts::MUTEX.renew, &calls, Phase::Renew, until).await;
    let read = |(i, (call, value)): (usize, (&Call, Result<_, Failed>))| match (unreleased.remove(&i), value) {
        (Some(error), _) => RenewalVote::Failed(error),
        (None, Ok(raw)) => RenewalVote::read(&member, call.args().next().unwrap_or_default(), raw, Phase::Renew),
        (None, Err(failed)) => RenewalVote::of(failed),
    };
    calls.iter().zip(values).enumerate().map(read).collect()
}

/// Carries out what is pending of these grants at one server. Returns the numbers of those of which something still is, and why.
async fn release_pending(member: &Arc<Member>, ids: &[GrantId], until: BootInstant) -> HashMap<usize, Error> {
    let released = join_all(ids.iter().map(|id| member.release_pending(*id, until))).await;
    released.into_iter().enumerate().filter_map(|(i, outcome)| Some((i, outcome.err()?.error))).collect()
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;
    use lock_core::driver::Attempt;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Opener};
    use crate::quorum::acquire::begin;
    use crate::quorum::release::requests::ReleaseRequests;
    use crate::store::dialect::Dialects;
    use crate::url::Login;

    /// The round was granted by the last server only, and its undo is refused there. A later one was granted by the others, one of which is
    /// away by now.
    #[tokio::test(flavor = "multi_thread")]
    async fn an_entry_of_an_earlier_round_that_is_still_to_be_undone_is_no_vote() {
        let (Some(first), Some(last)) =
            (installed(RedisServer::start_own().await), installed(RedisServer::start_own().await))
        else {
            return;
        };
        let opener = Arc::new(Opener::new(&Login::default(), 0, None, Duration::from_secs(1)).unwrap());
        let ports = [first.port().unwrap(), 1, last.port().unwrap()];
        let to = |port| Arc::new(Dial::to(opener.clone(), Address::Tcp { host: "127.0.0.1".to_owned(), port }));
        let members = Arc::new(Members::start(&ports.map(to), Duration::from_secs(1), None));
        members.ready(SystemClock.now().plus(Duration::from_secs(10))).await.unwrap();
        let keys = Arc::new(KeySpace::new("lock:".to_owned(), Dialects::new()));
        let requests = Arc::new(ReleaseRequests::new(GrantId::random().unwrap(), &members, &keys));
        let renewer = Renewer::new(&members, &requests, &keys);
        let attempt = Attempt::new("rounds".into(), Kind::Mutex, Owner::new(), Duration::from_secs(60)).unwrap();
        let lock = keys.of(&attempt.name, Kind::Mutex).lock;
        let [(_, earlier), (_, later)] = [begin(&attempt), begin(&attempt)];
        for (server, round) in [(&last, earlier), (&first, later)] {
            let held = format!("{}:{round}:1:{{}}", attempt.id);
            let set = server.client().unwrap().command(&["SET", &lock, &held, "PX", "60000"]).await.unwrap();
            assert!(set.is_ok(), "{set:?}");
        }
        let operator = last.client().unwrap();
        assert!(operator.command(&["ACL", "SETUSER", "default", "-@scripting"]).await.unwrap().is_ok());
        let until = SystemClock.now().plus(Duration::from_secs(10));
        let member = || members.iter().nth(2).unwrap().clone();
        member().release(requests.undo(&attempt, earlier), until).await.unwrap_err();
        assert!(member().has_pending());
        assert!(operator.command(&["ACL", "SETUSER", "default", "+@scripting"]).await.unwrap().is_ok());
        let renewed = renewer.renew(&[Renewal::new(&attempt, attempt.ttl)]).await;
        assert!(matches!(&*renewed, [Renewed::Unknown(_)]), "{renewed:?}");
        let left = operator.command(&["EXISTS", &lock]).await.unwrap();
        assert!(left.as_int() == Some(0) && !member().has_pending(), "it is undone before it is asked");
    }
}
