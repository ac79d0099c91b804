//! C-D: what a holder is told of its lease, and of its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_core::{Ending, ErrorKind, Holder, LeaseOptions, LossReason};

use crate::context::{Cx, release};
use crate::failure::{OrFail, Verdict, ensure, expect_kind};
use crate::isolated_client::in_isolation;
use crate::time::{eventually, hand_over, ms, pass, promptly, soon, stays_pending, ttl};

/// A lease that is to end soon, but not before a busy machine has told of its grant.
fn brief() -> Duration {
    ttl() / 2
}

pub(super) async fn a_loss_is_told_exactly_once_and_a_release_never(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.lock().await?;
    let mut quiet = pin!(held.lost());
    release(held).await?;
    stays_pending("the loss signal after a normal release", ms(200), quiet.as_mut()).await?;

    let held = lock.unrenewed(brief()).lock().await?;
    let mut early = held.lost();
    let reason = soon("the loss is told at the end of the lease", brief() + hand_over(), &mut early).await?;
    ensure!(reason == LossReason::Expired, "lost because {reason:?}, but the lease ended");
    stays_pending("the loss signal, once told", ms(50), pin!(early).as_mut()).await?;
    let late = held.lost().now_or_never();
    ensure!(late == Some(LossReason::Expired), "who asks after the loss is told {late:?}");
    Ok(())
}

pub(super) async fn the_end_of_a_hold_is_told_whatever_it_is(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.lock().await?;
    let told = tokio::spawn(held.ended());
    release(held).await?;
    let ending = soon("a release is told", promptly(), told).await??;
    ensure!(ending == Ending::Released, "a hold that was released has ended by {ending:?}");
    let held = lock.unrenewed(brief()).lock().await?;
    let told = tokio::spawn(held.ended());
    let ending = soon("the end of the lease is told", brief() + hand_over(), told).await??;
    ensure!(ending == Ending::Lost(LossReason::Expired), "a lease that ended has ended by {ending:?}");
    Ok(())
}

pub(super) async fn a_warning_comes_in_time_before_the_lease_ends(cx: Arc<Cx>) -> Verdict {
    // Half of it is for a machine that stands still.
    let lease = ttl() * 3;
    let held = cx.contender().await?.unrenewed(lease).lock().await?;
    let time = lease / 2;
    let warning = held.expires_within(time)?;
    soon("the warning", lease, warning).await?;
    let left = held.remaining();
    ensure!(left <= time, "warned although {left:?} are left");
    ensure!(held.is_held(), "warned when it was over");
    release(held).await
}

pub(super) async fn a_lost_lock_can_be_taken_again_through_the_same_handle(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let first = lock.clone().unrenewed(brief()).lock().await?;
    soon("the lease ends", promptly(), first.lost()).await?;
    let second = lock.try_lock_for(brief() + hand_over()).await?.or_fail("the lost lock cannot be taken again")?;
    ensure!(first.grant_id() != second.grant_id(), "the new grant has the old id");
    if let (Some(old), Some(new)) = (first.token(), second.token()) {
        ensure!(new > old, "the new grant's token {new} is not above the old one's {old}");
    }
    ensure!(!first.is_held() && second.is_held(), "the old guard believes in the new grant");
    release(second).await
}

pub(super) async fn what_remains_is_never_more_than_the_server_keeps(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.unrenewed(ttl()).lock().await?;
    let is_mine = |holder: &&Holder| holder.grant == Some(held.grant_id());
    // Some backends describe a holder a moment after its grant.
    eventually("the grant is shown", hand_over(), async || {
        Ok(b.inspect().await?.holders.iter().find(is_mine).map(drop))
    })
    .await?;
    let mut before = ttl();
    // Half of the lease is left for the last look, and for the release.
    while before > ttl() / 2 {
        // In this order: an interruption between the two accuses nobody.
        let (looked, left) = (Instant::now(), held.remaining());
        ensure!(left <= before, "what remains grew from {before:?} to {left:?} without a renewal");
        before = left;
        let seen = b.inspect().await?;
        let mine = seen.holders.iter().find(is_mine);
        let kept = mine.or_fail("the grant is not shown")?.expires_in.or_fail("the grant is shown without an end")?;
        // The server was asked after our look at the clock; milliseconds are the coarsest unit in which it answers.
        let kept = kept + looked.elapsed() + ms(2);
        ensure!(left <= kept, "{left:?} are said to remain, but the server keeps it for {kept:?} only");
        pass(ms(80)).await;
    }
    release(held).await
}

/// Somebody tries all the time, after a grant and after an extension, so that it sees the first moment in which the server
/// lets it in.
pub(super) async fn at_the_end_of_a_lease_the_belief_ends_first(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let a = a.unrenewed(brief());
    for is_extended in [false, true] {
        let held = a.lock().await?;
        if is_extended {
            pass(brief() / 2).await;
            held.extend(brief()).await?;
        }
        let granted = async || {
            let granted = b.try_lock().await?;
            // At once: the try has let no time pass.
            Ok(granted.map(|next| (next, held.is_held())))
        };
        let (next, believes) = eventually("the lock is free after its lease", cx.freed_by(brief()), granted).await?;
        let since = if is_extended { "an extension" } else { "its grant" };
        ensure!(!believes, "somebody else was granted the lock while its holder still believed in it, after {since}");
        release(next).await?;
    }
    Ok(())
}

pub(super) async fn the_end_is_seen_without_any_background_task(cx: Arc<Cx>) -> Verdict {
    // Its only thread does nothing but look: no timer, no keeper, no network.
    in_isolation(move || async move {
        let lease = ms(600);
        let held = cx.contender().await?.with_lease(LeaseOptions::new(lease)).lock().await?;
        let (began, left) = (Instant::now(), held.remaining());
        loop {
            // Read before the look: a thread that is interrupted between the two accuses nobody.
            let at_least = began.elapsed();
            if !held.is_held() {
                break;
            }
            ensure!(at_least <= lease, "is_held is still true {at_least:?} after the grant");
            std::hint::spin_loop();
        }
        let ended = began.elapsed();
        ensure!(ended + ms(5) >= left, "the lock ended after {ended:?}, although {left:?} were said to remain");
        ensure!(held.remaining().is_zero(), "{:?} remain of a lease that is over", held.remaining());
        expect_kind(
            "work under a lock that is over",
            ErrorKind::Lost,
            held.while_held(async {}).await.map_err(|failed| failed.error),
        )?;
        Ok(())
    })
    .await
}

pub(super) async fn work_is_dropped_when_the_lock_is_lost(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.unrenewed(brief()).lock().await?;
    let (began, left) = (Instant::now(), held.remaining());
    let endless = held.while_held(std::future::pending::<()>());
    let outcome = soon("the work is dropped at the loss", brief() + hand_over(), endless).await?;
    let ended = began.elapsed();
    expect_kind("work that outlived its lock", ErrorKind::Lost, outcome.map_err(|failed| failed.error))?;
    ensure!(ended + ms(5) >= left, "the work was dropped after {ended:?}, although {left:?} were said to remain");
    Ok(())
}
