//! The futures that guards hand out: each resolves once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is dropped when it has resolved, and is pending for ever afterwards.
pub(super) struct OneShot<T> {
    /// The name of the type that shows it.
    name: &'static str,
    waiting: Option<Pin<Box<dyn Future<Output = T> + Send + Sync>>>,
}

impl<T> OneShot<T> {
    pub(super) fn new(name: &'static str, waiting: impl Future<Output = T> + Send + Sync + 'static) -> Self {
        Self { name, waiting: Some(Box::pin(waiting)) }
    }
}

impl<T> Future for OneShot<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(waiting) = &mut self.waiting else { return Poll::Pending };
        let ready = waiting.as_mut().poll(cx);
        if ready.is_ready() {
            self.waiting = None;
        }
        ready
    }
}

impl<T> fmt::Debug for OneShot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
