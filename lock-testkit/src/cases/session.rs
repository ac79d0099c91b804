//! C-D01, C-F07, C-F08: sessions that end behind their clients' backs, and with them what the clients had.

use std::pin::Pin;
use std::sync::Arc;

use lock_core::{ErrorKind, LossReason};

use crate::context::{Cx, release};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::harness::Sessions;
use crate::time::{eventually, hand_over, ms, pass, promptly, soon, stays_pending, ttl};

fn sessions(cx: &Cx) -> Result<&dyn Sessions, Failure> {
    cx.harness.sessions().or_fail("the case needs sessions and did not say so")
}

/// The session that is there, and was not among these.
async fn newcomer(cx: &Cx, known: &[String]) -> Result<String, Failure> {
    let sessions = sessions(cx)?;
    let look = async || {
        let mut present = sessions.present(&cx.namespace).await?;
        present.retain(|session| !known.contains(session));
        ensure!(present.len() <= 1, "one client more has the sessions {present:?}");
        Ok(present.pop())
    };
    eventually("the client's session is seen", promptly(), look).await
}

/// Ends a session, and proves it.
async fn end(cx: &Cx, session: &str) -> Verdict {
    let proof = sessions(cx)?.end(session).await?;
    if proof.is_given() { Ok(()) } else { Err(Failure::unknown(format!("nothing shows that {session} has ended"))) }
}

pub(super) async fn a_holder_whose_session_ends_is_told_and_believes_no_more(cx: Arc<Cx>) -> Verdict {
    let lock = cx.contender().await?;
    let held = lock.lock().await?;
    end(&cx, &newcomer(&cx, &[]).await?).await?;
    // Its client hears of it when it asks again; whatever it hears, the lease ends.
    let reason = soon("the holder is told", ttl() + hand_over(), held.lost()).await?;
    let reasons = [LossReason::SessionExpired, LossReason::Taken, LossReason::Expired];
    ensure!(reasons.contains(&reason), "lost because {reason:?}, but the session has ended");
    ensure!(!held.is_held() && held.remaining().is_zero(), "the lock is believed in after its loss: {held:?}");
    cx.is_obtainable().await?;
    ensure!(!held.is_held(), "the lock is believed in again after its loss: {held:?}");
    // The same client goes on in a new session.
    let again = soon("the lock is taken again", promptly(), lock.lock()).await??;
    ensure!(again.token() > held.token() || held.token().is_none(), "the token of before: {again:?} after {held:?}");
    release(again).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_former_holder_s_late_release_does_not_touch_what_a_new_session_has(cx: Arc<Cx>) -> Verdict {
    let a = cx.contender().await?;
    let held = a.lock().await?;
    let session = newcomer(&cx, &[]).await?;
    let (b, c) = cx.two().await?;
    let waiting = tokio::spawn(async move { b.lock().await });
    cx.queued(&c, 1).await?;
    end(&cx, &session).await?;
    let next = soon("the waiter is granted", promptly(), waiting).await???;
    // At once: perhaps before its client has heard of anything.
    let late = soon("the late release", promptly(), held.release()).await?;
    cx.is_refused(&c).await?;
    // Whatever its client still does about its lock, it is another's; whose renewals would notice.
    pass(ttl()).await;
    cx.is_refused(&c).await?;
    let kind = late.as_ref().err().map(lock_core::Error::kind);
    let right = matches!(kind, Some(ErrorKind::NotHeld | ErrorKind::Indeterminate));
    ensure!(right, "a release after the session's end says {late:?}");
    release(next).await?;
    let again = soon("the former holder's client takes it again", promptly(), a.lock()).await??;
    cx.is_refused(&c).await?;
    release(again).await?;
    cx.nothing_is_left().await
}

pub(super) async fn a_waiter_whose_session_ends_is_granted_in_its_turn_and_with_a_place(cx: Arc<Cx>) -> Verdict {
    let (a, other) = cx.two().await?;
    let held = a.lock().await?;
    let known = sessions(&cx)?.present(&cx.namespace).await?;
    let waiter = cx.contender().await?;
    let mut waiting = tokio::spawn(async move { waiter.lock().await });
    cx.queued(&a, 1).await?;
    end(&cx, &newcomer(&cx, &known).await?).await?;
    stays_pending("a wait beyond its session", ttl() / 2, Pin::new(&mut waiting)).await?;
    release(held).await?;
    let next = soon("the waiter is granted", promptly(), waiting).await???;
    // Nobody is let in beside it: it has a place of its own again.
    cx.is_refused(&other).await?;
    pass(ms(500)).await;
    cx.is_refused(&other).await?;
    release(next).await?;
    cx.nothing_is_left().await
}
