//! The semaphore: all or nothing, first come, first served.

use async_trait::async_trait;
use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, SemaphoreBackend};
use lock_core::{Error, LockName, Phase};

use crate::backend::RedisBackend;
use crate::kinds::holders::permits;
use crate::store::scripts;

/// The answer of `scripts/holders/permits_held.lua` for a count that is not at its end.
const UNFINISHED: i64 = 1;
/// Its answer for one at its end that counts leases which have ended since they were looked at.
const HAS_ENDED: i64 = 2;

#[async_trait]
impl SemaphoreBackend for RedisBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_holders(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait_for_holders(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let limit = match attempt.kind {
            Kind::Permits { limit, .. } => limit,
            // Not a semaphore's attempt: the server has no such grant, and says so.
            _ => keep,
        };
        self.change(attempt, &permits(keep, limit), Phase::Release).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        let shared = &self.shared;
        let keys = shared.checked_keys(name, Kind::Permits { permits: 1, limit })?;
        let until = shared.until();
        let mut counts_again = true;
        loop {
            let outcome =
                shared.link.run(&scripts::PERMITS_HELD, &keys.all(), &[], Phase::Inspect, until, |_| {}).await;
            let reply = outcome.map_err(|failed| failed.error)?;
            let mut fields = shared.fields(reply.value, &keys.lock, Phase::Inspect)?;
            match (fields.number()?, fields.number()?) {
                (_, UNFINISHED) => {}
                // The count may have begun long before this call, but the next one does not. Leases that end meanwhile are
                // counted, or one that is busy enough would be counted for ever.
                (_, HAS_ENDED) if counts_again => counts_again = false,
                (held, _) => return Ok(u64::try_from(held).unwrap_or_default()),
            }
            if SystemClock.now() >= until {
                let what = "many leases have ended, and there was no time to count them";
                return Err(Error::unavailable(Phase::Inspect, what).with_server(shared.link.server()));
            }
        }
    }
}
