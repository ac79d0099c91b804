//! The answers of several servers to one request, of which the caller waits for as many as it needs.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::task::noop_waker_ref;
use futures_util::{FutureExt, StreamExt};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::task::unconstrained;

use super::background::Background;

/// The time for which an answer is waited for beyond its request's. It matters only if the client's runtime, which times the
/// requests, stands still.
const SLACK: Duration = Duration::from_millis(50);

/// The answers of several servers, in the order in which they come.
///
/// All requests are on their way when this exists: what is sent to the same servers afterwards, on the same connections,
/// is carried out afterwards. Whatever has not been answered when this is dropped goes on in the background, so that a
/// server that has stopped answering is noticed although nobody waits for it.
///
/// The requests are polled in the context of the client's runtime, on whatever runtime the caller is: their timers have to
/// outlive the caller's.
pub(in crate::quorum) struct FanOut<T: Send + 'static> {
    pending: Vec<BoxFuture<'static, (usize, T)>>,
    answered: VecDeque<(usize, T)>,
    background: Background,
}

impl<T: Send + 'static> FanOut<T> {
    /// Sends every request; each answer comes with the number of its request.
    pub(super) fn all<F>(background: &Background, requests: impl Iterator<Item = F>) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self::some(background, requests.enumerate())
    }

    /// Sends requests of these numbers.
    pub(super) fn some<F>(background: &Background, requests: impl Iterator<Item = (usize, F)>) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut asked = Self { pending: Vec::new(), answered: VecDeque::new(), background: background.clone() };
        for (number, request) in requests {
            // Unconstrained: a caller that has used up its share of the thread would send later otherwise.
            asked.pending.push(Box::pin(unconstrained(request.map(move |answer| (number, answer)))));
        }
        asked.poll_all(&mut Context::from_waker(noop_waker_ref()));
        asked
    }

    /// The next answer; `None` when all have come.
    ///
    /// # Cancel safety
    /// May be dropped: no answer is lost.
    pub(in crate::quorum) async fn next(&mut self) -> Option<(usize, T)> {
        std::future::poll_fn(|cx| {
            self.poll_all(cx);
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.pending.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// The next answer; `None` when all have come, or none in time although the requests themselves end then.
    ///
    /// # Cancel safety
    /// May be dropped: no answer is lost.
    pub(in crate::quorum) async fn next_until(&mut self, until: BootInstant) -> Option<(usize, T)> {
        tokio::select! {
            biased;
            answer = self.next() => answer,
            () = SystemClock.sleep_until(until.plus(SLACK)) => None,
        }
    }

    /// Has the answers that are still to come looked at in the background, each with the number of its request.
    pub(in crate::quorum) fn look_at_the_rest(mut self, look: impl Fn(usize, T) + Send + 'static) {
        self.answered.drain(..).for_each(|(number, answer)| look(number, answer));
        let mut rest: FuturesUnordered<_> = std::mem::take(&mut self.pending).into_iter().collect();
        if !rest.is_empty() {
            self.background.finish(Box::pin(async move {
                while let Some((number, answer)) = rest.next().await {
                    look(number, answer);
                }
            }));
        }
    }

    fn poll_all(&mut self, cx: &mut Context<'_>) {
        let _home = self.background.enter();
        let mut i = 0;
        while i < self.pending.len() {
            match Pin::new(&mut self.pending[i]).poll(cx) {
                Poll::Ready(answer) => {
                    drop(self.pending.swap_remove(i));
                    self.answered.push_back(answer);
                }
                Poll::Pending => i += 1,
            }
        }
    }
}

impl<T: Send + 'static> Drop for FanOut<T> {
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            let rest = join_all(std::mem::take(&mut self.pending));
            self.background.finish(Box::pin(async move { drop(rest.await) }));
        }
    }
}
