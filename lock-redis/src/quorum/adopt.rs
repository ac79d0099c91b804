//! Adoptions: a majority of the servers puts a mutex that another client has detached under this attempt's nonce.

use std::sync::Arc;

use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, GrantId, Phase};

use super::NAME;
use super::acquire::{Acquirer, OverAtTheEnd, begin, decide};
use super::ballot::{Ballot, VoteState};
use super::client::members::Members;
use super::client::send_queue::ScriptRequest;
use super::release::requests::ReleaseRequests;
use super::store::scripts;
use crate::store::call::Call;
use crate::store::call::milliseconds;

/// Adopts mutexes.
#[derive(Debug)]
pub(super) struct Adopter {
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    acquirer: Arc<Acquirer>,
}

impl Adopter {
    /// Adopts at these servers, and undoes it as a round of acquisition is undone.
    pub(super) fn new(members: &Arc<Members>, requests: &Arc<ReleaseRequests>, acquirer: &Arc<Acquirer>) -> Self {
        Self { members: members.clone(), requests: requests.clone(), acquirer: acquirer.clone() }
    }

    /// Goes on with a lock that another client has detached: a majority puts it under this attempt's id. `None` if a majority does not
    /// have it (any more). An adoption that fails is undone like a round: then it is detached as before, or nobody has the lock.
    pub(super) async fn adopt(&self, attempt: &Attempt, from: GrantId) -> Result<Option<Grant>, Error> {
        let rounds = &self.acquirer;
        let keys = rounds.check(attempt)?;
        rounds.check_reachable()?;
        let (until, mut left) = (self.members.until(), rounds.leftovers());
        let (sent_at, round) = begin(attempt);
        let (owner, nonces) = (rounds.owner.of(&attempt.owner)?, [attempt.id, from].map(|id| id.to_string()));
        let [nonce, before] = nonces;
        let call = Call::of([keys.lock]).with([
            nonce,
            round.to_string(),
            milliseconds(attempt.ttl),
            owner.to_string(),
            before,
        ]);
        let request = Arc::new(ScriptRequest::new(&scripts::ADOPT, call, Phase::Acquire));
        self.members.note_adoption();
        let mut asked = self.members.ask(|member| member.put(request.clone(), until));
        // Dropped before the requests go on in the background.
        let over = OverAtTheEnd(&request);
        let mut votes = Ballot::of(self.members.count());
        if decide(&mut asked, &mut votes, until).await == VoteState::Granted {
            drop(over);
            rounds.note_granted(attempt, &votes, &left, until);
            rounds.note_answers(attempt, until, asked, |_| ());
            // A server that could not be asked keeps it under the id of before, which nobody will release.
            drop(self.requests.send_except(&self.requests.left_over(&attempt.name, from, attempt.ttl), &votes.granted));
            return Ok(Some(Grant::new(None, sent_at, attempt.ttl)));
        }
        drop((over, asked));
        votes.may_leave().for_each(|server| left.add(server));
        let Ballot { granted, refused, mut reasons, .. } = votes;
        // Those that have not answered may have it yet.
        let is_absent = self.members.count() - refused.len() < self.members.majority();
        let was_begun = !granted.is_empty();
        reasons.extend(rounds.undo(attempt, round, granted, &refused, until, &mut left).await);
        if is_absent {
            return left.judge(Ok(None));
        }
        let error = self.members.too_few(Phase::Acquire, reasons);
        if was_begun && error.is_definite() {
            let what = "too few servers answered an adoption; what it had begun is undone, and the lock may be free";
            return Err(Error::indeterminate(Phase::Acquire, what).with_backend(NAME).with_source(error));
        }
        left.judge(Err(error))
    }
}
