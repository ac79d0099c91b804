//! The wait of a call for its lock: it ends with the lock, or once the record says that the slot is over.

use std::time::Duration;

use lock_core::driver::wait::pauses;
use lock_core::{Error, RecordedGuard};

use super::Once;
use crate::progress::Progress;
use crate::slot::Slot;

/// The first pause before a waiting call looks into the record, and the longest one, before jitter, which doubles a pause at most.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The end of a wait.
pub(super) enum Awaited {
    Lock(RecordedGuard),
    /// The slot is over, as the record has said while the lock was taken.
    Over(Progress),
    /// Somebody had the lock until the wait was over.
    Busy,
}

impl Once {
    /// Waits for the lock, and looks into the record meanwhile: each of many calls for one slot learns by itself that it is over, rather than
    /// by taking the lock when all those before it have. A look that fails decides nothing.
    pub(super) async fn lock_or_over(&self, slot: Slot) -> Result<Awaited, Error> {
        let taken = self.lock.try_lock_for(self.wait);
        if self.wait.is_zero() {
            return Ok(taken.await?.map_or(Awaited::Busy, Awaited::Lock));
        }
        tokio::select! {
            biased;
            taken = taken => Ok(taken?.map_or(Awaited::Busy, Awaited::Lock)),
            // The wait is dropped: it leaves no place in the queue, and a lock that comes all the same is released.
            over = self.look_until_over(slot) => Ok(Awaited::Over(over)),
        }
    }

    async fn look_until_over(&self, slot: Slot) -> Progress {
        let clock = self.lock.clock();
        for pause in pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            clock.sleep_until(clock.now().plus(pause)).await;
            if let Ok(Some(over)) = self.seen_over(slot).await {
                return over;
            }
        }
        // The pauses have no end.
        std::future::pending().await
    }
}
