//! One acquisition of any kind: asking, taking a place in the queue, and waiting for one's turn.
//!
//! A waiter's request puts it into the queue at the server; whoever makes room there grants the lock to the first waiters
//! that live and fit, and tells them by push, so that each owns its grant when it wakes. See `scripts/queue.lua` for the
//! data, [`crate::wait::queue`] for what makes a push count.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, Phase};

use crate::backend::{Shared, milliseconds};
use crate::kinds::holders;
use crate::store::keys::Keys;
use crate::wait::queue::{Enqueued, News, Pause, WaiterGuard};

/// The pause before asking again after an answer that says that the server cannot serve now.
const PAUSE: Duration = Duration::from_millis(100);

/// The time for which a lock that is handed over is kept for a waiter that has not claimed it: the delay that a waiter
/// that died a moment ago costs the next one.
const CLAIM: Duration = Duration::from_secs(2);

/// The answer to an acquisition.
enum AcquireReply {
    Granted(Grant),
    Queued(Enqueued),
}

/// One try. It goes on until `until` while the server has more to clear up than one run of a script may.
pub(crate) async fn once(
    shared: &Shared,
    keys: &Keys,
    attempt: &Attempt,
    until: BootInstant,
) -> Result<Option<Grant>, Error> {
    loop {
        match ask(shared, keys, attempt, None, until).await? {
            AcquireReply::Granted(grant) => return Ok(Some(grant)),
            AcquireReply::Queued(queued) if queued.pause == Pause::None && SystemClock.now() < until => {}
            AcquireReply::Queued(_) => return Ok(None),
        }
    }
}

/// Waits in the queue, for a caller that has had no answer since `silent_since`, and perhaps an error that left an earlier
/// request of this attempt `unknown`.
pub(crate) async fn in_turn(
    shared: &Shared,
    keys: &Arc<Keys>,
    attempt: &Attempt,
    deadline: Deadline,
    mut silent_since: BootInstant,
    mut unknown: Option<Error>,
) -> Result<Option<Grant>, Error> {
    let waiting = shared.waiters.enter(attempt.id, keys);
    loop {
        let error = match ask(shared, keys, attempt, Some(&waiting), shared.until()).await {
            Ok(AcquireReply::Granted(grant)) => {
                waiting.is_over();
                return Ok(Some(grant));
            }
            // It has no place yet: there were too many dead ones to drop in one run.
            Ok(AcquireReply::Queued(Enqueued { ticket: 0, pause: Pause::None, .. })) => {
                if deadline.has_passed(SystemClock.now()) {
                    return Ok(None);
                }
                silent_since = SystemClock.now();
                continue;
            }
            Ok(AcquireReply::Queued(queued)) => {
                waiting.queued(queued);
                shared.look_out(keys, queued.pause);
                // From here on it may be granted without being told.
                unknown = None;
                match turn(&waiting, attempt, deadline)
                    .await
                    .map_err(|error| error.with_server(shared.link.server()))?
                {
                    WaitOutcome::Granted(grant) => {
                        waiting.is_over();
                        return Ok(Some(grant));
                    }
                    WaitOutcome::Over => return Ok(None),
                    WaitOutcome::AskAgain => silent_since = SystemClock.now(),
                }
                continue;
            }
            Err(error) => error,
        };
        let now = SystemClock.now();
        let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        if !passes || deadline.has_passed(now) || now.since(silent_since) >= attempt.patience {
            return Err(honest(attempt, error, unknown, waiting.ticket().is_some()));
        }
        if !error.is_definite() {
            unknown.get_or_insert(error);
        }
        SystemClock.sleep_until(now.plus(PAUSE).min(deadline.instant())).await;
    }
}

/// The error of a wait that fails with this one: unknown if the outcome of anything before is, however definite the last
/// error is.
fn honest(attempt: &Attempt, error: Error, unknown: Option<Error>, queued: bool) -> Error {
    match unknown {
        Some(first) => first,
        None if queued && error.is_definite() => {
            stood_in_line(attempt, "the next request failed".to_owned()).with_source(error)
        }
        None => error,
    }
}

/// The error of a waiter that the server has put into its queue, and that does not hear any more.
fn stood_in_line(attempt: &Attempt, why: String) -> Error {
    let what = format!("the attempt stood in line, and whether it was granted the lock since is unknown: {why}");
    attempt.error(ErrorKind::Indeterminate, Phase::Wait, what)
}

/// The end of a stay in the queue.
enum WaitOutcome {
    Granted(Grant),
    AskAgain,
    Over,
}

/// Waits for news, for the deadline, or until the server has been silent for too long.
async fn turn(waiting: &WaiterGuard, attempt: &Attempt, deadline: Deadline) -> Result<WaitOutcome, Error> {
    loop {
        let silence = waiting.silent_since().plus(attempt.patience);
        // Thousands may wait without a deadline, and what they hear is told otherwise.
        let end = match deadline {
            Deadline::NEVER => SystemClock.sleep_roughly_until(silence),
            _ => SystemClock.sleep_until(deadline.instant().min(silence)),
        };
        tokio::select! {
            biased;
            news = waiting.news() => return Ok(match news {
                News::Granted(grant) => WaitOutcome::Granted(grant),
                News::AskAgain => WaitOutcome::AskAgain,
            }),
            () = end => {}
        }
        let now = SystemClock.now();
        let silent_for = now.since(waiting.silent_since());
        if silent_for >= attempt.patience || (deadline.has_passed(now) && silent_for >= attempt.op_timeout) {
            return Err(match waiting.refused() {
                Some(why) => {
                    let what = format!("every request about it has failed for {silent_for:?}");
                    stood_in_line(attempt, what).with_source(why.to_string())
                }
                None => stood_in_line(attempt, format!("the server has not answered for {silent_for:?}")),
            });
        }
        if deadline.has_passed(now) {
            return Ok(WaitOutcome::Over);
        }
    }
}

/// One acquisition; with `waiting`, one that stays in the queue.
async fn ask(
    shared: &Shared,
    keys: &Keys,
    attempt: &Attempt,
    waiting: Option<&WaiterGuard>,
    until: BootInstant,
) -> Result<AcquireReply, Error> {
    let nonce = attempt.id.to_string();
    let ttl = milliseconds(attempt.ttl);
    let claim = milliseconds(attempt.ttl.min(CLAIM));
    let card = shared.card(&attempt.owner)?;
    let stays: &[u8] = if waiting.is_some() { b"1" } else { b"" };
    // "0" says that this attempt has been sent before, although no ticket came back.
    let before = if attempt.note() == 0 { String::new() } else { "0".to_owned() };
    let ticket = waiting.and_then(WaiterGuard::ticket).map_or(before, |ticket| ticket.to_string());
    let mode = holders::mode(attempt);
    let args = [
        nonce.as_bytes(),
        shared.client.as_bytes(),
        ttl.as_bytes(),
        card.as_bytes(),
        stays,
        ticket.as_bytes(),
        shared.channels.as_bytes(),
        keys.shared_arg(),
        claim.as_bytes(),
        mode.as_bytes(),
    ];
    let (reply, _) = shared.run(&keys.scripts().acquire, &keys.all(), &args, attempt, Phase::Acquire, until).await?;
    let mut fields = shared.fields(reply.value, &nonce, Phase::Acquire)?;
    if fields.number()? == 1 {
        let token = fields.token()?;
        let valid_for = fields.milliseconds()?;
        shared.waiters.found_free(&keys.lock);
        let grant = Grant::new(Some(token), reply.sent_at, valid_for);
        // Shorter than asked for: the lock was handed over for the claim time.
        return Ok(AcquireReply::Granted(if valid_for.as_millis() < attempt.ttl.as_millis() {
            grant.to_be_claimed()
        } else {
            grant
        }));
    }
    let pause = Pause::of(fields.number()?);
    let mut unsigned = || fields.number().map(|number| u64::try_from(number).unwrap_or_default());
    let (ticket, known, last_token) = (unsigned()?, unsigned()? == 1, unsigned()?);
    Ok(AcquireReply::Queued(Enqueued { sent_at: reply.sent_at, ticket, known, pause, last_token }))
}
