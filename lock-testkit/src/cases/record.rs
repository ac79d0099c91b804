//! C-RC: the record beside a mutex.

use std::sync::Arc;

use lock_core::{ErrorKind, LeaseOptions, Locks, Record, RecordedMutex};

use crate::context::{Cx, LOCK, is_done_or_unknown};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind, was_seen};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{eventually, hand_over, ms, op_timeout, promptly, soon, ttl};

/// A write makes no more requests than this.
const REQUESTS: u64 = 3;

fn recorded(locks: &Locks) -> Result<RecordedMutex, Failure> {
    Ok(locks.recorded(LOCK)?.with_lease(LeaseOptions::new(ttl())))
}

/// The record, which has to be there.
async fn read(lock: &RecordedMutex) -> Result<Record, Failure> {
    lock.read().await?.or_fail("there is no record")
}

pub(super) async fn what_a_holder_writes_is_read_by_all_and_found_by_the_next(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (recorded(&cx.client().await?)?, recorded(&cx.client().await?)?);
    ensure!(b.read().await?.is_none(), "a lock that nobody has taken has a record");
    let held = a.lock().await?;
    let found = held.record();
    ensure!(found.term == held.fencing_token() && found.written.is_none() && found.data.is_empty(), "found {found:?}");
    for data in [&b"first"[..], b"", b"\0\xff:\r\n second"] {
        held.write(data).await?;
        let seen = read(&b).await?;
        ensure!(seen.data == data && seen.is_of_term(), "written was {data:?}, and read {seen:?}");
        ensure!(seen.term == held.fencing_token(), "the record is of {}, not {}", seen.term, held.fencing_token());
        // The writer's own server has it by now.
        let peeked = a.peek().await?;
        ensure!(peeked.as_ref() == Some(&seen), "written was {data:?}, and its writer peeks {peeked:?}");
    }
    let last = read(&b).await?;
    held.release().await?;
    ensure!(read(&b).await? == last, "the release has changed the record");
    let next = b.lock().await?;
    let found = next.record().clone();
    ensure!(found.data == last.data && found.written == last.written, "the next holder finds {found:?}, not {last:?}");
    ensure!(found.term == next.fencing_token() && !found.is_of_term(), "it is not stamped: {found:?}");
    ensure!(read(&a).await? == found, "others do not see the stamp");
    next.release().await?;
    cx.is_obtainable().await
}

pub(super) async fn a_kibibyte_fits_and_one_byte_more_is_refused(cx: Arc<Cx>) -> Verdict {
    let lock = recorded(&cx.client().await?)?;
    let held = lock.lock().await?;
    let full: Vec<u8> = (0..Record::MAX_BYTES).map(|at| (at % 251) as u8).collect();
    held.write(&full).await?;
    let more = [&full[..], b"x"].concat();
    expect_kind("a byte too many", ErrorKind::InvalidArgument, held.write(&more).await)?;
    ensure!(read(&lock).await?.data == full, "what was refused has changed the record, or what fits was cut");
    held.release().await?;
    Ok(())
}

pub(super) async fn names_and_namespaces_have_records_of_their_own(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let held = recorded(&locks)?.lock().await?;
    held.write(b"the one").await?;
    let other = locks.recorded("another/lock")?;
    ensure!(other.read().await?.is_none(), "another name has the same record");
    let apart = cx.harness.connect(&format!("{}/other", cx.namespace)).await?;
    ensure!(recorded(&apart)?.read().await?.is_none(), "another namespace has the same record");
    let second = other.lock().await?;
    second.write(b"the other").await?;
    ensure!(read(&recorded(&locks)?).await?.data == b"the one", "another name's holder has changed it");
    second.release().await?;
    held.release().await?;
    Ok(())
}

pub(super) async fn a_holder_that_ends_before_it_writes_leaves_the_data_of_a_term_before(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (recorded(&cx.client().await?)?, recorded(&cx.client().await?)?);
    let first = a.lock().await?;
    first.write(b"of the first").await?;
    first.release().await?;
    // It crashed between the grant and its write, as far as anybody can tell.
    drop(b.lock().await?);
    let seen = read(&a).await?;
    ensure!(seen.data == b"of the first" && !seen.is_of_term(), "{seen:?}");
    let next = a.try_lock_for(hand_over()).await?.or_fail("the dropped lock is not free")?;
    ensure!(next.record().data == b"of the first" && next.fencing_token() > seen.term, "{:?}", next.record());
    next.release().await?;
    Ok(())
}

pub(super) async fn a_holder_that_was_freed_by_force_writes_nothing_more(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (recorded(&cx.client().await?)?, recorded(&cx.client().await?)?);
    let held = a.lock().await?;
    held.write(b"in time").await?;
    let grant = held.grant_id();
    let freed = async || Ok(b.mutex().force_release(grant, "its machine hangs").await?.then_some(()));
    // Some backends know a grant by its id a moment after it was granted.
    eventually("the grant is freed by force", hand_over(), freed).await?;
    let next = b.try_lock_for(hand_over()).await?.or_fail("not granted after a forced release")?;
    expect_kind("a write after a forced release", ErrorKind::Lost, held.write(b"too late").await)?;
    ensure!(!held.is_held(), "it believes in its lock although its write was refused");
    ensure!(read(&a).await?.data == b"in time", "the former holder has written");
    next.release().await?;
    Ok(())
}

/// The next holder writes, or does no more than take the lock.
pub(super) async fn a_write_that_arrives_after_the_next_grant_changes_nothing(cx: Arc<Cx>) -> Verdict {
    let (lease, mut was_late) = (ms(1000), 0);
    for nth in 1..=REQUESTS {
        for writes in [true, false] {
            let links = cx.links()?;
            let a = recorded(&cx.client_at(&links).await?)?;
            let b = recorded(&cx.client().await?)?;
            let held = a.with_lease(LeaseOptions::new(lease).with_auto_renew(false)).lock().await?;
            held.write(b"in time").await?;
            let late = links.inject(&LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(nth, &cx.namespace));
            let writing = tokio::spawn(async move { (held.write(b"too late").await, held) });
            let is_late = late.applied_within(if nth == 1 { promptly() } else { ms(300) }).await;
            let next = b.try_lock_for(cx.freed_by(lease)).await?.or_fail("not granted after the end of a lease")?;
            if writes {
                next.write(b"by the next").await?;
            }
            if is_late {
                late.heal()?;
                was_late += 1;
            } else {
                drop(late);
            }
            let (outcome, _held) = soon("the late write ends", op_timeout() + promptly(), writing).await??;
            ensure!(!is_late || outcome.is_err(), "a write that came after the next grant says that it is done");
            let expected: &[u8] = match (writes, is_late) {
                (true, _) => b"by the next",
                (false, true) => b"in time",
                (false, false) => b"too late",
            };
            // What was held up arrives a moment after it was let go.
            for _ in 0..10 {
                let seen = read(&b).await?;
                ensure!(seen.data == expected, "expected {expected:?}, read {seen:?} (request {nth}, late: {is_late})");
                ensure!(seen.term == next.fencing_token(), "the stamp went back: {seen:?}");
                crate::time::pass(ms(20)).await;
            }
            next.release().await?;
        }
    }
    was_seen(was_late > 0, "a write")?;
    Ok(())
}

pub(super) async fn a_write_whose_reply_is_lost_is_done_or_unknown_and_can_be_repeated(cx: Arc<Cx>) -> Verdict {
    for toxic in [Toxic::Reset, Toxic::Blackhole] {
        for nth in 1..=REQUESTS {
            let links = cx.links()?;
            let lock = recorded(&cx.client_at(&links).await?)?;
            let held = lock.clone().with_lease(LeaseOptions::new(ms(15_000))).lock().await?;
            let loss = links.inject(&LinkFault::new(toxic.clone(), Direction::ToClient).on_request(nth, &cx.namespace));
            let outcome = soon("the write ends", op_timeout() + ms(1000), held.write(b"once")).await?;
            // Not every backend makes so many requests. One that only reads may fail as a whole, which is definite.
            if loss.applied_within(if nth == 1 { promptly() } else { ms(100) }).await {
                loss.heal()?;
            } else {
                drop(loss);
            }
            let other = recorded(&cx.client().await?)?;
            let seen = read(&other).await?;
            let is_written = seen.is_of_term();
            ensure!(!is_written || seen.data == b"once", "written by halves, or twice: {seen:?}");
            match &outcome {
                Err(error) if error.is_definite() => {
                    ensure!(!is_written, "written, and told as definitely not: {error}")
                }
                Ok(()) => ensure!(is_written, "told as done, and not written: {seen:?}"),
                outcome => is_done_or_unknown(outcome)?,
            }
            eventually("it is written again", promptly(), async || Ok(held.write(b"again").await.ok())).await?;
            let seen = read(&other).await?;
            ensure!(seen.data == b"again" && seen.is_of_term(), "{seen:?}");
            held.release().await?;
        }
    }
    Ok(())
}

/// The client cannot connect again before the grant is freed, so that whatever it sends once more finds nothing to hold by.
pub(super) async fn a_write_whose_reply_is_lost_with_its_grant_is_not_told_as_undone(cx: Arc<Cx>) -> Verdict {
    for nth in 1..=REQUESTS {
        let (links, other) = (cx.links()?, recorded(&cx.client().await?)?);
        let lock = recorded(&cx.client_at(&links).await?)?;
        let held = lock.with_lease(LeaseOptions::new(ms(15_000))).lock().await?;
        let grant = held.grant_id();
        // Some backends know a grant by its id a moment after it was granted.
        let shown =
            async || Ok(other.mutex().inspect().await?.holders.iter().any(|h| h.grant == Some(grant)).then_some(()));
        eventually("the grant is shown", hand_over(), shown).await?;
        let closed = links.inject(&LinkFault::new(Toxic::Refuse, Direction::Both));
        let loss = links.inject(&LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(nth, &cx.namespace));
        let writing = tokio::spawn(async move { (held.write(b"once").await, held) });
        let is_lost = loss.applied_within(if nth == 1 { promptly() } else { ms(300) }).await;
        other.mutex().force_release(grant, "the test").await?;
        drop((loss, closed));
        let (outcome, _held) = soon("the write ends", op_timeout() + promptly(), writing).await??;
        let seen = read(&other).await?;
        let is_written = seen.data == b"once";
        match outcome {
            Ok(()) => ensure!(is_written, "told as done, and not written"),
            Err(error) => ensure!(
                !error.is_definite() || !is_written,
                "written, and told as undone (reply {nth}, lost: {is_lost}): {error}"
            ),
        }
    }
    Ok(())
}

/// The next holder takes the mutex without the record, and so leaves no stamp there.
pub(super) async fn a_holder_before_a_plain_one_that_was_freed_by_force_writes_nothing_more(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (recorded(&cx.client().await?)?, recorded(&cx.client().await?)?);
    let held = a.lock().await?;
    held.write(b"in time").await?;
    let (grant, before) = (held.grant_id(), read(&b).await?);
    let freed = async || Ok(b.mutex().force_release(grant, "its machine hangs").await?.then_some(()));
    // Some backends know a grant by its id a moment after it was granted.
    eventually("the grant is freed by force", hand_over(), freed).await?;
    let next = b.mutex().try_lock_for(hand_over()).await?.or_fail("not granted after a forced release")?;
    expect_kind("a write after a forced release", ErrorKind::Lost, held.write(b"too late").await)?;
    ensure!(!held.is_held(), "it believes in its lock although its write was refused");
    let after = read(&b).await?;
    ensure!(after == before, "the former holder has written: {after:?}");
    next.release().await?;
    Ok(())
}

/// Within an operation timeout: the holder does not give up before its first request arrives.
pub(super) async fn a_write_that_arrives_after_a_plain_grant_changes_nothing(cx: Arc<Cx>) -> Verdict {
    let (links, b) = (cx.links()?, recorded(&cx.client().await?)?);
    let held = recorded(&cx.client_at(&links).await?)?.lock().await?;
    held.write(b"in time").await?;
    let (grant, before) = (held.grant_id(), read(&b).await?);
    // Some backends know a grant by its id a moment after it was granted.
    let shown = async || Ok(b.mutex().inspect().await?.holders.iter().any(|h| h.grant == Some(grant)).then_some(()));
    eventually("the grant is shown", hand_over(), shown).await?;
    let late = links.inject(&LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, &cx.namespace));
    let writing = tokio::spawn(async move { (held.write(b"too late").await, held) });
    late.applied().await?;
    ensure!(b.mutex().force_release(grant, "its machine sleeps").await?, "there is no such grant");
    let next = b.mutex().try_lock_for(hand_over()).await?.or_fail("not granted after a forced release")?;
    late.heal()?;
    let (outcome, _held) = soon("the late write ends", op_timeout() + promptly(), writing).await??;
    ensure!(outcome.is_err(), "a write that came after the next grant says that it is done");
    // What was held up arrives a moment after it was let go.
    for _ in 0..10 {
        let seen = read(&b).await?;
        ensure!(seen == before, "the former holder has written: {seen:?}");
        crate::time::pass(ms(20)).await;
    }
    next.release().await?;
    Ok(())
}
