//! C-W13, C-W14: what happens between two requests of a waiter.
//!
//! One request of the waiter, or its reply, is held on its way; the release or the cancellation happens meanwhile. Which
//! request is which differs from backend to backend, so each of the first few is held once.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::adapters::{Exclusive, Held};
use crate::context::{Cx, release};
use crate::failure::{Verdict, ensure, was_seen};
use crate::links::{Links, Trouble};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{hand_over, ms, promptly, soon};

type WaitTask = JoinHandle<Result<Held, lock_core::Error>>;

/// A waiter makes no more requests than this before it only waits.
const REQUESTS: u64 = 3;

fn wait(lock: &Exclusive) -> WaitTask {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// Begins to wait, with its `nth` request (or its reply) held on its way. Not every waiter makes so many.
async fn wait_with_held(
    cx: &Cx,
    lock: &Exclusive,
    links: &Links,
    way: Direction,
    nth: u64,
) -> (WaitTask, Trouble, bool) {
    let held = links.inject(&LinkFault::new(Toxic::Hold, way).on_request(nth, &cx.namespace));
    let waiting = wait(lock);
    let applied = held.applied_within(if nth == 1 { promptly() } else { ms(150) }).await;
    (waiting, held, applied)
}

/// Heals, and sees the waiter granted in time.
async fn is_granted(cx: &Cx, waiting: WaitTask, request: Trouble, applied: bool) -> Verdict {
    if applied {
        request.heal()?;
    } else {
        drop(request);
    }
    release(soon("the waiter is granted", hand_over() + ms(500), waiting).await???).await?;
    cx.is_obtainable().await
}

pub(super) async fn a_release_between_two_requests_of_a_waiter_is_not_missed(cx: Arc<Cx>) -> Verdict {
    let (holder, (waiter, links)) = (cx.contender().await?, cx.linked().await?);
    for way in [Direction::ToServer, Direction::ToClient] {
        for nth in 1..=REQUESTS {
            let held = holder.lock().await?;
            let (waiting, request, applied) = wait_with_held(&cx, &waiter, &links, way, nth).await;
            was_seen(applied || nth > 1, "a wait")?;
            release(held).await?;
            is_granted(&cx, waiting, request, applied).await?;
        }
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_predecessor_that_leaves_between_two_requests_of_a_waiter_is_not_missed(cx: Arc<Cx>) -> Verdict {
    let (holder, predecessor, (waiter, links)) = (cx.contender().await?, cx.contender().await?, cx.linked().await?);
    for way in [Direction::ToServer, Direction::ToClient] {
        for nth in 1..=REQUESTS {
            let held = holder.lock().await?;
            let before = wait(&predecessor);
            cx.queued(&holder, 1).await?;
            let (waiting, request, applied) = wait_with_held(&cx, &waiter, &links, way, nth).await;
            was_seen(applied || nth > 1, "a wait")?;
            before.abort();
            let gone: Result<_, _> = before.await;
            ensure!(gone.is_err(), "the predecessor was granted although somebody holds the lock");
            release(held).await?;
            is_granted(&cx, waiting, request, applied).await?;
        }
    }
    cx.nothing_is_left().await
}
