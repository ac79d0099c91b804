//! Releases and cancellations: take it back, undo that.

pub(super) mod requests;

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::{Attempt, Cancelled, Kind, Released};
use lock_core::{Error, Phase};

use self::requests::{Freed, ReleaseRequests, Tells, first_sent};
use super::client::members::Members;
use super::wait::queues::{Handover, Queues};
use crate::client::link::request::Failed;
use crate::store::keys::{KeySpace, Keys};

/// Releases grants and cancels attempts.
#[derive(Debug)]
pub(super) struct Releaser {
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    keys: Arc<KeySpace>,
    queues: Arc<Queues>,
}

impl Releaser {
    /// Releases by these requests; those who wait in these queues come next.
    pub(super) fn new(
        members: &Arc<Members>,
        requests: &Arc<ReleaseRequests>,
        keys: &Arc<KeySpace>,
        queues: &Arc<Queues>,
    ) -> Self {
        Self { members: members.clone(), requests: requests.clone(), keys: keys.clone(), queues: queues.clone() }
    }

    /// Releases a grant on every server, and hands the lock over to a waiter of this client if it is its turn.
    pub(super) async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let Keys { lock, shared, .. } = self.keys.of(&attempt.name, Kind::Mutex);
        self.members.unanswered.forget(attempt.id);
        let Handover { here, elsewhere, pause } = self.queues.released(&lock, attempt.id, shared);
        let tells = if elsewhere { Tells::Next(pause) } else { Tells::Nobody };
        let answers = self.requests.send(&self.requests.release(attempt, Phase::Release, tells));
        if here {
            self.queues.hand_over(&lock, pause);
        }
        let Freed { released, others_wait } = self.requests.confirmed(answers, Phase::Release).await?;
        self.queues.set_others_wait(&lock, others_wait);
        Ok(released)
    }

    /// Undoes an attempt on every server.
    pub(super) async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(since) = first_sent(attempt) else {
            // Nothing was ever sent.
            return Ok(Cancelled::Settled);
        };
        self.forget(attempt);
        // It may have been granted meanwhile: then its release is news for others.
        let mut asked = self.requests.send(&self.requests.release(attempt, Phase::Cancel, Tells::Next(Duration::ZERO)));
        let (mut settled, mut answers, until) = (true, 0, self.members.until());
        while let Some((server, answer)) = asked.next_until(until).await {
            answers += 1;
            let link = &self.members.at(server).link;
            settled &= match answer {
                Ok(_) | Err(Failed { wrong_type: true, .. }) => link.is_settled_since(since),
                Err(_) => !link.was_up_since(since),
            };
        }
        settled &= answers == self.members.count();
        Ok(if settled { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    /// Counts on no release of an attempt any more.
    pub(super) fn forget(&self, attempt: &Attempt) {
        self.members.unanswered.forget(attempt.id);
        self.queues.ended(&self.keys.of(&attempt.name, Kind::Mutex).lock, attempt.id);
    }

    /// Whether no acquisition of a held grant can still be carried out.
    pub(super) fn is_answered(&self, attempt: &Attempt) -> bool {
        let Some(since) = first_sent(attempt) else { return true };
        self.members.unanswered.is_answered(attempt.id, |server, until| {
            let link = &self.members.at(server).link;
            link.is_settled_since(since) && link.has_answered_since(until)
        })
    }

    /// Whether nothing that was sent for this attempt can still be carried out.
    /// A release that could not be carried out at a server that is away stays pending for it.
    pub(super) fn is_settled(&self, attempt: &Attempt) -> bool {
        first_sent(attempt).is_none_or(|since| {
            self.members.iter().all(|member| !member.link.is_up() || member.link.is_settled_since(since))
        })
    }
}
