//! The record in a node, of the holder or waiter that made it.

use std::time::Duration;

use lock_core::Owner;
use lock_core::driver::{Attempt, Kind};
use serde::{Deserialize, Serialize};

use crate::client::Node;

/// The data of a node, as JSON. Curator writes its address instead, Go nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HolderRecord {
    pub(crate) owner: Owner,
    /// The lease that the holder asked for.
    ttl_ms: u64,
    /// The timeout of its session.
    session_ms: u64,
    /// The token of a grant that has changed its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// Of a semaphore's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<PermitRequest>,
}

/// The permits that a grant has or waits for, and their limit, as its client believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PermitRequest {
    pub(crate) asked: u32,
    pub(crate) limit: u32,
}

impl HolderRecord {
    pub(crate) fn new(attempt: &Attempt, session_timeout: Duration) -> Self {
        Self {
            owner: attempt.owner.clone(),
            ttl_ms: milliseconds(attempt.ttl),
            session_ms: milliseconds(session_timeout),
            token: None,
            permits: match attempt.kind {
                Kind::Permits { permits, limit } => Some(PermitRequest { asked: permits, limit }),
                _ => None,
            },
        }
    }

    pub(crate) fn with_token(mut self, czxid: i64) -> Self {
        self.token = u64::try_from(czxid).ok();
        self
    }

    /// Reads the record of this node's maker; `None` for a client of another library.
    pub(crate) fn parse(node: &Node) -> Option<Self> {
        serde_json::from_slice(&node.data).ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // A struct of texts and numbers has no form that JSON lacks.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.session_ms)
    }

    pub(crate) fn permits(&self) -> Option<PermitRequest> {
        self.permits
    }

    /// The grant's token.
    pub(crate) fn token(record: Option<&Self>, node: &Node) -> Option<u64> {
        record.and_then(|record| record.token).or_else(|| u64::try_from(node.czxid).ok())
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
