//! Waiting for a lock: the first waiter of a client asks for all of them.
//!
//! Where somebody else has a majority it asks again when servers tell it that the lock is free, and now and then, since what they
//! tell may be lost. When the votes are split it asks again after growing pauses of random length, so that those who split them
//! once do not do so for ever.

mod fairness;
mod local_order;
pub(super) mod queues;
mod release_news;
mod shared_runs;

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, wait};
use lock_core::{Error, ErrorKind, Phase};

use self::queues::{QueuePlace, Queues, WaitEnded};
use super::NAME;
use super::acquire::{Acquirer, Round, refused};
use super::ballot::ScriptVote;
use super::client::fan_out::FanOut;
use super::release::requests::ReleaseRequests;
use crate::client::link::request::Failed;
use crate::client::push::{Inbox, Message, Push};

/// The time after which a waiter asks without being told, where it should be told: a lost message costs that.
const AGAIN: Duration = Duration::from_millis(800);
/// The time after which a waiter asks while the servers cannot tell it.
const UNTOLD: Duration = Duration::from_millis(100);
/// The rounding of a server's milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);
/// The longest pause while no majority answers, before jitter.
const SILENT: Duration = Duration::from_millis(250);

/// The waits of one client for locks.
#[derive(Debug)]
pub(super) struct Waits {
    acquirer: Arc<Acquirer>,
    requests: Arc<ReleaseRequests>,
    queues: Arc<Queues>,
    /// The channels, one at each server, on which waiters are told of a release.
    pushes: Vec<Arc<Push>>,
}

impl Waits {
    /// Waits in these queues, for releases that are told over these connections.
    pub(super) fn new(
        acquirer: &Arc<Acquirer>,
        requests: &Arc<ReleaseRequests>,
        queues: &Arc<Queues>,
        pushes: Vec<Arc<Push>>,
    ) -> Self {
        Self { acquirer: acquirer.clone(), requests: requests.clone(), queues: queues.clone(), pushes }
    }

    /// Acquires the lock, now or when it is the attempt's turn.
    pub(super) async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let place = {
            let keys = self.acquirer.check(attempt)?;
            self.queues.enter(&keys.lock, keys.shared)
        };
        match place.first(attempt, deadline).await {
            Ok(silent_since) => self.ask_until(attempt, &place, deadline, silent_since).await,
            Err(WaitEnded::Held) => Ok(None),
            Err(WaitEnded::Unknown) => {
                let what = "no majority of the servers says that somebody holds the lock; another task of this client asks them";
                Err(Error::unavailable(Phase::Acquire, what).with_backend(NAME))
            }
        }
    }

    /// Asks from the first place of a queue until the lock is granted or the deadline passes.
    async fn ask_until(
        &self,
        attempt: &Attempt,
        place: &QueuePlace,
        deadline: Deadline,
        silent_since: BootInstant,
    ) -> Result<Option<Grant>, Error> {
        let since = SystemClock.now();
        // The patience goes on from behind the waiters that were before it.
        let (mut answered, mut may_be_held) = (silent_since, false);
        // Earlier rounds may still be carried out somewhere, whatever is said of later ones.
        let mut left = self.acquirer.leftovers();
        let mut splits = wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE);
        let mut silences = wait::pauses(wait::FIRST_PAUSE, SILENT);
        if let Some(answered_at) = place.held_here_since_answer() {
            // Counted from the last answer, not from this waiter's arrival: the holder's grant may have ended without this client hearing
            // of it.
            place.pause(answered_at.plus(AGAIN).min(deadline.instant())).await;
            may_be_held = true;
            if deadline.has_passed(SystemClock.now()) {
                return Ok(None);
            }
        }
        let mut rounds = 0_u64;
        loop {
            rounds += 1;
            place.rest(deadline.instant()).await;
            place.asks();
            // Whoever is dropped during the round may be counted as well.
            let was_registered = place.registers(true);
            let until = self.acquirer.until();
            let outcome = self.acquirer.round(attempt, Some(since), until, &mut left).await;
            let now = SystemClock.now();
            if wait::stood_still(until, now) {
                answered = now;
            }
            if let Ok(round) = &outcome {
                answered = now;
                place.answered(!matches!(round, Round::Split));
                silences = wait::pauses(wait::FIRST_PAUSE, SILENT);
            } else {
                place.not_answered();
            }
            // Both are endless.
            let split = |splits: &mut dyn Iterator<Item = Duration>| splits.next().unwrap_or(wait::LONGEST_PAUSE);
            let pause = match outcome {
                Ok(Round::Granted { grant, by, contested, rest }) => {
                    place.granted(attempt.id);
                    if !contested {
                        place.registers(was_registered);
                    }
                    self.note_late_refusals(attempt, until, place.lock(), rest);
                    // Servers that have not answered yet may have refused, too. Servers that granted the lock no longer count this client
                    // as a waiter, except in the first round: by then it may not have waited for a whole microsecond.
                    if place.deregisters() {
                        self.requests.stop_waiting(place.lock(), if rounds > 1 { &by } else { &[] });
                    }
                    return Ok(Some(grant));
                }
                Ok(Round::Held(ends_in)) => {
                    may_be_held = true;
                    splits = wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE);
                    self.pause_while_held(ends_in)
                }
                Ok(Round::MayBeHeld) => {
                    may_be_held = true;
                    split(&mut splits)
                }
                Ok(Round::Split) => split(&mut splits),
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                    if deadline.has_passed(now) || now.since(answered) >= attempt.patience {
                        return left.judge(Err(error));
                    }
                    silences.next().unwrap_or(SILENT)
                }
                Err(error) => return left.judge(Err(error)),
            };
            if deadline.has_passed(now) {
                // A wait that ran out is undone by the core.
                return if may_be_held { Ok(None) } else { left.judge(refused(false)) };
            }
            let due = now.plus(pause).min(deadline.instant());
            place.pause(due).await;
            let now = SystemClock.now();
            if wait::stood_still(due, now) {
                answered = now;
            }
        }
    }

    /// Takes note of servers that refuse the lock after it was granted: they count this client as a waiter.
    fn note_late_refusals(
        &self,
        attempt: &Attempt,
        until: BootInstant,
        lock: &str,
        rest: FanOut<Result<ScriptVote, Failed>>,
    ) {
        let (queues, lock) = (self.queues.clone(), lock.to_owned());
        self.acquirer.note_answers(attempt, until, rest, move |said| {
            if !said.yes {
                queues.note_registered(&lock);
            }
        });
    }

    /// The pause before asking again for a lock that somebody else has, for so long at least if that is known.
    fn pause_while_held(&self, ends_in: Option<Duration>) -> Duration {
        let again = if self.are_told() { AGAIN } else { UNTOLD };
        ends_in.map_or(again, |ends_in| again.min(ends_in + ROUNDING))
    }

    /// Whether a majority of the servers can tell this client of a release.
    fn are_told(&self) -> bool {
        self.pushes.iter().filter(|push| push.is_up()).count() >= self.queues.majority()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.pushes.iter().for_each(|push| push.close());
    }
}

/// Takes one server's news for this client's waiters.
pub(super) fn inbox(queues: &Arc<Queues>, server: usize) -> Inbox {
    let queues = Arc::downgrade(queues);
    Arc::new(move |message| {
        if let (Message::AskAfter { lock, pause }, Some(queues)) = (message, queues.upgrade()) {
            queues.told(&lock, server, pause);
        }
    })
}
