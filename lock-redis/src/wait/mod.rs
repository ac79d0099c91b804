//! Waiting for a lock: tell me when.
//!
//! A waiter's request puts it into the queue at the server; whoever makes room there grants the lock to the first waiters
//! that live and fit, and tells them by push, so that each owns its grant when it wakes. See `store/scripts/queue.lua` for the
//! data, [`machine`] for what makes a push count, and [`heartbeat`] for what keeps the places of this client's waiters.
//!
//! A free lock is granted by `acquire_free.lua`; otherwise `acquire.lua` puts the waiter into the queue, a sorted set. A release
//! (`release.lua`, `release_promote.lua`) grants the lock to the first waiters. Those of the client that releases learn it from the
//! reply, and have the lock for their whole TTL. All others learn it by a push on their client's channel, and have the lock for a claim
//! time of at most 2 s; the keeper's first renewal extends that to the whole TTL. Each waiting client also asks again
//! (`heartbeat.lua`): about every 0.8 s, and every 0.2 s at a shared key. That shows that it lives, and finds pushes that were lost and
//! holders that died without a release.

pub(crate) mod foreign;
pub(crate) mod heartbeat;
pub(crate) mod inbox;
pub mod machine;
pub(crate) mod queue;

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, wait};
use lock_core::{Error, ErrorKind, Phase};

use self::foreign::ForeignHolders;
use self::machine::{Enqueued, News, Pause};
use self::queue::{WaitQueues, WaiterGuard};
use crate::acquire::{AcquireReply, Acquirer, ShortAcquire, Stays, granted_for};
use crate::client::link::Caller;
use crate::client::link::request::Failed;
use crate::client::links::Links;
use crate::store::keys::{KeySpace, Keys};

/// The first pause before asking again after an answer that says that the server cannot serve now, and the longest before jitter, which at
/// most doubles it: a server that can serve again hears of every wait within a second, and of ten thousand waits not all the time.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The waits of one client for locks.
#[derive(Debug)]
pub(crate) struct Waits {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    acquirer: Arc<Acquirer>,
    queues: Arc<WaitQueues>,
    foreign: Arc<ForeignHolders>,
}

impl Waits {
    /// Waits in these queues.
    pub(crate) fn new(
        acquirer: &Arc<Acquirer>,
        links: &Arc<Links>,
        keys: &Arc<KeySpace>,
        queues: &Arc<WaitQueues>,
        foreign: &Arc<ForeignHolders>,
    ) -> Self {
        Self {
            acquirer: acquirer.clone(),
            links: links.clone(),
            keys: keys.clone(),
            queues: queues.clone(),
            foreign: foreign.clone(),
        }
    }

    /// Acquires the lock, now or when it is the attempt's turn; a grant counts only if it is confirmed where that is wanted.
    pub(crate) async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let granted = self.wait(attempt, deadline).await?;
        self.acquirer.confirmed(attempt, granted, self.until(attempt, deadline)).await
    }

    /// The end of a request: one operation timeout from now, and no later than one after the deadline, whatever was asked before.
    fn until(&self, attempt: &Attempt, deadline: Deadline) -> BootInstant {
        self.links.until().min(deadline.instant().plus(attempt.op_timeout))
    }

    async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let keys = self.keys.checked(&attempt.name, attempt.kind)?;
        let (mut silent_since, mut unknown, mut failed) = (SystemClock.now(), None, None);
        let caller = self.links.caller();
        if !self.queues.is_busy(&keys.lock) {
            match self.acquirer.short(&keys, attempt, self.until(attempt, deadline), caller.as_ref()).await {
                Ok(ShortAcquire::Granted(grant)) => return Ok(Some(grant)),
                Ok(ShortAcquire::Held | ShortAcquire::AskTheQueue) => {
                    silent_since = SystemClock.now();
                    self.queues.found_held(&keys.lock);
                }
                Ok(ShortAcquire::NotAsked(how)) => failed = how,
                Err(error) if deadline.has_passed(SystemClock.now()) => return Err(error),
                // Whatever is refused here, is refused below too, where it is waited for.
                Err(error) => {
                    unknown = (!error.is_definite()).then_some(error);
                    self.queues.found_held(&keys.lock);
                }
            }
        }
        // Boxed: a free mutex is granted without it.
        let before = Before { silent_since, unknown, failed, caller };
        Box::pin(self.in_turn(Arc::new(keys), attempt, deadline, before)).await
    }

    /// Waits in the queue.
    async fn in_turn(
        &self,
        keys: Arc<Keys>,
        attempt: &Attempt,
        deadline: Deadline,
        Before { mut silent_since, mut unknown, mut failed, mut caller }: Before<'_>,
    ) -> Result<Option<Grant>, Error> {
        let (waiting, mut ticket) = (self.queues.enter(attempt.id, &keys), None);
        // The pauses after requests that failed, since the last answer.
        let mut pauses = None;
        loop {
            let (stays, until) = (Stays::AtTicket(ticket), self.until(attempt, deadline));
            let answer = self.acquirer.ask(&keys, attempt, stays, until, failed.take()).await;
            drop(caller.take());
            if answer.is_ok() {
                pauses = None;
            }
            let error = match answer {
                Ok(AcquireReply::Granted(grant)) => {
                    waiting.ends_granted();
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
                    ticket = Some(queued.ticket);
                    waiting.queued(queued);
                    self.foreign.look_out(&keys, queued.pause);
                    // From here on it may be granted without being told.
                    unknown = None;
                    match turn(&waiting, attempt, deadline)
                        .await
                        .map_err(|error| error.with_server(self.links.server()))?
                    {
                        WaitOutcome::Granted(grant) => {
                            waiting.ends_granted();
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
            if wait::stood_still(until, now) {
                silent_since = now;
            }
            let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
            if !passes || deadline.has_passed(now) || now.since(silent_since) >= attempt.patience {
                return Err(honest(attempt, error, unknown, ticket.is_some()));
            }
            if !error.is_definite() {
                unknown.get_or_insert(error);
            }
            // The pauses never end.
            let pause =
                pauses.get_or_insert_with(|| wait::pauses(PAUSE, LONGEST_PAUSE)).next().unwrap_or(LONGEST_PAUSE);
            let due = now.plus(pause).min(silent_since.plus(attempt.patience)).min(deadline.instant());
            SystemClock.sleep_until(due).await;
            let now = SystemClock.now();
            if wait::stood_still(due, now) {
                silent_since = now;
            }
        }
    }
}

/// The error of a wait that fails with this one: unknown if the outcome of anything before is, however definite the last
/// error is.
fn honest(attempt: &Attempt, error: Error, unknown: Option<Error>, queued: bool) -> Error {
    match unknown {
        Some(first) => first,
        None if queued && error.is_definite() => {
            was_queued(attempt, "the next request failed".to_owned()).with_source(error)
        }
        None => error,
    }
}

/// The error of a waiter that the server has put into its queue, and that does not hear any more.
fn was_queued(attempt: &Attempt, why: String) -> Error {
    let what = format!("the attempt was in the queue, and may have been granted the lock since: {why}");
    attempt.error(ErrorKind::Indeterminate, Phase::Wait, what)
}

/// An acquisition before it comes into the queue.
struct Before<'a> {
    /// It has had no answer since then.
    silent_since: BootInstant,
    /// The error that left an earlier request of this attempt unknown.
    unknown: Option<Error>,
    /// The failure of its request in the short way, if there was one that failed.
    failed: Option<Failed>,
    /// It counts as a caller until its first request is answered.
    caller: Option<Caller<'a>>,
}

/// The end of a stay in the queue.
enum WaitOutcome {
    Granted(Grant),
    AskAgain,
    Over,
}

/// Waits for news, for the deadline, or until the server has been silent for too long.
async fn turn(waiting: &WaiterGuard, attempt: &Attempt, deadline: Deadline) -> Result<WaitOutcome, Error> {
    // While this process stands still nobody can be heard: patience begins anew.
    let mut awake_since = SystemClock.now();
    loop {
        let due = waiting.silent_since().max(awake_since).plus(attempt.patience).min(deadline.instant());
        // Thousands may wait without a deadline, and what they hear is told otherwise.
        let end = match deadline {
            Deadline::NEVER => SystemClock.sleep_roughly_until(due),
            _ => SystemClock.sleep_until(due),
        };
        tokio::select! {
            biased;
            news = waiting.news() => return Ok(match news {
                News::Granted(grant) => WaitOutcome::Granted(granted_for(attempt, grant)),
                News::AskAgain => WaitOutcome::AskAgain,
            }),
            () = end => {}
        }
        let now = SystemClock.now();
        if wait::stood_still(due, now) {
            awake_since = now;
        }
        let silent_since = waiting.silent_since();
        let (silent_for, is_over) = (now.since(silent_since), deadline.has_passed(now));
        let is_impatient = now.since(silent_since.max(awake_since)) >= attempt.patience;
        if is_impatient || (is_over && silent_for >= attempt.op_timeout) {
            return Err(match waiting.refused() {
                Some(why) => {
                    let what = format!("every request about it has failed for {silent_for:?}");
                    was_queued(attempt, what).with_source(why.to_string())
                }
                None => was_queued(attempt, format!("the server has not answered for {silent_for:?}")),
            });
        }
        if is_over {
            return Ok(WaitOutcome::Over);
        }
    }
}
