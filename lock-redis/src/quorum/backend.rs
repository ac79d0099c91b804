//! The backend: the parts of one client of several servers, and what lock-core asks of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Doubts, Left, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees, LeaseOptions};

use super::acquire::Acquirer;
use super::adopt::Adopter;
use super::client::members::Members;
use super::config::QuorumConfig;
use super::inspect::Inspector;
use super::leave::Leaver;
use super::release::Releaser;
use super::release::requests::ReleaseRequests;
use super::renew::Renewer;
use super::wait::queues::Queues;
use super::wait::{Waits, inbox};
use super::{NAME, guarantees};
use crate::client::push::Push;
use crate::store::dialect::Dialects;
use crate::store::keys::KeySpace;

/// The time that connecting may take at least.
const CONNECT: Duration = Duration::from_secs(1);

/// One client's connections to independent servers.
#[derive(Debug)]
pub struct QuorumBackend {
    members: Arc<Members>,
    pub(super) acquirer: Arc<Acquirer>,
    pub(super) adopter: Adopter,
    pub(super) waits: Waits,
    renewer: Renewer,
    releaser: Releaser,
    leaver: Leaver,
    inspector: Inspector,
}

impl QuorumBackend {
    pub(super) async fn connect(config: &QuorumConfig) -> Result<Self, Error> {
        let dials: Vec<_> = config.dials()?.into_iter().map(Arc::new).collect();
        let keys = Arc::new(KeySpace::new(config.prefix.clone(), Dialects::new()));
        let (client, op_timeout) = (GrantId::random()?, config.client.op_timeout);
        // From here on, dropping them closes the connections.
        let members = Arc::new(Members::start(&dials, op_timeout, config.limit()));
        let requests = Arc::new(ReleaseRequests::new(client, &members, &keys));
        let stopping = requests.clone();
        let queues = Queues::new(members.majority(), Box::new(move |lock| stopping.stop_waiting(lock, &[])));
        let listen = |(server, dial)| Push::begin(dial, requests.channel(), inbox(&queues, server));
        let pushes = dials.into_iter().enumerate().map(listen).collect();
        let acquirer = Arc::new(Acquirer::new(client, &members, &requests, &keys));
        let waits = Waits::new(&acquirer, &requests, &queues, pushes);
        members.ready(SystemClock.now().plus(op_timeout.max(CONNECT))).await?;
        let adopter = Adopter::new(&members, &requests, &acquirer);
        let renewer = Renewer::new(&members, &requests, &keys);
        let leaver = Leaver::new(&members, &requests, &keys, &queues);
        let releaser = Releaser::new(&members, &requests, &keys, &queues);
        let inspector = Inspector::new(&members, &requests, &keys);
        Ok(Self { members, acquirer, adopter, waits, renewer, releaser, leaver, inspector })
    }
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
