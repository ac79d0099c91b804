//! The backend: the parts of one client of several servers, and what lock-core asks of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Backend, Cancelled, Doubts, Left, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees, LeaseOptions};

use super::acquire::Acquirer;
use super::adopt::Adopter;
use super::client::members::Members;
use super::inspect::Inspector;
use super::leave::Leaver;
use super::release::Releaser;
use super::renew::Renewer;
use super::wait::Waits;
use super::{NAME, guarantees};

/// One client's connections to independent servers.
#[derive(Debug)]
pub struct QuorumBackend {
    pub(super) members: Arc<Members>,
    pub(super) acquirer: Arc<Acquirer>,
    pub(super) adopter: Adopter,
    pub(super) waits: Waits,
    pub(super) renewer: Renewer,
    pub(super) releaser: Releaser,
    pub(super) leaver: Leaver,
    pub(super) inspector: Inspector,
}

#[async_trait]
impl Backend for QuorumBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(self.members.longest_ttl().is_some())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.leaver.leave(attempt, left, time).await
    }

    fn longest_ttl(&self) -> Duration {
        self.members.longest_ttl().unwrap_or(LeaseOptions::MAX_TTL)
    }

    /// A server that has started is not asked for so long: what it has forgotten has ended by then.
    fn longest_leave(&self) -> Duration {
        self.members.longest_ttl().unwrap_or(LeaseOptions::MAX_TTL)
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    fn forget(&self, attempt: &Attempt) {
        self.releaser.forget(attempt);
    }

    fn doubts(&self) -> Option<Doubts> {
        Some(self.members.doubts())
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.releaser.is_settled(attempt)
    }

    fn is_answered(&self, attempt: &Attempt) -> bool {
        self.releaser.is_answered(attempt)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
