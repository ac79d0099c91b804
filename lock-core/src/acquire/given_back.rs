//! The locks of a try that its own client gives back in the background meanwhile.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::Core;
use crate::clock::BootInstant;
use crate::name::LockName;

/// What a client was to give back of a try's locks when the try began. The servers may refuse the try because of it.
pub(super) struct GivenBack {
    began: BootInstant,
    tried: BoxFuture<'static, ()>,
}

impl GivenBack {
    /// For a try of these locks that begins now; `None` if there is nothing of them.
    pub(super) fn of<'a>(core: &Core, names: impl IntoIterator<Item = &'a LockName>) -> Option<Self> {
        let reaper = &core.keeper.reaper;
        if !reaper.has_untried() {
            return None;
        }
        let tried: Vec<_> = names.into_iter().filter_map(|name| reaper.given_back(name)).collect();
        (!tried.is_empty()).then(|| Self { began: core.keeper.clock.now(), tried: join_all(tried).map(drop).boxed() })
    }

    /// Waits until it was tried to be given back, for half of the operation timeout at most. Returns the time that is left for a second
    /// try.
    pub(super) async fn tried(self, core: &Core) -> Option<Duration> {
        let (clock, op_timeout) = (&core.keeper.clock, core.options.op_timeout);
        tokio::select! {
            biased;
            () = self.tried => {}
            // The second try says so.
            () = core.keeper.shutdown.begun() => {}
            () = clock.sleep_until(self.began.plus(op_timeout / 2)) => return None,
        }
        Some(self.began.plus(op_timeout).since(clock.now()))
    }
}
