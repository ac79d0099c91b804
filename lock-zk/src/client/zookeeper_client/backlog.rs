//! The requests that wait until fewer are under way, or until the end of this turn of the runtime. One task polls those of them that
//! were sent: callers that do not poll an answer that has come hold up nobody else.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::yield_now;

use super::asks::{Append, Ask, Delete, List};
use super::batch::{Kind, Part};
use super::scheduler::{AT_ONCE, Shared};

pub(super) type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A request that waits.
pub(super) enum Waiting {
    Append(Append),
    Delete(Delete),
    List(List),
    /// Asks the crate when it is polled first, if it is still to be sent then.
    Other(RequestFuture),
}

impl Waiting {
    pub(super) fn part(&self) -> Part<'_> {
        match self {
            Self::Append(append) => append.part(),
            Self::Delete(delete) => delete.part(),
            Self::List(list) => list.part(),
            Self::Other(_) => Part { kind: Kind::Other, path: "", bytes: 0 },
        }
    }

    /// Whether it is still to be sent.
    pub(super) fn is_wanted(&self) -> bool {
        match self {
            Self::Append(append) => append.is_wanted(),
            Self::Delete(delete) => delete.is_wanted(),
            Self::List(list) => list.is_wanted(),
            Self::Other(_) => true,
        }
    }

    /// The number of requests of which it is one, or two. A batch is as many as its parts: it takes as long on a slow link.
    pub(super) const fn turns(&self) -> usize {
        match self {
            Self::Append(_) => Append::TURNS,
            Self::Delete(_) => Delete::TURNS,
            Self::List(_) => List::TURNS,
            Self::Other(_) => 1,
        }
    }
}

/// Sends what waits, so that only so many are under way at once. Ends at once when the scheduler is closed, and when all was answered
/// if that is gone.
pub(super) async fn run(shared: Arc<Shared>, mut closing: watch::Receiver<bool>) {
    let mut under_way = FuturesUnordered::new();
    let mut is_gone = false;
    let closed = async { closing.wait_for(|closed| *closed).await.is_ok() };
    tokio::pin!(closed);
    loop {
        if shared.can_send() {
            // Who is woken by the same answers asks now, and goes together with what waits.
            yield_now().await;
            while let Some(Some(turns)) = under_way.next().now_or_never() {
                shared.waited.fetch_sub(turns, Ordering::AcqRel);
            }
            under_way.extend(shared.send_waiting());
        }
        if is_gone && under_way.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            is_closed = &mut closed, if !is_gone => {
                if is_closed {
                    return;
                }
                is_gone = true;
            }
            Some(turns) = under_way.next() => {
                shared.waited.fetch_sub(turns, Ordering::AcqRel);
            }
            () = shared.entered.notified() => {}
        }
    }
}

impl Shared {
    /// The number of requests that may follow from the backlog.
    pub(super) fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.waited.load(Ordering::Acquire))
    }

    /// Whether the first of those that wait may go.
    fn can_send(&self) -> bool {
        let way = self.way();
        way.waiting.front().is_some_and(|first| first.turns() <= self.free() || !first.is_wanted())
    }
}
