//! Whether the server is fit for locks: what its `stats` say.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::driver::log;

use crate::client::link::{InUse, Link};
use crate::error::Failure;

/// Memory in use above which a server is said to be short of it, in percent.
const SHORT_OF_MEMORY: u64 = 90;

const EVICTS: &str = "the server evicts items when its memory is full, locks too (start it with -M)";

pub(crate) type Stats = HashMap<String, String>;

/// The check of the server's setup.
pub(crate) struct ServerHealth {
    link: Arc<Link>,
    refuse_eviction: bool,
}

impl ServerHealth {
    pub(crate) fn new(link: &Arc<Link>, refuse_eviction: bool) -> Self {
        Self { link: link.clone(), refuse_eviction }
    }

    /// Refuses a server that cannot carry locks, and warns of one that may lose them. It is asked over this connection. Sets in `evicts`
    /// whether it evicts items when its memory is full, also if it is refused for that.
    pub(crate) async fn check(&self, mut connection: InUse<'_>, evicts: &AtomicBool) -> Result<(), Failure> {
        let (settings, stats) = (connection.stats(" settings").await?, connection.stats("").await?);
        if says(&settings, "cas_enabled", "no") {
            return Err(Failure::without_cas());
        }
        let (does_evict, server) = (says(&settings, "evictions", "on"), self.link.address());
        evicts.store(does_evict, Ordering::Relaxed);
        if does_evict && self.refuse_eviction {
            return Err(Failure::evicting(EVICTS));
        }
        if does_evict {
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
