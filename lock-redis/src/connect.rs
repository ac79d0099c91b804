//! Connecting: makes the parts of one client, and puts them together.

use std::sync::Arc;

use lock_core::Error;
use lock_core::driver::{NoticeSource, supervised};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::backend::RedisBackend;
use crate::client::identity::Identity;
use crate::client::links::{Links, UnfinishedLinks};
use crate::client::push::Push;
use crate::config::RedisConfig;
use crate::confirm::Confirmation;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::records::Records;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::several::SeveralAcquirer;
use crate::store::call::OwnerText;
use crate::store::keys::KeySpace;
use crate::wait::Waits;
use crate::wait::foreign::ForeignHolders;
use crate::wait::heartbeat::Heartbeats;
use crate::wait::inbox::inbox;
use crate::wait::queue::WaitQueues;

/// Connects one client to the servers of this configuration.
///
/// # Errors
/// If the configuration is wrong, or if no first connection can be made.
pub(crate) async fn connect(config: &RedisConfig) -> Result<RedisBackend, Error> {
    let target = config.check()?;
    let keys = KeySpace::new(config.prefix.clone(), config.dialects.clone());
    let keys = Arc::new(if target.servers.are_a_cluster() { keys.over_slots() } else { keys });
    let identity = Arc::new(Identity::new(keys.channels())?);
    let (queues, losses) = (Arc::<WaitQueues>::default(), Arc::<NoticeSource>::default());
    let unfinished = UnfinishedLinks::new(Links::connect(config, target).await?);
    let told = inbox(queues.clone(), losses.clone());
    unfinished.links().warm_up().await;
    let push = Push::connect(unfinished.links().to_listen(), identity.channel(), told).await?;
    let links = unfinished.finish();
    links.follow(&push);
    let foreign = Arc::new(ForeignHolders::new(links.clone(), queues.clone()));
    let owner = Arc::<OwnerText>::default();
    let renewer = Arc::new(Renewer::new(&links, &keys));
    let releaser = Arc::new(Releaser::new(&links, &keys, &identity, &queues, &owner));
    let confirm = |needed| Confirmation::new(links.replica_acks(needed), &keys, &links, &renewer, &releaser);
    let confirmation = config.replicas.map(confirm).map(Arc::new);
    let acquirer = Arc::new(Acquirer::new(&links, &keys, &identity, &queues, &owner, confirmation.clone()));
    let adopter = Adopter::new(&links, &keys, &identity, &acquirer);
    let several = SeveralAcquirer::new(&links, &keys, &identity, &acquirer, &releaser);
    let waits = Waits::new(&acquirer, &links, &keys, &queues, &foreign);
    let leaver = Leaver::new(&links, &keys);
    let inspector = Inspector::new(&links, &keys, &identity, &queues);
    let records = Records::new(&links, &keys, confirmation);
    let heartbeats = Arc::new(Heartbeats::new(&links, &queues, &push, identity, foreign));
    tokio::spawn(supervised("heartbeats", move || heartbeats.clone().run()));
    Ok(RedisBackend {
        links,
        push,
        keys,
        queues,
        losses,
        acquirer,
        adopter,
        several,
        waits,
        renewer,
        releaser,
        leaver,
        inspector,
        records,
    })
}
