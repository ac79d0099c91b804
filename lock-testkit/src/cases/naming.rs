//! C-N: names, durations and other input.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, LeaseOptions, LockName, Phase, multi};

use crate::adapters::{Form, SIMPLE};
use crate::context::{Cx, LOCK, is_complete, release};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::time::{ms, op_timeout, promptly, soon, ttl};

/// Names that break a careless mapping to keys or paths.
const ODD_NAMES: &[&str] = &[
    "a", "/", ":", "{}", "{a}", "*", "?", "[a]", " ", "ä/ö ü", "锁", "🔒", "..", ".", "a/../b", "a//b", "\n", "\r\n",
    "\t", "\0", "a\0b", "\u{7f}", "%", "%2F", "a%2fb", "\\", "\"", "'", "$1", "#", "a\u{301}", "á", "-1", "0",
];

pub(super) async fn odd_names_work_and_do_not_collide(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    let mut held = Vec::new();
    for name in ODD_NAMES {
        let lock = cx.form.handle(&a, *name)?.with_ttl(ms(10_000));
        held.push(lock.try_lock().await?.or_fail(&format!("{name:?} is taken by another odd name"))?);
        cx.is_refused(&cx.form.handle(&b, *name)?).await?;
    }
    for held in held {
        release(held).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn names_that_differ_only_in_case_are_two(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let (lower, upper) = (cx.form.handle(&locks, "name")?, cx.form.handle(&locks, "NAME")?);
    let held = lower.lock().await?;
    release(upper.try_lock().await?.or_fail("the upper-case name is taken by the lower-case one")?).await?;
    release(held).await
}

pub(super) async fn senseless_durations_are_refused_and_odd_ones_work(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let month = Duration::from_secs(31 * 24 * 60 * 60);
    for ttl in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1500), month, Duration::MAX] {
        let error =
            expect_kind("a senseless TTL", ErrorKind::InvalidArgument, a.clone().with_ttl(ttl).try_lock().await)?;
        is_complete(&error, LOCK, &[Phase::Configure])?;
    }
    let held = a.clone().with_ttl(Duration::from_micros(1_500_500)).lock().await?;
    for wait in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1500)] {
        let refused = soon("a short wait", wait + op_timeout(), b.try_lock_for(wait)).await??;
        ensure!(refused.is_none(), "granted although somebody holds it");
    }
    for senseless in [Duration::ZERO, Duration::from_nanos(1), month, Duration::MAX] {
        expect_kind("a senseless extension", ErrorKind::InvalidArgument, held.extend(senseless).await)?;
    }
    ensure!(held.is_held(), "a refused extension cost the lock");
    release(held).await?;
    for wait in [month, Duration::MAX] {
        release(soon("a long wait for a free lock", promptly(), b.try_lock_for(wait)).await??.or_fail("refused")?)
            .await?;
    }
    let every = LeaseOptions::new(ttl()).with_renew_every(Duration::ZERO);
    expect_kind("a renewal all the time", ErrorKind::InvalidArgument, a.with_lease(every).try_lock().await)?;
    cx.nothing_is_left().await
}

pub(super) async fn empty_and_overlong_names_are_refused_and_long_ones_work(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    for wrong in [String::new(), "x".repeat(LockName::MAX_BYTES + 1)] {
        let refused = cx.form.handle(&locks, wrong)?.try_lock().await;
        expect_kind("a name out of range", ErrorKind::InvalidArgument, refused)?;
    }
    // As long as they may be, and different only at the very end, where a mapping might cut.
    let stem = "ü".repeat(LockName::MAX_BYTES / 2 - 1);
    let mut held = Vec::new();
    for end in ["aa", "ab", "ba", "é"] {
        let lock = cx.form.handle(&locks, format!("{stem}{end}"))?.with_ttl(ttl());
        held.push(lock.try_lock().await?.or_fail("a long name is taken by another one")?);
    }
    for held in held {
        release(held).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_thousand_random_names_are_independent(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let mut held = Vec::new();
    for i in 0..1000 {
        // Text of many alphabets from random bits, of many lengths.
        let bits = lock_core::GrantId::random()?;
        let name: String =
            bits.as_bytes()[..1 + i % 16].iter().map(|b| char::from(*b)).chain([char::from(b'a')]).collect();
        let name = format!("{name}{i}");
        let lock = cx.form.handle(&locks, &*name)?.with_ttl(ms(20_000));
        held.push(lock.try_lock().await?.or_fail(&format!("{name:?} is taken by another random name"))?);
    }
    let lost = held.iter().filter(|held| !held.is_held()).count();
    ensure!(lost == 0, "{lost} of 1,000 locks were lost meanwhile");
    Ok(())
}

pub(super) async fn foreign_garbage_in_its_place_is_a_typed_error(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    cx.admin()?.put_garbage(&cx.namespace, &LOCK.into()).await?;
    let error = soon("a try", op_timeout(), lock.try_lock()).await?;
    let error = expect_kind("a try of a lock whose place holds garbage", ErrorKind::Protocol, error)?;
    is_complete(&error, LOCK, &[Phase::Acquire, Phase::Wait])?;
    let error = soon("a wait", promptly(), lock.try_lock_for(ms(300))).await?;
    expect_kind("a wait for a lock whose place holds garbage", ErrorKind::Protocol, error)?;
    cx.delete_entry().await?;
    release(lock.try_lock().await?.or_fail("not free after the garbage was removed")?).await
}

pub(super) async fn callers_that_name_locks_in_different_orders_never_deadlock(cx: Arc<Cx>) -> Verdict {
    let names = ["x", "y", "z"];
    let mut callers = Vec::new();
    for turn in 0..3 {
        let locks = cx.client().await?;
        callers.push(tokio::spawn(async move {
            for _ in 0..15 {
                let mine = (0..3).map(|i| locks.mutex(names[(i + turn) % 3]).with_ttl(ttl()));
                let all = multi::lock_all(mine).await?;
                ensure!(all.is_held() && all.guards().len() == 3, "not all of three locks are held");
                all.release().await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for caller in callers {
        soon("every caller finishes", promptly() * 2, caller).await???;
    }
    cx.nothing_is_left().await
}

pub(super) async fn kinds_of_one_name_do_not_collide(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    let mut held = Vec::new();
    let there = |form: &&Form| cx.abilities.lacking(**form, &[]).is_none();
    for form in SIMPLE.iter().filter(there) {
        let lock = form.handle(&a, LOCK)?.with_ttl(ms(5000));
        let granted = lock.try_lock().await?;
        held.push(granted.or_fail(&format!("the {} is taken by another kind of the same name", form.name()))?);
        cx.is_refused(&form.handle(&b, LOCK)?).await?;
    }
    for held in held {
        release(held).await?;
    }
    cx.nothing_is_left().await
}
