//! Whether the server is fit for locks: what its `stats` say.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lock_core::clock::BootInstant;
use lock_core::driver::log;

use crate::client::link::{InUse, Link};
use crate::error::Failure;

/// Memory in use above which a server is said to be short of it, in percent.
const SHORT_OF_MEMORY: u64 = 90;

const EVICTS: &str = "the server evicts items when its memory is full, locks too (start it with -M)";

type Stats = HashMap<String, String>;

/// The server's setup as it was told last. It is asked when a client connects, and once in each life of the server's memory, by
/// which the epoch tells a restart: another server, or the same one with other options, may be in its place.
pub(crate) struct ServerHealth {
    link: Arc<Link>,
    refuse_eviction: bool,
    /// The epoch in which it was asked.
    epoch: AtomicU64,
    evicts: AtomicBool,
}

impl ServerHealth {
    pub(crate) fn new(link: &Arc<Link>, refuse_eviction: bool) -> Self {
        Self { link: link.clone(), refuse_eviction, epoch: AtomicU64::new(0), evicts: AtomicBool::new(false) }
    }

    /// Whether it evicts items when its memory is full.
    pub(crate) fn evicts(&self) -> bool {
        self.evicts.load(Ordering::Relaxed)
    }

    /// Whether it was asked in this epoch.
    pub(crate) fn is_known_in(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Relaxed) == epoch
    }

    /// Refuses a server that cannot carry locks, unless that was done in this epoch; all is over by `until`.
    pub(crate) async fn check_in(&self, epoch: u64, until: BootInstant) -> Result<(), Failure> {
        let connection = self.link.for_steps(until).await?;
        // Nobody waits for another one to ask, who may never be driven again: as many ask as there are connections, at most.
        if self.is_known_in(epoch) {
            return Ok(());
        }
        self.check_over(connection).await?;
        self.note_checked_in(epoch);
        Ok(())
    }

    /// Notes that the server was asked in this epoch.
    pub(crate) fn note_checked_in(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Refuses a server that cannot carry locks, and warns of one that may lose them; all is over by `until`.
    pub(crate) async fn check(&self, until: BootInstant) -> Result<(), Failure> {
        self.check_over(self.link.for_steps(until).await?).await
    }

    async fn check_over(&self, mut connection: InUse<'_>) -> Result<(), Failure> {
        let (settings, stats) = (connection.stats(" settings").await?, connection.stats("").await?);
        if says(&settings, "cas_enabled", "no") {
            return Err(Failure::without_cas());
        }
        let (evicts, server) = (says(&settings, "evictions", "on"), self.link.address());
        self.evicts.store(evicts, Ordering::Relaxed);
        if evicts && self.refuse_eviction {
            return Err(Failure::evicting(EVICTS));
        }
        if evicts {
            log(|| tracing::warn!(%server, evictions = number(&stats, "evictions"), "{EVICTS}"));
        }
        let (used, limit) = (number(&stats, "bytes"), number(&stats, "limit_maxbytes"));
        if limit > 0 && used / limit.div_ceil(100) >= SHORT_OF_MEMORY {
            log(|| tracing::warn!(%server, used, limit, "the server's memory is almost full"));
        }
        Ok(())
    }
}

fn says(stats: &Stats, name: &str, value: &str) -> bool {
    stats.get(name).is_some_and(|told| told == value)
}

fn number(stats: &Stats, name: &str) -> u64 {
    stats.get(name).and_then(|value| value.parse().ok()).unwrap_or_default()
}
