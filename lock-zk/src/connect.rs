//! Connecting: makes the parts of one client, and puts them together.

use std::sync::Arc;

use lock_core::Error;

use crate::access::Access;
use crate::acquire::Acquirer;
use crate::backend::ZkBackend;
use crate::client::ClientCrate;
use crate::config::ZkConfig;
use crate::downgrade::Downgrader;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::permits::Permits;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::session::Sessions;
use crate::several::SeveralAcquirer;
use crate::store::force_release::ForceReleases;

/// Opens a session of one client with the servers of this configuration.
///
/// # Errors
/// If the configuration is wrong, or if no session that can be kept is opened.
pub(crate) async fn connect(config: &ZkConfig, client_crate: ClientCrate) -> Result<ZkBackend, Error> {
    let options = config.check(client_crate)?;
    let registry = Arc::<Registry>::default();
    let ending = registry.clone();
    let sessions = Arc::new(Sessions::open(options, Box::new(move |session| ending.end_session(session))).await?);
    let (layout, op_timeout) = (Arc::new(config.layout()), config.client.op_timeout);
    let force_releases = ForceReleases::below(&layout.prefix);
    let releaser = Releaser::new(registry.clone(), force_releases.clone());
    let renewer = Arc::new(Renewer::new(registry.clone(), force_releases.clone()));
    let has_transactions = client_crate.has_transactions();
    // A claim makes a directory anew, and others' rights to it would be gone.
    let claims = has_transactions && config.access == Access::Everybody;
    let acquirer = Arc::new(Acquirer::new(
        sessions.clone(),
        registry.clone(),
        layout.clone(),
        releaser.clone(),
        config.unfair_mutex,
    ));
    let permits = Permits::new(acquirer.clone(), registry.clone(), releaser.clone(), claims);
    let several =
        SeveralAcquirer::new(sessions.clone(), registry.clone(), layout.clone(), releaser.clone(), has_transactions);
    let leaver = Leaver::new(renewer.clone(), registry.clone());
    let downgrader = Downgrader::new(registry.clone());
    let records = Records::new(sessions.clone(), registry.clone(), layout.prefix.clone(), op_timeout);
    let inspector = Inspector::new(sessions.clone(), registry.clone(), layout, force_releases, op_timeout);
    let guarantees = client_crate.guarantees(config.guarantees());
    Ok(ZkBackend {
        sessions,
        registry,
        acquirer,
        permits,
        several,
        renewer,
        leaver,
        downgrader,
        releaser,
        inspector,
        records,
        guarantees,
        op_timeout,
    })
}
