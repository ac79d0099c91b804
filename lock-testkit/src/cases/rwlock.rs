//! C-RW: readers and writers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use lock_core::{ErrorKind, Guarantee, Holder, LeaseOptions, Owner, RwLock};
use tokio::sync::mpsc;

use crate::adapters::Exclusive;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::isolated_client::in_isolation;
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{eventually, hand_over, ms, pass, promptly, soon, stays_pending, ttl};

async fn lock(cx: &Cx) -> Result<RwLock, Failure> {
    Ok(cx.client().await?.rwlock(LOCK).or_fail("no read-write lock")?.with_ttl(ttl()))
}

/// Waits until this many requests are in the queue.
async fn queued(cx: &Cx, lock: &RwLock, waiters: usize) -> Verdict {
    cx.queued(&Exclusive::Write(lock.clone()), waiters).await
}

pub(super) async fn two_readers_hold_together(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let first = a.read().await?;
    let second = b.try_read().await?.or_fail("a second reader was refused")?;
    ensure!(first.is_held() && second.is_held(), "the readers do not hold together");
    first.release().await?;
    second.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_reader_keeps_writers_out_and_a_writer_readers(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let read = a.read().await?;
    ensure!(b.try_write().await?.is_none(), "a writer was let in beside a reader");
    read.release().await?;
    let write = b.try_write().await?.or_fail("the refused writer left something behind")?;
    ensure!(a.try_read().await?.is_none(), "a reader was let in beside a writer");
    write.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_writer_keeps_writers_out(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let write = a.write().await?;
    ensure!(b.try_write().await?.is_none(), "two writers hold together");
    write.release().await?;
    Ok(())
}

pub(super) async fn no_read_is_torn_and_no_write_is_lost(cx: Arc<Cx>) -> Verdict {
    const WRITERS: u64 = 3;
    const WRITES: u64 = 50;
    // Two fields that a writer changes one after the other.
    let fields = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let (lock, fields) = (lock(&cx).await?, fields.clone());
        writers.push(tokio::spawn(async move {
            for _ in 0..WRITES {
                let held = lock.write().await?;
                let value = fields.0.load(Ordering::SeqCst) + 1;
                fields.0.store(value, Ordering::SeqCst);
                tokio::task::yield_now().await;
                fields.1.store(value, Ordering::SeqCst);
                held.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    let mut readers = Vec::new();
    for _ in 0..10 {
        let (lock, fields, done) = (lock(&cx).await?, fields.clone(), done.clone());
        readers.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let held = lock.read().await?;
                let first = fields.0.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                let second = fields.1.load(Ordering::SeqCst);
                ensure!(first == second, "a torn read: {first} and {second}");
                held.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await??;
    }
    let written = fields.1.load(Ordering::SeqCst);
    ensure!(written == WRITERS * WRITES, "{written} of {} writes were kept", WRITERS * WRITES);
    cx.nothing_is_left().await
}

pub(super) async fn a_reader_behind_a_waiting_writer_waits(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let read = a.read().await?;
    let writer = tokio::spawn(async move { b.write().await });
    queued(&cx, &a, 1).await?;
    let mut reader = pin!(c.read());
    stays_pending("a reader behind a waiting writer", ms(200), reader.as_mut()).await?;
    read.release().await?;
    let write = soon("the writer enters first", hand_over(), writer).await???;
    stays_pending("a reader beside a writer", ms(100), reader.as_mut()).await?;
    write.release().await?;
    soon("the reader enters last", hand_over(), reader).await??.release().await?;
    Ok(())
}

pub(super) async fn a_stream_of_readers_does_not_starve_a_writer(cx: Arc<Cx>) -> Verdict {
    let done = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicU32::new(0));
    let mut readers = Vec::new();
    for _ in 0..4 {
        let (lock, done, inside) = (lock(&cx).await?, done.clone(), inside.clone());
        readers.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                let held = lock.read().await?;
                inside.fetch_add(1, Ordering::SeqCst);
                pass(ms(30)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                held.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    let writer = lock(&cx).await?;
    let outcome = async {
        for _ in 0..3 {
            let write = writer.try_write_for(promptly()).await?.or_fail("the writer starved behind readers")?;
            let readers = inside.load(Ordering::SeqCst);
            ensure!(readers == 0, "{readers} readers are inside with the writer");
            write.release().await?;
        }
        Ok(())
    };
    let outcome = outcome.await;
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await??;
    }
    outcome
}

pub(super) async fn an_upgrade_is_refused_at_once(cx: Arc<Cx>) -> Verdict {
    let mine = lock(&cx).await?.with_owner(Owner::new());
    let read = mine.read().await?;
    let refused = soon("the upgrade is refused rather than stuck", hand_over(), mine.write()).await?;
    expect_kind("an upgrade", ErrorKind::Unsupported, refused)?;
    ensure!(read.is_held(), "the refused upgrade cost the read lock");
    read.release().await?;
    mine.try_write().await?.or_fail("the refused upgrade left something behind")?.release().await?;
    Ok(())
}

pub(super) async fn a_downgrade_leaves_no_gap_for_a_waiting_writer(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let write = a.write().await?;
    let mut waiting = pin!(b.write());
    stays_pending("a writer beside a writer", ms(100), waiting.as_mut()).await?;
    let read = write.downgrade().await?;
    stays_pending("a writer beside the downgraded one", ms(250), waiting.as_mut()).await?;
    ensure!(read.is_held(), "the downgraded lock is not held");
    read.release().await?;
    soon("the writer enters", hand_over(), waiting).await??.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_downgrade_lets_waiting_readers_in_and_is_renewed(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let write = a.write().await?;
    let mut reading = pin!(b.read());
    stays_pending("a reader beside a writer", ms(100), reading.as_mut()).await?;
    let mut writing = pin!(c.write());
    stays_pending("a writer behind a reader", ms(100), writing.as_mut()).await?;
    let read = write.downgrade().await?;
    let beside = soon("the waiting reader enters", hand_over(), reading).await??;
    stays_pending("a writer beside two readers", ttl() * 3 / 2, writing.as_mut()).await?;
    ensure!(read.is_held(), "the downgraded lock was lost although it is renewed");
    ensure!(beside.is_held(), "the reader beside it was lost although it is renewed");
    read.release().await?;
    beside.release().await?;
    soon("the writer enters", hand_over(), writing).await??.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_downgrade_leaves_no_gap_however_late_its_replies(cx: Arc<Cx>) -> Verdict {
    let (links, b) = (cx.links()?, lock(&cx).await?);
    let a = cx.client_at(&links).await?.rwlock(LOCK).or_fail("no read-write lock")?.with_ttl(ttl() * 3);
    let write = a.write().await?;
    let mut waiting = pin!(b.write());
    stays_pending("a writer beside a writer", ms(100), waiting.as_mut()).await?;
    let late = links.inject(&LinkFault::new(Toxic::Delay { by: ms(200), jitter: ms(0) }, Direction::ToClient));
    let read = {
        let mut downgrading = pin!(write.downgrade());
        tokio::select! {
            downgraded = &mut downgrading => downgraded?,
            writer = &mut waiting => return Err(Failure::new(format!("a gap in the downgrade: {writer:?}"))),
        }
    };
    late.applied().await?;
    stays_pending("a writer beside the downgraded one", ms(250), waiting.as_mut()).await?;
    ensure!(read.is_held(), "the downgraded lock is not held");
    late.heal()?;
    read.release().await?;
    soon("the writer enters", hand_over(), waiting).await??.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_downgraded_lock_keeps_its_grant_and_admits_readers(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let write = a.write().await?;
    let (grant, token) = (write.grant_id(), write.fencing_token());
    let read = write.downgrade().await?;
    ensure!(read.grant_id() == grant && read.fencing_token() == token, "the downgrade changed the grant");
    let beside = b.try_read().await?.or_fail("a reader was refused beside a downgraded writer")?;
    ensure!(b.try_write().await?.is_none(), "a writer was let in beside readers");
    // Any order of release works: the first writer's part goes first here.
    read.release().await?;
    ensure!(beside.is_held(), "the downgraded lock's release ended another reader's");
    beside.release().await?;
    b.try_write().await?.or_fail("still taken after all releases")?.release().await?;
    Ok(())
}

pub(super) async fn a_downgrade_keeps_the_length_of_an_extended_lease(cx: Arc<Cx>) -> Verdict {
    let (a, b, lease) = (lock(&cx).await?, lock(&cx).await?, ms(500));
    let write = a.with_lease(LeaseOptions::new(lease).with_auto_renew(false)).write().await?;
    write.extend(cx.freed_by(lease) + ms(1500)).await?;
    let read = write.downgrade().await?;
    pass(cx.freed_by(lease)).await;
    ensure!(read.is_held(), "the downgrade shortened the lease");
    ensure!(b.try_write().await?.is_none(), "a writer was let in beside a reader whose lease was extended");
    read.release().await?;
    b.try_write_for(hand_over()).await?.or_fail("still taken after the release")?.release().await?;
    Ok(())
}

pub(super) async fn a_short_reader_s_end_leaves_the_long_one_its_lease(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let long = a.with_lease(LeaseOptions::new(ms(8000)).with_auto_renew(false)).read().await?;
    let short = b.with_lease(LeaseOptions::new(ms(500)).with_auto_renew(false)).read().await?;
    soon("the short reader's lease ends", promptly(), short.lost()).await?;
    pass(ms(200)).await;
    ensure!(long.is_held(), "the short reader's end ended the long one");
    ensure!(c.try_write().await?.is_none(), "a writer was let in while the long reader holds");
    long.release().await?;
    c.try_write_for(hand_over()).await?.or_fail("still taken after the long reader")?.release().await?;
    Ok(())
}

pub(super) async fn one_reader_that_is_freed_by_force_costs_the_others_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let mut readers = Vec::new();
    for i in 0..6 {
        readers.push([&a, &b][i % 2].read().await?);
    }
    let freed = readers.remove(3);
    ensure!(a.force_release(freed.grant_id(), "the case asks").await?, "a reader's grant cannot be freed");
    ensure!(!a.force_release(freed.grant_id(), "the case asks").await?, "a reader's grant was freed twice");
    soon("the freed reader is told", cx.freed_by(ttl()), freed.lost()).await?;
    for reader in &readers {
        ensure!(reader.is_held(), "another reader lost the lock");
        reader.extend(ttl() * 2).await?;
    }
    ensure!(b.try_write().await?.is_none(), "a writer was let in beside readers");
    for reader in readers {
        reader.release().await?;
    }
    b.try_write_for(hand_over()).await?.or_fail("still taken after all releases")?.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_writer_that_waits_is_shown_behind_the_reader_that_holds(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let read = a.read().await?;
    let waiting = tokio::spawn(async move { b.write().await });
    let shown = async || {
        let seen = a.inspect().await?;
        let is_reader = |holder: &Holder| holder.shared && holder.grant == Some(read.grant_id());
        let is_shown = matches!(&*seen.holders, [holder] if is_reader(holder));
        Ok((is_shown && matches!(&*seen.waiters, [waiter] if waiter.owner.is_some())).then_some(()))
    };
    eventually("the reader is shown as holder, the writer as waiter with its owner", promptly(), shown).await?;
    read.release().await?;
    let write = soon("the writer enters", hand_over(), waiting).await???;
    let shown = async || {
        let seen = a.inspect().await?;
        let is_writer = |holder: &Holder| !holder.shared && holder.grant == Some(write.grant_id());
        Ok((seen.waiters.is_empty() && matches!(&*seen.holders, [holder] if is_writer(holder))).then_some(()))
    };
    eventually("the writer is shown as holder, and nobody as waiter", promptly(), shown).await?;
    write.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_dead_reader_among_live_ones_delays_a_writer_by_its_ttl(cx: Arc<Cx>) -> Verdict {
    let (live, writer) = (lock(&cx).await?, lock(&cx).await?);
    {
        let cx = cx.clone();
        in_isolation(move || async move {
            // Neither released nor renewed: its process is gone with the isolated client.
            std::mem::forget(lock(&cx).await?.read().await?);
            Ok(())
        })
        .await?;
    }
    let died = Instant::now();
    let beside = live.read().await?;
    ensure!(writer.try_write().await?.is_none(), "the dead reader's lease ended {:?} after it", died.elapsed());
    let waiter = tokio::spawn(async move { writer.write().await });
    queued(&cx, &live, 1).await?;
    pass(ttl() / 4).await;
    ensure!(beside.is_held(), "the live reader lost its lock");
    beside.release().await?;
    let bound = cx.freed_by(ttl()).saturating_sub(died.elapsed());
    soon("the writer enters once the dead reader's TTL is over", bound, waiter).await???.release().await?;
    Ok(())
}

pub(super) async fn readers_behind_a_writer_enter_together(cx: Arc<Cx>) -> Verdict {
    const READERS: usize = 10;
    let a = lock(&cx).await?;
    let write = a.write().await?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let lock = lock(&cx).await?;
        readers.push(tokio::spawn(async move { lock.read().await }));
    }
    queued(&cx, &a, READERS).await?;
    write.release().await?;
    let mut held = Vec::new();
    for reader in soon("all readers enter", hand_over(), join_all(readers)).await? {
        held.push(reader??);
    }
    ensure!(held.iter().all(|guard| guard.is_held()), "the readers do not hold together");
    Ok(())
}

pub(super) async fn readers_behind_a_writer_that_gave_up_proceed(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let read = a.read().await?;
    let writer = tokio::spawn(async move { b.try_write_for(ms(2000)).await });
    queued(&cx, &a, 1).await?;
    let reader = tokio::spawn(async move { c.read().await });
    let gave_up = soon("the writer gives up", promptly(), writer).await???;
    ensure!(gave_up.is_none(), "the writer was let in beside a reader");
    let beside = soon("the reader behind it enters", hand_over(), reader).await???;
    ensure!(read.is_held() && beside.is_held(), "the readers do not hold together");
    Ok(())
}

pub(super) async fn a_reader_and_a_writer_behind_it_do_not_wait_for_each_other(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = (lock(&cx).await?, lock(&cx).await?, lock(&cx).await?);
    let write = a.write().await?;
    let (served, mut order) = mpsc::unbounded_channel();
    let reader = tokio::spawn({
        let served = served.clone();
        async move {
            let held = b.read().await?;
            served.send("the reader")?;
            Ok::<_, Failure>(held.release().await?)
        }
    });
    queued(&cx, &a, 1).await?;
    let writer = tokio::spawn(async move {
        let held = c.write().await?;
        served.send("the writer")?;
        Ok::<_, Failure>(held.release().await?)
    });
    queued(&cx, &a, 2).await?;
    write.release().await?;
    let mut seen = Vec::new();
    while let Some(next) = soon("a free lock is granted to one of those who wait", hand_over(), order.recv()).await? {
        seen.push(next);
    }
    reader.await??;
    writer.await??;
    ensure!(seen.len() == 2, "served were only {seen:?}");
    if cx.abilities.promises(Guarantee::Fifo) {
        ensure!(seen == ["the reader", "the writer"], "served were, in this order, {seen:?}");
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_writer_s_token_is_above_every_earlier_one(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (lock(&cx).await?, lock(&cx).await?);
    let mut highest = None;
    for round in 0..20 {
        let write = a.write().await?;
        let written = write.fencing_token();
        ensure!(written > highest, "round {round}: the writer's token {written:?} is not above {highest:?}");
        highest = written;
        write.release().await?;
        for reader in [&a, &b] {
            let read = reader.read().await?;
            let token = read.fencing_token();
            ensure!(token >= written, "round {round}: a reader's token {token:?} is below the writer's {written:?}");
            highest = highest.max(token);
            read.release().await?;
        }
    }
    Ok(())
}
