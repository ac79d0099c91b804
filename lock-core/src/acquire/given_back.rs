//! The locks of a try that its own client gives back in the background meanwhile.

use futures_util::future::{BoxFuture, FutureExt, join_all};

use super::{AcquireRequest, Core};
use crate::clock::BootInstant;

/// The first tries to give back what a client was to give back of a try's locks when the try began. The servers may refuse the try because
/// of it.
pub(super) struct GivenBack {
    began: BootInstant,
    tried: BoxFuture<'static, ()>,
}

impl GivenBack {
    /// For a try of these locks that begins now; `None` if there is nothing of them.
    pub(super) fn of<'a>(core: &Core, requests: impl IntoIterator<Item = &'a AcquireRequest<'a>>) -> Option<Self> {
        let reaper = &core.keeper.reaper;
        if !reaper.has_untried() {
            return None;
        }
        let tried = requests.into_iter().filter_map(|request| reaper.given_back(request.name, request.kind));
        let tried: Vec<_> = tried.collect();
        if tried.is_empty() {
            return None;
        }
        // The runtime on which it ran may have ended.
        reaper.ensure_running();
        Some(Self { began: core.keeper.clock.now(), tried: join_all(tried).map(drop).boxed() })
    }

    /// Waits until it was tried to be given back. Returns the end of a second try, one operation timeout behind the beginning of the first;
    /// `None` if half of that time is over.
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
