//! C-F15, C-F15b, C-F17: what happens to servers that a case has for itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use lock_core::{Guarantee, Locks, LossReason};

use crate::adapters::Exclusive;
use crate::context::{Cx, LOCK, release};
use crate::crowd::Crowd;
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::faults::Proof;
use crate::harness::{Broken, Harm, Spare};
use crate::time::{hand_over, ms, promptly, soon, stays_pending, ttl};

/// How often another server takes over. (A master behind sentinels that was killed is one again for many seconds before it is
/// told; nothing else makes this case long.)
const FAILOVERS: usize = 2;

/// How far a server's clock is stepped, in milliseconds.
const FORWARD: i64 = 30_000;
const BACK: i64 = -60_000;

/// Servers of the case's own, to which this can be done.
async fn spare(cx: &Cx, harm: Harm) -> Result<Box<dyn Spare>, Failure> {
    let spares = cx.harness.spares().or_fail("the case needs servers of its own and did not say so")?;
    spares.start(harm).await.map_err(|missing| Failure::unknown(missing.to_string()))
}

async fn client(cx: &Cx, spare: &dyn Spare) -> Result<Locks, Failure> {
    let spares = cx.harness.spares().or_fail("the case needs servers of its own and did not say so")?;
    Ok(soon("connecting a client", ms(15_000), spares.connect_to(spare, &cx.namespace)).await??)
}

async fn contender(cx: &Cx, spare: &dyn Spare) -> Result<Exclusive, Failure> {
    Ok(cx.form.handle(&client(cx, spare).await?, LOCK)?.with_ttl(ttl()))
}

/// What was done has to be seen.
fn is_proven(done: Result<Proof, Broken>) -> Verdict {
    let proof = done?;
    if proof.is_given() { Ok(()) } else { Err(Failure::unknown("nothing shows what was done to the servers")) }
}

pub(super) async fn failovers_let_no_call_hang_and_everybody_goes_on(cx: Arc<Cx>) -> Verdict {
    let spare = spare(&cx, Harm::FailOver).await?;
    let crowd = Crowd::gather(&cx, async || client(&cx, &*spare).await).await?;
    crowd.goes_on(3).await?;
    for _ in 0..FAILOVERS {
        is_proven(spare.fail_over(&LOCK.into()).await)?;
        crowd.goes_on(3).await?;
    }
    for room in crowd.disperse().await? {
        if cx.abilities.promises(Guarantee::ExclusionAcrossFailover) {
            ensure!(room.overlaps() == 0, "{}: two inside at once, {} times", room.name(), room.overlaps());
        }
        if cx.abilities.promises(Guarantee::FencingAcrossFailover) {
            ensure!(room.stale() == 0, "{}: {} tokens went back", room.name(), room.stale());
        }
        ensure!(room.lost_updates() == 0, "{}: {} updates behind the gate are lost", room.name(), room.lost_updates());
    }
    Ok(())
}

/// Contenders for every kind of lock take turns while the clock is stepped; at the step itself, all who are
/// in a room may each meet one more who should not be, if `they_may_meet`. When everybody has come in anew, nobody may.
async fn step_under_contention(cx: &Cx, ahead_ms: i64, they_may_meet: bool) -> Verdict {
    let spare = spare(cx, Harm::ClockStep).await?;
    let crowd = Crowd::gather(cx, async || client(cx, &*spare).await).await?;
    crowd.goes_on(20).await?;
    is_proven(spare.step_clock(ahead_ms).await)?;
    crowd.goes_on(25).await?;
    let settled = Instant::now();
    crowd.goes_on(25).await?;
    for room in crowd.disperse().await? {
        let meetings = if they_may_meet { room.places() } else { 0 };
        ensure!(room.overlaps() <= meetings, "{}: two inside at once, {} times", room.name(), room.overlaps());
        let later = room.overlaps_since(settled);
        ensure!(later == 0, "{}: two inside at once, {later} times, who came in after the step", room.name());
        ensure!(room.lost_updates() == 0, "{}: {} updates behind the gate are lost", room.name(), room.lost_updates());
    }
    Ok(())
}

pub(super) async fn a_server_s_clock_that_is_put_back_costs_nobody_a_lock(cx: Arc<Cx>) -> Verdict {
    step_under_contention(&cx, BACK, false).await?;
    let spare = spare(&cx, Harm::ClockStep).await?;
    let (a, b) = (contender(&cx, &*spare).await?, contender(&cx, &*spare).await?);
    let held = a.lock().await?;
    let waiting = tokio::spawn(async move { b.lock().await });
    is_proven(spare.step_clock(BACK).await)?;
    // For longer than a lease and than a waiter counts as alive.
    stays_pending("the loss signal after a step back", ttl() * 2, pin!(held.lost())).await?;
    ensure!(!waiting.is_finished(), "granted although somebody holds it");
    release(held).await?;
    release(soon("the waiter is granted", hand_over(), waiting).await???).await
}

pub(super) async fn a_server_s_clock_that_is_put_forward_is_no_secret(cx: Arc<Cx>) -> Verdict {
    // Who was inside when the clock was stepped may meet the one whom the server let in.
    step_under_contention(&cx, FORWARD, true).await?;
    let spare = spare(&cx, Harm::ClockStep).await?;
    let (a, b, c) = (contender(&cx, &*spare).await?, contender(&cx, &*spare).await?, contender(&cx, &*spare).await?);
    let held = a.lock().await?;
    is_proven(spare.step_clock(FORWARD).await)?;
    let next = soon("the lock is taken that has expired", promptly(), b.lock()).await??;
    let reason = soon("the holder is told", ttl() / 3 + hand_over(), held.lost()).await?;
    ensure!(matches!(reason, LossReason::Taken | LossReason::Expired), "lost because {reason:?}, not by the clock");
    ensure!(!held.is_held(), "the lock is believed in after its loss: {held:?}");
    ensure!(c.try_lock().await?.is_none(), "granted although somebody holds it");
    release(next).await
}
