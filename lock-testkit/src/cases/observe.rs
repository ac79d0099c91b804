//! C-O, C-L: what can be seen of a lock, and what locks cost.

use std::sync::Arc;
use std::time::Instant;

use lock_core::{ErrorKind, GrantId, Holder, LeaseOptions, Phase};

use crate::context::{Cx, LOCK, is_complete, release};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::meter::Meter;
use crate::time::{eventually, hand_over, ms, op_timeout, pass, promptly, settled, soon, ttl};
use crate::trace::{SpanRecord, Trace};

pub(super) async fn inspection_shows_the_holder_and_the_queue(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let waiter = {
        let b = b.clone();
        tokio::spawn(async move { b.lock().await })
    };
    cx.queued(&a, 1).await?;
    // Some backends describe a holder a moment after its grant.
    let is_mine = |holder: &&Holder| holder.grant == Some(held.grant_id()) && holder.owner.is_some();
    let shown = async || {
        let seen = a.inspect().await?;
        Ok(seen.holders.iter().find(is_mine).cloned().map(|holder| (seen, holder)))
    };
    let (seen, holder) = eventually("the holder is shown with its owner", hand_over(), shown).await?;
    let owner = holder.owner.as_ref().or_fail("the holder is shown without its owner")?;
    ensure!(owner.pid() == std::process::id(), "the holder's process is shown as {}", owner.pid());
    ensure!(!owner.host().is_empty(), "the holder's host is not shown");
    ensure!(holder.held_for.is_some_and(|time| time <= promptly()), "held for {:?}", holder.held_for);
    let latest = cx.harness.kept_for(ttl()) + ms(2);
    ensure!(holder.expires_in.is_some_and(|time| time <= latest), "expires in {:?}", holder.expires_in);
    if let Some(token) = held.token() {
        ensure!(holder.token == Some(token.as_u64()), "the token is shown as {:?}, it is {token}", holder.token);
    }
    if cx.abilities.promises(lock_core::Guarantee::Fifo) {
        ensure!(seen.waiters.len() == 1, "{} waiters are shown, there is one", seen.waiters.len());
        ensure!(seen.waiters[0].attempt != held.grant_id(), "the holder is shown as a waiter");
    }
    release(held).await?;
    release(soon("the waiter is granted", hand_over(), waiter).await???).await
}

pub(super) async fn meters_move_by_exactly_what_happened(cx: Arc<Cx>) -> Verdict {
    let meter = Meter::default();
    let (locks, other) = (meter.under(cx.client()).await?, cx.contender().await?);
    let lock = cx.lock_of(&locks).await?;
    let counts = || {
        let losses = ["expired", "session_expired", "taken", "force_released"];
        let lost = |reason: &str| meter.total(&format!("lock_losses_total{{reason={reason}}}"));
        let measured = |name: &str| meter.values(name).len();
        let [grants, refusals] = ["lock_grants_total", "lock_refusals_total"].map(|name| meter.total(name));
        (grants, refusals, losses.map(lost), measured("lock_wait_seconds"), measured("lock_hold_seconds"))
    };
    let expect = |what: &str, expected| {
        let counted = counts();
        ensure!(counted == expected, "after {what}, the meters show {counted:?} instead of {expected:?}");
        Ok(())
    };
    expect("connecting", (0.0, 0.0, [0.0; 4], 0, 0))?;
    for _ in 0..3 {
        release(lock.lock().await?).await?;
    }
    expect("three grants and releases", (3.0, 0.0, [0.0; 4], 3, 3))?;
    let theirs = other.lock().await?;
    for wait in [0, 0, 50] {
        ensure!(lock.try_lock_for(ms(wait)).await?.is_none(), "granted although somebody holds the lock");
    }
    expect("three refusals", (3.0, 3.0, [0.0; 4], 3, 3))?;
    // A wait and a hold of a known length.
    let (began, time) = (Instant::now(), ms(200));
    let (mine, freed) = tokio::join!(lock.lock(), async {
        pass(time).await;
        release(theirs).await
    });
    freed?;
    let mine = mine?;
    pass(time).await;
    release(mine).await?;
    expect("a wait and a hold", (4.0, 3.0, [0.0; 4], 4, 4))?;
    for name in ["lock_wait_seconds", "lock_hold_seconds"] {
        let last = meter.values(name).pop().unwrap_or_default();
        let right = (time * 9 / 10).as_secs_f64()..=began.elapsed().as_secs_f64();
        ensure!(right.contains(&last), "{name} shows {last}, not within {right:?}");
    }
    let held = lock.clone().unrenewed(ms(300)).lock().await?;
    soon("the lease ends", promptly(), held.lost()).await?;
    drop(held);
    // The hold of a lock that is lost ends with its lease.
    expect("a loss", (5.0, 3.0, [1.0, 0.0, 0.0, 0.0], 5, 5))
}

pub(super) async fn a_push_is_measured_until_its_guard(cx: Arc<Cx>) -> Verdict {
    let meter = Meter::default();
    let (mine, other) = (cx.lock_of(&meter.under(cx.client()).await?).await?, cx.contender().await?);
    let measured = || meter.values("lock_wake_to_grant_seconds");
    release(mine.lock().await?).await?;
    ensure!(measured().is_empty(), "a grant without a wait was measured as a wake-up: {:?}", measured());
    let theirs = other.lock().await?;
    let freed = async {
        cx.queued(&other, 1).await?;
        pass(ms(200)).await;
        let released = Instant::now();
        release(theirs).await.map(|()| released)
    };
    let (mine, released) = tokio::join!(mine.lock(), freed);
    let (mine, bound) = (mine?, released?.elapsed().as_secs_f64());
    let [latency] = measured()[..] else {
        return Err(Failure::new(format!("one wake-up was measured as {:?}", measured())));
    };
    ensure!(
        (0.0..=bound).contains(&latency),
        "{latency} s from the wake-up to the guard, but the release was {bound} s ago"
    );
    release(mine).await
}

pub(super) async fn every_acquisition_closes_its_span_with_its_outcome(cx: Arc<Cx>) -> Verdict {
    let trace = Trace::new();
    let (a, b) = cx.two().await?;
    let held = trace.under(a.lock()).await?;
    ensure!(trace.under(b.try_lock()).await?.is_none(), "granted although somebody holds the lock");
    {
        let mut waiting = std::pin::pin!(trace.under(b.lock()));
        crate::time::stays_pending("a wait for a held lock", ms(100), waiting.as_mut()).await?;
    }
    // A backend may need a moment to notice that nobody waits any more.
    let closed = async || Ok(trace.spans("lock.acquire").iter().all(SpanRecord::is_closed).then_some(()));
    eventually("the span of every acquisition is closed", hand_over(), closed).await?;
    let spans = trace.spans("lock.acquire");
    let told: Vec<_> = spans.iter().map(|span| (span.value("wait"), span.value("outcome"))).collect();
    let expected = [("unlimited", "granted"), ("try", "refused"), ("unlimited", "cancelled")];
    ensure!(told == expected, "the acquisitions were told as {told:?}, not {expected:?}");
    let token = held.token().map(|token| token.to_string());
    let (granted, grant) = (&spans[0], held.grant_id().to_string());
    ensure!(granted.value("grant") == grant, "the grant {grant} is told as {:?}", granted);
    ensure!(token.is_none_or(|token| granted.value("token") == token), "the token is told as {:?}", granted);
    ensure!(spans.iter().all(|span| span.value("name") == LOCK), "an acquisition does not name its lock: {spans:?}");
    trace.under(release(held)).await?;
    let spans = trace.spans("lock.release");
    let released = matches!(&spans[..], [span] if span.is_closed() && span.value("outcome") == "released");
    ensure!(released, "the release was told as {spans:?}");
    Ok(())
}

pub(super) async fn an_error_names_lock_backend_and_phase(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let senseless = lock.clone().with_lease(LeaseOptions::new(ms(1)).with_auto_renew(false));
    let error = expect_kind("a senseless TTL", ErrorKind::InvalidArgument, senseless.try_lock().await)?;
    is_complete(&error, LOCK, &[Phase::Configure])?;
    let held = lock.unrenewed(ms(300)).lock().await?;
    let reason = soon("the lease ends", promptly(), held.lost()).await?;
    let error = expect_kind("an extension too late", ErrorKind::Lost, held.extend(ttl()).await)?;
    is_complete(&error, LOCK, &[Phase::Renew])?;
    ensure!(error.loss() == Some(&reason), "the error does not carry the reason of the loss, {reason:?}: {error:?}");
    let error = expect_kind("a release too late", ErrorKind::NotHeld, held.release().await)?;
    is_complete(&error, LOCK, &[Phase::Release])?;
    ensure!(error.is_definite(), "a refused release counts as unknown: {error}");
    ensure!(error.loss() == Some(&reason), "the release does not tell the reason of the loss, {reason:?}: {error:?}");
    Ok(())
}

pub(super) async fn whether_a_lock_is_free_is_shown_as_it_is(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let is_free = async |expected: bool, when: &str| {
        for who in [&a, &b] {
            let seen = who.inspect().await?;
            ensure!(seen.is_free() == expected, "{when}, the lock is shown as {seen:?}");
        }
        Ok::<_, Failure>(())
    };
    is_free(true, "before anybody had it").await?;
    let held = a.lock().await?;
    is_free(false, "while it is held").await?;
    release(held).await?;
    is_free(true, "after its release").await?;
    if let Some(lock) = cx.client().await?.rwlock(LOCK).filter(|_| cx.form == crate::adapters::Form::Write) {
        let read = lock.read().await?;
        is_free(false, "while somebody reads").await?;
        ensure!(b.inspect().await?.holders.iter().all(|holder| holder.shared), "a reader is shown as exclusive");
        read.release().await?;
    }
    let held = b.clone().unrenewed(ms(300)).lock().await?;
    soon("the lease ends", promptly(), held.lost()).await?;
    let free = async || Ok(a.inspect().await?.is_free().then_some(()));
    eventually("an expired lock is shown as free", hand_over(), free).await
}

pub(super) async fn a_thousand_locks_cost_as_many_tasks_as_one(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let first = cx.form.handle(&locks, "cheap/first")?.with_ttl(ms(20_000)).lock().await?;
    // Some tasks are started in the background, such as those that listen to sentinels.
    let one = settled("the number of a client's tasks", promptly(), alive).await?;
    let mut held = Vec::new();
    for i in 0..1000 {
        held.push(cx.form.handle(&locks, format!("cheap/{i}"))?.with_ttl(ms(20_000)).lock().await?);
    }
    let look = async || Ok((alive() <= one).then_some(()));
    let outcome = eventually("as many tasks are alive with 1,001 locks as with one", hand_over(), look).await;
    outcome.map_err(|failure| failure.and(format_args!("{} instead of {one}", alive())))?;
    ensure!(first.is_held() && held.iter().all(|held| held.is_held()), "a lock was lost meanwhile");
    Ok(())
}

pub(super) async fn a_thousand_failed_tries_leave_the_servers_as_they_were(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.with_ttl(ms(20_000)).lock().await?;
    let truth = cx.harness.ground_truth().or_fail("the case needs ground truth and did not say so")?;
    let before = truth.residue(&cx.namespace).await?.len();
    for i in 0..1000 {
        ensure!(b.try_lock().await?.is_none(), "try {i} was granted although somebody holds the lock");
    }
    let after = truth.residue(&cx.namespace).await?;
    ensure!(after.len() <= before, "{before} entries before 1,000 failed tries, afterwards {after:?}");
    release(held).await?;
    cx.nothing_is_left().await
}

/// The number of clients that go: one task of each that stays is too many.
const GONE: usize = 4;

pub(super) async fn a_client_that_is_gone_leaves_neither_entries_nor_tasks(cx: Arc<Cx>) -> Verdict {
    let keeps = cx.client().await?;
    let held = cx.form.handle(&keeps, "kept")?.with_ttl(ms(10_000)).lock().await?;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = settled("the number of a client's tasks", promptly(), alive).await?;
    for _ in 0..GONE {
        let closes = cx.client().await?;
        let mut guards = Vec::new();
        for i in 0..20 {
            guards.push(cx.form.handle(&closes, format!("closed/{i}"))?.with_ttl(ms(10_000)).lock().await?);
        }
        let blocked = cx.form.handle(&closes, "kept")?;
        let waiting = std::pin::pin!(blocked.lock());
        crate::time::stays_pending("a wait for a held lock", ms(50), waiting).await?;
    }
    // The client that stays may still make itself at home.
    let look = async || Ok((alive() < before + GONE).then_some(()));
    let outcome = eventually("the closed client's tasks end", promptly(), look).await;
    outcome.map_err(|failure| failure.and(format_args!("{} are alive, {before} were before", alive())))?;
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_client_that_is_closed_has_released_everything(cx: Arc<Cx>) -> Verdict {
    let (locks, other) = (cx.client().await?, cx.contender().await?);
    let lock = cx.lock_of(&locks).await?;
    drop(lock.lock().await?);
    soon("a client is closed", op_timeout() + ms(1000), locks.close()).await??;
    let next = other.try_lock().await?.or_fail("not free although the client that dropped its guard was closed")?;
    expect_kind("a lock of a closed client", ErrorKind::Closed, lock.try_lock().await)?;
    release(next).await?;
    cx.nothing_is_left().await
}

pub(super) async fn an_operator_frees_exactly_the_named_grant(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    ensure!(!b.force_release(GrantId::random()?, "nobody holds it").await?, "a free lock was freed");
    let held = a.lock().await?;
    let shown = async || {
        let seen = b.inspect().await?;
        Ok(seen.holders.iter().find_map(|holder| holder.grant.filter(|grant| *grant == held.grant_id())))
    };
    let shown = eventually("the holder is shown by its grant", hand_over(), shown).await?;
    ensure!(b.force_release(shown, "the case asks").await?, "the grant that is shown cannot be freed");
    cx.is_obtainable().await
}
