//! How the holder of a lock learns who has freed it by force: by a node of the operator's session, which the holder reads
//! when its next renewal finds its own node gone, and deletes.

use std::time::Duration;

use lock_core::{GrantId, LossReason};

use crate::client::{Connection, Fate, Fault};
use crate::store::layout;

/// Leaves a reason for the holder of this grant.
pub(crate) async fn leave_reason(
    connection: &dyn Connection,
    prefix: &str,
    grant: GrantId,
    by: String,
    reason: String,
) -> Result<(), Fault> {
    let path = layout::forced(prefix, grant);
    let data = serde_json::to_vec(&LossReason::ForceReleased { by, reason }).unwrap_or_default();
    loop {
        match connection.create(&path, &data).await {
            Err(fault) if fault.fate == Fate::Missing => {
                connection.make_directory(&layout::forced_directory(prefix)).await?;
            }
            // Another operator was faster, or an earlier sending of this request.
            Err(fault) if fault.fate == Fate::Exists => return Ok(()),
            outcome => return outcome.map(drop),
        }
    }
}

/// The reason that was left for the holder of this grant, if there is one. It is taken away.
pub(crate) async fn take_reason(connection: &dyn Connection, prefix: &str, grant: GrantId) -> Option<LossReason> {
    let path = layout::forced(prefix, grant);
    let node = connection.read_all(std::slice::from_ref(&path)).await.ok()?.pop().flatten()?;
    // Enqueued now; nobody needs the answer.
    drop(connection.delete(&path));
    serde_json::from_slice(&node.data).ok()
}

/// How long a reason is kept for a holder that does not come for it: until its lease is over.
pub(crate) fn keeps_for(ttl: Option<Duration>) -> Duration {
    ttl.unwrap_or_default().saturating_add(Duration::from_secs(1))
}
