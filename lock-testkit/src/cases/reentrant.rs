//! C-RE: what the reentrant lock promises beside exclusion between owners.

use std::pin::pin;
use std::sync::Arc;

use lock_core::{ErrorKind, LeaseOptions, Locks, Owner, ReentrantMutex};

use crate::adapters::Exclusive;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::time::{hand_over, ms, pass, promptly, soon, stays_pending, ttl};

fn of(locks: &Locks) -> Result<ReentrantMutex, Failure> {
    Ok(locks.reentrant(LOCK).or_fail("no reentrant lock")?.with_ttl(ttl()))
}

async fn lock(cx: &Cx) -> Result<ReentrantMutex, Failure> {
    of(&cx.client().await?)
}

pub(super) async fn an_owner_enters_again_with_the_same_token(cx: Arc<Cx>) -> Verdict {
    let (tree, me) = (lock(&cx).await?, Owner::new());
    let outer = tree.lock(&me).await?;
    let inner = tree.try_lock(&me).await?.or_fail("the owner was refused at its own lock")?;
    ensure!(inner.depth() == 2 && outer.depth() == 2, "depth {} and {}, not 2", inner.depth(), outer.depth());
    ensure!(inner.fencing_token() == outer.fencing_token(), "re-entry changed the token");
    ensure!(inner.grant_id() == outer.grant_id(), "re-entry changed the grant");
    inner.release().await?;
    ensure!(outer.depth() == 1, "depth {} after one of two releases", outer.depth());
    outer.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn one_owner_enters_from_two_clients(cx: Arc<Cx>) -> Verdict {
    let (a, b, c, me) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?, Owner::new());
    // As a job carries its owner to another process.
    let same: Owner = serde_json::from_str(&serde_json::to_string(&me)?)?;
    let first = a.lock(&me).await?;
    let second = b.try_lock(&same).await?.or_fail("the same owner was refused in another client")?;
    ensure!(first.fencing_token() == second.fencing_token(), "re-entry from another client changed the token");
    first.release().await?;
    ensure!(c.try_lock(&Owner::new()).await?.is_none(), "free although the owner is inside through the other client");
    ensure!(second.is_held(), "one client's release ended the other's part");
    second.release().await?;
    c.try_lock_for(&Owner::new(), hand_over())
        .await?
        .or_fail("still taken after both were released")?
        .release()
        .await?;
    Ok(())
}

pub(super) async fn an_owner_s_second_request_is_let_in_past_another_one(cx: Arc<Cx>) -> Verdict {
    let (x, s1, d, s2) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let (me, you, shared) = (Owner::new(), Owner::new(), Owner::new());
    let held = x.lock(&me).await?;
    let queue = Exclusive::Reentrant(x);
    let waiting = |lock: ReentrantMutex, owner: Owner| tokio::spawn(async move { lock.lock(&owner).await });
    let first = waiting(s1, shared.clone());
    cx.queued(&queue, 1).await?;
    // Where the queue has no order it may come first: it leaves at once.
    let other = tokio::spawn(async move { d.lock(&you).await?.release().await });
    cx.queued(&queue, 2).await?;
    let second = waiting(s2, shared);
    cx.queued(&queue, 3).await?;
    held.release().await?;
    let first = soon("the owner enters", promptly(), first).await???;
    let second = soon("the owner enters again, although another one waits in front", promptly(), second).await???;
    ensure!(first.is_held() && first.fencing_token() == second.fencing_token(), "they were not inside together");
    first.release().await?;
    ensure!(second.is_held(), "one client's release ended the other's part");
    second.release().await?;
    soon("the other owner enters after both", promptly(), other).await???;
    cx.nothing_is_left().await
}

pub(super) async fn only_the_last_of_three_releases_frees(cx: Arc<Cx>) -> Verdict {
    let (a, b, me) = (lock(&cx).await?, lock(&cx).await?, Owner::new());
    let mut levels = Vec::new();
    for _ in 0..3 {
        levels.push(a.lock(&me).await?);
    }
    while let Some(level) = levels.pop() {
        ensure!(b.try_lock(&Owner::new()).await?.is_none(), "free at depth {}", levels.len() + 1);
        level.release().await?;
    }
    b.try_lock_for(&Owner::new(), hand_over()).await?.or_fail("still taken after the last release")?.release().await?;
    Ok(())
}

pub(super) async fn a_waiter_enters_only_after_the_last_release(cx: Arc<Cx>) -> Verdict {
    let (a, b, me, you) = (lock(&cx).await?, lock(&cx).await?, Owner::new(), Owner::new());
    let (outer, inner) = (a.lock(&me).await?, a.lock(&me).await?);
    let mut waiting = pin!(b.lock(&you));
    stays_pending("another owner's wait at depth 2", ms(150), waiting.as_mut()).await?;
    inner.release().await?;
    stays_pending("another owner's wait at depth 1", ms(150), waiting.as_mut()).await?;
    outer.release().await?;
    soon("the waiter enters", hand_over(), waiting).await??.release().await?;
    Ok(())
}

pub(super) async fn another_owner_of_the_same_client_is_refused(cx: Arc<Cx>) -> Verdict {
    let (tree, me) = (lock(&cx).await?, Owner::new());
    let held = tree.lock(&me).await?;
    ensure!(tree.try_lock(&Owner::new()).await?.is_none(), "another owner was let in through the same client");
    ensure!(held.depth() == 1, "another owner's try changed the depth to {}", held.depth());
    held.release().await?;
    Ok(())
}

pub(super) async fn a_nested_lock_never_shortens_the_outer_lease(cx: Arc<Cx>) -> Verdict {
    let (tree, me) = (lock(&cx).await?, Owner::new());
    let outer = tree.clone().with_ttl(ms(10_000)).lock(&me).await?;
    let inner = tree.clone().with_ttl(ms(1000)).lock(&me).await?;
    ensure!(outer.remaining() > ms(5000), "entering shortened the outer lease to {:?}", outer.remaining());
    inner.release().await?;
    pass(ms(1200)).await;
    ensure!(outer.remaining() > ms(5000), "leaving shortened the outer lease to {:?}", outer.remaining());
    outer.release().await?;
    Ok(())
}

pub(super) async fn depth_two_is_kept_alive_by_renewal(cx: Arc<Cx>) -> Verdict {
    let (a, b, me) = (lock(&cx).await?.with_ttl(ms(1000)), lock(&cx).await?, Owner::new());
    let (outer, inner) = (a.lock(&me).await?, a.lock(&me).await?);
    pass(ms(1000) * 3).await;
    ensure!(outer.is_held() && inner.is_held(), "lost although it is renewed");
    ensure!(b.try_lock(&Owner::new()).await?.is_none(), "free although it is held");
    inner.release().await?;
    outer.release().await?;
    Ok(())
}

pub(super) async fn a_level_beyond_the_limit_is_refused(cx: Arc<Cx>) -> Verdict {
    let (tree, me) = (lock(&cx).await?.with_max_depth(2), Owner::new());
    let (outer, inner) = (tree.lock(&me).await?, tree.lock(&me).await?);
    expect_kind("the third of two levels", ErrorKind::InvalidArgument, tree.lock(&me).await)?;
    ensure!(outer.depth() == 2, "the refused level changed the depth to {}", outer.depth());
    inner.release().await?;
    outer.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_former_owner_s_release_does_not_touch_the_next_one(cx: Arc<Cx>) -> Verdict {
    let (a, b, me, you) = (lock(&cx).await?, lock(&cx).await?, Owner::new(), Owner::new());
    let short = LeaseOptions::new(ms(300)).with_auto_renew(false);
    let former = a.with_lease(short).lock(&me).await?;
    let outer = b.try_lock_for(&you, ms(300) + hand_over()).await?.or_fail("the lock outlives its TTL")?;
    let inner = b.lock(&you).await?;
    expect_kind("the former owner's release", ErrorKind::NotHeld, former.release().await)?;
    pass(ms(100)).await;
    ensure!(inner.depth() == 2 && outer.is_held(), "it changed the next owner's hold: depth {}", inner.depth());
    let c = lock(&cx).await?;
    ensure!(c.try_lock(&Owner::new()).await?.is_none(), "it freed the next owner's lock");
    inner.release().await?;
    outer.release().await?;
    Ok(())
}

pub(super) async fn a_loss_is_told_on_every_level(cx: Arc<Cx>) -> Verdict {
    let (tree, me) = (lock(&cx).await?, Owner::new());
    let short = tree.clone().with_lease(LeaseOptions::new(ms(300)).with_auto_renew(false));
    let (outer, inner) = (short.lock(&me).await?, short.lock(&me).await?);
    let reason = soon("the outer level learns of it", promptly(), outer.lost()).await?;
    soon("the inner level learns of it", hand_over(), inner.lost()).await?;
    ensure!(!outer.is_held() && !inner.is_held(), "a level still believes in the lock");
    for (level, guard) in [("inner", inner), ("outer", outer)] {
        let error = expect_kind("a release after the loss", ErrorKind::NotHeld, guard.release().await)?;
        ensure!(error.loss() == Some(&reason), "the {level} level was told {reason:?}, and its release: {error:?}");
    }
    let again = tree.try_lock_for(&me, hand_over()).await?.or_fail("the owner cannot enter again")?;
    ensure!(again.depth() == 1, "the depth began at {} after a loss", again.depth());
    again.release().await?;
    Ok(())
}
