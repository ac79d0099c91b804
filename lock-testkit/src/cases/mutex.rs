//! C-M: what a mutex promises, whatever it is made of.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};
use lock_core::{GrantId, LossReason};
use tokio::sync::Barrier;

use crate::adapters::{Exclusive, Form};
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::time::{eventually, hand_over, ms, op_timeout, promptly, soon, stays_pending, ttl};

pub(super) async fn a_grant_is_visible_with_its_nonce_until_its_release(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    // Some backends describe a holder a moment after its grant.
    let shown = async || {
        let seen = b.inspect().await?;
        let mine = seen.holders.iter().filter(|holder| holder.grant == Some(held.grant_id())).count();
        ensure!(mine <= 1, "{mine} holders carry the grant's id: {seen:?}");
        Ok((mine == 1).then_some(()))
    };
    eventually("the grant is shown by its id", hand_over(), shown).await?;
    if let Some(truth) = cx.harness.ground_truth() {
        ensure!(!truth.residue(&cx.namespace).await?.is_empty(), "a held lock has no entry at the servers");
    }
    let grant = held.grant_id();
    release(held).await?;
    let seen = b.inspect().await?;
    ensure!(seen.holders.iter().all(|holder| holder.grant != Some(grant)), "still there after its release: {seen:?}");
    cx.nothing_is_left().await
}

pub(super) async fn a_try_while_held_is_refused_and_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let began = Instant::now();
    cx.is_refused(&b).await?;
    ensure!(began.elapsed() <= op_timeout(), "the try took {:?}, more than one operation timeout", began.elapsed());
    cx.queued(&a, 0).await?;
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn sixty_four_racers_get_exactly_one_grant(cx: Arc<Cx>) -> Verdict {
    let clients = [cx.contender().await?, cx.contender().await?, cx.contender().await?, cx.contender().await?];
    let start = Arc::new(Barrier::new(64));
    let racers = (0..64).map(|i: usize| {
        let (lock, start) = (clients[i % clients.len()].clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            lock.try_lock().await
        })
    });
    let mut granted = Vec::new();
    for racer in join_all(racers).await {
        granted.extend(racer??);
    }
    ensure!(granted.len() == 1, "{} of 64 racers hold the lock: {granted:?}", granted.len());
    Ok(())
}

pub(super) async fn owners_that_take_turns_never_overlap_nor_lose_a_count(cx: Arc<Cx>) -> Verdict {
    // The full size once; what the other forms add shows with less.
    let (owners, cycles) = if cx.form == Form::Mutex { (16, 200) } else { (8, 40) };
    let inside = Arc::new(AtomicU32::new(0));
    let counter = Arc::new(AtomicU64::new(0));
    let released = Arc::new(Mutex::new(None::<Instant>));
    let mut tasks = Vec::new();
    for _ in 0..owners {
        let (lock, inside, counter) = (cx.contender().await?, inside.clone(), counter.clone());
        let released = released.clone();
        tasks.push(tokio::spawn(async move {
            for turn in 0..cycles {
                let held = lock.lock().await?;
                // Somebody waits all the time.
                let free = released.lock().ok().or_fail("another owner has panicked")?.map(|at| at.elapsed());
                let free = free.unwrap_or_default();
                ensure!(free <= hand_over(), "turn {turn} of an owner: the lock was free for {free:?} while it waited");
                let others = inside.fetch_add(1, Ordering::SeqCst);
                let before = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                counter.store(before + 1, Ordering::SeqCst);
                inside.fetch_sub(1, Ordering::SeqCst);
                ensure!(others == 0, "{others} others are inside");
                release(held).await?;
                *released.lock().ok().or_fail("another owner has panicked")? = Some(Instant::now());
            }
            Ok::<_, Failure>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let counted = counter.load(Ordering::SeqCst);
    ensure!(counted == owners * cycles, "{counted} of {} counts were kept", owners * cycles);
    cx.nothing_is_left().await
}

pub(super) async fn tasks_that_share_one_handle_release_only_their_own_grant(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let tasks = (0..100).map(|_| {
        let lock = lock.clone();
        tokio::spawn(async move {
            let held = lock.lock().await?;
            tokio::task::yield_now().await;
            let grant = held.grant_id();
            release(held).await?;
            Ok::<_, Failure>(grant)
        })
    });
    let mut grants = HashSet::new();
    for task in join_all(tasks).await {
        grants.insert(task??);
    }
    ensure!(grants.len() == 100, "only {} different grants in 100 tasks", grants.len());
    Ok(())
}

pub(super) async fn nonces_are_unique_and_use_every_bit(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let take = async |lane: usize| {
        let lock = cx.form.handle(&locks, format!("nonces/{lane}"))?;
        let mut ids = Vec::new();
        for _ in 0..250 {
            let held = lock.lock().await?;
            ids.push(held.grant_id());
            release(held).await?;
        }
        Ok::<_, Failure>(ids)
    };
    let lanes = try_join_all((0..4).map(&take)).await?;
    let ids: Vec<GrantId> = lanes.into_iter().flatten().collect();
    ensure!(ids.iter().collect::<HashSet<_>>().len() == ids.len(), "a nonce came twice");
    for bit in 0..128 {
        let set = ids.iter().filter(|id| id.as_bytes()[bit / 8] >> (bit % 8) & 1 == 1).count();
        // A fair bit leaves this range once in 10^40 runs; one that tells time, process or version does at once.
        ensure!((250..=750).contains(&set), "bit {bit} is set in {set} of {} nonces: it is not random", ids.len());
    }
    Ok(())
}

pub(super) async fn a_release_hands_the_lock_to_the_waiter(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let waiter = tokio::spawn(async move { b.lock().await });
    cx.queued(&a, 1).await?;
    release(held).await?;
    let next = soon("the waiter is granted the released lock", hand_over(), waiter).await???;
    release(next).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_holder_that_tries_again_is_refused_rather_than_stuck(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.lock().await?;
    let began = Instant::now();
    cx.is_refused(&lock).await?;
    ensure!(began.elapsed() <= op_timeout(), "the try took {:?}", began.elapsed());
    release(held).await
}

pub(super) async fn a_dropped_guard_is_released_in_the_background(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let lost = held.lost();
    drop(held);
    let next = b.try_lock_for(hand_over()).await?.or_fail("the lock of a dropped guard is still taken")?;
    ensure!(lost.now_or_never().is_none(), "dropping a guard was reported as a loss");
    release(next).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_try_behind_what_its_client_dropped_is_granted(cx: Arc<Cx>) -> Verdict {
    let (a, _) = cx.two().await?;
    for polls in 1..=4 {
        let guard = a.try_lock().await?.or_fail("a free lock was refused")?;
        drop(guard);
        let held = a.try_lock().await?.or_fail("refused behind a dropped guard of the same client")?;
        release(held).await?;
        let ended = {
            let mut trying = pin!(a.try_lock());
            crate::time::poll_times(trying.as_mut(), polls, ms(20)).await
        };
        if let Some(outcome) = ended {
            drop(outcome?.or_fail("a free lock was refused")?);
        }
        let held = a.try_lock().await?.or_fail(&format!("refused behind a try dropped at poll {polls}"))?;
        release(held).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn freeing_a_grant_that_is_not_there_changes_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let unknown = GrantId::random()?;
    ensure!(!b.force_release(unknown, "never granted").await?, "a grant that never was, was freed");
    let former = a.lock().await?;
    let gone = former.grant_id();
    release(former).await?;
    let held = a.lock().await?;
    for grant in [unknown, gone] {
        ensure!(!b.force_release(grant, "not there").await?, "a grant that is not there was freed");
    }
    cx.is_refused(&b).await?;
    release(held).await
}

pub(super) async fn a_release_of_what_the_server_lost_is_not_held(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    cx.delete_entry().await?;
    let next = b.try_lock_for(hand_over()).await?.or_fail("the lock is taken although its entry was deleted")?;
    let outcome = soon("the release", promptly(), held.release()).await?;
    crate::failure::expect_kind("releasing a grant that is gone", lock_core::ErrorKind::NotHeld, outcome)?;
    cx.is_refused(&a).await?;
    release(next).await
}

pub(super) async fn a_release_that_is_dropped_before_its_reply_still_frees(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    for polls in 1..=3 {
        let held = a.lock().await?;
        let lost = held.lost();
        {
            let mut release = pin!(held.release());
            crate::time::poll_times(release.as_mut(), polls, ms(20)).await;
        }
        let next = b.try_lock_for(hand_over()).await?;
        release(next.or_fail(&format!("still taken after its release was dropped at poll {polls}"))?).await?;
        ensure!(lost.now_or_never().is_none(), "a dropped release was reported as a loss");
    }
    cx.nothing_is_left().await
}

pub(super) async fn locks_of_similar_names_are_independent(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    let names = ["a/b", "A/b", "a/B", "a", "b", "/a/b", "a/b/", "a/bb", "aa/b", "a:b", "a b", "a/b "];
    let mut held = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        let locks = if i % 2 == 0 { &a } else { &b };
        let lock = cx.form.handle(locks, name)?.with_ttl(ttl());
        held.push(lock.try_lock().await?.or_fail(&format!("{name:?} is taken by a similar name"))?);
    }
    for name in names {
        cx.is_refused(&cx.form.handle(&b, name)?).await?;
    }
    Ok(())
}

pub(super) async fn namespaces_are_independent_and_one_namespace_is_exclusive(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let elsewhere = cx.harness.connect(&format!("{}/other", cx.namespace)).await?;
    let elsewhere = cx.form.handle(&elsewhere, crate::context::LOCK)?;
    let here = a.lock().await?;
    let there = elsewhere.try_lock().await?.or_fail("the same name in another namespace is taken")?;
    cx.is_refused(&b).await?;
    release(there).await?;
    cx.is_refused(&b).await?;
    release(here).await
}

pub(super) async fn a_forced_release_frees_the_lock_and_tells_its_holder(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    let (lost, grant) = (held.lost(), held.grant_id());
    let waiter = {
        let b = b.clone();
        tokio::spawn(async move { b.lock().await })
    };
    cx.queued(&a, 1).await?;
    ensure!(b.force_release(grant, "the case asks").await?, "the grant was not found");
    let next = soon("the waiter is granted the freed lock", hand_over(), waiter).await???;
    // At the latest the next renewal, a third of the TTL away, finds the entry gone.
    let reason = soon("the holder learns of it", ttl() / 3 + hand_over(), lost).await?;
    let told = match &reason {
        LossReason::ForceReleased { by, reason } => !by.is_empty() && reason == "the case asks",
        reason => *reason == LossReason::Taken,
    };
    ensure!(told, "the holder was told {reason:?}");
    ensure!(!held.is_held(), "the holder still believes in its lock");
    let outcome = held.release().await;
    let error = crate::failure::expect_kind("releasing a freed grant", lock_core::ErrorKind::NotHeld, outcome)?;
    ensure!(error.loss() == Some(&reason), "the holder was told {reason:?}, and its release: {error:?}");
    // The next holder's renewals come after those of the former one, and find nothing that was meant for that.
    stays_pending("the next holder's loss", ttl(), pin!(next.lost())).await?;
    cx.is_refused(&a).await?;
    release(next).await
}

/// A waiter of this contender, which releases what it gets.
pub(super) fn waits_and_releases(lock: &Exclusive) -> tokio::task::JoinHandle<Verdict> {
    let lock = lock.clone();
    tokio::spawn(async move { release(lock.lock().await?).await })
}
