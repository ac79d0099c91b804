//! C-F09, C-F15, C-F15b, C-F17: another server leads, or goes by another time; and what all cases with servers of their own
//! share.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use lock_core::{Guarantee, LeaseOptions, Locks, LossReason};

use crate::adapters::Exclusive;
use crate::contenders::Contenders;
use crate::context::{Cx, LOCK, release};
use crate::error::HarnessError;
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::faults::Proof;
use crate::harness::{DisposableServer, ServerFault};
use crate::time::{hand_over, ms, promptly, soon, stays_pending, ttl};

/// The number of failovers. (A master behind sentinels that was killed is one again for many seconds before it is
/// told; nothing else makes this case long.)
const FAILOVERS: usize = 2;

/// The milliseconds by which a server's clock is stepped.
const FORWARD: i64 = 30_000;
const BACK: i64 = -60_000;

/// Servers of the case's own, to which this can be done.
pub(super) async fn disposable_server(cx: &Cx, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Failure> {
    let pool = cx.harness.disposable_servers().or_fail("the case needs servers of its own and did not say so")?;
    pool.start(fault).await.map_err(|missing| Failure::unknown(missing.to_string()))
}

pub(super) async fn client(cx: &Cx, servers: &dyn DisposableServer) -> Result<Locks, Failure> {
    let pool = cx.harness.disposable_servers().or_fail("the case needs servers of its own and did not say so")?;
    Ok(soon("connecting a client", ms(15_000), pool.connect_to(servers, &cx.namespace)).await??)
}

pub(super) async fn contender(cx: &Cx, servers: &dyn DisposableServer) -> Result<Exclusive, Failure> {
    Ok(cx.form.handle(&client(cx, servers).await?, LOCK)?.with_ttl(ttl()))
}

/// Fails as unknown unless it was seen that the fault was applied.
pub(super) fn is_proven(done: Result<Proof, HarnessError>) -> Verdict {
    let proof = done?;
    if proof.is_given() { Ok(()) } else { Err(Failure::unknown("nothing shows what was done to the servers")) }
}

pub(super) async fn failovers_let_no_call_hang_and_everybody_goes_on(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::FailOver).await?;
    let contenders = Contenders::start(&cx, async || client(&cx, &*servers).await).await?;
    contenders.all_go_on(3).await?;
    for _ in 0..FAILOVERS {
        is_proven(servers.fail_over(&LOCK.into()).await)?;
        contenders.all_go_on(3).await?;
    }
    for counter in contenders.stop().await? {
        if cx.abilities.promises(Guarantee::ExclusionAcrossFailover) {
            ensure!(counter.overlaps() == 0, "{}: two inside at once, {} times", counter.name(), counter.overlaps());
        }
        if cx.abilities.promises(Guarantee::FencingAcrossFailover) {
            ensure!(counter.stale() == 0, "{}: {} tokens went back", counter.name(), counter.stale());
        }
        ensure!(
            counter.lost_updates() == 0,
            "{}: {} updates behind the gate are lost",
            counter.name(),
            counter.lost_updates()
        );
    }
    Ok(())
}

pub(super) async fn a_failover_costs_no_holder_its_lock_and_no_waiter_its_place(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::FailOver).await?;
    // For how long nobody leads is not the point; that the lock is asked for afterwards is.
    let mut lease = LeaseOptions::new(ms(30_000));
    lease.renew_every = Some(ttl() / 4);
    let lasting = async || Ok::<_, Failure>(contender(&cx, &*servers).await?.with_lease(lease));
    let (a, b, c) = (lasting().await?, lasting().await?, lasting().await?);
    let look = b.clone();
    let held = a.lock().await?;
    let first = tokio::spawn(async move { b.lock().await });
    cx.queued(&look, 1).await?;
    let second = tokio::spawn(async move { c.lock().await });
    cx.queued(&look, 2).await?;
    is_proven(servers.fail_over(&LOCK.into()).await)?;
    stays_pending("the loss signal after a failover", ttl() * 2, pin!(held.lost())).await?;
    ensure!(!first.is_finished() && !second.is_finished(), "granted although somebody holds it");
    release(held).await?;
    let next = soon("the first in the queue is granted", promptly(), first).await???;
    ensure!(!second.is_finished(), "the second in the queue is granted beside the first");
    release(next).await?;
    release(soon("the second in the queue is granted", promptly(), second).await???).await
}

/// Contenders for every kind of lock take turns while the clock is stepped; at the step itself, all who are
/// of one lock may each meet one more who should not be, if `they_may_meet`. When everybody has come in anew, nobody may.
async fn step_under_contention(cx: &Cx, ahead_ms: i64, they_may_meet: bool) -> Verdict {
    let servers = disposable_server(cx, ServerFault::ClockStep).await?;
    let contenders = Contenders::start(cx, async || client(cx, &*servers).await).await?;
    contenders.all_go_on(20).await?;
    is_proven(servers.step_clock(ahead_ms).await)?;
    contenders.all_go_on(25).await?;
    let settled = Instant::now();
    contenders.all_go_on(25).await?;
    for counter in contenders.stop().await? {
        let meetings = if they_may_meet { counter.places() } else { 0 };
        ensure!(counter.overlaps() <= meetings, "{}: two inside at once, {} times", counter.name(), counter.overlaps());
        let later = counter.overlaps_since(settled);
        ensure!(later == 0, "{}: two inside at once, {later} times, who came in after the step", counter.name());
        ensure!(
            counter.lost_updates() == 0,
            "{}: {} updates behind the gate are lost",
            counter.name(),
            counter.lost_updates()
        );
    }
    Ok(())
}

pub(super) async fn a_server_s_clock_that_is_put_back_costs_nobody_a_lock(cx: Arc<Cx>) -> Verdict {
    step_under_contention(&cx, BACK, false).await?;
    let servers = disposable_server(&cx, ServerFault::ClockStep).await?;
    let (a, b) = (contender(&cx, &*servers).await?, contender(&cx, &*servers).await?);
    let held = a.lock().await?;
    let waiting = tokio::spawn(async move { b.lock().await });
    is_proven(servers.step_clock(BACK).await)?;
    // For longer than a lease and than a waiter counts as alive.
    stays_pending("the loss signal after a step back", ttl() * 2, pin!(held.lost())).await?;
    ensure!(!waiting.is_finished(), "granted although somebody holds it");
    release(held).await?;
    release(soon("the waiter is granted", hand_over(), waiting).await???).await
}

pub(super) async fn a_server_s_clock_that_is_put_forward_is_no_secret(cx: Arc<Cx>) -> Verdict {
    // Who was inside when the clock was stepped may meet the one whom the server let in.
    step_under_contention(&cx, FORWARD, true).await?;
    let servers = disposable_server(&cx, ServerFault::ClockStep).await?;
    let (a, b, c) =
        (contender(&cx, &*servers).await?, contender(&cx, &*servers).await?, contender(&cx, &*servers).await?);
    let held = a.lock().await?;
    is_proven(servers.step_clock(FORWARD).await)?;
    let next = soon("the lock is taken that has expired", promptly(), b.lock()).await??;
    let reason = soon("the holder is told", ttl() / 3 + hand_over(), held.lost()).await?;
    ensure!(matches!(reason, LossReason::Taken | LossReason::Expired), "lost because {reason:?}, not by the clock");
    ensure!(!held.is_held(), "the lock is believed in after its loss: {held:?}");
    ensure!(c.try_lock().await?.is_none(), "granted although somebody holds it");
    release(next).await
}
