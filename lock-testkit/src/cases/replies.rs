//! C-F05, C-F19, C-M12, C-M13, C-M20, C-RE06, C-RW16, C-RW18, C-S16: replies that are lost, late, or cut in the middle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use lock_core::{Error, ErrorKind, Lease, LeaseOptions, Locks, Owner, ReadGuard, WriteGuard};

use crate::context::{Cx, LOCK, is_done_or_unknown, release};
use crate::failure::{Failure, OrFail, Verdict, ensure, was_seen};
use crate::links::{Links, Trouble};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{eventually, hand_over, ms, op_timeout, pass, promptly, soon, ttl};

/// An acquisition makes no more requests than this before it is granted.
const REQUESTS: u64 = 3;

/// This happens to the reply to the next request that is about a lock of this case.
fn next_reply(cx: &Cx, toxic: Toxic) -> LinkFault {
    LinkFault::new(toxic, Direction::ToClient).on_request(1, &cx.namespace)
}

pub(super) async fn an_acquisition_whose_reply_is_lost_has_no_second_effect(cx: Arc<Cx>) -> Verdict {
    for toxic in [Toxic::Reset, Toxic::Blackhole] {
        let (lock, links) = cx.linked().await?;
        // Longer than the operation's time, so that a lease that began does not end by itself before one looks.
        let lease = ttl() * 3;
        let lock = lock.with_ttl(lease);
        let loss = links.inject(&next_reply(&cx, toxic));
        let outcome = soon("the acquisition ends", op_timeout() + ms(500), lock.try_lock()).await?;
        loss.applied().await?;
        loss.heal()?;
        match outcome {
            // It recognised its own grant.
            Ok(Some(held)) => release(held).await?,
            Ok(None) => return Err(Failure::new("a lock that nobody else holds was refused")),
            // The request that was lost may have been one before the grant.
            Err(error) if error.is_definite() => {
                let what = format!("is taken, although it definitely was not granted ({error})");
                let another = cx.contender().await?.try_lock_for(hand_over()).await?;
                release(another.or_fail(&what)?).await?;
                cx.residue_within(ms(100)).await?;
            }
            Err(_) => {}
        }
        let again = lock.try_lock_for(cx.freed_by(lease)).await?;
        release(again.or_fail("not granted again after a grant whose reply was lost")?).await?;
        cx.is_obtainable().await?;
        cx.residue_within(cx.freed_by(lease)).await?;
    }
    cx.nothing_is_left().await
}

/// Its lease is long: what frees the lock in time is a cancellation, and no end of a lease.
pub(super) async fn an_acquisition_that_is_dropped_before_its_reply_is_undone_at_once(cx: Arc<Cx>) -> Verdict {
    // The fault may meet what the client still does in the background instead, such as describing the grant of before.
    let mut was_late = false;
    for _ in 0..5 {
        was_late = was_late || dropped_before_reply(&cx, 1, Next::Another).await?;
    }
    was_seen(was_late, "an acquisition")?;
    dropped_before_reply(&cx, 1, Next::Own).await?;
    for nth in 2..=REQUESTS {
        for next in [Next::Another, Next::Own] {
            dropped_before_reply(&cx, nth, next).await?;
        }
    }
    cx.nothing_is_left().await
}

/// The one that asks for a lock whose acquisition was dropped.
#[derive(Clone, Copy)]
enum Next {
    /// Another client, which waits.
    Another,
    /// The client that dropped it, which tries.
    Own,
}

/// Drops an acquisition before the reply to its nth request, and sees the lock free at once; whether there was such a request.
async fn dropped_before_reply(cx: &Arc<Cx>, nth: u64, next: Next) -> Result<bool, Failure> {
    let (lock, links) = cx.linked().await?;
    let lock = lock.with_ttl(ms(15_000));
    let late = links.inject(&LinkFault::new(Toxic::Hold, Direction::ToClient).on_request(nth, &cx.namespace));
    let mut asking = Box::pin(lock.try_lock());
    let reply = late.applied_within(if nth == 1 { promptly() } else { ms(300) });
    let (is_late, outcome) = tokio::select! {
        is_late = reply => (is_late, None),
        // Not every backend makes so many requests, or waits for the last ones.
        outcome = &mut asking => (false, Some(outcome)),
    };
    drop(asking);
    drop(late);
    if let Some(outcome) = outcome {
        release(outcome?.or_fail("a lock that nobody else holds was refused")?).await?;
    }
    let what = format!("taken by an acquisition that was dropped before the reply to its request {nth}");
    let next = match next {
        Next::Another => cx.contender().await?.try_lock_for(hand_over()).await?,
        Next::Own => lock.try_lock().await?,
    };
    release(next.or_fail(&what)?).await?;
    cx.residue_within(hand_over()).await?;
    Ok(is_late)
}

pub(super) async fn a_release_whose_reply_is_lost_frees_and_says_that_it_does_not_know(cx: Arc<Cx>) -> Verdict {
    for toxic in [Toxic::Reset, Toxic::Blackhole] {
        let (lock, links) = cx.linked().await?;
        let held = lock.clone().with_ttl(ms(10_000)).lock().await?;
        let loss = links.inject(&next_reply(&cx, toxic));
        let released = soon("the release ends", op_timeout() + ms(500), held.release()).await?;
        is_done_or_unknown(&released)?;
        cx.is_obtainable().await?;
        loss.heal()?;
        release(lock.try_lock_for(ttl()).await?.or_fail("the same client is not granted it again")?).await?;
    }
    // A request may still have been on a connection that the loss had hurt (K8).
    cx.nothing_is_left_within(ttl() + hand_over()).await
}

pub(super) async fn a_release_that_is_repeated_does_not_free_the_next_hold(cx: Arc<Cx>) -> Verdict {
    let (other, (lock, links)) = (cx.contender().await?, cx.linked().await?);
    let held = lock.clone().with_ttl(ms(10_000)).lock().await?;
    let loss = links.inject(&next_reply(&cx, Toxic::Blackhole));
    // Granted behind its back while the client still waits for the reply: whatever it repeats comes later. Not in the queue there,
    // where the first request might leave it to the next one to hand the lock over.
    let longest = op_timeout() + ms(500);
    let free = eventually("free after a release whose reply was lost", longest + hand_over(), async || {
        Ok(other.try_lock().await?)
    });
    let (released, next) = join(soon("the release ends", longest, held.release()), free).await;
    is_done_or_unknown(&released?)?;
    let next = next?;
    loss.heal()?;
    let third = cx.contender().await?;
    let began = Instant::now();
    while began.elapsed() < ttl() {
        cx.is_refused(&third).await?;
        // Its connections may have only just been reset.
        let again = lock.try_lock().await;
        ensure!(!matches!(again, Ok(Some(_))), "granted although somebody holds it: {again:?}");
        pass(ms(50)).await;
    }
    release(next).await?;
    release(lock.try_lock_for(hand_over()).await?.or_fail("the first client is not granted it again")?).await?;
    cx.nothing_is_left_within(ttl() + hand_over()).await
}

pub(super) async fn a_grant_that_comes_after_its_lease_is_refused(cx: Arc<Cx>) -> Verdict {
    let (other, third, (lock, links)) = (cx.contender().await?, cx.contender().await?, cx.linked().await?);
    let lease = ms(600);
    let lock = lock.unrenewed(lease);
    let late = links.inject(&next_reply(&cx, Toxic::Hold));
    let acquiring = tokio::spawn(async move { lock.try_lock().await });
    late.applied().await?;
    let next = other.try_lock_for(lease + ms(300)).await?;
    late.heal()?;
    let outcome = soon("the late answer is taken", promptly(), acquiring).await??;
    let believed = matches!(&outcome, Ok(Some(held)) if held.is_held());
    match next {
        // Somebody else has it by now.
        Some(next) => {
            ensure!(!believed, "a grant that came after its lease is believed in");
            cx.is_refused(&third).await?;
            release(next).await?;
        }
        // The servers keep it for longer than its lease.
        None if believed => cx.is_refused(&third).await?,
        None => {}
    }
    drop(outcome);
    cx.nothing_is_left_within(cx.freed_by(lease)).await
}

pub(super) async fn replies_that_are_cut_in_the_middle_reach_nobody_else(cx: Arc<Cx>) -> Verdict {
    const NAMES: usize = 6;
    let (links, other) = (cx.links()?, cx.client().await?);
    let locks = cx.client_at(&links).await?;
    let handle = |locks, i| Ok::<_, Failure>(cx.form.handle(locks, format!("cut/{i}"))?.with_ttl(ttl()));
    let lock = handle(&locks, 0)?;
    for (nth, bytes) in [(1, 1), (2, 5), (4, 17), (6, 40)] {
        let warm = lock.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free before the cut")?;
        is_done_or_unknown(&warm.release().await)?;
        // A release that is not known to be done goes on in the background, and would refuse its own client.
        let free = handle(&other, 0)?.try_lock_for(cx.freed_by(ttl())).await?;
        release(free.or_fail("not free after its release")?).await?;
        let cut = LinkFault::new(Toxic::CutAfter { bytes }, Direction::ToClient).on_request(nth, &cx.namespace);
        let cut = links.inject(&cut);
        // Longer than it takes to look at all of them.
        let long = ms(10_000);
        let mine = (0..NAMES).map(|i| Ok::<_, Failure>(handle(&locks, i)?.with_ttl(long)));
        let mine = mine.collect::<Result<Vec<_>, _>>()?;
        let outcomes = join_all(mine.iter().map(|lock| lock.try_lock_for(ms(200)))).await;
        cut.applied().await?;
        cut.heal()?;
        for (i, outcome) in outcomes.into_iter().enumerate() {
            let theirs = handle(&other, i)?;
            match outcome {
                Ok(Some(held)) => {
                    cx.is_refused(&theirs).await?;
                    is_done_or_unknown(&held.release().await)?;
                }
                Ok(None) => return Err(Failure::new(format!("name {i} was refused, but nobody else holds it"))),
                Err(error) => ensure!(error.name().is_some(), "an error that names no lock: {error}"),
            }
            let next = theirs.try_lock_for(cx.freed_by(long)).await?;
            release(next.or_fail(&format!("name {i} is not free after a reply that was cut"))?).await?;
        }
    }
    cx.residue_within(cx.freed_by(ttl())).await
}

/// Its lease is long: what frees the lock in time is a cancellation, and no end of a lease.
pub(super) async fn an_owner_whose_first_grant_was_not_answered_is_inside_once(cx: Arc<Cx>) -> Verdict {
    let other = cx.client().await?.reentrant(LOCK).or_fail("no reentrant lock")?.with_ttl(ttl());
    for toxic in [Toxic::Reset, Toxic::Blackhole] {
        let links = cx.links()?;
        let lock = cx.client_at(&links).await?.reentrant(LOCK).or_fail("no reentrant lock")?;
        let lock = lock.with_ttl(ms(15_000));
        let me = Owner::new();
        lock.lock(&me).await?.release().await?;
        let loss = links.inject(&next_reply(&cx, toxic));
        let first = soon("the first acquisition ends", op_timeout() + ms(500), lock.try_lock(&me)).await?;
        loss.applied().await.and_then(|()| loss.heal())?;
        if let Ok(first) = first {
            first.or_fail("a lock that nobody else holds was refused")?.release().await?;
        }
        let again = lock.try_lock_for(&me, cx.freed_by(ttl())).await?.or_fail("its owner is not let in again")?;
        ensure!(again.depth() == 1, "depth {} after one acquisition that counts", again.depth());
        again.release().await?;
        // The reply that was lost may have hurt a connection, and the cancellation waits for another one.
        let next = other.try_lock_for(&Owner::new(), op_timeout() + hand_over()).await?;
        next.or_fail("one release after one acquisition that counts does not free")?.release().await?;
    }
    cx.residue_within(cx.freed_by(ttl())).await
}

/// Asks for the read lock again and again; a connection that the loss has hurt may cost a call.
async fn downgraded(mut writer: WriteGuard) -> Result<ReadGuard, Error> {
    let began = Instant::now();
    loop {
        match writer.downgrade().await {
            Ok(reader) => return Ok(reader),
            Err(failed) => {
                let is_over = matches!(failed.error.kind(), ErrorKind::NotHeld | ErrorKind::Lost);
                if is_over || began.elapsed() > op_timeout() {
                    return Err(failed.error);
                }
                writer = failed.guard;
            }
        }
        pass(ms(20)).await;
    }
}

/// The lost reply is that to the nth request of the downgrade; between the calls the lease is renewed, or not.
pub(super) async fn a_downgrade_whose_reply_is_lost_is_done_when_it_is_asked_again(cx: Arc<Cx>) -> Verdict {
    let rwlock = |locks: &Locks| Ok::<_, Failure>(locks.rwlock(LOCK).or_fail("no read-write lock")?.with_ttl(ttl()));
    let (links, theirs) = (cx.links()?, rwlock(&cx.client().await?)?);
    let mine = rwlock(&cx.client_at(&links).await?)?;
    // The first one may cost a server that has just started one more request, whose reply is no loss.
    mine.write().await?.downgrade().await?.release().await?;
    for (nth, is_renewed) in (1..=5).map(|nth| (nth, nth % 2 == 0)) {
        let writer = mine.try_write_for(cx.freed_by(ttl())).await?.or_fail("not free before the downgrade")?;
        let loss = LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(nth, &cx.namespace);
        let loss = links.inject(&loss);
        let outcome = soon("the downgrade ends", op_timeout() + ms(500), writer.downgrade()).await?;
        // Not every backend makes a second request.
        if nth == 1 {
            loss.applied().await.and_then(|()| loss.heal())?
        } else {
            drop(loss)
        }
        let reader = match outcome {
            Ok(reader) => reader,
            Err(failed) => {
                if is_renewed {
                    pass(ttl()).await;
                }
                downgraded(failed.guard).await?
            }
        };
        pass(ttl() / 2).await;
        ensure!(reader.is_held(), "a downgrade whose reply {nth} was lost costs the lock");
        ensure!(theirs.try_write().await?.is_none(), "a writer was let in beside a reader");
        let beside = theirs.try_read_for(hand_over()).await?.or_fail("a reader was refused beside a reader")?;
        beside.release().await?;
        is_done_or_unknown(&reader.release().await)?;
    }
    theirs.try_write_for(cx.freed_by(ttl())).await?.or_fail("not free in the end")?.release().await?;
    cx.nothing_is_left_within(ttl() + hand_over()).await
}

pub(super) async fn a_write_lease_that_ends_during_its_downgrade_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    let rwlock =
        |locks: &Locks| Ok::<_, Failure>(locks.rwlock(LOCK).or_fail("no read-write lock")?.with_lease(ending()));
    let (links, theirs) = (cx.links()?, rwlock(&cx.client().await?)?);
    let mine = rwlock(&cx.client_at(&links).await?)?;
    mine.write().await?.downgrade().await?.release().await?;
    for left in shortly_before_the_end() {
        let writer = mine.try_write_for(cx.freed_by(ttl())).await?.or_fail("not free before the downgrade")?;
        let late = late_when_this_is_left(left, &links, &writer).await?;
        let ended = writer.ended();
        // It may succeed before the end, and its guard is dropped then.
        let downgraded = soon("the downgrade ends", op_timeout() + ms(500), writer.downgrade()).await?;
        drop(downgraded);
        soon("the hold ends", ttl(), ended).await?;
        late.heal()?;
        theirs.try_write_for(cx.freed_by(ttl())).await?.or_fail("not free after its lease")?.release().await?;
    }
    cx.residue_within(cx.freed_by(ttl())).await
}

/// A lease that is not renewed.
fn ending() -> LeaseOptions {
    LeaseOptions::new(ttl()).with_auto_renew(false)
}

/// The times left of a lease at which a change begins whose steps are to be under way at its end.
fn shortly_before_the_end() -> [Duration; 3] {
    [ttl() / 10, ttl() / 4, ttl() / 2]
}

/// Waits until so much is left of this lease, and makes requests late from then on.
async fn late_when_this_is_left(time: Duration, links: &Links, lease: &Lease) -> Result<Trouble, Failure> {
    eventually("the lease comes to its end", ttl(), async || Ok((lease.remaining() < time).then_some(()))).await?;
    let late = Toxic::Delay { by: ttl() / 5, jitter: Duration::ZERO };
    Ok(links.inject(&LinkFault::new(late, Direction::ToServer)))
}

pub(super) async fn permits_whose_release_is_not_answered_do_not_end_the_others(cx: Arc<Cx>) -> Verdict {
    let semaphore = |locks: &Locks| Ok::<_, Failure>(locks.semaphore(LOCK, 3).or_fail("no semaphore")?.with_ttl(ttl()));
    let (links, theirs) = (cx.links()?, semaphore(&cx.client().await?)?);
    let mine = semaphore(&cx.client_at(&links).await?)?;
    // As above: the first one may take one more request.
    let mut first = mine.acquire_many(2).await?;
    first.release_some(1).await?;
    first.release().await?;
    for (direction, nth) in [(Direction::ToClient, 1), (Direction::ToClient, 2), (Direction::ToServer, 1)] {
        let mut held = mine.try_acquire_many_for(3, cx.freed_by(ttl())).await?.or_fail("not free before")?;
        let loss = links.inject(&LinkFault::new(Toxic::Reset, direction).on_request(nth, &cx.namespace));
        let outcome = soon("the release ends", op_timeout() + ms(500), held.release_some(2)).await?;
        // Not every backend makes a second request.
        if nth == 1 {
            loss.applied().await.and_then(|()| loss.heal())?
        } else {
            drop(loss)
        }
        is_done_or_unknown(&outcome)?;
        ensure!(held.permits() == 1, "{} permits are counted, one was kept", held.permits());
        let two = theirs.try_acquire_many_for(2, hand_over() + op_timeout()).await?;
        let two = two.or_fail("two permits were not released after a request or a reply that was lost")?;
        pass(ttl()).await;
        ensure!(held.is_held(), "the permit that was kept was lost with those that were released");
        ensure!(theirs.try_acquire().await?.is_none(), "a fourth of three permits was granted");
        two.release().await?;
        is_done_or_unknown(&held.release().await)?;
    }
    let all = theirs.try_acquire_many_for(3, cx.freed_by(ttl())).await?;
    all.or_fail("not all are free in the end")?.release().await?;
    cx.nothing_is_left_within(ttl() + hand_over()).await
}
