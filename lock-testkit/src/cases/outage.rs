//! C-D02, C-D05, C-F02, C-F04, C-F11, C-R02, C-R04, C-W09, C-W11: links that are silent, down, or cut again and again.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::{TryJoinAll, try_join_all};
use lock_core::{Error, ErrorKind, LossReason};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::adapters::{Exclusive, Held};
use crate::context::{Cx, is_done_or_unknown, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::links::Links;
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{eventually, hand_over, ms, op_timeout, pass, poll_times, promptly, soon, stays_pending, ttl};

/// The time that a busy machine may add to a bound.
fn slack() -> Duration {
    ms(500)
}

pub(super) fn both(toxic: Toxic) -> LinkFault {
    LinkFault::new(toxic, Direction::Both)
}

/// A contender through links of its own, which holds.
pub(super) async fn holder(cx: &Cx) -> Result<(Exclusive, Links, Held), Failure> {
    let (lock, links) = cx.linked().await?;
    let held = lock.lock().await?;
    Ok((lock, links, held))
}

/// Under this fault the lock ends by its deadline and is free for others soon afterwards.
async fn ends_by_its_deadline_under(cx: &Cx, fault: &LinkFault) -> Verdict {
    let (_, links, held) = holder(cx).await?;
    let silence = links.inject(fault);
    // What was answered before the silence began counts at most from now.
    let reason = soon("the loss is told", ttl() + slack(), held.lost()).await?;
    ensure!(reason == LossReason::Expired, "lost because {reason:?}, but nothing was heard of the servers");
    ensure!(!held.is_held() && held.remaining().is_zero(), "the lock is believed in after its loss: {held:?}");
    silence.heal()?;
    let next = cx.contender().await?.try_lock_for(cx.freed_by(ttl())).await?;
    release(next.or_fail("not free after the lease of a holder without network")?).await?;
    cx.residue_within(cx.freed_by(ttl())).await
}

pub(super) async fn a_holder_without_network_is_told_by_its_deadline(cx: Arc<Cx>) -> Verdict {
    ends_by_its_deadline_under(&cx, &both(Toxic::Blackhole)).await
}

pub(super) async fn a_holder_that_is_heard_but_hears_nothing_is_told_by_its_deadline(cx: Arc<Cx>) -> Verdict {
    ends_by_its_deadline_under(&cx, &LinkFault::new(Toxic::Blackhole, Direction::ToClient)).await?;
    ends_by_its_deadline_under(&cx, &LinkFault::new(Toxic::Blackhole, Direction::ToServer)).await
}

pub(super) async fn an_outage_of_less_than_half_a_lease_costs_nothing(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let mut lost = pin!(held.lost());
    for _ in 0..3 {
        let outage = links.inject(&both(Toxic::Hold));
        // Longer than the time between two renewals, so that one falls into it.
        stays_pending("the loss signal in a short outage", ttl() * 2 / 5, lost.as_mut()).await?;
        outage.heal()?;
        stays_pending("the loss signal after a short outage", ttl() / 2, lost.as_mut()).await?;
    }
    stays_pending("the loss signal after a short outage", ttl(), lost.as_mut()).await?;
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn five_resets_cost_a_holder_nothing(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let mut lost = pin!(held.lost());
    for _ in 0..5 {
        unless_lost(&mut lost, links.are_used()).await?;
        let reset = links.inject(&both(Toxic::Reset));
        reset.applied().await?;
        reset.heal()?;
        stays_pending("the loss signal after a reset", ms(300), lost.as_mut()).await?;
    }
    stays_pending("the loss signal after five resets", ttl(), lost.as_mut()).await?;
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_renewal_counts_from_its_sending_however_late_its_reply(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let other = cx.contender().await?;
    // The first one may cost a server that has just started more than one request.
    is_renewed(&held).await?;
    // Within the time that a backend waits for an answer.
    let late =
        links.inject(&LinkFault::new(Toxic::Delay { by: ttl() / 4, jitter: Duration::ZERO }, Direction::ToClient));
    is_renewed(&held).await?;
    let silence = links.inject(&LinkFault::new(Toxic::Blackhole, Direction::ToServer));
    let next = other.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free after the lease of a silent holder")?;
    ensure!(!held.is_held(), "believed in for {:?} more beside the next holder", held.remaining());
    release(next).await?;
    silence.heal()?;
    late.heal()?;
    cx.residue_within(cx.freed_by(ttl())).await
}

/// Waits for a renewal, which the holder notices by its deadline.
async fn is_renewed(held: &Held) -> Verdict {
    let mut before = held.remaining();
    eventually("a renewal is answered", ttl(), async || {
        let remaining = held.remaining();
        let has_grown = remaining > before;
        before = remaining;
        Ok(has_grown.then_some(()))
    })
    .await
}

pub(super) async fn a_renewal_that_fails_now_and_then_costs_nothing(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let mut lost = pin!(held.lost());
    for _ in 0..4 {
        unless_lost(&mut lost, links.are_used()).await?;
        let failure = links.inject(&LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, ""));
        unless_lost(&mut lost, failure.applied()).await?;
        failure.heal()?;
        // One that gets through.
        stays_pending("the loss signal after a renewal that failed", ttl() / 2, lost.as_mut()).await?;
    }
    stays_pending("the loss signal after renewals that failed", ttl(), lost.as_mut()).await?;
    release(held).await?;
    cx.nothing_is_left().await
}

/// Waits for this, and fails if the lock is lost before.
pub(super) async fn unless_lost(
    lost: &mut (impl Future<Output = LossReason> + Unpin),
    what: impl Future<Output = Verdict>,
) -> Verdict {
    tokio::select! {
        verdict = what => verdict,
        reason = lost => Err(Failure::new(format!("lost by connections that failed: {reason:?}"))),
    }
}

pub(super) async fn what_was_given_up_while_the_link_was_down_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    for toxic in [Toxic::Hold, Toxic::Blackhole] {
        let (lock, links) = cx.linked().await?;
        let outage = links.inject(&both(toxic));
        let granted = poll_times(pin!(lock.lock()), 100, ms(200)).await;
        ensure!(granted.is_none(), "granted although the link is down: {granted:?}");
        let tried = soon("a try while the link is down", op_timeout() + slack(), lock.try_lock()).await?;
        ensure!(tried.is_err(), "a try while the link is down says {tried:?}");
        outage.heal()?;
        // What was held arrives now, perhaps after a first look.
        pass(slack()).await;
        cx.residue_within(cx.freed_by(ttl())).await?;
        cx.is_obtainable().await?;
    }
    cx.nothing_is_left().await
}

/// The calls of each kind that meet silent servers at once.
const CALLS: usize = 490;
/// As many of them are about one lock that is held; the others each about one of their own, of which one is held.
const CROWD: usize = 20;
/// The turns that a call needs from the end of its time to its own end: what it asked for ends, is given back, and it is told.
const TURNS: usize = 3;
/// The locks that are released at once to silent servers.
const RELEASES: usize = 20;
/// One crowd at a time: those of all forms at once would be the load that makes each of them late.
static CROWDS: Mutex<()> = Mutex::const_new(());

pub(super) async fn silent_servers_hold_nobody_up_for_long(cx: Arc<Cx>) -> Verdict {
    let links = cx.links()?;
    let locks = cx.client_at(&links).await?;
    let lock_of = |name: String| Ok::<_, Failure>(cx.form.handle(&locks, name)?.with_ttl(ttl()));
    let lock = cx.lock_of(&locks).await?;
    let held = lock.lock().await?;
    let mut calls = vec![lock; CROWD];
    // One more is held, about which there is one try and one wait: nobody else has heard of its holder.
    let alone = lock_of("silent/held".to_owned())?;
    let held_alone = alone.lock().await?;
    calls.push(alone);
    for i in CROWD + 1..CALLS {
        calls.push(lock_of(format!("silent/{i}"))?);
    }
    let mut released = Vec::new();
    for i in 0..RELEASES {
        released.push(lock_of(format!("released/{i}"))?.lock().await?);
    }
    let crowd = CROWDS.lock().await;
    let (silence, began) = (links.inject(&both(Toxic::Hold)), Instant::now());
    let tries = each_timed(calls.clone(), |lock| async move { lock.try_lock().await });
    let waits = each_timed(calls, |lock| async move { lock.try_lock_for(ms(300)).await });
    let releases = each_timed(released, |held| held.release());
    // Timers of the same crowds, which ask nobody, and have as many turns at their end as a call has: as late as they are is what the
    // machine adds.
    let timers_of = |time| {
        each_timed(vec![time; CALLS], |time| async move {
            tokio::time::sleep(time).await;
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        })
    };
    let (timers, wait_timers) = (timers_of(op_timeout()), timers_of(op_timeout() + ms(300)));
    let (tries, waits, releases, timers, wait_timers) = tokio::try_join!(tries, waits, releases, timers, wait_timers)?;
    silence.heal()?;
    drop(crowd);
    ensure!(began.elapsed() < promptly(), "all at once took {:?}", began.elapsed());
    let slowest = |timers: &[((), Duration)]| timers.iter().map(|((), took)| *took).max().unwrap_or_default();
    // Less than `lock-core` waits for a backend that does not end by itself.
    let within = slowest(&timers).max(op_timeout()) + ms(300);
    on_time("a try", within, &tries)?;
    on_time("a wait of 300 ms", slowest(&wait_timers).max(op_timeout() + ms(300)) + ms(300), &waits)?;
    on_time("a release", within, &releases)?;
    for (i, (outcome, _)) in tries.iter().chain(&waits).enumerate() {
        let kind = outcome.as_ref().err().map(Error::kind);
        let right = matches!(kind, Some(ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::TimedOut));
        // Where one asks for all, the others may have heard of the holder before.
        let heard_before = i % CALLS < CROWD && matches!(outcome, Ok(None));
        ensure!(right || heard_before, "call {i} at silent servers says {outcome:?}");
    }
    for (outcome, _) in &releases {
        let kind = outcome.as_ref().err().map(Error::kind);
        let right = matches!(kind, Some(ErrorKind::Indeterminate | ErrorKind::NotHeld));
        ensure!(right, "a release at silent servers says {outcome:?}");
    }
    drop((tries, waits, held, held_alone));
    cx.residue_within(cx.freed_by(ttl())).await?;
    cx.is_obtainable().await
}

/// Fails if one of these calls took longer, and tells how many did.
fn on_time<T>(what: &str, within: Duration, calls: &[(T, Duration)]) -> Verdict {
    let late = calls.iter().filter(|(_, took)| *took > within).count();
    let longest = calls.iter().map(|(_, took)| *took).max().unwrap_or_default();
    ensure!(
        late == 0,
        "{what} at silent servers took {longest:?}; {late} of {} took longer than {within:?}",
        calls.len()
    );
    Ok(())
}

/// Works with each of them at once, in a task of its own, and returns each outcome with the time it took.
fn each_timed<T, U, F>(all: Vec<T>, mut work: impl FnMut(T) -> F) -> TryJoinAll<JoinHandle<(U, Duration)>>
where
    U: Send + 'static,
    F: Future<Output = U> + Send + 'static,
{
    try_join_all(all.into_iter().map(|one| {
        let work = work(one);
        tokio::spawn(async move {
            let began = Instant::now();
            (work.await, began.elapsed())
        })
    }))
}

pub(super) async fn servers_that_stand_still_longer_than_a_lease_let_no_two_in(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let (waiting, other_links) = waiter(&cx).await?;
    let silence = [&links, &other_links].map(|links| links.inject(&both(Toxic::Hold)));
    soon("the holder is told", ttl() + slack(), held.lost()).await?;
    ensure!(!held.is_held(), "the lock is believed in after its loss: {held:?}");
    pass(ttl() / 2).await;
    for silence in silence {
        silence.heal()?;
    }
    let next = granted_after_trouble(&cx, waiting, op_timeout() + hand_over() + slack()).await?;
    cx.is_refused(&cx.contender().await?).await?;
    release(next).await?;
    cx.residue_within(cx.freed_by(ttl())).await
}

/// Expects a waiter to be granted the lock, or to be told of the trouble and to get the lock on another try.
async fn granted_after_trouble(
    cx: &Cx,
    waiting: JoinHandle<Result<Held, Error>>,
    within: Duration,
) -> Result<Held, Failure> {
    match soon("the waiter is granted after the trouble", within, waiting).await?? {
        Ok(held) if soon("the grant's lease is renewed", promptly(), is_renewed_or_young(&held)).await? => Ok(held),
        // Refused, or granted to a request of before with so little left of its lease that it was lost, and told so.
        _ => {
            let again = cx.contender().await?.try_lock_for(cx.freed_by(ttl())).await?;
            again.or_fail("not free after the trouble")
        }
    }
}

/// Waits until a good part of a grant's lease is left, by a renewal if it is to be; false if it is lost first.
async fn is_renewed_or_young(held: &Held) -> bool {
    let young = async {
        while held.remaining() < ttl() / 3 {
            pass(ms(5)).await;
        }
    };
    tokio::select! {
        () = young => true,
        _ = held.lost() => false,
    }
}

/// A contender in the queue, through links of its own.
async fn waiter(cx: &Cx) -> Result<(JoinHandle<Result<Held, Error>>, Links), Failure> {
    let look = cx.contender().await?;
    // The lock is held: its client cannot take it once to begin with.
    let links = cx.links()?;
    let lock = cx.lock_of(&cx.client_at(&links).await?).await?;
    let waiting = tokio::spawn(async move { lock.lock().await });
    cx.queued(&look, 1).await?;
    Ok((waiting, links))
}

pub(super) async fn a_link_that_is_cut_fifty_times_works_in_the_end(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let (waiting, other_links) = waiter(&cx).await?;
    let mut cuts = 0;
    while cuts < 50 {
        // A client that has nothing to say need not connect again.
        for links in [&links, &other_links].into_iter().filter(|links| links.are_in_use()) {
            let reset = links.inject(&both(Toxic::Reset));
            // Its connection may end by itself just now.
            cuts += usize::from(reset.applied_within(ms(100)).await);
        }
        pass(ms(40)).await;
    }
    let (other, lost) = (cx.contender().await?, held.lost());
    if held.is_held() {
        let tried = soon("a try", promptly(), other.try_lock()).await??;
        // Looked at after the answer: a lease that has ended meanwhile accuses nobody.
        ensure!(tried.is_none() || !held.is_held(), "the lock was granted although somebody holds it: {tried:?}");
        drop(tried);
        let released = held.release().await;
        if lost.now_or_never().is_none() {
            is_done_or_unknown(&released)?;
        }
    }
    release(granted_after_trouble(&cx, waiting, ttl() + op_timeout() + hand_over()).await?).await?;
    cx.residue_within(cx.freed_by(ttl())).await?;
    cx.is_obtainable().await
}
