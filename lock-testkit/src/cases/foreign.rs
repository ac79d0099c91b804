//! C-I: clients of other libraries on a shared key.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use lock_core::{Error, GrantId, LockName, Mutex};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::context::Cx;
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::time::{eventually, hand_over, ms, pass, promptly, soon, stays_pending, ttl};

/// A raw key of this case alone, and our mutex on it.
async fn shared(cx: &Cx) -> Result<(String, Mutex), Failure> {
    let key = format!("raw-{}", GrantId::random()?);
    let mutex = cx.client().await?.mutex(LockName::from_key(key.clone())?).with_ttl(ttl());
    Ok((key, mutex))
}

pub(super) async fn a_foreign_holder_keeps_us_out(cx: Arc<Cx>) -> Verdict {
    let (key, ours) = shared(&cx).await?;
    let foreign = cx.foreign()?;
    ensure!(foreign.try_hold(&key, ttl() * 5).await?, "the foreign client did not get a fresh key");
    ensure!(ours.try_lock().await?.is_none(), "granted although a foreign client holds the key");
    ensure!(foreign.release(&key).await?, "our try took the key from the foreign client");
    ours.try_lock().await?.or_fail("the key is free, but was not granted")?.release().await?;
    Ok(())
}

pub(super) async fn our_holder_keeps_foreign_clients_out(cx: Arc<Cx>) -> Verdict {
    let (key, ours) = shared(&cx).await?;
    let foreign = cx.foreign()?;
    let held = ours.lock().await?;
    let began = Instant::now();
    // Longer than the TTL, so that our renewals are seen to work on a shared key too.
    while began.elapsed() < ttl() * 3 / 2 {
        ensure!(!foreign.try_hold(&key, ttl()).await?, "a foreign client got the key that we hold");
        pass(ms(50)).await;
    }
    ensure!(held.is_held(), "our lock was lost meanwhile");
    held.release().await?;
    ensure!(foreign.try_hold(&key, ttl()).await?, "the key is not free for foreign clients after our release");
    foreign.release(&key).await?;
    Ok(())
}

pub(super) async fn our_waiter_follows_a_foreign_release(cx: Arc<Cx>) -> Verdict {
    let (key, ours) = shared(&cx).await?;
    let foreign = cx.foreign()?;
    ensure!(foreign.try_hold(&key, ttl() * 5).await?, "the foreign client did not get a fresh key");
    let mut waiting = pin!(ours.lock());
    stays_pending("a wait for a foreign holder", ms(500), waiting.as_mut()).await?;
    foreign.release(&key).await?;
    soon("our waiter gets the key after a foreign release", hand_over(), waiting).await??.release().await?;
    Ok(())
}

pub(super) async fn our_queue_does_not_starve_a_foreign_client(cx: Arc<Cx>) -> Verdict {
    let (key, _) = shared(&cx).await?;
    let foreign = cx.foreign()?;
    let mut busy = Vec::new();
    for _ in 0..8 {
        let ours = cx.client().await?.mutex(LockName::from_key(key.clone())?).with_ttl(ttl());
        busy.push(tokio::spawn(lock_all_the_time(ours)));
    }
    // As other libraries wait: they try again after a pause.
    let outcome = eventually("the foreign client gets its turn", promptly(), async || {
        Ok(foreign.try_hold(&key, ttl()).await?.then_some(()))
    });
    let outcome = outcome.await;
    let ended = busy.iter().any(|task| task.is_finished());
    busy.iter().for_each(tokio::task::JoinHandle::abort);
    outcome?;
    ensure!(!ended, "one of our own clients failed meanwhile");
    foreign.release(&key).await?;
    Ok(())
}

pub(super) async fn foreign_clients_do_not_starve_our_queue(cx: Arc<Cx>) -> Verdict {
    let (key, lock) = shared(&cx).await?;
    let granted = Arc::new(Semaphore::new(0));
    let mut ours = JoinSet::new();
    for _ in 0..2 {
        ours.spawn(hold_for_long(lock.clone(), granted.clone()));
    }
    let foreign_turns = Arc::new(Semaphore::new(0));
    let busy = tokio::spawn(hold_all_the_time(cx.clone(), key, foreign_turns.clone()));
    // Counted in turns: whatever slows the machine down slows both.
    let outcome = tokio::select! {
        biased;
        four = granted.acquire_many(4) => four.map(drop).map_err(Failure::from),
        hundred = foreign_turns.acquire_many(100) => hundred.map_err(Failure::from).and_then(|_| {
            let ours = granted.available_permits();
            Err(Failure::new(format!("{ours} grants for ours while the foreign client had a hundred")))
        }),
    };
    busy.abort();
    ours.abort_all();
    outcome
}

/// For so long that a queue may leave the key free afterwards: every grant has to be won among the foreign clients.
async fn hold_for_long(ours: Mutex, granted: Arc<Semaphore>) -> Result<Infallible, Error> {
    loop {
        let held = ours.lock().await?;
        granted.add_permits(1);
        pass(ms(300)).await;
        held.release().await?;
    }
}

/// As several clients do that wait for one another by asking: the key is never free for long.
async fn hold_all_the_time(cx: Arc<Cx>, key: String, turns: Arc<Semaphore>) -> Result<Infallible, Failure> {
    let foreign = cx.foreign()?;
    loop {
        if foreign.try_hold(&key, ttl()).await? {
            turns.add_permits(1);
            pass(ms(60)).await;
            foreign.release(&key).await?;
        }
        pass(ms(30)).await;
    }
}

async fn lock_all_the_time(ours: Mutex) -> Result<Infallible, Error> {
    loop {
        let held = ours.lock().await?;
        tokio::task::yield_now().await;
        held.release().await?;
    }
}
