//! C-LV: a mutex that its holder leaves: taken for a while yet, and nobody's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{ErrorKind, GrantId, Guarantee, LeaseOptions, Mutex, MutexGuard};

use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{eventually, hand_over, ms, op_timeout, promptly, soon, ttl};

/// The number of requests that leaving a lock makes, at most.
const REQUESTS: u64 = 2;

/// A time that is shorter than a lease.
fn brief() -> Duration {
    ttl() / 2
}

/// The case's mutex in a client of its own, with this lease.
async fn mutex(cx: &Cx, lease: Duration) -> Result<Mutex, Failure> {
    Ok(cx.client().await?.mutex(LOCK).with_ttl(lease))
}

/// Somebody who waits for the lock is granted it, and releases it; the instant of the grant.
fn waits(other: Mutex, wait: Duration) -> tokio::task::JoinHandle<Result<Instant, Failure>> {
    tokio::spawn(async move {
        let next = other.try_lock_for(wait).await?.or_fail("nobody was granted it in time")?;
        let granted = Instant::now();
        next.release().await?;
        Ok(granted)
    })
}

/// Checks that a waiter was not granted a left lock before its time was over.
fn not_before(granted: Instant, left: Instant, time: Duration) -> Verdict {
    let after = granted.duration_since(left);
    // The clocks of two machines differ by a little.
    ensure!(after >= time.mul_f64(0.99), "granted after {after:?}, but the lock was left for {time:?}");
    Ok(())
}

/// Leaves a mutex with this lease for this time: nobody has it before, somebody soon after.
async fn is_left_for(cx: &Cx, lease: Duration, time: Duration) -> Verdict {
    let (mine, other) = (mutex(cx, lease).await?, mutex(cx, ttl()).await?);
    let held = mine.lock().await?;
    let ended = tokio::spawn(held.ended());
    let left = Instant::now();
    held.leave(time).await?;
    soon("the end of the hold is told", promptly(), ended).await??;
    if let Some(early) = mine.try_lock().await? {
        // Not early, if this machine stood still meanwhile.
        not_before(Instant::now(), left, time)?;
        early.release().await?;
    }
    let granted = waits(other, cx.freed_by(time)).await??;
    not_before(granted, left, time)?;
    cx.nothing_is_left().await
}

pub(super) async fn a_lock_that_was_left_for_less_than_its_lease_is_free_after_that_time(cx: Arc<Cx>) -> Verdict {
    is_left_for(&cx, ttl() * 3, brief()).await
}

pub(super) async fn a_lock_that_was_left_for_more_than_its_lease_is_taken_for_that_time(cx: Arc<Cx>) -> Verdict {
    is_left_for(&cx, brief(), ttl() + brief()).await
}

pub(super) async fn whoever_waits_for_a_lock_that_was_left_is_granted_it_when_it_ends(cx: Arc<Cx>) -> Verdict {
    let (mine, other) = (mutex(&cx, ttl() * 3).await?, mutex(&cx, ttl()).await?);
    let held = mine.lock().await?;
    let waiting = waits(other, ms(500) + cx.freed_by(brief()));
    // A stimulus: it stands in the queue, where there is one.
    tokio::time::sleep(ms(300)).await;
    let left = Instant::now();
    held.leave(brief()).await?;
    not_before(waiting.await??, left, brief())?;
    cx.nothing_is_left().await
}

pub(super) async fn a_lock_that_was_left_outlasts_its_client(cx: Arc<Cx>) -> Verdict {
    let (client, other) = (cx.client().await?, mutex(&cx, ttl()).await?);
    let held = client.mutex(LOCK).with_ttl(ttl() * 3).lock().await?;
    let left = Instant::now();
    held.leave(brief()).await?;
    client.close().await?;
    drop(client);
    not_before(waits(other, cx.freed_by(brief())).await??, left, brief())?;
    cx.nothing_is_left().await
}

pub(super) async fn a_lock_that_was_lost_cannot_be_left_and_nobody_elses_is_touched(cx: Arc<Cx>) -> Verdict {
    let other = mutex(&cx, ttl()).await?;
    let held = mutex(&cx, ttl()).await?.lock().await?;
    ensure!(other.force_release(held.grant_id(), "the test").await?, "the grant was not there");
    is_not_left(held, &other).await?;
    // Nobody tells a holder that an admin has deleted its entry, and it asks for nothing by itself: the servers have to compare.
    if cx.harness.admin().is_some() {
        let lease = LeaseOptions::new(ttl() * 3).with_auto_renew(false);
        let held = mutex(&cx, ttl()).await?.with_lease(lease).lock().await?;
        cx.delete_entry().await?;
        is_not_left(held, &other).await?;
    }
    cx.nothing_is_left().await
}

/// Checks that a lost lock, which somebody else has by now, stays theirs although its former holder leaves it.
async fn is_not_left(lost: MutexGuard, other: &Mutex) -> Verdict {
    let next = other.try_lock_for(hand_over()).await?.or_fail("not free although its holder has lost it")?;
    let failed = lost.leave(ms(100)).await.map_err(|failed| failed.error);
    // By renewals.
    tokio::time::sleep(ttl()).await;
    ensure!(next.is_held(), "a lock of somebody else was left");
    expect_kind("leaving a lock that was lost", ErrorKind::Lost, failed)?;
    next.release().await?;
    Ok(())
}

pub(super) async fn a_lock_that_was_left_is_shown_and_can_be_freed_by_force(cx: Arc<Cx>) -> Verdict {
    let (mine, other) = (mutex(&cx, ttl()).await?, mutex(&cx, ttl()).await?);
    let held = mine.lock().await?;
    let was = held.grant_id();
    held.leave(ttl() * 2).await?;
    // Where the servers end it, late requests of its holder must not find it.
    let has_another_id = cx.abilities.always_promises(Guarantee::Leave);
    let is_shown = |grant: &GrantId| !has_another_id || *grant != was;
    let shown = eventually("its holder is shown, under another id than before", promptly(), async || {
        let holder = other.inspect().await?.holders.into_iter().next();
        Ok(holder.and_then(|holder| holder.grant).filter(is_shown))
    });
    let shown = shown.await?;
    if has_another_id {
        ensure!(!other.force_release(was, "the test").await?, "it can be freed by the id under which it was held");
    }
    ensure!(other.force_release(shown, "the test").await?, "what is shown is not there");
    other.try_lock_for(hand_over()).await?.or_fail("not free after the release by force")?.release().await?;
    // The word to a holder may stay for as long as that could have held.
    cx.nothing_is_left_within(cx.freed_by(ttl() * 2)).await
}

pub(super) async fn a_request_to_leave_a_lock_that_is_lost_or_its_reply_is_sent_again(cx: Arc<Cx>) -> Verdict {
    // A call that goes on after a lost reply leaves it for the whole time once more, up to an operation timeout later.
    let over = |time| cx.freed_by(time) + op_timeout();
    // Sooner than its lease would have ended, and later: of that lease there is enough left for a second connection.
    let sooner = is_left_despite_losses(&cx, "sooner", over(ttl() * 2) + ms(1000), ttl() * 2, over(ttl() * 2));
    let later = is_left_despite_losses(&cx, "later", ttl() * 2, ttl() * 3, over(ttl() * 3));
    tokio::try_join!(sooner, later)?;
    cx.nothing_is_left_within(cx.freed_by(ttl())).await
}

/// Leaves a mutex with this lease for this time, again and again: whichever request or reply is lost, it is taken for so long, and free by then.
async fn is_left_despite_losses(cx: &Cx, name: &str, lease: Duration, time: Duration, over: Duration) -> Verdict {
    let (links, other) = (cx.links()?, cx.client().await?.mutex(name).with_ttl(ttl()));
    let mine = cx.client_at(&links).await?.mutex(name).with_ttl(lease);
    // Whatever is loaded at first is loaded.
    mine.lock().await?.leave(ms(1)).await?;
    let (to_server, to_client) = (Direction::ToServer, Direction::ToClient);
    let mut losses = vec![(Toxic::Reset, to_server, REQUESTS), (Toxic::Reset, to_client, REQUESTS)];
    // For as long as the call lasts: the rest is done in the background. A session may end with such a silence, and the lock with it.
    if cx.abilities.always_promises(Guarantee::Leave) {
        losses.push((Toxic::Blackhole, to_client, 1));
        if lease > time {
            // Until a request is heard the lock may end with its lease.
            losses.push((Toxic::Blackhole, to_server, 1));
        }
    }
    for (toxic, direction, requests) in losses {
        for nth in 1..=requests {
            let held = mine.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free before")?;
            let loss = links.inject(&LinkFault::new(toxic.clone(), direction).on_request(nth, &cx.namespace));
            let left = Instant::now();
            let outcome = soon("leaving ends", op_timeout() + ms(500), held.leave(time)).await?;
            // Not every backend makes a second request.
            if nth == 1 {
                loss.applied().await.and_then(|()| loss.heal())?
            } else {
                drop(loss)
            }
            if let Err(failed) = outcome {
                ensure!(!failed.error.is_definite(), "{} is no unknown outcome", failed.error);
                ensure!(failed.guard.is_none(), "the guard is back");
            }
            // In the background it goes on with what is left of the time.
            let granted = waits(other.clone(), over.max(cx.freed_by(lease))).await??;
            not_before(granted, left, time)?;
            let after = granted.duration_since(left);
            ensure!(
                after <= over,
                "granted after {after:?}, but the lock was left for {time:?} and has to be free by {over:?}"
            );
        }
    }
    Ok(())
}

pub(super) async fn a_time_out_of_range_is_refused_and_the_lock_is_held_on(cx: Arc<Cx>) -> Verdict {
    let mine = mutex(&cx, ttl()).await?;
    let held = is_refused(mine.lock().await?, Duration::ZERO).await?;
    let held = is_refused(held, Duration::MAX).await?;
    held.release().await?;
    cx.nothing_is_left().await
}

/// The guard comes back when its lock cannot be left for so long.
async fn is_refused(held: MutexGuard, time: Duration) -> Result<MutexGuard, Failure> {
    let failed = held.leave(time).await.err().or_fail("it was left for such a time")?;
    ensure!(failed.error.kind() == ErrorKind::InvalidArgument, "{}, not an argument out of range", failed.error);
    let held = failed.guard.or_fail("the guard did not come back")?;
    ensure!(held.is_held(), "it is not held any more");
    Ok(held)
}
