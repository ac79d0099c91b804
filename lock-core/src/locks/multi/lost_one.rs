//! The wait for the first loss of several locks.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::stream::{FuturesUnordered, Stream};
use tokio::runtime::{Handle, Id};

use crate::lease::Lost;
use crate::loss::LossReason;
use crate::name::LockName;

/// Resolves once, with name and reason, when the first of several locks is lost. From [`MultiGuard::lost`](super::MultiGuard::lost).
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct LostOne {
    losses: FuturesUnordered<Named>,
    /// The runtime on which they were polled last, if they were: their timers are of that one.
    polled_on: Option<Option<Id>>,
}

impl LostOne {
    pub(super) fn of(losses: impl Iterator<Item = (LockName, Lost)>) -> Self {
        Self { losses: losses.map(|(name, lost)| Named { name, lost }).collect(), polled_on: None }
    }
}

impl Future for LostOne {
    type Output = (LockName, LossReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        if self.polled_on.replace(here).is_some_and(|before| before != here) {
            // All are polled again, in their order: the newest of a set comes first.
            let losses: Vec<_> = std::mem::take(&mut self.losses).into_iter().collect();
            self.losses = losses.into_iter().rev().collect();
        }
        // Only those are polled that were woken.
        let Some(lost) = ready!(Pin::new(&mut self.losses).poll_next(cx)) else { return Poll::Pending };
        // Told once: from now on it is pending for ever.
        self.losses.clear();
        Poll::Ready(lost)
    }
}

/// The loss of one lock, with its name.
#[derive(Debug)]
struct Named {
    name: LockName,
    lost: Lost,
}

impl Future for Named {
    type Output = (LockName, LossReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reason = ready!(Pin::new(&mut self.lost).poll(cx));
        Poll::Ready((self.name.clone(), reason))
    }
}
