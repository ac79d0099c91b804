//! The requests that wait until fewer are under way, or until the end of this turn of the runtime. One task polls those of them that
//! were sent: callers that do not poll an answer that has come hold up nobody else.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::task::yield_now;

use super::dispatch::Dispatch;
use super::sending::Sending;

/// Sends what waits, so that only so many are under way at once. Ends at once when the scheduler is closed, and when all was answered
/// if that is gone.
pub(super) async fn run(shared: Arc<Dispatch>, mut closing: watch::Receiver<bool>) {
    let _end = EndOfAll(shared.clone());
    let (sending, mut under_way) = (Sending::over(&shared), FuturesUnordered::new());
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
            under_way.extend(sending.send_waiting());
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

/// The end of the task, also with its runtime: without it nothing that waits would ever be told.
struct EndOfAll(Arc<Dispatch>);

impl Drop for EndOfAll {
    fn drop(&mut self) {
        self.0.close();
    }
}
