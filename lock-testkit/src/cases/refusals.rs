//! C-F20, C-F21: servers that refuse requests, or connections.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind};

use crate::context::{Cx, LOCK, is_done_or_unknown, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::links::Links;
use crate::proxy::{Direction, LinkFault, Toxic, Trigger};
use crate::time::{hand_over, ms, op_timeout, pass, soon, stays_pending, ttl};

use super::outage::{both, holder, unless_lost};

/// The time for which a server sends everybody away.
const FULL: Duration = Duration::from_secs(1);
/// The number of connections that a client may try to make in that time, for all that it needs.
const NO_STORM: u64 = 50;

/// The next request that is about a lock of this case is refused in these words.
fn next_request(cx: &Cx, text: &str) -> LinkFault {
    let answer = Toxic::Answer { text: text.to_owned() };
    LinkFault::new(answer, Direction::ToServer).on_request(1, &cx.namespace)
}

pub(super) async fn what_servers_refuse_is_told_and_costs_nobody_a_lock(cx: Arc<Cx>) -> Verdict {
    let linked = cx.harness.linked().or_fail("the case needs links and did not say so")?;
    for text in linked.refusals() {
        let refused = async {
            refused_acquisition(&cx, text).await?;
            refused_renewal(&cx, text).await?;
            refused_release(&cx, text).await
        };
        refused.await.map_err(|failure| failure.and(format_args!("the server says {text:?}")))?;
    }
    cx.nothing_is_left_within(ttl() + hand_over()).await
}

async fn refused_acquisition(cx: &Cx, text: &str) -> Verdict {
    let (lock, links) = cx.linked().await?;
    // Where a majority is enough, a release from before may still be on its way to the others: it is not to be refused.
    cx.residue_within(ttl() + hand_over()).await?;
    let refusal = links.inject(&next_request(cx, text));
    let outcome = soon("the acquisition ends", op_timeout() + ms(500), lock.try_lock()).await?;
    refusal.applied().await?;
    refusal.heal()?;
    match outcome {
        // It has asked again.
        Ok(Some(held)) => release(held).await?,
        Ok(None) => return Err(Failure::new("refused as if somebody held it")),
        Err(error) => {
            is_a_refusal(&error)?;
            if error.is_definite() {
                cx.residue_within(ms(100)).await?;
            }
        }
    }
    release(lock.try_lock_for(cx.freed_by(ttl())).await?.or_fail("not granted after a refusal")?).await
}

/// By a client that has nothing else to ask.
async fn refused_renewal(cx: &Cx, text: &str) -> Verdict {
    let (_, links, held) = holder(cx).await?;
    let refusal = links.inject(&next_request(cx, text));
    refusal.applied().await?;
    refusal.heal()?;
    let lost = "the loss signal after a renewal that was refused";
    stays_pending(lost, ttl(), pin!(held.lost())).await?;
    release(held).await
}

async fn refused_release(cx: &Cx, text: &str) -> Verdict {
    let (lock, links) = cx.linked().await?;
    // Not to be renewed meanwhile. The client goes on for as long as this handle does.
    let held = lock.clone().with_ttl(ms(10_000)).lock().await?;
    let refusal = links.inject(&next_request(cx, text));
    let released = soon("the release ends", op_timeout() + ms(500), held.release()).await?;
    refusal.applied().await?;
    refusal.heal()?;
    is_done_or_unknown(&released)?;
    let next = cx.contender().await?.try_lock_for(ttl() + hand_over()).await?;
    release(next.or_fail("not free after a release that was refused")?).await?;
    // Where a majority is enough to go on, the client may still be busy with the others, which it needs its links for.
    cx.residue_within(ttl() + hand_over()).await
}

fn is_a_refusal(error: &Error) -> Verdict {
    use ErrorKind::{Denied, Indeterminate, Unavailable};
    ensure!([Denied, Indeterminate, Unavailable].contains(&error.kind()), "a request that was refused says {error}");
    Ok(())
}

pub(super) async fn servers_that_take_no_connections_are_not_stormed(cx: Arc<Cx>) -> Verdict {
    let (_, links, held) = holder(&cx).await?;
    let mut lost = pin!(held.lost());
    // Nobody listens, as when there are no descriptors left.
    let full = links.inject(&both(Toxic::Refuse));
    full.applied().await?;
    unless_lost(&mut lost, a_new_client_is_told(&cx, &links)).await?;
    stays_pending("the loss signal of somebody who is connected", ttl(), lost.as_mut()).await?;
    full.heal()?;
    // Taken in and sent away at once, as when there are too many clients.
    let full = links.inject(&both(Toxic::Fin).on(Trigger::AfterBytes(0)));
    full.applied().await?;
    let before = full.connections();
    pass(FULL).await;
    let tries = full.connections() - before;
    full.heal()?;
    ensure!(tries <= NO_STORM, "{tries} connections in {FULL:?}: a storm");
    // Whether its lease has outlasted that is not the point.
    drop(held);
    let late = cx.lock_of(&cx.client_at(&links).await?).await?;
    let granted = late.try_lock_for(cx.freed_by(ttl())).await?;
    release(granted.or_fail("not granted when connections are taken again")?).await?;
    cx.residue_within(cx.freed_by(ttl())).await
}

/// Expects a new client to be told, either when it connects or at its first request.
async fn a_new_client_is_told(cx: &Cx, links: &Links) -> Verdict {
    let linked = cx.harness.linked().or_fail("the case needs links and did not say so")?;
    let connecting = linked.connect_at(&cx.namespace, links.addresses());
    let told = match soon("connecting a client ends", ms(15_000), connecting).await? {
        Err(error) => error,
        Ok(locks) => {
            let lock = cx.form.handle(&locks, LOCK)?;
            let tried = soon("a try without a connection ends", op_timeout() + ms(500), lock.try_lock()).await?;
            tried.err().or_fail("a try without a connection is no error")?
        }
    };
    is_a_refusal(&told)
}
