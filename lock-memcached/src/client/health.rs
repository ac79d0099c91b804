//! Whether the server is fit for locks: what its `stats` say when a client connects.

use std::collections::HashMap;

use lock_core::clock::BootInstant;
use lock_core::{Error, ErrorKind, Phase};

use crate::client::link::Link;
use crate::config::MemcachedConfig;
use crate::error::Failure;

/// Memory in use above which a server is said to be short of it, in percent.
const SHORT_OF_MEMORY: u64 = 90;

type Stats = HashMap<String, String>;

/// Refuses a server that cannot carry locks, and warns of one that may lose them. Says whether it evicts items; all is over by
/// `until`.
pub(crate) async fn check(link: &Link, config: &MemcachedConfig, until: BootInstant) -> Result<bool, Error> {
    let asked = async {
        let mut connection = link.for_steps(until).await?;
        Ok((connection.stats(" settings").await?, connection.stats("").await?))
    };
    let (settings, stats) = asked.await.map_err(|failure: Failure| link.error(failure, Phase::Connect))?;
    if says(&settings, "cas_enabled", "no") {
        return Err(link.error(Failure::without_cas(), Phase::Connect));
    }
    let evicts = says(&settings, "evictions", "on");
    if evicts {
        let what = "the server evicts items when its memory is full, locks too (start it with -M)";
        if config.refuse_eviction {
            let error = Error::new(ErrorKind::Unsupported, Phase::Connect, what).with_backend(crate::guarantees::NAME);
            return Err(error.with_server(link.address().to_string()));
        }
        tracing::warn!(server = %link.address(), evictions = number(&stats, "evictions"), "{what}");
    }
    let (used, limit) = (number(&stats, "bytes"), number(&stats, "limit_maxbytes"));
    if limit > 0 && used / limit.div_ceil(100) >= SHORT_OF_MEMORY {
        tracing::warn!(server = %link.address(), used, limit, "the server's memory is almost full");
    }
    Ok(evicts)
}

fn says(stats: &Stats, name: &str, value: &str) -> bool {
    stats.get(name).is_some_and(|told| told == value)
}

fn number(stats: &Stats, name: &str) -> u64 {
    stats.get(name).and_then(|value| value.parse().ok()).unwrap_or_default()
}
