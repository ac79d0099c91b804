//! The reasons of forced releases, by which a holder learns who has freed its lock: each is a node of the operator's session,
//! which the holder reads when its next renewal finds its own node gone, and deletes.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
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

    /// Leaves a reason for the holder of this grant. Returns whether there was none.
    pub(crate) async fn leave_reason(
        &self,
        connection: &dyn Connection,
        grant: GrantId,
        by: String,
        reason: String,
    ) -> Result<bool, Failure> {
        let path = self.path(grant);
        let data = serde_json::to_vec(&LossReason::ForceReleased { by, reason }).unwrap_or_default();
        loop {
            match connection.create(&path, &data).await {
                Err(failure) if failure.fate == Fate::Missing => {
                    connection.make_directory(&layout::forced_directory(&self.prefix)).await?;
                }
                // Another operator was faster, or an earlier sending of this request.
                Err(failure) if failure.fate == Fate::Exists => return Ok(false),
                outcome => return outcome.map(|_| true),
            }
        }
    }

    /// Returns why the nodes of each of these grants, which held, are not there any more: by few requests, before whatever waits for its
    /// turn, since the holders believe in their locks meanwhile. Takes the reasons away that were left for them.
    pub(crate) async fn loss_reasons(&self, connection: &dyn Connection, grants: &[GrantId]) -> Vec<LossReason> {
        let paths: Vec<_> = grants.iter().map(|grant| self.path(*grant)).collect();
        let read = join_all(connection.read_held(&paths)).await.into_iter().flatten().flatten();
        let nodes: HashMap<_, _> = read.filter_map(|(path, node)| Some((path, node.ok()??))).collect();
        let reason = |path: &String| {
            let node = nodes.get(path)?;
            // Enqueued now; nobody needs the answer.
            drop(connection.delete(path));
            serde_json::from_slice(&node.data).ok()
        };
        paths.iter().map(|path| reason(path).unwrap_or(LossReason::Taken)).collect()
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
