//! C-S: permits.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use lock_core::{ErrorKind, GrantId, LeaseOptions, Permit, Semaphore};

use crate::adapters::Exclusive;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::isolated_client::in_isolation;
use crate::time::{eventually, hand_over, ms, pass, poll_times, promptly, soon, stays_pending, ttl};

async fn semaphore(cx: &Cx, limit: u32) -> Result<Semaphore, Failure> {
    Ok(cx.client().await?.semaphore(LOCK, limit).or_fail("no semaphore")?.with_ttl(ttl()))
}

/// Exactly this many permits are free, by what can be taken.
async fn free(semaphore: &Semaphore, permits: u32) -> Verdict {
    if permits < semaphore.limit() {
        let more = semaphore.try_acquire_many(permits + 1).await?;
        ensure!(more.is_none(), "{} permits could be taken, only {permits} are free", permits + 1);
    }
    if permits > 0 {
        // What was released in the background may need a moment.
        let all = semaphore.try_acquire_many_for(permits, hand_over()).await?;
        let all = all.or_fail(&format!("{permits} permits should be free"))?;
        let more = semaphore.try_acquire().await?;
        ensure!(more.is_none(), "a permit more than the {permits} that are free could be taken");
        all.release().await?;
    }
    Ok(())
}

pub(super) async fn a_fourth_of_three_permits_is_refused(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 3).await?, semaphore(&cx, 3).await?);
    let held = [a.acquire().await?, b.acquire().await?, a.acquire().await?];
    ensure!(b.try_acquire().await?.is_none(), "a fourth of three permits was granted");
    for permit in held {
        permit.release().await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn no_more_than_three_of_twelve_owners_are_inside(cx: Arc<Cx>) -> Verdict {
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut owners = Vec::new();
    for _ in 0..12 {
        let (semaphore, inside, most) = (semaphore(&cx, 3).await?, inside.clone(), most.clone());
        owners.push(tokio::spawn(async move {
            for turn in 0..30 {
                let permit = semaphore.acquire().await?;
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if turn == 0 {
                    // Nobody leaves before there are three, however slowly they come.
                    let three = async {
                        while most.load(Ordering::SeqCst) < 3 {
                            pass(ms(1)).await;
                        }
                    };
                    soon("three owners are inside at once", promptly(), three).await?;
                }
                // Mostly short, and at times longer than a slow server takes to let two more in.
                pass(if turn % 5 == 0 { ms(50) } else { ms(1) }).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for owner in owners {
        owner.await??;
    }
    let most = most.load(Ordering::SeqCst);
    ensure!(most == 3, "{most} owners were inside at once, it should have been 3 at most and at times");
    cx.nothing_is_left().await
}

pub(super) async fn one_released_permit_admits_one_waiter(cx: Arc<Cx>) -> Verdict {
    let a = semaphore(&cx, 3).await?;
    let mut held = vec![a.acquire().await?, a.acquire().await?, a.acquire().await?];
    let (b, c) = (semaphore(&cx, 3).await?, semaphore(&cx, 3).await?);
    let (mut first, mut second) = (pin!(b.acquire()), pin!(c.acquire()));
    stays_pending("a first waiter at a full semaphore", ms(80), first.as_mut()).await?;
    stays_pending("a second waiter at a full semaphore", ms(80), second.as_mut()).await?;
    held.pop().or_fail("no permit")?.release().await?;
    let granted = async {
        tokio::select! {
            permit = &mut first => (permit, 1),
            permit = &mut second => (permit, 2),
        }
    };
    let (permit, which) = soon("a waiter is admitted", hand_over(), granted).await?;
    let _permit = permit?;
    let what = "the other waiter at one released permit";
    match which {
        1 => stays_pending(what, ms(200), second.as_mut()).await,
        _ => stays_pending(what, ms(200), first.as_mut()).await,
    }
}

pub(super) async fn a_grant_is_released_once(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 2).await?, semaphore(&cx, 2).await?);
    let lost = a.clone().with_lease(LeaseOptions::new(ms(300)).with_auto_renew(false)).acquire().await?;
    soon("the lease ends", promptly(), lost.lost()).await?;
    let (x, y) = (b.try_acquire_many_for(1, ttl()).await?, b.try_acquire_many_for(1, ttl()).await?);
    let _both: [Permit; 2] = [x.or_fail("a first permit is not free")?, y.or_fail("the expired permit is not free")?];
    expect_kind("releasing an expired permit", ErrorKind::NotHeld, lost.release().await)?;
    pass(ms(100)).await;
    free(&a, 0).await
}

pub(super) async fn freeing_an_unknown_grant_frees_no_permit(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 2).await?, semaphore(&cx, 2).await?);
    let held = a.acquire_many(2).await?;
    ensure!(!b.force_release(GrantId::random()?, "never granted").await?, "a grant that never was, was freed");
    free(&b, 0).await?;
    held.release().await?;
    free(&b, 2).await
}

pub(super) async fn a_thousand_refused_tries_leave_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 3).await?, semaphore(&cx, 3).await?);
    let held = a.acquire_many(3).await?;
    for i in 0..1000 {
        ensure!(b.try_acquire().await?.is_none(), "try {i} was granted at a full semaphore");
    }
    ensure!(held.is_held(), "the refused tries cost the holder its permits");
    held.release().await?;
    free(&b, 3).await?;
    cx.nothing_is_left().await
}

pub(super) async fn permits_of_dead_holders_come_back(cx: Arc<Cx>) -> Verdict {
    let next = semaphore(&cx, 3).await?;
    {
        let cx = cx.clone();
        in_isolation(move || async move {
            let semaphore = semaphore(&cx, 3).await?;
            for _ in 0..3 {
                std::mem::forget(semaphore.acquire().await?);
            }
            Ok(())
        })
        .await?;
    }
    let died = Instant::now();
    free(&next, 0).await?;
    let bound = cx.freed_by(ttl()).saturating_sub(died.elapsed());
    let all = next.try_acquire_many_for(3, bound).await?;
    all.or_fail("the permits of the dead are not back although their TTL is long over")?.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_part_that_is_released_is_exactly_that_part(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 5).await?, semaphore(&cx, 5).await?);
    let mut first = a.acquire_many(3).await?;
    let mut waiting = pin!(b.acquire_many(3));
    stays_pending("three of two free permits", ms(100), waiting.as_mut()).await?;
    expect_kind("releasing all by parts", ErrorKind::InvalidArgument, first.release_some(3).await)?;
    first.release_some(1).await?;
    ensure!(first.permits() == 2, "{} permits after releasing one of three", first.permits());
    let second = soon("the waiter enters with three", hand_over(), waiting).await??;
    ensure!(second.permits() == 3, "granted {} permits, not 3", second.permits());
    free(&a, 0).await?;
    first.release_some(1).await?;
    free(&b, 1).await?;
    first.release().await?;
    second.release().await?;
    free(&a, 5).await
}

pub(super) async fn a_cancelled_waiter_leaks_no_permit(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (semaphore(&cx, 2).await?, semaphore(&cx, 2).await?, semaphore(&cx, 2).await?);
    for polls in 1..=12 {
        let held = a.acquire_many(2).await?;
        {
            let mut waiting = pin!(b.acquire_many(2));
            let granted = poll_times(waiting.as_mut(), polls, ms(20)).await;
            ensure!(granted.is_none(), "granted at a full semaphore");
        }
        held.release().await?;
        free(&c, 2).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn an_expired_permit_does_not_keep_live_ones_from_being_freed(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 3).await?, semaphore(&cx, 3).await?);
    let dead = a.clone().with_lease(LeaseOptions::new(ms(300)).with_auto_renew(false)).acquire().await?;
    let live = [a.acquire().await?, a.acquire().await?];
    soon("one lease ends", promptly(), dead.lost()).await?;
    let mut outcomes = join_all(live.into_iter().chain([dead]).map(Permit::release)).await;
    let dead = outcomes.pop().or_fail("no outcome")?;
    expect_kind("the expired permit's release", ErrorKind::NotHeld, dead)?;
    for outcome in outcomes {
        outcome?;
    }
    free(&b, 3).await
}

pub(super) async fn clients_that_disagree_on_the_limit_are_told(cx: Arc<Cx>) -> Verdict {
    let (three, two) = (semaphore(&cx, 3).await?, semaphore(&cx, 2).await?);
    let held = three.acquire().await?;
    expect_kind("another limit", ErrorKind::LimitMismatch, two.try_acquire().await)?;
    expect_kind("several under another limit", ErrorKind::LimitMismatch, two.try_acquire_many(2).await)?;
    expect_kind("a wait with another limit", ErrorKind::LimitMismatch, two.try_acquire_many_for(1, ms(500)).await)?;
    ensure!(held.is_held(), "the other client's limit cost the holder its permit");
    held.release().await?;
    // With nobody inside there is nothing to disagree with.
    let agreed = eventually("the limit can be changed when nobody is inside", hand_over(), async || {
        match two.try_acquire().await {
            Ok(permit) => Ok(permit),
            Err(error) if error.kind() == ErrorKind::LimitMismatch => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    agreed.await?.release().await?;
    Ok(())
}

/// Each of three owners that got one permit of two would keep the others from theirs.
pub(super) async fn owners_that_ask_for_two_of_three_never_deadlock(cx: Arc<Cx>) -> Verdict {
    let (mut owners, inside) = (Vec::new(), Arc::<AtomicU32>::default());
    for _ in 0..3 {
        let (semaphore, inside) = (semaphore(&cx, 3).await?, inside.clone());
        owners.push(tokio::spawn(async move {
            for _ in 0..35 {
                let permit = semaphore.acquire_many(2).await?;
                ensure!(permit.permits() == 2, "a part of two permits was granted: {}", permit.permits());
                let before = inside.fetch_add(2, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(2, Ordering::SeqCst);
                ensure!(before == 0 || !permit.is_held(), "two were granted of three of which {before} were taken");
                permit.release().await?;
            }
            Ok(())
        }));
    }
    for owner in soon("all owners finish", promptly() * 2, join_all(owners)).await? {
        owner??;
    }
    free(&semaphore(&cx, 3).await?, 3).await
}

pub(super) async fn a_request_for_all_is_not_overtaken_by_a_stream_of_small_ones(cx: Arc<Cx>) -> Verdict {
    let done = Arc::new(AtomicBool::new(false));
    let mut small = Vec::new();
    for i in 0..6 {
        let (semaphore, done) = (semaphore(&cx, 4).await?, done.clone());
        small.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let permit = semaphore.acquire().await?;
                // Never all at the same instant.
                pass(ms(15 + 7 * i)).await;
                permit.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    let all = semaphore(&cx, 4).await?;
    let served = async {
        for turn in 1..=3 {
            let are_inside = async || match all.try_acquire().await? {
                Some(permit) => permit.release().await.map(|()| None).map_err(Into::into),
                None => Ok(Some(())),
            };
            eventually("the small ones are inside", promptly(), are_inside).await?;
            let held = all.try_acquire_many_for(4, promptly()).await?;
            let held =
                held.or_fail(&format!("the request for all permits starved behind small ones in turn {turn}"))?;
            free(&all, 0).await?;
            held.release().await?;
        }
        Ok(())
    };
    let served = served.await;
    done.store(true, Ordering::SeqCst);
    for small in small {
        small.await??;
    }
    served
}

pub(super) async fn senseless_numbers_of_permits_are_refused(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let of = |limit| locks.semaphore(LOCK, limit).or_fail("no semaphore");
    expect_kind("a semaphore of none", ErrorKind::InvalidArgument, of(0)?.try_acquire().await)?;
    expect_kind("no permits", ErrorKind::InvalidArgument, of(3)?.try_acquire_many(0).await)?;
    expect_kind("four of three", ErrorKind::InvalidArgument, of(3)?.try_acquire_many(4).await)?;
    expect_kind("a wait for four of three", ErrorKind::InvalidArgument, of(3)?.acquire_many(4).await)?;
    let most = cx.harness.most_permits();
    if let Some(too_many) = most.checked_add(1) {
        expect_kind("one more than a great many", ErrorKind::InvalidArgument, of(too_many)?.try_acquire().await)?;
    }
    let all = of(most)?.try_acquire_many(most).await?.or_fail("all of a great many permits")?;
    ensure!(of(most)?.try_acquire().await?.is_none(), "one more than a great many was granted");
    all.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn what_is_shown_as_free_can_be_taken(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (semaphore(&cx, 5).await?, semaphore(&cx, 5).await?);
    ensure!(b.available().await? == 5, "{} of 5 permits are shown as free at first", b.available().await?);
    let (x, y) = (a.acquire_many(2).await?, b.acquire().await?);
    let mut expected = vec![(Some(x.grant_id()), 2), (Some(y.grant_id()), 1)];
    expected.sort_unstable();
    // Some backends describe a holder a moment after its grant.
    let look = async || {
        let mut shown: Vec<_> =
            b.inspect().await?.holders.iter().map(|holder| (holder.grant, holder.permits)).collect();
        shown.sort_unstable();
        Ok((shown == expected).then_some(()))
    };
    eventually("every holder is shown with its permits", hand_over(), look).await?;
    ensure!(a.available().await? == 2, "{} are shown as free beside three held of 5", a.available().await?);
    free(&a, 2).await?;
    x.release().await?;
    y.release().await?;
    ensure!(a.available().await? == 5, "{} of 5 permits are shown as free at last", a.available().await?);
    cx.queued(&Exclusive::Permit(a), 0).await
}
