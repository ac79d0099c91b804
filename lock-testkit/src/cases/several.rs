//! C-ML: several locks at once, all or nothing, whether the servers take them in one step or one after the other.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::multi::{Lockable, MultiGuard, lock_all, try_lock_all, try_lock_all_for};
use lock_core::{Guarantee, Locks};

use crate::adapters::Form;
use crate::context::Cx;
use crate::failure::{Failure, OrFail, Verdict, ensure, was_seen};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{hand_over, ms, op_timeout, poll_times, promptly, soon, ttl};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A request for several locks makes no more requests than this before it ends.
const REQUESTS: u64 = 4;

/// The locks of these names; the last one is a write lock, where there is one.
fn several(cx: &Cx, locks: &Locks, names: &[&str]) -> Result<Vec<Lockable>, Failure> {
    let has_writers = cx.abilities.lacking(Form::Write, &[]).is_none();
    let one = |name: &str| {
        let Some(lock) = locks.rwlock(name).filter(|_| has_writers && name == NAMES[2]) else {
            return Lockable::from(locks.mutex(name).with_ttl(ttl()));
        };
        Lockable::write(&lock.with_ttl(ttl()))
    };
    Ok(names.iter().map(|name| one(name)).collect())
}

/// All of them are free, for another client, within this time.
async fn are_obtainable(cx: &Cx, within: std::time::Duration) -> Verdict {
    let all = several(cx, &cx.client().await?, &NAMES)?;
    let all = try_lock_all_for(all, within).await?.or_fail("the locks should be free, but were not granted")?;
    all.release().await?;
    Ok(())
}

/// Releases what is still held.
async fn release(all: MultiGuard) -> Verdict {
    ensure!(all.is_held(), "not all of them are held any more before their release: {all:?}");
    all.release().await?;
    Ok(())
}

pub(super) async fn several_locks_are_each_held_by_a_grant_of_its_own(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    for _ in 0..2 {
        let all = try_lock_all(several(&cx, &a, &NAMES)?).await?.or_fail("three free locks were refused")?;
        let grants: HashSet<_> = all.guards().iter().map(|guard| guard.grant_id()).collect();
        ensure!(grants.len() == NAMES.len(), "two of three locks have the same grant: {all:?}");
        let tokens = all.fencing_tokens().filter(|(_, token)| token.is_some()).count();
        let wanted = if cx.abilities.promises(Guarantee::Fencing) { NAMES.len() } else { tokens };
        ensure!(tokens == wanted, "{tokens} of three grants have a token");
        for name in NAMES {
            let refused = try_lock_all(several(&cx, &b, &[name])?).await?;
            ensure!(refused.is_none(), "{name} was granted although somebody holds it");
        }
        // Renewed, each by itself.
        tokio::time::sleep(ttl() * 2).await;
        ensure!(all.is_held(), "they were not renewed: {all:?}");
        let mut each = all.into_guards();
        let last = each.pop().or_fail("no guard")?;
        last.release().await?;
        let free = try_lock_all_for(several(&cx, &b, &NAMES[2..])?, hand_over()).await?;
        release(free.or_fail("the one that was released is not free")?).await?;
        for guard in each {
            guard.release().await?;
        }
        are_obtainable(&cx, hand_over()).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_try_of_several_one_of_which_is_held_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    for held in NAMES {
        let one = try_lock_all(several(&cx, &a, &[held])?).await?.or_fail("a free lock was refused")?;
        let refused = soon("the try", promptly(), try_lock_all(several(&cx, &b, &NAMES)?)).await??;
        ensure!(refused.is_none(), "granted although {held} is held: {refused:?}");
        let others: Vec<_> = NAMES.into_iter().filter(|name| *name != held).collect();
        let free = try_lock_all_for(several(&cx, &a, &others)?, hand_over()).await?;
        release(free.or_fail(&format!("a try that found {held} held has left something"))?).await?;
        let late = try_lock_all_for(several(&cx, &b, &NAMES)?, ms(200)).await?;
        ensure!(late.is_none(), "granted although {held} is held all the time: {late:?}");
        release(one).await?;
        are_obtainable(&cx, hand_over()).await?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn clients_that_try_overlapping_sets_never_hold_one_lock_at_once(cx: Arc<Cx>) -> Verdict {
    let inside: Arc<[AtomicBool; 3]> = Arc::default();
    let mut tries = Vec::new();
    for turn in 0..4 {
        let locks = cx.client().await?;
        let (cx, inside) = (cx.clone(), inside.clone());
        tries.push(tokio::spawn(async move {
            let mut granted = 0;
            for round in 0..60 {
                let (one, other) = ((turn + round) % 3, (turn + round + 1) % 3);
                let both = several(&cx, &locks, &[NAMES[one], NAMES[other]])?;
                let Some(all) = (if round % 10 == 9 {
                    try_lock_all_for(both, promptly()).await?
                } else {
                    try_lock_all(both).await?
                }) else {
                    continue;
                };
                granted += 1;
                for i in [one, other] {
                    ensure!(!inside[i].swap(true, Ordering::SeqCst), "two hold {} at once", NAMES[i]);
                }
                tokio::task::yield_now().await;
                [one, other].into_iter().for_each(|i| inside[i].store(false, Ordering::SeqCst));
                release(all).await?;
            }
            ensure!(granted >= 6, "granted {granted} times, fewer than it waited");
            Ok::<_, Failure>(())
        }));
    }
    for trying in tries {
        soon("every client comes to its end", promptly() * 3, trying).await???;
    }
    are_obtainable(&cx, hand_over()).await?;
    cx.nothing_is_left().await
}

pub(super) async fn whoever_waits_for_several_is_granted_all_of_them_in_the_end(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    let held = lock_all(several(&cx, &a, &NAMES[1..])?).await?;
    let waiting = {
        let all = several(&cx, &b, &NAMES)?;
        tokio::spawn(async move { lock_all(all).await })
    };
    // A stimulus: it waits for the first of them, where there is a queue.
    tokio::time::sleep(ms(200)).await;
    ensure!(!waiting.is_finished(), "granted although two of three are held");
    for guard in held.into_guards() {
        guard.release().await?;
    }
    release(soon("the waiter is granted", promptly(), waiting).await???).await?;
    are_obtainable(&cx, hand_over()).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_try_of_several_that_is_dropped_at_any_poll_leaves_nothing(cx: Arc<Cx>) -> Verdict {
    let (a, b) = (cx.client().await?, cx.client().await?);
    // Which await point the n-th poll reaches depends on how fast the server answers, so several rounds.
    for _ in 0..4 {
        for polls in 1.. {
            ensure!(polls <= 60, "three free locks take more than 60 polls");
            let ended = {
                let mut taking = pin!(try_lock_all(several(&cx, &a, &NAMES)?));
                poll_times(taking.as_mut(), polls, promptly()).await
            };
            let was_taken = ended.is_some();
            if let Some(outcome) = ended {
                release(outcome?.or_fail("free locks were refused")?).await?;
            }
            let next = try_lock_all_for(several(&cx, &b, &NAMES)?, ttl() + ms(1000)).await?;
            release(next.or_fail(&format!("taken one second after the TTL of a try dropped at poll {polls}"))?).await?;
            if was_taken {
                break;
            }
        }
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_try_of_several_whose_request_or_reply_is_lost_takes_all_or_nothing(cx: Arc<Cx>) -> Verdict {
    for way in [Direction::ToClient, Direction::ToServer] {
        for nth in 1..=REQUESTS {
            let links = cx.links()?;
            let locks = cx.client_at(&links).await?;
            // Whatever is loaded or made at first is there.
            release(lock_all(several(&cx, &locks, &NAMES)?).await?).await?;
            let loss = links.inject(&LinkFault::new(Toxic::Reset, way).on_request(nth, &cx.namespace));
            let trying = try_lock_all(several(&cx, &locks, &NAMES)?);
            let outcome = soon("the try ends", op_timeout() * 4, trying).await?;
            let was_lost = loss.applied_within(ms(0)).await;
            was_seen(was_lost || nth > 1, "a try")?;
            drop(loss);
            match outcome {
                Ok(Some(all)) => {
                    ensure!(all.guards().len() == NAMES.len(), "a part of them was granted: {all:?}");
                    // Its connection may have been reset just now.
                    drop(all.release().await);
                }
                Ok(None) => return Err(Failure::new("locks that nobody else holds were refused")),
                Err(error) if error.is_definite() => cx.residue_within(hand_over()).await?,
                Err(_) => {}
            }
            are_obtainable(&cx, cx.freed_by(ttl())).await?;
            if !was_lost {
                break;
            }
        }
    }
    cx.nothing_is_left_within(cx.freed_by(ttl())).await
}
