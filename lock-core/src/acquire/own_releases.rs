//! The releases that a client is still to make, in the background, of the locks that it tries to acquire.

use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::{AcquireRequest, Core};
use crate::clock::BootInstant;

/// The first tries of the releases and cancellations that were pending when a try of the same locks began. The servers may refuse the
/// try because of them.
pub(super) struct OwnReleases {
    began: BootInstant,
    tried: BoxFuture<'static, ()>,
}

impl OwnReleases {
    /// For a try of these locks that begins now; `None` if nothing of them is pending.
    pub(super) fn of<'a>(core: &Core, requests: impl IntoIterator<Item = &'a AcquireRequest<'a>>) -> Option<Self> {
        let reaper = &core.keeper.reaper;
        if !reaper.has_untried() {
            return None;
        }
        let tried = requests.into_iter().filter_map(|request| reaper.first_tries(request.name, request.kind));
        let tried: Vec<_> = tried.collect();
        if tried.is_empty() {
            return None;
        }
        // The runtime on which it ran may have ended.
        reaper.ensure_running();
        Some(Self { began: core.keeper.clock.now(), tried: join_all(tried).map(drop).boxed() })
    }

    /// Waits until each was tried once. Returns the end of a second try of the locks, one operation timeout behind the beginning of the
    /// first; `None` if half of that time is over.
    pub(super) async fn tried(self, core: &Core) -> Option<BootInstant> {
        let (clock, op_timeout) = (&core.keeper.clock, core.options.op_timeout);
        let half = self.began.plus(op_timeout / 2);
        tokio::select! {
            biased;
            () = clock.sleep_until(half) => return None,
            () = self.tried => {}
            // The second try says so.
            () = core.keeper.shutdown.begun() => {}
        }
        Some(self.began.plus(op_timeout))
    }
}
