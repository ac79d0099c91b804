//! C-M17, C-M18, C-D09, C-D10, C-F03, C-F10: holders and waiters in processes of their own, which are killed, end without
//! a release, stand still, or have another wall clock.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lock_core::fence::FenceGate;

use crate::child::{Child, Part};
use crate::context::{Cx, release};
use crate::failure::{OrFail, OrUnknown, Verdict, ensure};
use crate::faults::{ClockFault, WallClock};
use crate::time::{hand_over, ms, pass, promptly, soon, ttl};

/// The time within which the dead at the head of a queue, together, have been passed over (K6): 3 s until they count as
/// dead, and one claim time of at most 2 s; or as long as the servers keep what the dead had.
fn past_the_dead(cx: &Cx) -> Duration {
    cx.freed_by(ttl()).max(ms(5000)) + hand_over()
}

pub(super) async fn the_lock_of_a_killed_process_is_free_after_its_ttl(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    let holder = Child::start(&cx, Part::Holder, None).await?;
    cx.is_refused(&next).await?;
    holder.kill().await?;
    let killed = Instant::now();
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    // The last renewal was at most a third of the TTL before the kill.
    ensure!(killed.elapsed() >= ttl() / 2, "granted {:?} after the kill, before the lease's end", killed.elapsed());
    held.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn the_lock_of_a_process_that_ended_is_free_after_its_ttl(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    let holder = Child::start(&cx, Part::Holder, None).await?;
    cx.is_refused(&next).await?;
    holder.end().await?;
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    held.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_process_that_stood_still_sees_the_end_at_its_first_look(cx: Arc<Cx>) -> Verdict {
    let (next, third) = cx.two().await?;
    let mut holder = Child::start(&cx, Part::Holder, None).await?;
    holder.ask().await?;
    ensure!(holder.look().await?.believes, "lost before it stood still");
    let frozen = holder.freeze()?;
    let held = next.try_lock_for(cx.freed_by(ttl())).await?.or_fail("the lock outlives the TTL of a frozen process")?;
    // It finds the question before anything that the servers may tell it.
    holder.ask().await?;
    frozen.heal().or_unknown()?;
    let look = holder.look().await?;
    ensure!(!look.believes, "a process that stood still past its lease believes in its lock");
    if let (Some(late), Some(token)) = (look.token, held.token()) {
        let gate = FenceGate::new();
        gate.admit_exclusive(token)?;
        ensure!(gate.admit_exclusive(late).is_err(), "the late token {late} passes the gate after {token}");
    }
    // Whatever it does about its lock now, it is another's.
    pass(ttl() / 2).await;
    cx.is_refused(&third).await?;
    release(held).await?;
    holder.end().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_holder_whose_wall_clock_is_stepped_by_an_hour_notices_nothing(cx: Arc<Cx>) -> Verdict {
    let other = cx.contender().await?;
    let clock = WallClock::new().map_err(|missing| crate::error::HarnessError::new(missing.to_string()))?;
    let mut holder = Child::start(&cx, Part::Holder, Some(&clock)).await?;
    for hours in [1, -1] {
        let stepped = clock.inject(ClockFault::ahead_by_ms(hours * 3_600_000))?;
        // For longer than a lease.
        pass(ttl() * 3 / 2).await;
        holder.ask().await?;
        let look = holder.look().await?;
        let ours = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().cast_signed();
        ensure!((look.wall_clock - ours - hours * 3600).abs() < 60, "the clock was not stepped by {hours} h");
        ensure!(look.believes, "a step of the wall clock by {hours} h has cost the lock");
        cx.is_refused(&other).await?;
        stepped.heal().or_unknown()?;
    }
    holder.end().await
}

pub(super) async fn waiters_that_are_killed_delay_the_next_one_by_a_bound(cx: Arc<Cx>) -> Verdict {
    let (holder, next) = cx.two().await?;
    let held = holder.clone().with_ttl(ms(15_000)).lock().await?;
    let head = Child::start(&cx, Part::Waiter, None).await?;
    cx.queued(&holder, 1).await?;
    let middle = Child::start(&cx, Part::Waiter, None).await?;
    cx.queued(&holder, 2).await?;
    let waiting = tokio::spawn(async move { next.lock().await });
    cx.queued(&holder, 3).await?;
    head.kill().await?;
    middle.kill().await?;
    release(held).await?;
    release(soon("the one behind the dead is granted", past_the_dead(&cx), waiting).await???).await?;
    cx.nothing_is_left_within(past_the_dead(&cx)).await
}

pub(super) async fn a_waiter_that_stands_still_across_its_turn_is_passed_over(cx: Arc<Cx>) -> Verdict {
    let (holder, next) = cx.two().await?;
    let held = holder.clone().with_ttl(ms(15_000)).lock().await?;
    let mut head = Child::start(&cx, Part::Waiter, None).await?;
    cx.queued(&holder, 1).await?;
    let waiting = tokio::spawn(async move { next.lock().await });
    cx.queued(&holder, 2).await?;
    let frozen = head.freeze()?;
    release(held).await?;
    let next = soon("the one behind it is granted", past_the_dead(&cx), waiting).await???;
    frozen.heal().or_unknown()?;
    // It believes in no grant that has passed it by.
    let early = tokio::time::timeout(ttl() / 2, head.holds()).await;
    ensure!(early.is_err(), "a waiter that was passed over believes that it holds: {early:?}");
    ensure!(next.is_held(), "the next holder lost its lock to a waiter that was passed over");
    release(next).await?;
    soon("it is granted in the end", promptly(), head.holds()).await??;
    head.kill().await?;
    let last =
        holder.try_lock_for(cx.freed_by(ttl())).await?.or_fail("still taken although the dead one's TTL is over")?;
    release(last).await?;
    cx.nothing_is_left().await
}
