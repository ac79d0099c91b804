//! The one task of a client: it waits for the answers for which no caller waits, and releases what servers that could
//! not be reached still hold. When the client is gone it finishes the former, goes on with the latter for one operation timeout at most,
//! and closes the connections.
//!
//! It waits for [`MOST`] operations at once, and as many more stand before it: those that end while nobody answers for an
//! operation timeout. The requests of further ones are given up, which costs nothing but time: a release among them is pending
//! from then on ([`Member::release`]), and whatever else they would have told is found out anew, or forgotten by the servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::supervised;
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::{Mutex, Notify, mpsc, watch};

use super::member::Member;

/// The time between two looks whether a server can be reached again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The number of operations whose last answers are waited for at once, and of those that stand before them.
const MOST: usize = 16_384;

/// The most pending releases that are sent to one server at each look: whoever asks for a lock meanwhile waits behind them. When the
/// client is gone nobody does, and the next ones follow as soon as these are confirmed.
const OWED_AT_ONCE: usize = 1024;

/// The rest of an operation for which no caller waits.
pub(super) type Unfinished = BoxFuture<'static, ()>;

/// The task, for those who send it something to finish.
#[derive(Debug, Clone)]
pub(super) struct Background {
    inbox: mpsc::Sender<Unfinished>,
    /// Its runtime, which is the client's.
    runtime: Handle,
}

impl Background {
    /// Has this finished, or gives it up if there is too much to be finished.
    pub(super) fn finish(&self, rest: Unfinished) {
        // Only a runtime that is shut down has ended the task before.
        let _ = self.inbox.try_send(rest);
    }

    /// Enters the client's runtime: timers that are made meanwhile are its own.
    pub(super) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }
}

/// Starts the task, on the present runtime, for these members, which say through `pending_added` that they have something to release, and
/// whose `connections` tell when one is made. It finishes what it is sent, and ends when the last sender is gone.
pub(super) fn start(
    members: Arc<[Arc<Member>]>,
    pending_added: Arc<Notify>,
    connections: watch::Receiver<u64>,
) -> Background {
    let (sender, inbox) = mpsc::channel(MOST);
    let inbox = Arc::new(Mutex::new(inbox));
    let finish = move || run(members.clone(), pending_added.clone(), connections.clone(), inbox.clone());
    tokio::spawn(supervised("quorum", finish));
    Background { inbox: sender, runtime: Handle::current() }
}

async fn run(
    members: Arc<[Arc<Member>]>,
    pending_added: Arc<Notify>,
    mut connections: watch::Receiver<u64>,
    inbox: Arc<Mutex<mpsc::Receiver<Unfinished>>>,
) {
    // For this task alone; one that takes its place after a panic goes on with it.
    let mut inbox = inbox.lock().await;
    let mut rest = FuturesUnordered::new();
    let mut look_at = SystemClock.now().plus(LOOK_EVERY);
    // The instant at which what is pending is left to the servers, once the client is gone.
    let mut over_at = None;
    loop {
        let has_pending = members.iter().any(|member| member.has_pending());
        let is_idle = !has_pending && rest.is_empty();
        if over_at.is_some_and(|over_at| is_idle || SystemClock.now() >= over_at) {
            break;
        }
        tokio::select! {
            next = inbox.recv(), if over_at.is_none() && rest.len() < MOST => match next {
                Some(next) => rest.push(next),
                None => {
                    look_at = SystemClock.now();
                    over_at = Some(look_at.plus(op_timeout(&members)));
                }
            },
            Some(()) = rest.next() => {}
            () = pending_added.notified() => {}
            Ok(()) = connections.changed(), if has_pending => look_at = SystemClock.now(),
            () = SystemClock.sleep_until(look_at.min(over_at.unwrap_or(look_at))), if has_pending => {}
        }
        let now = SystemClock.now();
        if now >= look_at {
            look_at = now.plus(LOOK_EVERY);
            for member in &*members {
                let room = MOST.saturating_sub(rest.len()).min(OWED_AT_ONCE);
                match over_at {
                    Some(over_at) => rest.push(Box::pin(member.clone().send_all_pending(room, over_at))),
                    None => rest.extend(member.send_pending(room)),
                }
            }
        }
    }
    while rest.next().await.is_some() {}
    for member in &*members {
        member.link.close();
    }
}

/// Returns the operation timeout of the client that has these members.
fn op_timeout(members: &[Arc<Member>]) -> Duration {
    members.first().map(|member| member.op_timeout).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use lock_testkit::testing;

    use super::*;

    #[tokio::test]
    async fn no_more_operations_are_finished_at_once_than_the_bound_says() {
        let background = start(Arc::new([]), Arc::default(), watch::channel(0).1);
        let unanswered = Arc::new(());
        let give = || {
            let held = unanswered.clone();
            background.finish(Box::pin(async move {
                std::future::pending::<()>().await;
                drop(held);
            }));
        };
        // Ours is one more.
        while Arc::strong_count(&unanswered) < 2 * MOST + 1 {
            give();
            tokio::task::yield_now().await;
        }
        for _ in 0..1000 {
            give();
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(&unanswered), 2 * MOST + 1);
    }

    #[tokio::test]
    async fn a_panic_in_what_is_finished_does_not_end_the_task() {
        let background = start(Arc::new([]), Arc::default(), watch::channel(0).1);
        background.finish(Box::pin(async { resume_unwind(Box::new("a mistake, planted by the test")) }));
        let (finished, mut told) = mpsc::channel(1);
        testing::eventually("something else is finished", testing::PROMPTLY, async || {
            let finished = finished.clone();
            // What is finished beside a mistake may go with it.
            background.finish(Box::pin(async move { finished.try_send(()).unwrap_or_default() }));
            told.try_recv().is_ok()
        })
        .await;
    }
}
