//! Reasons of forced releases, in items beside the lock's: a holder that misses the lock's item finds the reason.

use std::sync::Arc;

use lock_core::LossReason;
use lock_core::clock::{BootInstant, Clock, SystemClock};

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::client::rights::Precedence;
use crate::config::LongestLease;
use crate::error::Failure;
use crate::store::keys::{Keys, Nonce};
use crate::store::reason;

/// The reasons of forced releases, as one client leaves and reads them.
pub(crate) struct ForcedReasons {
    link: Arc<Link>,
    keys: Arc<Keys>,
    longest: LongestLease,
}

impl ForcedReasons {
    pub(crate) fn new(link: &Arc<Link>, keys: &Arc<Keys>, longest: LongestLease) -> Arc<Self> {
        Arc::new(Self { link: link.clone(), keys: keys.clone(), longest })
    }

    /// Notes a reason for the holder, for as long as that may ask.
    pub(crate) async fn note(&self, grant: Nonce, by_and_why: &(String, String)) -> Result<(), Failure> {
        let text = reason::text(by_and_why);
        let note = Command::Note { key: self.keys.forced(grant), text, seconds: self.longest.item_ttl() };
        match self.link.run_one(note).await {
            CommandAnswer::Failed(failure) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Forgets a reason for which nothing was released.
    pub(crate) async fn forget(&self, grant: Nonce) {
        // If that fails it ends by itself.
        self.link.run_one(Command::Forget { key: self.keys.forced(grant) }).await;
    }

    /// The reason for each of these grants, which are gone, if it was released by force.
    pub(crate) async fn read(
        &self,
        grants: impl Iterator<Item = Nonce>,
        precedence: Precedence,
    ) -> Vec<Option<LossReason>> {
        let reads = grants.map(|nonce| Command::Read { key: self.keys.forced(nonce) });
        let answers = self.link.run_of(reads.collect(), self.link.deadline(), precedence).await;
        answers.into_iter().map(reason_in).collect()
    }

    /// The reason why a grant that is gone was released by force, if it was and that is read by this instant.
    pub(crate) async fn read_by(&self, grant: Nonce, until: BootInstant) -> Option<LossReason> {
        tokio::select! {
            biased;
            reasons = Box::pin(self.read([grant].into_iter(), Precedence::Usual)) => reasons.into_iter().next().flatten(),
            () = SystemClock.sleep_until(until) => None,
        }
    }
}

/// Reads the reason that was noted for a holder.
pub(crate) fn reason_in(answer: CommandAnswer) -> Option<LossReason> {
    reason::read(&answer.item().ok()??.value)
}
