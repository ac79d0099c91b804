//! C-L07: clients, handles and guards that meet a second runtime, or none.

use std::sync::Arc;

use futures_util::future::try_join;
use lock_core::{Locks, LossReason};
use tokio::sync::oneshot;

use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::isolated_client::in_isolation;
use crate::panics::Run;
use crate::time::{hand_over, ms, pass, promptly, soon, ttl};

/// Runs `work` on a thread of its own, which belongs to no runtime.
async fn on_a_plain_thread<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (done, outcome) = oneshot::channel();
    let run = Run::present();
    std::thread::spawn(move || {
        let _working = Run::work(run);
        done.send(work()).is_ok()
    });
    // The sender is gone without a word when the work panicked.
    soon(what, ms(10_000), outcome).await?.map_err(|_| Failure::new(format!("{what}: panicked")))
}

pub(super) async fn guards_and_clients_may_be_dropped_outside_of_any_runtime(cx: Arc<Cx>) -> Verdict {
    let (locks, other) = (cx.client().await?, cx.contender().await?);
    let lock = cx.lock_of(&locks).await?;
    let held = lock.lock().await?;
    on_a_plain_thread("a guard is dropped", move || drop(held)).await?;
    let next =
        other.try_lock_for(hand_over()).await?.or_fail("a guard that was dropped on a plain thread keeps its lock")?;
    release(next).await?;
    let held = lock.lock().await?;
    on_a_plain_thread("a client is dropped with its guard", move || drop((locks, lock, held))).await?;
    let within = cx.freed_by(crate::time::ttl());
    release(other.try_lock_for(within).await?.or_fail("the lock of a client that is gone outlives its TTL")?).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_handle_works_on_another_runtime_and_after_it_has_ended(cx: Arc<Cx>) -> Verdict {
    let (here, other) = cx.two().await?;
    let there = here.clone();
    let taken = on_a_plain_thread("a lock is taken and released on a second runtime", move || {
        let second = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        second.block_on(async {
            release(there.lock().await?).await?;
            Ok::<_, Failure>(there.lock().await?)
        })
    });
    // The second runtime has ended; its guard has not.
    let held = taken.await??;
    cx.is_refused(&other).await?;
    crate::time::pass(crate::time::ttl() * 2).await;
    held.is_held().then_some(()).or_fail("not renewed any more since the second runtime has ended")?;
    cx.is_refused(&other).await?;
    release(held).await?;
    release(soon("the lock is taken here again", hand_over(), here.lock()).await??).await?;
    cx.nothing_is_left().await
}

/// A client, and what was taken through it here, after the end of the runtime on which it was made.
async fn orphaned<T>(
    cx: &Arc<Cx>,
    take: impl AsyncFnOnce(&Locks) -> Result<T, Failure>,
) -> Result<(Locks, T), Failure> {
    let (give, given) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let connecting = cx.clone();
    let home = in_isolation(move || async move {
        let connected = give.send(connecting.client().await?);
        ensure!(connected.is_ok(), "nobody waits for the client");
        // An error means that the case has failed meanwhile.
        let _ = ended.await;
        Ok(())
    });
    let taken = async {
        let locks = soon("the client is connected", promptly(), given).await??;
        let taken = take(&locks).await?;
        ensure!(end.send(()).is_ok(), "the client's runtime has ended too early");
        Ok((locks, taken))
    };
    Ok(try_join(home, taken).await?.1)
}

pub(super) async fn a_loss_is_told_elsewhere_when_the_client_s_runtime_has_ended(cx: Arc<Cx>) -> Verdict {
    let take = async |locks: &Locks| Ok(cx.lock_of(locks).await?.unrenewed(ttl()).lock().await?);
    let (_locks, held) = orphaned(&cx, take).await?;
    let (left, lost) = (held.remaining(), held.lost());
    let reason = soon("the loss is told", left + ms(100), lost).await?;
    ensure!(reason == LossReason::Expired, "lost because {reason:?}, but the lease ended");
    Ok(())
}

pub(super) async fn a_guard_is_renewed_elsewhere_when_the_client_s_runtime_has_ended(cx: Arc<Cx>) -> Verdict {
    let other = cx.contender().await?;
    let take = async |locks: &Locks| Ok(cx.lock_of(locks).await?.lock().await?);
    let (locks, held) = orphaned(&cx, take).await?;
    pass(ttl() * 2).await;
    held.is_held().then_some(()).or_fail("not renewed any more since the client's runtime has ended")?;
    cx.is_refused(&other).await?;
    release(held).await?;
    release(soon("the lock is taken again", hand_over(), cx.lock_of(&locks).await?.lock()).await??).await?;
    cx.nothing_is_left().await
}
