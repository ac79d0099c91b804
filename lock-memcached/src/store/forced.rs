//! The reasons of forced releases: by whom and why, in an item that the robbed holder looks for.

use std::sync::Arc;

use lock_core::LossReason;

use crate::client::command::{Command, CommandAnswer};
use crate::client::link::Link;
use crate::error::Failure;
use crate::store::keys::Keys;
use crate::store::nonce::Nonce;
use crate::store::ttl::LongestLease;

/// The reasons of forced releases.
#[derive(Clone)]
pub(crate) struct ForcedReasons {
    link: Arc<Link>,
    keys: Arc<Keys>,
    longest: LongestLease,
}

impl ForcedReasons {
    pub(crate) fn new(link: &Arc<Link>, keys: &Arc<Keys>, longest: LongestLease) -> Self {
        Self { link: link.clone(), keys: keys.clone(), longest }
    }

    /// Leaves a reason for the holder, for as long as that may ask.
    pub(crate) async fn leave(&self, grant: Nonce, by_and_why: &(String, String)) -> Result<(), Failure> {
        let text = serde_json::to_string(by_and_why).unwrap_or_default();
        let note = Command::Note { key: self.keys.forced(grant), text, seconds: self.longest.seconds() };
        match self.link.run_one(note).await {
            CommandAnswer::Failed(failure) => Err(failure),
            _ => Ok(()),
        }
    }

    /// The reason for each of these grants, which are gone, if it was released by force.
    pub(crate) async fn read(&self, grants: impl Iterator<Item = Nonce>) -> Vec<Option<LossReason>> {
        let reads = grants.map(|nonce| Command::Read { key: self.keys.forced(nonce) });
        self.link.run(reads.collect()).await.into_iter().map(reason).collect()
    }
}

/// Reads the reason that was left for a holder.
pub(crate) fn reason(answer: CommandAnswer) -> Option<LossReason> {
    let (by, reason) = serde_json::from_slice(&answer.item().ok()??.value).ok()?;
    Some(LossReason::ForceReleased { by, reason })
}
