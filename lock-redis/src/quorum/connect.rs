//! Connecting: makes the parts of one client of several servers, and puts them together.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{Clock, SystemClock};
use lock_core::{Error, GrantId};

use super::acquire::Acquirer;
use super::adopt::Adopter;
use super::backend::QuorumBackend;
use super::client::members::Members;
use super::config::QuorumConfig;
use super::inspect::Inspector;
use super::leave::Leaver;
use super::release::Releaser;
use super::release::requests::ReleaseRequests;
use super::renew::Renewer;
use super::wait::queues::Queues;
use super::wait::{Waits, inbox};
use crate::client::push::Push;
use crate::store::dialect::Dialects;
use crate::store::keys::KeySpace;

/// The time that connecting may take at least.
const CONNECT: Duration = Duration::from_secs(1);

/// Connects one client to a majority of the servers of this configuration.
///
/// # Errors
/// If the configuration is wrong, or if no majority answers in time.
pub(super) async fn connect(config: &QuorumConfig) -> Result<QuorumBackend, Error> {
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
    Ok(QuorumBackend { members, acquirer, adopter, waits, renewer, releaser, leaver, inspector })
}
