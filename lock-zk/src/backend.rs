//! The backend: puts the parts together, and passes on what lock-core asks.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Left, Notices, Operator, Released, Renewal, Renewed, SeveralOutcome,
};
use lock_core::{Error, GrantId, Guarantees, LockName};

use crate::access::Access;
use crate::acquire::Acquirer;
use crate::client::ClientCrate;
use crate::config::ZkConfig;
use crate::downgrade::Downgrader;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::session::{SessionState, Sessions};
use crate::several::SeveralAcquirer;
use crate::store::force_release::ForceReleases;
use crate::store::layout;
use crate::wait::Waits;
use crate::wait::entry::LockQueues;
use crate::wait::permits::Permits;

/// Locks on ZooKeeper, for [`Client`](lock_core::Client).
#[derive(Debug)]
pub struct ZkBackend {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) acquirer: Acquirer,
    pub(crate) waits: Waits,
    several: SeveralAcquirer,
    renewer: Arc<Renewer>,
    leaver: Leaver,
    pub(crate) downgrader: Downgrader,
    pub(crate) releaser: Releaser,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
    guarantees: Guarantees,
    op_timeout: Duration,
}

impl ZkBackend {
    pub(crate) async fn connect(config: &ZkConfig, client_crate: ClientCrate) -> Result<Self, Error> {
        let options = config.check(client_crate)?;
        let registry = Arc::<Registry>::default();
        let ending = registry.clone();
        let sessions = Arc::new(Sessions::open(options, Box::new(move |session| ending.end_session(session))).await?);
        let (layout, op_timeout) = (Arc::new(config.layout()), config.client.op_timeout);
        let force_releases = ForceReleases::below(&layout.prefix);
        let releaser = Releaser::new(registry.clone(), force_releases.clone());
        let renewer = Arc::new(Renewer::new(registry.clone(), force_releases.clone()));
        let queues = Arc::new(LockQueues::new(registry.clone(), layout.clone(), config.unfair_mutex));
        let has_transactions = client_crate.has_transactions();
        // A claim makes a directory anew, and others' rights to it would be gone.
        let claims = has_transactions && config.access == Access::Everybody;
        let permits = Arc::new(Permits::new(registry.clone(), releaser.clone(), claims));
        let several = SeveralAcquirer::new(
            sessions.clone(),
            registry.clone(),
            layout.clone(),
            releaser.clone(),
            has_transactions,
        );
        Ok(Self {
            several,
            acquirer: Acquirer::new(sessions.clone(), queues.clone(), permits.clone(), releaser.clone()),
            waits: Waits::new(sessions.clone(), queues, permits, releaser.clone()),
            leaver: Leaver::new(renewer.clone(), registry.clone()),
            renewer,
            downgrader: Downgrader::new(registry.clone()),
            releaser,
            records: Records::new(sessions.clone(), registry.clone(), layout.prefix.clone(), op_timeout),
            inspector: Inspector::new(sessions.clone(), registry.clone(), layout, force_releases, op_timeout),
            sessions,
            registry,
            guarantees: client_crate.guarantees(config.guarantees()),
            op_timeout,
        })
    }

    /// Closes the session, with everything that is held by it.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        self.sessions.close(self.op_timeout).await
    }

    /// Returns the state of the client's session.
    pub(crate) fn state(&self) -> SessionState {
        self.sessions.state()
    }
}

#[async_trait]
impl Backend for ZkBackend {
    fn name(&self) -> &'static str {
        crate::guarantees::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.registry.notices())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        self.several.try_several(attempts).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    /// The servers end a node only with its session: this client deletes it when the time is over.
    async fn leave(&self, attempt: &Attempt, _left: GrantId, _time: Duration) -> Result<Left, Error> {
        self.leaver.leave(attempt).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    /// A node lives as long as its session, however long nobody could delete it.
    fn may_remain(&self, attempt: &Attempt) -> bool {
        self.registry.get(attempt.id).is_some_and(|registration| !registration.session.is_over())
    }

    fn forget(&self, attempt: &Attempt) {
        if let Some(registration) = self.registry.get(attempt.id) {
            self.registry.deregister(&registration);
        }
    }

    /// A shared path may be written with or without its first `/`.
    fn canonical(&self, name: LockName) -> LockName {
        layout::canonical(name)
    }

    /// Returns the session's timeout: what a session has goes with it, and not before.
    fn outlasts_lease(&self) -> Duration {
        self.sessions.timeout()
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
