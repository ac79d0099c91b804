//! The longest TTL of a quorum's configuration.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, Phase};

use super::NAME;
use crate::client::predecessors::Predecessors;

/// The TTLs that are let through: those that do not outlast the time for which a server that has started counts as
/// forgetful.
#[derive(Debug)]
pub(super) struct TtlLimit {
    longest: Option<Duration>,
    predecessors: Arc<Predecessors>,
}

impl TtlLimit {
    /// Lets through TTLs of up to `longest`, if that is given; those are noted for what earlier connections may have carried.
    pub(super) fn new(longest: Option<Duration>, predecessors: Arc<Predecessors>) -> Self {
        Self { longest, predecessors }
    }

    /// The longest TTL that is let through, if there is one.
    pub(super) fn longest(&self) -> Option<Duration> {
        self.longest
    }

    /// Refuses a TTL that is too long, and takes note of any other.
    pub(super) fn check(&self, ttl: Duration) -> Result<(), Error> {
        match self.longest {
            Some(limit) if ttl > limit => {
                let what = format!("the TTL is {ttl:?}, above longest_ttl ({limit:?}) of this quorum's configuration");
                Err(Error::invalid(Phase::Configure, what).with_backend(NAME))
            }
            _ => {
                self.predecessors.note_lease(ttl);
                Ok(())
            }
        }
    }
}
