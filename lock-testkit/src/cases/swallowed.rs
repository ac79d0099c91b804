//! C-W20, C-W21: one event, or one reply, of a wait never comes, on a link that is healthy otherwise.
//!
//! Which request is which differs from backend to backend, so each reply of a wait is swallowed once: first before the
//! release, then after it.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::adapters::{Exclusive, Held};
use crate::context::{Cx, release};
use crate::failure::{Verdict, ensure, was_seen};
use crate::proxy::{Direction, LinkFault, Protocol, Toxic};
use crate::time::{hand_over, ms, op_timeout, soon, ttl};

type WaitTask = JoinHandle<Result<Held, lock_core::Error>>;

/// So many replies are swallowed at most: a wait without pushes makes as many requests as it takes.
const REQUESTS: u64 = 16;
/// As many where each costs a connection and an operation timeout.
const SILENCES: u64 = 4;
/// The number of rounds in which an event has to be on its way once: a waiter may learn of the release otherwise.
const ROUNDS: usize = 20;
/// The number of events that are swallowed.
const EVENTS: usize = 3;

fn wait(lock: &Exclusive) -> WaitTask {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

pub(super) async fn a_waiter_whose_event_is_swallowed_is_granted_within_a_second(cx: Arc<Cx>) -> Verdict {
    let (holder, (waiter, links)) = (cx.contender().await?, cx.linked().await?);
    let mut swallowed = 0;
    for _ in 0..ROUNDS {
        let held = holder.lock().await?;
        let event = links.inject(&LinkFault::new(Toxic::Swallow, Direction::ToClient).on_push(1, &cx.namespace));
        let waiting = wait(&waiter);
        cx.queued(&holder, 1).await?;
        release(held).await?;
        let granted = soon("the waiter is granted without the event", hand_over(), waiting).await???;
        if event.applied_within(ms(0)).await {
            event.heal()?;
            swallowed += 1;
        }
        release(granted).await?;
        if swallowed == EVENTS {
            break;
        }
    }
    ensure!(swallowed > 0, "no event came in {ROUNDS} rounds");
    cx.nothing_is_left().await
}

pub(super) async fn a_waiter_one_of_whose_replies_is_swallowed_is_granted_within_two_seconds(cx: Arc<Cx>) -> Verdict {
    each_reply(&cx, Toxic::Swallow, ms(0), REQUESTS).await?;
    // Where replies come in turn, nothing may come behind it either: then the connection is given up after an operation timeout.
    if cx.harness.linked().is_some_and(|servers| servers.protocol() != Protocol::ZooKeeper) {
        each_reply(&cx, Toxic::Blackhole, op_timeout(), SILENCES).await?;
    }
    cx.nothing_is_left_within(ttl() + hand_over()).await
}

/// Each of the first replies of a wait meets this fault, which costs so much more time.
async fn each_reply(cx: &Arc<Cx>, toxic: Toxic, silence: Duration, most: u64) -> Verdict {
    let (holder, (waiter, links)) = (cx.contender().await?, cx.linked().await?);
    for nth in 1..=most {
        let held = holder.clone().with_ttl(ms(10_000)).lock().await?;
        let fault = LinkFault::new(toxic.clone(), Direction::ToClient).on_request(nth, &cx.namespace);
        let reply = links.inject(&fault);
        let waiting = wait(&waiter);
        let before = reply.applied_within(ms(200)).await;
        release(held).await?;
        let what = format!("the waiter is granted without its reply {nth}, swallowed before the release: {before}");
        let granted = soon(&what, silence + hand_over() * 2, waiting).await???;
        let swallowed = reply.applied_within(ms(0)).await;
        if swallowed {
            reply.heal()?;
        } else {
            drop(reply);
        }
        // Its connection may have just been reset.
        drop(granted.release().await);
        if !swallowed {
            was_seen(nth > 1, "a wait")?;
            break;
        }
        cx.is_obtainable().await?;
    }
    Ok(())
}
