//! Leaving: on a majority of the servers a grant becomes one of another id, which nobody renews or releases, and ends by itself.

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::{Attempt, Kind, Left};
use lock_core::{Error, GrantId, Phase};

use super::client::members::Members;
use super::release::requests::ReleaseRequests;
use super::renew::{EndCalls, Renewer};
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
    renewer: Arc<Renewer>,
    queues: Arc<Queues>,
}

impl Leaver {
    /// Leaves mutexes at these servers, which this renewer asks; those who wait in these queues count on no release.
    pub(super) fn new(
        members: &Arc<Members>,
        requests: &Arc<ReleaseRequests>,
        keys: &Arc<KeySpace>,
        renewer: &Arc<Renewer>,
        queues: &Arc<Queues>,
    ) -> Self {
        let (members, requests, keys) = (members.clone(), requests.clone(), keys.clone());
        Self { members, requests, keys, renewer: renewer.clone(), queues: queues.clone() }
    }

    /// Has a grant end after this time, under another id. Where a majority has nothing of it, what a minority may have is released.
    pub(super) async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.members.check_ttl(time)?;
        let keys = self.keys.of(&attempt.name, Kind::Mutex);
        self.queues.ended(&keys.lock, attempt.id);
        let ids = [attempt.id, left].map(|id| id.to_string());
        let call = Call::of([&*keys.lock]).with(ids).with([&*milliseconds_at_least(time), &keys.forced()]);
        let until = self.members.until();
        // A pending release of this grant frees nothing that has the new id.
        let calls = EndCalls { script: &scripts::LEAVE, calls: Arc::new([call]), released_before: Arc::new([]) };
        let mut answers = self.renewer.ask(calls, until, Phase::Release).await;
        // One for each call.
        let answers = answers.pop().unwrap_or_default();
        let majority = self.members.majority();
        if answers.extended >= majority {
            return Ok(Left::Done);
        }
        if answers.gone >= majority {
            self.release_rest(attempt, left, time);
            return Ok(Left::NotHeld(answers.why));
        }
        Err(self.members.too_few(Phase::Release, answers.failures.into_iter().chain(self.members.outages()).collect()))
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
