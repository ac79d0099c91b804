//! The way of a slot from one master of a cluster to another.

use lock_testkit::HarnessError;

use super::members::{Members, own_id};
use super::server::RedisServer;
use crate::until::promptly;
use crate::until::until;
use crate::url::Credentials;

/// The number of keys that are asked for, and moved, at once.
const BATCH: &str = "1000";

/// A slot on its way from one master to another, begun by [`ClusterDeployment::migrate`](super::ClusterDeployment::migrate). If this is dropped unfinished,
/// the slot stays between them.
#[derive(Debug)]
#[must_use = "the slot stays between two masters until the migration is finished"]
pub struct Migration<'a> {
    nodes: &'a [RedisServer],
    credentials: Option<&'a Credentials>,
    slot: String,
    from: &'a RedisServer,
    to: &'a RedisServer,
    to_id: String,
}

impl<'a> Migration<'a> {
    pub(super) async fn begin(
        nodes: &'a [RedisServer],
        credentials: Option<&'a Credentials>,
        slot: u16,
        from: &'a RedisServer,
        to: &'a RedisServer,
    ) -> Result<Self, HarnessError> {
        let (from_id, to_id) = (own_id(from).await?, own_id(to).await?);
        let migration = Self { nodes, credentials, slot: slot.to_string(), from, to, to_id };
        // In this order: from the moment on at which the old owner sends clients away, the new one takes them.
        migration.set_slot(to, "IMPORTING", &from_id).await?;
        migration.set_slot(from, "MIGRATING", &migration.to_id).await?;
        Ok(migration)
    }

    /// Moves these keys of the slot, as far as they are still with the old owner. Their leases go with them.
    ///
    /// # Errors
    /// If a master refuses.
    pub async fn move_keys<K: AsRef<str>>(&self, keys: &[K]) -> Result<(), HarnessError> {
        let (host, port) = self.to.address().rsplit_once(':').unwrap_or_default();
        let mut command = vec!["MIGRATE", host, port, "", "0", "5000"];
        if let Some(Credentials { user, password }) = self.credentials {
            command.extend(["AUTH2", user, password]);
        }
        command.push("KEYS");
        command.extend(keys.iter().map(AsRef::as_ref));
        self.from.client()?.command(&command).await.map(drop)
    }

    /// Moves the keys that are left, gives the slot to its new owner, and waits until every node knows it.
    ///
    /// # Errors
    /// If a master refuses, or it takes too long.
    pub async fn finish(self) -> Result<(), HarnessError> {
        loop {
            let left = self.from.client()?.command(&["CLUSTER", "GETKEYSINSLOT", &self.slot, BATCH]).await?;
            let left: Vec<_> = left.into_parts().iter().map(ToString::to_string).collect();
            if left.is_empty() {
                break;
            }
            self.move_keys(&left).await?;
        }
        // The new owner first: if the old one stopped owning it before, nobody would.
        self.set_slot(self.to, "NODE", &self.to_id).await?;
        self.set_slot(self.from, "NODE", &self.to_id).await?;
        until("the end of a migration", promptly(), || self.known_to_all()).await
    }

    async fn set_slot(&self, node: &RedisServer, state: &str, id: &str) -> Result<(), HarnessError> {
        node.client()?.command(&["CLUSTER", "SETSLOT", &self.slot, state, id]).await.map(drop)
    }

    async fn known_to_all(&self) -> Result<(), HarnessError> {
        let slot = self.slot.parse()?;
        for node in self.nodes.iter().filter(|node| node.is_running()) {
            let known = Members::known_to(node).await?;
            let owner = known.owner_of(slot)?;
            if owner.id != self.to_id {
                return Err(HarnessError::new(format!(
                    "to {}, {} owns the slot {slot}",
                    node.address(),
                    owner.address
                )));
            }
        }
        Ok(())
    }
}
