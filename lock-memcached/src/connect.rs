//! Connecting: what is asked of the server first, and the backend put together from its parts.

use std::sync::Arc;

use lock_core::Error;

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::backend::MemcachedBackend;
use crate::client::link::Link;
use crate::config::MemcachedConfig;
use crate::epoch::gate::EpochGate;
use crate::inspect::Inspector;
use crate::items::{pieces::Pieces, reason::ForcedReasons, record::HolderRecords};
use crate::leave::Leaver;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::slots::{rwlock::RwLocks, semaphore::Semaphores};
use crate::store::keys::Keys;
use crate::wait::{WaitQueues, Waits};

/// Connects with these options.
pub(crate) async fn connect(config: &MemcachedConfig) -> Result<MemcachedBackend, Error> {
    let (address, op_timeout) = (config.check()?, config.client.op_timeout);
    over(Link::new(address, config.connections, op_timeout, config.network()), config).await
}

/// Connects over this link.
pub(crate) async fn over(link: Link, config: &MemcachedConfig) -> Result<MemcachedBackend, Error> {
    let (link, keys, longest) = (Arc::new(link), Arc::new(Keys::new(&config.prefix)), config.bound());
    // One for all steps.
    let until = link.deadline();
    link.resolve(until).await?;
    let gate = EpochGate::connect(config, keys.epoch.clone(), &link, until).await?;
    let (registry, queues) = (Arc::new(Registry::new(&keys, longest)), Arc::<WaitQueues>::default());
    let records = HolderRecords::new(&link, &keys);
    let reasons = ForcedReasons::new(&link, &keys, longest);
    let pieces = Pieces::new(&link, &records);
    let acquirer = Acquirer::new(&link, &gate, &pieces, &registry, &records);
    let releaser = Releaser::new(&link, &gate, &registry, &queues, &pieces, &records, &reasons);
    Ok(MemcachedBackend {
        waits: Waits::new(&queues, &records, config.longest_pause),
        rwlocks: RwLocks::new(&link, &registry, &acquirer, &releaser, &records, &keys, config.readers),
        semaphores: Semaphores::new(&link, &registry, &acquirer, &releaser, longest, config.longest_pause),
        inspector: Inspector::new(&link, &keys, &records, &reasons, config.readers),
        records: Records::new(&link, &keys),
        adopter: Adopter::new(&link, &gate, &registry, &records),
        renewer: Renewer::new(&link, &gate, &registry, &records, &reasons, &keys, longest),
        leaver: Leaver::new(&link, &gate, &registry, &records, &reasons, longest),
        acquirer,
        registry,
        queues,
        releaser,
        gate,
        longest,
    })
}
