//! C-W: waiting, giving up, and being dropped while waiting.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_core::{Guarantee, LossReason};
use tokio::sync::{Barrier, mpsc};

use super::mutex::waits_and_releases;
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::isolated_client::in_isolation;
use crate::time::{eventually, hand_over, ms, op_timeout, pass, promptly, soon, stays_pending, ttl};

pub(super) async fn a_wait_without_limit_ends_with_the_release(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let mut waiting = pin!(b.lock());
    stays_pending("a wait while the lock is held", ms(1000), waiting.as_mut()).await?;
    release(held).await?;
    release(soon("the waiter is granted", hand_over(), waiting).await??).await
}

pub(super) async fn a_wait_of_zero_is_a_try(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.try_lock_for(Duration::ZERO).await?.or_fail("a try of a free lock was refused")?;
    let refused = soon("a wait of zero", op_timeout(), b.try_lock_for(Duration::ZERO)).await??;
    ensure!(refused.is_none(), "granted although somebody holds it");
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn the_longest_wait_does_not_overflow(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let mut waiting = pin!(b.try_lock_for(Duration::MAX));
    stays_pending("the longest wait", ms(200), waiting.as_mut()).await?;
    release(held).await?;
    let next = soon("the waiter is granted", hand_over(), waiting).await??;
    release(next.or_fail("the longest wait ended without a grant")?).await
}

pub(super) async fn the_limit_of_a_wait_is_one_for_the_whole_call(cx: Arc<Cx>) -> Verdict {
    let (a, last) = cx.two().await?;
    let held = a.lock().await?;
    let mut predecessors = Vec::new();
    for i in 1..=5 {
        let lock = cx.contender().await?;
        predecessors.push(tokio::spawn(async move {
            let held = lock.lock().await?;
            pass(ms(300)).await;
            release(held).await
        }));
        cx.queued(&a, i).await?;
    }
    let wait = ms(1200);
    let waiting = tokio::spawn(async move {
        let began = Instant::now();
        last.try_lock_for(wait).await.map(|held| (held, began.elapsed()))
    });
    cx.queued(&a, 6).await?;
    // Predecessors come and go during the wait; none of them starts its limit again.
    release(held).await?;
    let (granted, took) = soon("the wait ends", wait + op_timeout(), waiting).await???;
    match granted {
        Some(_) if cx.abilities.promises(Guarantee::Fifo) => {
            return Err(Failure::new(format!(
                "granted after {took:?}, before predecessors that hold longer than that"
            )));
        }
        // Where there is no queue, the last to come may be the first to be served, in time.
        Some(held) => release(held).await?,
        None => ensure!(took >= wait, "gave up after {took:?}, before its limit"),
    }
    for predecessor in predecessors {
        soon("the predecessors are served", promptly(), predecessor).await???;
    }
    Ok(())
}

pub(super) async fn a_short_wait_ends_in_time(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let (wait, began) = (ms(50), Instant::now());
    let refused = soon("a wait of 50 ms", wait + op_timeout(), b.try_lock_for(wait)).await??;
    ensure!(refused.is_none(), "granted although somebody holds it");
    ensure!(began.elapsed() >= wait, "gave up after {:?}, before its limit", began.elapsed());
    release(held).await
}

pub(super) async fn a_waiter_that_gave_up_leaves_nothing_in_the_way(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = cx.three().await?;
    let held = a.lock().await?;
    // Long enough for the next one to be seen behind it, however busy the machine is.
    let gives_up = tokio::spawn(async move { b.try_lock_for(ms(2000)).await });
    cx.queued(&a, 1).await?;
    let mut next = tokio::spawn(async move { c.lock().await });
    cx.queued(&a, 2).await?;
    let gave_up = soon("the first waiter gives up", promptly(), gives_up).await???;
    ensure!(gave_up.is_none(), "granted although somebody holds it");
    cx.queued(&a, 1).await?;
    stays_pending("a wait behind one that gave up", ms(200), Pin::new(&mut next)).await?;
    release(held).await?;
    release(soon("the next in the queue is granted", hand_over(), next).await???).await?;
    cx.nothing_is_left().await
}

pub(super) async fn waiters_are_served_in_the_order_of_their_coming(cx: Arc<Cx>) -> Verdict {
    let order = serve(&cx, 20, &[]).await?;
    ensure!(order.iter().copied().eq(0..20), "the waiters were served in the order {order:?}");
    cx.nothing_is_left().await
}

pub(super) async fn a_waiter_that_cancels_does_not_change_the_order(cx: Arc<Cx>) -> Verdict {
    for cancelled in [&[2][..], &[0], &[4], &[1, 3]] {
        let order = serve(&cx, 5, cancelled).await?;
        let others: Vec<_> = (0..5).filter(|waiter| !cancelled.contains(waiter)).collect();
        ensure!(order == others, "the waiters were served in the order {order:?}, {cancelled:?} had cancelled");
    }
    cx.nothing_is_left().await
}

/// Lets this many waiters line up one after the other, cancels some, and says in which order they are served.
async fn serve(cx: &Cx, waiters: usize, cancelled: &[usize]) -> Result<Vec<usize>, Failure> {
    let first = cx.contender().await?;
    // Held for as long as it takes until all of them are in the queue.
    let held = first.clone().with_ttl(ms(10_000)).lock().await?;
    let (served, mut order) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for i in 0..waiters {
        let (lock, served) = (cx.contender().await?, served.clone());
        tasks.push(tokio::spawn(async move {
            let held = lock.lock().await?;
            served.send(i)?;
            release(held).await
        }));
        cx.queued(&first, i + 1).await?;
    }
    drop(served);
    cancelled.iter().for_each(|waiter| tasks[*waiter].abort());
    cx.queued(&first, waiters - cancelled.len()).await?;
    release(held).await?;
    let mut seen = Vec::new();
    while let Some(i) = soon("the next waiter is served", promptly(), order.recv()).await? {
        seen.push(i);
    }
    Ok(seen)
}

pub(super) async fn a_release_wakes_one_waiter_and_not_the_herd(cx: Arc<Cx>) -> Verdict {
    const WAITERS: usize = 50;
    const TURNS: usize = 10;
    /// The time in which waiters are looked at that nobody wakes.
    const LOOK_ON: Duration = Duration::from_secs(1);
    let a = cx.contender().await?;
    // Held for as long as it takes until all of them are in the queue.
    let held = a.clone().with_ttl(ms(10_000)).lock().await?;
    let polls = Arc::new(AtomicUsize::new(0));
    let (served, mut turns) = mpsc::unbounded_channel();
    let mut waiters = Vec::new();
    for number in 1..=WAITERS {
        let (lock, polls, served) = (cx.contender().await?, polls.clone(), served.clone());
        waiters.push(tokio::spawn(async move {
            let mut taking = Box::pin(lock.lock());
            let counted = std::future::poll_fn(move |context| {
                polls.fetch_add(1, Ordering::Relaxed);
                taking.as_mut().poll(context)
            });
            served.send(counted.await?)?;
            Ok::<_, Failure>(())
        }));
        cx.queued(&a, number).await?;
    }
    let seen = || polls.load(Ordering::Relaxed);
    // Waiters may look of their own accord, too: as often as where nothing is released.
    let (before, began) = (seen(), Instant::now());
    pass(LOOK_ON).await;
    let (idle, quiet) = (seen() - before, began.elapsed());
    let (before, began) = (seen(), Instant::now());
    let mut held = held;
    for _ in 0..TURNS {
        release(held).await?;
        held = soon("the next waiter is served", promptly(), turns.recv()).await?.or_fail("the waiters are gone")?;
    }
    let (woken, took) = (seen() - before, began.elapsed());
    let idle = u128::try_from(idle)? * took.as_micros() / quiet.as_micros().max(1);
    let idle = usize::try_from(idle)?;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    // A herd wakes every waiter at every turn.
    let herd = (WAITERS - TURNS) * TURNS;
    ensure!(
        woken.saturating_sub(idle) < herd / 2,
        "{woken} wake-ups for {TURNS} turns of {WAITERS} waiters, {idle} without any in as long; a herd makes {herd}"
    );
    Ok(())
}

pub(super) async fn a_wait_leaves_the_only_thread_to_other_tasks(cx: Arc<Cx>) -> Verdict {
    in_isolation(move || async move {
        let (a, b) = cx.two().await?;
        let held = a.lock().await?;
        let waiter = waits_and_releases(&b);
        let others = tokio::spawn(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        soon("another task runs beside a wait", promptly(), others).await??;
        ensure!(!waiter.is_finished(), "granted although somebody holds it");
        release(held).await?;
        soon("the waiter is granted on the same thread", hand_over(), waiter).await??
    })
    .await
}

pub(super) async fn no_waiter_is_starved_by_the_others(cx: Arc<Cx>) -> Verdict {
    const WAITERS: usize = 20;
    let mut locks = Vec::new();
    for _ in 0..WAITERS {
        locks.push(cx.contender().await?.with_ttl(ttl()));
    }
    // However long it took to connect and to begin, everybody competes for the same time: until each has had a turn since all are in
    // each other's way.
    let (begun, span) = (Arc::new(Barrier::new(WAITERS)), Arc::new(OnceLock::new()));
    let served = Arc::new(AtomicUsize::new(0));
    let mut waiters = Vec::new();
    for lock in locks {
        let (begun, span, served) = (begun.clone(), span.clone(), served.clone());
        waiters.push(tokio::spawn(async move {
            begun.wait().await;
            let (since, until) = *span.get_or_init(|| {
                let now = Instant::now();
                (now + ms(1000), now + promptly())
            });
            let mut grants = 0_u32;
            while Instant::now() < until && served.load(Ordering::SeqCst) < WAITERS {
                let held = lock.lock().await?;
                // Who gets it when the others have stopped was starved by them.
                if (since..until).contains(&Instant::now()) {
                    served.fetch_add(usize::from(grants == 0), Ordering::SeqCst);
                    grants += 1;
                }
                release(held).await?;
                // Where a turn needs no server it never waits, and would keep the others from running at all.
                tokio::task::yield_now().await;
            }
            Ok::<_, Failure>(grants)
        }));
    }
    let mut grants = Vec::new();
    for waiter in soon("all waiters come to an end", promptly() * 2, join_all(waiters)).await? {
        grants.push(waiter??);
    }
    ensure!(grants.iter().all(|grants| *grants > 0), "a waiter had no turn while others had: {grants:?}");
    Ok(())
}

pub(super) async fn a_waiter_follows_an_expiry(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.unrenewed(ms(500)).lock().await?;
    let waiter = tokio::spawn(async move { b.lock().await });
    let next = soon("the waiter is granted after the lease's end", ms(500) + hand_over(), waiter).await???;
    ensure!(!held.is_held(), "two holders believe in the lock at once");
    release(next).await?;
    eventually("the former holder is told", hand_over(), async || Ok((!held.is_held()).then_some(()))).await
}

pub(super) async fn a_waiter_follows_the_deletion_of_the_entry(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let waiter = tokio::spawn(async move { b.lock().await });
    cx.queued(&a, 1).await?;
    cx.delete_entry().await?;
    let next = soon("the waiter is granted", hand_over() + ms(500), waiter).await???;
    let reason = soon("the former holder is told", ttl() / 3 + hand_over(), held.lost()).await?;
    ensure!(reason == LossReason::Taken, "lost because {reason:?}, but the entry was deleted");
    ensure!(next.is_held(), "the next holder lost its lock to the former one");
    cx.is_refused(&a).await?;
    release(next).await?;
    cx.nothing_is_left().await
}
