//! C-W08, C-W10, C-W16: waits and acquisitions that are dropped, and what they leave behind.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::adapters::Exclusive;
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::time::{hand_over, ms, pass, poll_times, promptly, stays_pending};

pub(super) async fn an_acquisition_dropped_at_any_poll_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = cx.three().await?;
    let lease = ms(1000);
    let a = a.with_ttl(lease);
    // Which await point the n-th poll reaches depends on how fast the server answers, so several rounds.
    for _ in 0..4 {
        let mut polls = 1;
        while !taken_before_its_drop(&a, polls).await? {
            let next = b.try_lock_for(lease + ms(1000)).await?;
            let next = next.or_fail(&format!("taken one second after the TTL of a future dropped at poll {polls}"))?;
            wait_and_drop(&a, polls).await?;
            release(next).await?;
            let last = c.try_lock_for(hand_over()).await?;
            release(last.or_fail(&format!("not free after a wait was dropped at poll {polls}"))?).await?;
            polls += 1;
            ensure!(polls <= 40, "an uncontended acquisition takes more than 40 polls");
        }
    }
    cx.nothing_is_left().await
}

/// Drops the acquisition of a free lock after this many polls: the request on its way, or the grant on its way back.
/// Says whether it was granted before, and then releases it.
async fn taken_before_its_drop(lock: &Exclusive, polls: usize) -> Result<bool, Failure> {
    let mut taking = pin!(lock.lock());
    match poll_times(taking.as_mut(), polls, promptly()).await {
        Some(held) => release(held?).await.map(|()| true),
        None => Ok(false),
    }
}

/// Drops a wait for a held lock after this many polls.
async fn wait_and_drop(lock: &Exclusive, polls: usize) -> Verdict {
    let mut waiting = pin!(lock.lock());
    let granted = poll_times(waiting.as_mut(), polls, ms(30)).await;
    ensure!(granted.is_none(), "granted although somebody holds it");
    Ok(())
}

pub(super) async fn a_cancellation_at_the_instant_of_grant_leaves_a_guard_or_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = cx.three().await?;
    for i in 0..60 {
        let held = a.lock().await?;
        let waiter = {
            let b = b.clone();
            tokio::spawn(async move { b.lock().await })
        };
        // From round to round the cancellation moves across the hand-over.
        let abort = async {
            for _ in 0..i % 20 {
                tokio::task::yield_now().await;
            }
            if i % 3 == 2 {
                pass(Duration::from_micros(50 * i)).await;
            }
            waiter.abort();
        };
        let (released, ()) = tokio::join!(release(held), abort);
        released?;
        if let Ok(granted) = waiter.await {
            release(granted?).await?;
        }
        let next = c.try_lock_for(hand_over()).await?;
        release(next.or_fail(&format!("round {i}: not free although the cancelled waiter is gone"))?).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn many_waits_of_one_client_need_no_task_each(cx: Arc<Cx>) -> Verdict {
    const NAMES: usize = 300;
    let (holder, waiter) = (cx.client().await?, cx.client().await?);
    let mut held = Vec::new();
    let mut waits = Vec::new();
    for i in 0..NAMES {
        let name = format!("waited/{i}");
        held.push(cx.form.handle(&holder, &*name)?.with_ttl(ms(10_000)).lock().await?);
        waits.push(cx.form.handle(&waiter, &*name)?.with_ttl(ms(10_000)));
    }
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    // Requests may have a task until they are answered: the number is to fall below `most` before long.
    let wait = async |locks: &[Exclusive], most: usize| {
        let mut waiting = pin!(join_all(locks.iter().map(|lock| lock.lock())));
        let began = Instant::now();
        loop {
            stays_pending("waits for names that are held", ms(100), waiting.as_mut()).await?;
            if began.elapsed() >= ms(500) && (alive() <= most || began.elapsed() > promptly() / 2) {
                return Ok::<_, Failure>(alive());
            }
        }
    };
    let one = wait(&waits[..1], usize::MAX).await?;
    let many = wait(&waits, one + 2).await?;
    ensure!(many <= one + 2, "{many} tasks are alive with {NAMES} waits, {one} with one");
    for held in held {
        release(held).await?;
    }
    cx.nothing_is_left().await
}
