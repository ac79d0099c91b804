//! The instant at which the keeper's task looks by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::BootInstant;

/// An instant that anybody can read; it is changed under the registry's lock.
#[derive(Debug)]
pub(super) struct NextLook(AtomicU64);

impl NextLook {
    pub(super) fn never() -> Self {
        Self(AtomicU64::new(nanoseconds(BootInstant::FAR_FUTURE)))
    }

    pub(super) fn at(&self) -> BootInstant {
        BootInstant::from_origin(Duration::from_nanos(self.0.load(Ordering::Acquire)))
    }

    pub(super) fn set(&self, at: BootInstant) {
        self.0.store(nanoseconds(at), Ordering::Release);
    }
}

fn nanoseconds(at: BootInstant) -> u64 {
    // An instant counts no more than this many.
    u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_as_it_was_set() {
        let next = NextLook::never();
        assert_eq!(next.at(), BootInstant::FAR_FUTURE);
        let at = BootInstant::from_origin(Duration::from_nanos(1_234_567_891));
        next.set(at);
        assert_eq!(next.at(), at);
    }
}
