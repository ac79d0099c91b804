//! C-AD: a mutex that is taken by one client and goes on in another.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join;
use lock_core::{DetachError, DetachedMutex, ErrorKind, Locks, Mutex, MutexGuard};

use crate::context::{Cx, LOCK};
use crate::failure::{Failure, OrFail, Verdict, ensure, expect_kind};
use crate::proxy::{Direction, LinkFault, Toxic};
use crate::time::{hand_over, ms, op_timeout, pass, soon, ttl};

/// An adoption makes no more requests than this.
const REQUESTS: u64 = 5;

fn mutex(locks: &Locks) -> Mutex {
    locks.mutex(LOCK).with_ttl(ttl())
}

/// A client whose leases last for [`ttl`], as the suite's do, and the case's mutex.
async fn client(cx: &Cx) -> Result<(Locks, Mutex), Failure> {
    let locks = cx.client().await?;
    let mutex = mutex(&locks);
    Ok((locks, mutex))
}

/// Nobody can have the mutex through this client.
async fn is_taken(other: &Mutex) -> Verdict {
    ensure!(other.try_lock().await?.is_none(), "it was granted to somebody else");
    Ok(())
}

pub(super) async fn a_detached_mutex_goes_on_in_the_client_that_adopts_it(cx: Arc<Cx>) -> Verdict {
    let ((_, mine), (theirs, _), (_, other)) = (client(&cx).await?, client(&cx).await?, client(&cx).await?);
    let held = mine.lock().await?;
    let (token, grant) = (held.fencing_token(), held.grant_id());
    let detached = held.detach().await?;
    is_taken(&other).await?;
    let adopted = theirs.adopt(&detached).await?;
    ensure!(adopted.is_held() && adopted.fencing_token() == token, "adopted is {adopted:?}, not under {token:?}");
    ensure!(adopted.grant_id() != grant, "it has the id under which it was detached");
    is_taken(&other).await?;
    // By renewals.
    pass(ttl() * 2).await;
    ensure!(adopted.is_held(), "it was lost");
    is_taken(&other).await?;
    adopted.release().await?;
    let next = other.try_lock_for(hand_over()).await?.or_fail("not free after its release")?;
    ensure!(next.fencing_token() > token || token.is_none(), "the next one's token is not above {token:?}");
    next.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_message_that_is_delivered_to_several_is_adopted_once(cx: Arc<Cx>) -> Verdict {
    let ((_, mine), (one, _), (other, _)) = (client(&cx).await?, client(&cx).await?, client(&cx).await?);
    for _ in 0..10 {
        let detached = mine.try_lock_for(hand_over()).await?.or_fail("not free")?.detach().await?;
        let (first, second) = join(one.adopt(&detached), other.adopt(&detached)).await;
        let (adopted, refused) = match (first, second) {
            (Ok(adopted), refused) | (refused, Ok(adopted)) => (adopted, refused),
            (Err(first), Err(_)) => return Err(first.into()),
        };
        expect_kind("a second adoption", ErrorKind::NotHeld, refused)?;
        let late = one.adopt(&detached).await;
        expect_kind("a third adoption", ErrorKind::NotHeld, late)?;
        ensure!(adopted.is_held(), "what was adopted is lost");
        adopted.release().await?;
        let late = other.adopt(&detached).await;
        expect_kind("an adoption of what was released", ErrorKind::NotHeld, late)?;
    }
    cx.nothing_is_left().await
}

pub(super) async fn a_detached_mutex_that_nobody_adopts_ends_with_its_lease(cx: Arc<Cx>) -> Verdict {
    let ((_, mine), (theirs, other)) = (client(&cx).await?, client(&cx).await?);
    let held = mine.lock().await?;
    let began = Instant::now();
    // For its whole TTL from then on.
    let detached = held.detach().await?;
    let next = other.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free after its lease")?;
    ensure!(
        began.elapsed() >= ttl().mul_f64(0.99),
        "free {:?} after it was detached, before its lease's end",
        began.elapsed()
    );
    expect_kind("an adoption after its end", ErrorKind::NotHeld, theirs.adopt(&detached).await)?;
    ensure!(next.is_held(), "a late adoption has taken the next holder's lock");
    next.release().await?;
    cx.nothing_is_left().await
}

pub(super) async fn an_adoption_whose_request_or_reply_is_lost_is_done_or_unknown(cx: Arc<Cx>) -> Verdict {
    let lost = |direction| ("a loss".to_owned(), vec![(0, LinkFault::new(Toxic::Reset, direction))]);
    adoptions_meet(&cx, &[lost(Direction::ToServer), lost(Direction::ToClient)]).await
}

pub(super) async fn a_refused_request_of_an_adoption_leaves_it_done_or_unknown_or_the_message_good(
    cx: Arc<Cx>,
) -> Verdict {
    let linked = cx.harness.linked().or_fail("the case needs links and did not say so")?;
    let mut faults = Vec::new();
    for text in linked.refusals() {
        let refusal = LinkFault::new(Toxic::Answer { text: (*text).to_owned() }, Direction::ToServer);
        let lost = LinkFault::new(Toxic::Reset, Direction::ToClient);
        for later in 1..=REQUESTS {
            let row = vec![(0, lost.clone()), (later, refusal.clone())];
            faults.push((format!("a lost reply, and {text:?} {later} requests later,"), row));
        }
        faults.push((format!("{text:?}"), vec![(0, refusal)]));
    }
    adoptions_meet(&cx, &faults).await
}

/// Adoptions, each of which meets one row of these faults, so many requests after one of its own.
async fn adoptions_meet(cx: &Cx, faults: &[(String, Vec<(u64, LinkFault)>)]) -> Verdict {
    let ((others, mine), links) = (client(cx).await?, cx.links()?);
    let theirs = cx.client_at(&links).await?;
    // Whatever is loaded at first is loaded.
    theirs.adopt(&mine.lock().await?.detach().await?).await?.release().await?;
    for (what, row) in faults {
        for nth in 1..=REQUESTS {
            // A release or an undo of before may still be on its way: it is not to be hit.
            cx.residue_within(cx.freed_by(ttl())).await?;
            let held = mine.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free before")?;
            let began = Instant::now();
            let detached = held.detach().await?;
            let inject =
                |(later, fault): &(u64, LinkFault)| links.inject(&fault.clone().on_request(nth + later, &cx.namespace));
            let met: Vec<_> = row.iter().map(inject).collect();
            let adopted = soon("the adoption ends", op_timeout() + ms(500), theirs.adopt(&detached)).await?;
            // Not every backend makes a second request.
            if nth == 1 {
                met[0].applied().await?;
            }
            drop(met);
            match adopted {
                Ok(adopted) => is_held(adopted).await?,
                // On a busy machine the lease may be over before the request is repeated.
                Err(error) if error.kind() == ErrorKind::NotHeld => {
                    ensure!(began.elapsed() >= ttl(), "after {what} at request {nth} it says {error}");
                }
                // Nothing was done, so that the message is good for another client, if its lease goes on.
                Err(error) if error.is_definite() && began.elapsed() + ms(500) < ttl() => {
                    match others.adopt(&detached).await {
                        Ok(again) => again.release().await?,
                        Err(again) if again.kind() == ErrorKind::NotHeld && began.elapsed() >= ttl() => {}
                        Err(again) => {
                            let what = format!("after {what} at request {nth} it says {error}, and then {again}");
                            return Err(Failure::new(what));
                        }
                    }
                }
                Err(_) => {}
            }
        }
    }
    mine.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not free in the end")?.release().await?;
    cx.nothing_is_left_within(cx.freed_by(ttl())).await
}

/// Fails unless the guard is held and can be released, or its connection has ended meanwhile.
async fn is_held(adopted: MutexGuard) -> Verdict {
    ensure!(adopted.is_held(), "adopted, and not held");
    match adopted.release().await {
        Err(error) if error.is_definite() => Err(error.into()),
        _ => Ok(()),
    }
}

pub(super) async fn what_cannot_be_passed_on_is_unsupported_and_holds_on(cx: Arc<Cx>) -> Verdict {
    let ((_, mine), (theirs, other)) = (client(&cx).await?, client(&cx).await?);
    let held = mine.lock().await?;
    let refused = held.detach().await;
    let DetachError { guard: held, error, .. } =
        refused.err().or_fail("detached, although no grant can be passed on")?;
    ensure!(error.kind() == ErrorKind::Unsupported, "a detachment says {error}");
    ensure!(held.is_held(), "a refused detachment costs the lock");
    is_taken(&other).await?;
    // As it would be written by somebody else.
    let message = serde_json::json!({
        "name": held.name(),
        "grant": held.grant_id(),
        "token": held.fencing_token(),
        "left_ms": ttl().as_millis(),
    });
    let detached: DetachedMutex = serde_json::from_value(message)?;
    expect_kind("an adoption", ErrorKind::Unsupported, theirs.adopt(&detached).await)?;
    // By renewals.
    pass(ttl() * 3 / 2).await;
    ensure!(held.is_held(), "a refused adoption costs the lock");
    is_taken(&other).await?;
    held.release().await?;
    other.try_lock_for(hand_over()).await?.or_fail("not free after its release")?.release().await?;
    cx.nothing_is_left().await
}
