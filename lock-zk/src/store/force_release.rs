//! The reasons of forced releases, by which a holder learns who has freed its lock: each is a node of the operator's session,
//! which the holder reads when its next renewal finds its own node gone, and deletes.

use std::time::Duration;

use lock_core::{GrantId, LossReason};

use super::layout;
use crate::client::{Connection, Failure, Fate};

/// The reasons of forced releases below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct ForceReleases {
    prefix: String,
}

impl ForceReleases {
    pub(crate) fn below(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Leaves a reason for the holder of this grant.
    pub(crate) async fn leave_reason(
        &self,
        connection: &dyn Connection,
        grant: GrantId,
        by: String,
        reason: String,
    ) -> Result<(), Failure> {
        let path = self.path(grant);
        let data = serde_json::to_vec(&LossReason::ForceReleased { by, reason }).unwrap_or_default();
        loop {
            match connection.create(&path, &data).await {
                Err(failure) if failure.fate == Fate::Missing => {
                    connection.make_directory(&layout::forced_directory(&self.prefix)).await?;
                }
                // Another operator was faster, or an earlier sending of this request.
                Err(failure) if failure.fate == Fate::Exists => return Ok(()),
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Returns why the nodes of this grant, which held, are not there any more.
    pub(crate) async fn loss_reason(&self, connection: &dyn Connection, grant: GrantId) -> LossReason {
        self.take_reason(connection, grant).await.unwrap_or(LossReason::Taken)
    }

    /// Takes the reason away that was left for the holder of this grant, if there is one, and returns it.
    async fn take_reason(&self, connection: &dyn Connection, grant: GrantId) -> Option<LossReason> {
        let path = self.path(grant);
        let node = connection.read_all(std::slice::from_ref(&path)).await.ok()?.pop().flatten()?;
        // Enqueued now; nobody needs the answer.
        drop(connection.delete(&path));
        serde_json::from_slice(&node.data).ok()
    }

    /// Returns the path of the node with the reason for the holder of this grant.
    pub(crate) fn path(&self, grant: GrantId) -> String {
        layout::forced(&self.prefix, grant)
    }
}

/// Returns for how long a reason is kept for a holder that does not come for it: until its lease is over.
pub(crate) fn keeps_for(ttl: Option<Duration>) -> Duration {
    ttl.unwrap_or_default().saturating_add(Duration::from_secs(1))
}
