//! C-RC09, C-RC10, C-RC10b, C-RC11: the record when its servers are started again, forget, or leave it to another one.

use std::sync::Arc;

use lock_core::{Error, Guarantee, Record, RecordedGuard, RecordedMutex};

use crate::contenders::is_of_the_trouble;
use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::faults::Data;
use crate::harness::{DisposableServer, ServerFault};
use crate::time::{eventually, ms, op_timeout, pass, promptly, soon, ttl};

use super::servers::{client, disposable_server, is_proven};

/// The data of an earlier write, and of the last one before the trouble.
const EARLIER: &[u8] = b"earlier";
const LAST: &[u8] = b"last";
/// The data of a write after the trouble.
const AFTER: &[u8] = b"after";

async fn recorded(cx: &Cx, servers: &dyn DisposableServer) -> Result<RecordedMutex, Failure> {
    Ok(client(cx, servers).await?.recorded(LOCK)?.with_ttl(ttl()))
}

/// The grant, at servers that may be in trouble, or grant nothing for a while.
async fn granted(lock: &RecordedMutex) -> Result<RecordedGuard, Failure> {
    eventually("the lock is granted", promptly() * 3, async || {
        is_the_trouble_s(soon("a wait comes back", promptly(), lock.try_lock_for(ttl())).await?)
    })
    .await
}

/// The record, at servers that may be in trouble; nothing if there is none.
async fn read(lock: &RecordedMutex) -> Result<Option<Record>, Failure> {
    eventually("the record can be read", promptly() * 3, async || {
        is_the_trouble_s(soon("a reading comes back", promptly(), lock.read()).await?.map(Some))
    })
    .await
}

/// The answer, or nothing if it is an error that servers in trouble may lead to.
fn is_the_trouble_s<T>(outcome: Result<Option<T>, Error>) -> Result<Option<T>, Failure> {
    outcome.or_else(|error| is_of_the_trouble(&error).map(|()| None))
}

/// Writes twice, as a holder does that goes on.
async fn write(held: &RecordedGuard) -> Verdict {
    for data in [EARLIER, LAST] {
        eventually("it is written", promptly(), async || is_the_trouble_s(held.write(data).await.map(Some))).await?;
    }
    Ok(())
}

/// The data that may be in the record, as far as its writers were told.
struct Expected {
    data: Vec<&'static [u8]>,
    /// Whether it may be gone, or be of an earlier write.
    may_be_lost: bool,
}

impl Expected {
    /// The data of [`write()`].
    fn written(is_kept: bool) -> Self {
        Self { data: vec![LAST], may_be_lost: !is_kept }
    }

    /// A holder writes after the trouble, and is told what became of it.
    async fn write_once_more(mut self, held: &RecordedGuard) -> Result<Self, Failure> {
        match soon("a write comes back", op_timeout() + promptly(), held.write(AFTER)).await? {
            Ok(()) => self.data = vec![AFTER],
            Err(error) => {
                is_of_the_trouble(&error)?;
                if !error.is_definite() {
                    self.data.push(AFTER);
                }
            }
        }
        Ok(self)
    }

    fn is_met_by(&self, found: Option<&Record>) -> Verdict {
        let data = found.filter(|record| record.written.is_some()).map(|record| &*record.data);
        let is_expected = data.is_some_and(|data| self.data.contains(&data));
        let is_of_before = data.is_none_or(|data| data == EARLIER || data == LAST);
        ensure!(is_expected || self.may_be_lost && is_of_before, "found {found:?}, expected one of {:?}", self.data);
        Ok(())
    }
}

/// It happens when the holder has gone, and again under a holder who goes on. Whoever is next finds what is promised.
async fn it_is_found_after(
    cx: &Cx,
    servers: &dyn DisposableServer,
    is_kept: bool,
    trouble: impl AsyncFn() -> Verdict,
) -> Verdict {
    let (a, b) = (recorded(cx, servers).await?, recorded(cx, servers).await?);
    let first = granted(&a).await?;
    write(&first).await?;
    first.release().await?;
    trouble().await?;
    let expected = Expected::written(is_kept);
    expected.is_met_by(read(&b).await?.as_ref())?;
    let second = granted(&b).await?;
    expected.is_met_by(Some(second.record()))?;
    write(&second).await?;
    trouble().await?;
    let expected = Expected::written(is_kept).write_once_more(&second).await?;
    expected.is_met_by(read(&a).await?.as_ref())?;
    drop(second);
    let third = granted(&a).await?;
    expected.is_met_by(Some(third.record()))?;
    is_the_only_writer(&third, &b).await
}

/// This holder writes, and all read that.
async fn is_the_only_writer(held: &RecordedGuard, other: &RecordedMutex) -> Verdict {
    eventually("the next holder writes", promptly(), async || {
        is_the_trouble_s(held.write(b"by the next").await.map(Some))
    })
    .await?;
    // What was held up arrives a moment later.
    for _ in 0..10 {
        let seen = read(other).await?.or_fail("what the next holder has written is gone")?;
        ensure!(seen.data == b"by the next" && seen.is_of_term(), "not what the next holder has written: {seen:?}");
        ensure!(seen.term == held.fencing_token(), "the stamp is not the next holder's: {seen:?}");
        pass(ms(20)).await;
    }
    Ok(())
}

pub(super) async fn a_record_is_found_after_a_restart(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::Restart).await?;
    let is_kept = cx.abilities.promises(Guarantee::RecordAcrossRestart);
    it_is_found_after(&cx, &*servers, is_kept, async || is_proven(servers.restart(Data::Kept).await)).await
}

pub(super) async fn a_record_is_found_after_a_failover(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::FailOver).await?;
    // With a reservation: the last write may have been on its way to the one that leads now.
    let is_kept = cx.abilities.always_promises(Guarantee::RecordAcrossFailover);
    it_is_found_after(&cx, &*servers, is_kept, async || is_proven(servers.fail_over(&LOCK.into()).await)).await
}

/// Checks that the next holder finds none, and that the former holder does not write beside it, whenever it hears of the loss.
async fn a_former_holder_writes_nothing(
    cx: &Cx,
    servers: &dyn DisposableServer,
    forget: impl AsyncFnOnce() -> Verdict,
) -> Verdict {
    let (a, b) = (recorded(cx, servers).await?, recorded(cx, servers).await?);
    let held = granted(&a).await?;
    write(&held).await?;
    // It is known to the next one, too.
    Expected::written(true).is_met_by(read(&b).await?.as_ref())?;
    forget().await?;
    let next = granted(&b).await?;
    ensure!(next.record().written.is_none(), "what was forgotten is found: {:?}", next.record());
    eventually("the next holder writes", promptly(), async || {
        is_the_trouble_s(next.write(b"by the next").await.map(Some))
    })
    .await?;
    let late = soon("the late write comes back", op_timeout() + promptly(), held.write(b"too late")).await?;
    ensure!(late.is_err(), "a former holder's write says that it is done");
    is_the_only_writer(&next, &a).await
}

pub(super) async fn a_former_holder_writes_nothing_after_a_restart_without_data(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::Restart).await?;
    a_former_holder_writes_nothing(&cx, &*servers, async || is_proven(servers.restart(Data::Gone).await)).await
}

pub(super) async fn a_former_holder_writes_nothing_after_a_flush(cx: Arc<Cx>) -> Verdict {
    let servers = disposable_server(&cx, ServerFault::Flush).await?;
    a_former_holder_writes_nothing(&cx, &*servers, async || is_proven(servers.flush().await)).await
}
