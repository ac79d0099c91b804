//! Leaving: on a majority of the servers a grant becomes one of another id, which nobody renews or releases, and ends by itself. The others
//! release it, or have it end likewise.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::{Attempt, Kind, Left};
use lock_core::{Error, GrantId, Phase};

use super::client::member::Member;
use super::client::members::Members;
use super::client::send_queue::ScriptRequest;
use super::release::requests::{ReleaseRequests, Tells};
use super::renew::RenewalVote;
use super::wait::queues::Queues;
use crate::store::call::Call;
use crate::store::call::milliseconds_at_least;
use crate::store::keys::KeySpace;
use crate::store::scripts;

/// Leaves mutexes.
#[derive(Debug)]
pub(super) struct Leaver {
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    keys: Arc<KeySpace>,
    queues: Arc<Queues>,
}

impl Leaver {
    /// Leaves mutexes at these servers; those who wait in these queues count on no release.
    pub(super) fn new(
        members: &Arc<Members>,
        requests: &Arc<ReleaseRequests>,
        keys: &Arc<KeySpace>,
        queues: &Arc<Queues>,
    ) -> Self {
        let (members, requests, keys) = (members.clone(), requests.clone(), keys.clone());
        Self { members, requests, keys, queues: queues.clone() }
    }

    /// Has a grant end after this time, under another id. What a minority may keep under the id of before is released, and where a majority
    /// has nothing of it, under either id.
    pub(super) async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.members.check_ttl(time)?;
        let keys = self.keys.of(&attempt.name, Kind::Mutex);
        self.queues.ended(&keys.lock, attempt.id);
        self.members.unanswered.forget(attempt.id);
        let ids = [attempt.id, left].map(|id| id.to_string());
        let call = Call::of([&*keys.lock]).with(ids).with([&*milliseconds_at_least(time), &keys.forced()]);
        let (request, until) =
            (Arc::new(ScriptRequest::new(&scripts::LEAVE, call, Phase::Release)), self.members.until());
        let mut asked = self.members.ask(|member| ask_one(member, request.clone(), until));
        let majority = self.members.majority();
        let (mut left_at, mut gone, mut why, mut failures) = (Vec::new(), 0, None, Vec::new());
        while left_at.len() < majority && gone < majority {
            match asked.next_until(until).await {
                Some((server, RenewalVote::Extended)) => left_at.push(server),
                Some((_, RenewalVote::Gone(reason))) => {
                    gone += 1;
                    why = why.or(reason);
                }
                Some((_, RenewalVote::Failed(error))) => failures.push(error),
                None => break,
            }
        }
        if left_at.len() >= majority {
            // A server that was not reached would keep it for as long as it was extended, and stay away from every majority. The release
            // comes behind what may still be carried out, and finds nothing where the other id is; for a server that does not answer it
            // stays pending.
            let release = self.requests.release(attempt, Phase::Release, Tells::Nobody);
            drop(self.requests.send_except(&release, &left_at));
            return Ok(Left::Done);
        }
        if gone >= majority {
            self.release_rest(attempt, left, time);
            return Ok(Left::NotHeld(why));
        }
        Err(self.members.too_few(Phase::Release, failures))
    }

    /// Releases, in the background, what a minority may keep of a lock that could not be left: under the id of before, or under the new
    /// one, which nobody knows.
    fn release_rest(&self, attempt: &Attempt, left: GrantId, time: Duration) {
        for id in [attempt.id, left] {
            // The release stays pending for a server that does not answer.
            drop(self.requests.send(&self.requests.left_over(&attempt.name, id, time.max(attempt.ttl))));
        }
    }
}

/// Asks one server, where no pending release matters: it frees nothing that has the new id.
async fn ask_one(member: Arc<Member>, request: Arc<ScriptRequest>, until: BootInstant) -> RenewalVote {
    match member.ask(&request, until).await {
        Ok(raw) => RenewalVote::read(&member, request.call.args().next().unwrap_or_default(), raw, request.phase),
        Err(failed) => RenewalVote::of(failed),
    }
}
