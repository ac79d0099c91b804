//! C-M11, C-M24, C-M25, C-D04, C-D07: the late holder, and what stops it.
//!
//! The holder is an isolated client whose only thread is blocked past the end of its lease: neither the holder nor its
//! keeper can do anything until it comes back, as after SIGSTOP or a long garbage collection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::fence::FenceGate;
use lock_core::{ErrorKind, FencingToken, LossReason};
use tokio::sync::oneshot;

use crate::adapters::Held;
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::isolated_client::in_isolation;
use crate::time::{hand_over, ms, op_timeout, pass, promptly, soon, ttl};

/// A holder's findings when it came back after its lease.
struct Back {
    believed: bool,
    reason: LossReason,
    released: Result<(), lock_core::Error>,
    release_took: Duration,
}

/// An isolated client that holds, says so, is paused for this long, and then looks at its lock and releases it.
/// Stays alive for a moment afterwards, for whatever its client still does in the background.
async fn paused_holder(cx: Arc<Cx>, pause: Duration, holds: oneshot::Sender<()>) -> Result<Back, Failure> {
    in_isolation(move || async move {
        let held = cx.contender().await?.lock().await?;
        // The case that waits for this word fails by itself if it is gone.
        let _ = holds.send(());
        std::thread::sleep(pause);
        let believed = held.is_held();
        let reason = soon("the loss is told", hand_over(), held.lost()).await?;
        let began = Instant::now();
        let released = held.release().await;
        let release_took = began.elapsed();
        pass(ms(300)).await;
        Ok(Back { believed, reason, released, release_took })
    })
    .await
}

pub(super) async fn a_late_release_does_not_free_the_next_holder(cx: Arc<Cx>) -> Verdict {
    let (b, c) = cx.two().await?;
    let (holds, held) = oneshot::channel();
    let late = tokio::spawn(paused_holder(cx.clone(), cx.freed_by(ttl()) + ms(500), holds));
    soon("the first holder holds", promptly(), held).await??;
    let next = b.try_lock_for(cx.freed_by(ttl())).await?.or_fail("the lock outlives its TTL and its paused holder")?;
    let back = soon("the first holder comes back", promptly(), late).await???;
    ensure!(!back.believed, "the first holder still believed in its lock");
    expect_kind("the late release", ErrorKind::NotHeld, back.released)?;
    cx.is_refused(&c).await?;
    // The next holder's renewals would notice if its entry had been touched.
    pass(ttl() / 2).await;
    cx.is_refused(&c).await?;
    release(next).await
}

pub(super) async fn a_release_at_the_edge_of_expiry_does_not_free_the_next_holder(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = cx.three().await?;
    let lease = ms(500);
    for before_the_end in [ms(120), ms(60), ms(30), ms(15)] {
        let held = a.clone().unrenewed(lease).lock().await?;
        let waiter = {
            let b = b.clone();
            tokio::spawn(async move { b.lock().await })
        };
        // Computed from what is left, so that a slow start does not move the edge.
        pass(held.remaining().saturating_sub(before_the_end)).await;
        // Done or not held, both are right here; what it does to the other is the claim.
        let _ = soon("the release at the edge", promptly(), held.release()).await?;
        let next = soon("the next holder is granted", lease + hand_over(), waiter).await???;
        let began = Instant::now();
        while began.elapsed() < ms(250) {
            cx.is_refused(&c).await?;
            pass(ms(10)).await;
        }
        release(next).await?;
    }
    Ok(())
}

pub(super) async fn a_renewal_after_the_end_does_not_take_the_lock_back(cx: Arc<Cx>) -> Verdict {
    let (b, c) = cx.two().await?;
    let (holds, held) = oneshot::channel();
    let holder = {
        let cx = cx.clone();
        in_isolation(move || async move {
            let held = cx.contender().await?.lock().await?;
            let _ = holds.send(());
            std::thread::sleep(cx.freed_by(ttl()) + ms(500));
            // Its keeper now renews what it believes to have, and the holder asks for more itself.
            let extended = held.extend(ttl()).await;
            let reason = soon("the loss is told", hand_over(), held.lost()).await?;
            pass(ms(300)).await;
            Ok((extended, reason, held.is_held()))
        })
    };
    let holder = tokio::spawn(holder);
    soon("the first holder holds", promptly(), held).await??;
    let next = b.try_lock_for(cx.freed_by(ttl())).await?.or_fail("the lock outlives its TTL and its paused holder")?;
    let (extended, reason, believes) = soon("the first holder comes back", promptly(), holder).await???;
    expect_kind("extending a lease that is over", ErrorKind::Lost, extended)?;
    ensure!(matches!(reason, LossReason::Expired | LossReason::Taken), "lost because {reason:?}");
    ensure!(!believes, "the first holder believes in its lock again");
    cx.is_refused(&c).await?;
    release(next).await
}

pub(super) async fn a_paused_holder_sees_the_end_at_its_first_look(cx: Arc<Cx>) -> Verdict {
    let (holds, held) = oneshot::channel();
    let late = tokio::spawn(paused_holder(cx.clone(), ttl() * 3 / 2, holds));
    soon("the holder holds", promptly(), held).await??;
    let back = soon("the holder comes back", promptly() + ttl() * 2, late).await???;
    ensure!(!back.believed, "is_held was true after a pause past the lease's end");
    ensure!(matches!(back.reason, LossReason::Expired | LossReason::Taken), "lost because {:?}", back.reason);
    expect_kind("the release afterwards", ErrorKind::NotHeld, back.released)?;
    ensure!(back.release_took <= op_timeout(), "the release took {:?}", back.release_took);
    cx.nothing_is_left().await
}

/// The token that the backend promised.
fn token(held: &Held) -> Result<FencingToken, Failure> {
    held.token().or_fail("a grant came without the promised token")
}

pub(super) async fn tokens_grow_with_every_grant(cx: Arc<Cx>) -> Verdict {
    let mut last = None;
    for client in 0..4 {
        // The clients before are gone, and where it can be, so is the lock's entry: the tokens must not care.
        let (a, b) = cx.two().await?;
        for i in 0..60 {
            let held = if i % 2 == 0 { a.lock().await? } else { b.lock().await? };
            let token = token(&held)?;
            ensure!(Some(token) > last, "client {client}, grant {i}: token {token} after {last:?}");
            last = Some(token);
            if i == 30 && cx.harness.admin().is_some() {
                cx.delete_entry().await?;
                // The holder finds out by itself; its guard only has to go before the next turn.
                drop(held);
            } else {
                release(held).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn a_gate_admits_every_holder_and_no_late_one(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let gate = FenceGate::new();
    for i in 0..50 {
        let held = if i % 2 == 0 { a.lock().await? } else { b.lock().await? };
        for access in ["read", "write"] {
            let admitted = gate.admit_exclusive(token(&held)?);
            ensure!(admitted.is_ok(), "grant {i}: the {access} of a holder was refused: {admitted:?}");
        }
        release(held).await?;
    }
    let late = a.unrenewed(ms(300)).lock().await?;
    soon("the lease ends", promptly(), late.lost()).await?;
    let held = b.try_lock_for(ms(300) + ms(1000)).await?.or_fail("the lock outlives its TTL")?;
    gate.admit_exclusive(token(&held)?)?;
    ensure!(gate.admit_exclusive(token(&late)?).is_err(), "the late holder's write was admitted");
    release(held).await
}
