//! C-R: how a lease is kept alive, and what ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use lock_core::{Error, ErrorKind, LeaseOptions, LossReason};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::adapters::{Exclusive, Held};
use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::isolated_client::in_isolation;
use crate::panics::Run;
use crate::time::{hand_over, ms, pass, promptly, soon, ttl};

/// The notice that is due to a holder within one renewal period and a moment.
const TOLD: &str = "the holder is told, by its next renewal, that its entry is gone";

pub(super) async fn a_renewed_lock_is_held_through_many_ttls(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let lease = ms(1000);
    let held = a.with_ttl(lease).lock().await?;
    let began = Instant::now();
    while began.elapsed() < lease * 4 {
        cx.is_refused(&b).await?;
        ensure!(held.is_held(), "lost after {:?} although it is renewed", began.elapsed());
        pass(ms(20)).await;
    }
    release(held).await
}

pub(super) async fn five_hundred_guards_are_renewed_without_a_loss(cx: Arc<Cx>) -> Verdict {
    let locks = cx.client().await?;
    let mut guards = Vec::new();
    for i in 0..500 {
        let lock = cx.form.handle(&locks, format!("many/{i}"))?.with_ttl(ttl());
        guards.push(lock.try_lock().await?.or_fail("a fresh name is taken")?);
    }
    pass(ttl() * 5 / 2).await;
    let lost = guards.iter().filter(|held| !held.is_held()).count();
    ensure!(lost == 0, "{lost} of 500 guards were lost although they are renewed");
    // Some at once: that all five hundred releases together are confirmed in time is not claimed here.
    let releases = stream::iter(guards.into_iter().map(release)).buffer_unordered(25);
    releases.try_collect::<()>().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_release_that_races_a_renewal_frees(cx: Arc<Cx>) -> Verdict {
    const LANES: u64 = 24;
    const CYCLES: u64 = 60;
    let (ours, theirs) = (cx.client().await?, cx.client().await?);
    // Renewed so often that the keeper's next look falls into the hold; each lane drifts across that instant.
    // It is long: to keep it beside so many others is no part of the race.
    let lease = LeaseOptions::new(ms(10_000)).with_renew_every(ms(1));
    let race = async |lane: u64| {
        let name = format!("race/{lane}");
        let (a, b) = (cx.form.handle(&ours, &*name)?.with_lease(lease), cx.form.handle(&theirs, &*name)?);
        for cycle in 0..CYCLES {
            let held = a.lock().await?;
            pass(ms(16) + ms(1) * u32::try_from((lane + cycle) % 12)?).await;
            release(held).await?;
            let next = b.try_lock().await?;
            let next = next.or_fail(&format!("cycle {cycle}: still taken although its release was confirmed"))?;
            next.release().await?;
        }
        Ok::<_, Failure>(())
    };
    try_join_all((0..LANES).map(&race)).await?;
    cx.nothing_is_left().await
}

pub(super) async fn the_lock_of_a_client_that_is_gone_ends_with_its_lease(cx: Arc<Cx>) -> Verdict {
    let next = cx.contender().await?;
    {
        let cx = cx.clone();
        in_isolation(move || async move {
            std::mem::forget(cx.contender().await?.lock().await?);
            Ok(())
        })
        .await?;
    }
    let died = Instant::now();
    // This waiter tries all the time, which must not keep the dead one's lease alive.
    let held = next
        .try_lock_for(cx.freed_by(ttl()))
        .await?
        .or_fail("still taken although the dead holder's TTL is long over")?;
    ensure!(died.elapsed() >= ttl() / 2, "granted {:?} after the death, before the lease's end", died.elapsed());
    release(held).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_task_that_panics_releases_its_lock(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let task = tokio::spawn(hold_and_panic(a));
    ensure!(soon("the task panics", promptly(), task).await?.is_err(), "the task did not panic");
    let next = b.try_lock_for(hand_over()).await?.or_fail("the lock of a task that panicked is still taken")?;
    release(next).await
}

pub(super) async fn a_holder_learns_that_its_entry_is_gone(cx: Arc<Cx>) -> Verdict {
    let (a, b, c) = cx.three().await?;
    let held = a.lock().await?;
    cx.delete_entry().await?;
    let next = b.try_lock_for(hand_over()).await?.or_fail("taken although the entry was deleted")?;
    let reason = soon(TOLD, ttl() / 3 + hand_over(), held.lost()).await?;
    ensure!(reason == LossReason::Taken, "lost because {reason:?}, but the entry is another's");
    ensure!(!held.is_held(), "the former holder still believes in its lock");
    // The other's entry is untouched by the renewal that failed and by the clean-up after it.
    pass(ms(200)).await;
    cx.is_refused(&c).await?;
    release(next).await
}

/// Nobody else takes the lock, who would keep a renewal from bringing it back.
pub(super) async fn a_renewal_does_not_bring_back_what_is_gone(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.lock().await?;
    cx.delete_entry().await?;
    let reason = soon(TOLD, ttl() / 3 + hand_over(), held.lost()).await?;
    ensure!(reason == LossReason::Taken, "lost because {reason:?}, but the entry was deleted");
    ensure!(!held.is_held(), "the former holder still believes in its lock");
    let next = b.try_lock_for(hand_over()).await?;
    release(next.or_fail("a lock is taken whose entry was deleted: was it written anew by a renewal?")?).await?;
    cx.nothing_is_left().await
}

/// Two extensions at once: whichever the servers carry out last, the longer one counts.
pub(super) async fn a_shorter_extension_never_shortens_a_longer_one(cx: Arc<Cx>) -> Verdict {
    const LOCKS: usize = 100;
    let lease = ms(2000);
    let over = cx.freed_by(lease);
    let longer = over + ms(6000);
    let (mut ours, theirs) = (cx.client().await?, cx.client().await?);
    let mut looks = Vec::new();
    for i in 0..LOCKS {
        if i % 10 == 0 {
            // Over few connections the two extensions may take other ways than over many.
            ours = cx.client().await?;
        }
        let name = format!("extended/{i}");
        let (a, b) = (cx.form.handle(&ours, &*name)?.unrenewed(lease), cx.form.handle(&theirs, &*name)?);
        let held = Arc::new(a.lock().await?);
        let (ready, began) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let both = [longer, lease].map(|ttl| {
            let (held, ready) = (held.clone(), ready.clone());
            on_a_thread(move |runtime| {
                meet(&ready);
                runtime.block_on(held.extend(ttl))
            })
        });
        for one in both {
            soon("both extensions", promptly(), one).await???;
        }
        // Each is looked at in its own time, however long the others take.
        looks.push(tokio::spawn(async move {
            // The first lease, and the shorter extension, are over by then; so is the coarsest expiry of them.
            pass(over).await;
            the_longer_extension_counts(&held, &b, began, longer).await
        }));
    }
    let mut judged = 0;
    for look in looks {
        judged += usize::from(look.await??);
    }
    ensure!(judged > 0, "no lock was looked at before its longer extension was over: it took too long");
    Ok(())
}

/// Expects a lock to be held still that was extended until `longer` after `began`; false if that may be over by now.
async fn the_longer_extension_counts(
    held: &Held,
    other: &Exclusive,
    began: Instant,
    longer: Duration,
) -> Result<bool, Failure> {
    let believes = held.is_held();
    let tried = soon("a try", promptly(), other.try_lock()).await??;
    let holder = "granted although its holder has extended it: a shorter extension has shortened it";
    ensure!(tried.is_none() || !held.is_held(), "{holder}");
    let elapsed = began.elapsed();
    if elapsed > longer - ms(1500) {
        return Ok(false);
    }
    ensure!(believes, "{:?} remain of an extension to {longer:?}, {elapsed:?} later", held.remaining());
    Ok(true)
}

/// Runs this on a thread of its own: tasks would share one.
fn on_a_thread<T: Send + 'static>(work: impl FnOnce(Handle) -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (done, outcome) = oneshot::channel();
    let (runtime, run) = (Handle::current(), Run::present());
    std::thread::spawn(move || {
        let _working = Run::work(run);
        done.send(work(runtime)).is_ok()
    });
    outcome
}

/// Holds two threads up until both are here, so that they go on at the same time; for a moment at most, because there may be one
/// processor only.
fn meet(ready: &AtomicUsize) {
    ready.fetch_add(1, Ordering::SeqCst);
    let began = Instant::now();
    while ready.load(Ordering::SeqCst) < 2 && began.elapsed() < ms(5) {
        std::hint::spin_loop();
    }
}

pub(super) async fn an_extension_by_hand_lengthens_and_never_shortens(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let held = a.unrenewed(ms(1000)).lock().await?;
    held.extend(ms(5000)).await?;
    let extended = held.remaining();
    // The margin: 1 % for the rates of two clocks, and what the calls themselves took.
    ensure!(extended >= ms(4500), "{extended:?} remain after an extension to 5 s");
    held.extend(ms(200)).await?;
    ensure!(held.remaining() >= ms(3500), "an extension to 200 ms shortened the lease to {:?}", held.remaining());
    pass(ms(1200)).await;
    ensure!(held.is_held(), "the extended lease ended with the first one");
    cx.is_refused(&b).await?;
    release(held).await
}

pub(super) async fn short_extensions_put_no_renewal_off(cx: Arc<Cx>) -> Verdict {
    let lease = ms(1200);
    let held = cx.contender().await?.with_lease(LeaseOptions::new(lease)).lock().await?;
    // Three times as long as the lease would last without a renewal.
    let began = Instant::now();
    while began.elapsed() < lease * 3 {
        held.extend(LeaseOptions::MIN_TTL).await?;
        pass(lease / 5).await;
        ensure!(held.is_held(), "lost {:?} after the grant, although the server answers", began.elapsed());
    }
    release(held).await
}

pub(super) async fn an_extension_of_a_lease_that_is_over_is_refused(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.unrenewed(ms(300)).lock().await?;
    soon("the lease ends", promptly(), held.lost()).await?;
    expect_kind("extending a lease that is over", ErrorKind::Lost, held.extend(ttl()).await)?;
    ensure!(!held.is_held(), "the extension revived the lease");
    cx.is_obtainable().await
}

pub(super) async fn a_longest_hold_ends_renewal(cx: Arc<Cx>) -> Verdict {
    let (a, b) = cx.two().await?;
    let longest = ms(1200);
    let held = a.with_lease(LeaseOptions::new(ms(600)).with_max_hold(longest)).lock().await?;
    let (began, lost) = (Instant::now(), held.lost());
    // Leaked: nobody will ever release it.
    std::mem::forget(held);
    soon("the hold ends at its longest", longest + hand_over(), lost).await?;
    ensure!(began.elapsed() >= longest / 2, "lost {:?} after the grant, long before {longest:?}", began.elapsed());
    let next = b.try_lock_for(ms(600) + hand_over()).await?.or_fail("the leaked lock never became free")?;
    release(next).await
}

async fn hold_and_panic(lock: Exclusive) -> Result<(), Error> {
    let _held = lock.lock().await?;
    // What a panic does to its task, without the noise: the guard is dropped by unwinding.
    std::panic::resume_unwind(Box::new("the case asks"))
}
