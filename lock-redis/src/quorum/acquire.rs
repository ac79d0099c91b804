//! The mutex: rounds of asking every server at once.
//!
//! A round ends when a majority has granted the lock, or when it is certain that none will. The lease counts from before
//! the first request was sent, and the core looks at the clock when it takes the grant: a reply that was delayed, by the
//! network or by a pause of this process, has used up that much of it. A round that fails is undone on every server,
//! wherever it did not say that somebody else has the lock, before the next one begins.
//!
//! The first waiter of a client asks for all of them (`wait/`). Where somebody else has a majority it asks again when
//! servers tell it that the lock is free, and now and then, since what they tell may be lost. When the votes are split it asks
//! again after growing pauses of random length, so that those who split them once do not do so for ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, MutexBackend};
use lock_core::{Error, ErrorKind, Phase, driver::wait};

use super::NAME;
use super::backend::QuorumBackend;
use super::fan_out::FanOut;
use super::member::{Request, ScriptVote};
use super::scripts;
use super::tally::{Standing, Tally, Vote};
use super::wait::{QueuePlace, WaitEnded};
use crate::client::link::request::Failed;
use crate::store::milliseconds;

/// How long servers that are well take at most: no round begins that has less, and the undo of one whose time is over is
/// waited for that long.
const MOMENT: Duration = Duration::from_millis(100);

/// The time after which a waiter asks without being told, where it should be told: a lost message costs that.
const AGAIN: Duration = Duration::from_millis(900);
/// The time after which a waiter asks while the servers cannot tell it.
const UNTOLD: Duration = Duration::from_millis(100);
/// The rounding of a server's milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);
/// The longest pause while no majority answers, before jitter.
const SILENT: Duration = Duration::from_millis(250);

/// The outcome of a round.
enum Round {
    Granted {
        grant: Grant,
        /// The servers that have granted it so far.
        by: Vec<usize>,
        /// Whether one has refused it.
        contested: bool,
        /// The answers of the others.
        rest: FanOut<Result<ScriptVote, Failed>>,
    },
    /// Somebody else has it, for so long at least if it is neither released nor renewed.
    Held(Option<Duration>),
    /// Somebody else has it, or tries to get it, where too few servers answer to tell these apart.
    MayBeHeld,
    /// Nobody has it: several try to get it.
    Split,
}

#[async_trait]
impl MutexBackend for QuorumBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.check_ttl(attempt.ttl)?;
        self.releases.checked_keys(&attempt.name)?;
        let until = self.until();
        let mut may_be_held = false;
        for pause in wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE) {
            match self.round(attempt, None, until).await? {
                Round::Granted { grant, .. } => return Ok(Some(grant)),
                Round::Held(_) => return Ok(None),
                // What others only try is undone soon, or becomes a majority.
                Round::MayBeHeld => may_be_held = true,
                Round::Split => {}
            }
            if !has_time_after(pause, until).await {
                break;
            }
        }
        self.refused(may_be_held)
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.check_ttl(attempt.ttl)?;
        let place = self.queues.enter(&self.releases.checked_keys(&attempt.name)?.lock);
        match place.first(attempt, deadline).await {
            Ok(_first) => self.ask_until(attempt, &place, deadline).await,
            Err(WaitEnded::Held) => Ok(None),
            Err(WaitEnded::Unknown) => {
                let what = "no majority of the servers says that somebody holds the lock; another task of this client asks them";
                Err(Error::unavailable(Phase::Acquire, what).with_backend(NAME))
            }
        }
    }
}

/// Pauses; whether there is time for another round then. Does not pause if there would be none.
async fn has_time_after(pause: Duration, until: BootInstant) -> bool {
    let has_time = |at: BootInstant| at.plus(MOMENT) < until;
    let next = SystemClock.now().plus(pause);
    if !has_time(next) {
        return false;
    }
    SystemClock.sleep_until(next).await;
    // It may have been longer than it was meant to be.
    has_time(SystemClock.now())
}

impl QuorumBackend {
    /// Asks from the first place of a queue until the lock is granted or the deadline passes.
    async fn ask_until(
        &self,
        attempt: &Attempt,
        place: &QueuePlace,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let since = SystemClock.now();
        let (mut answered, mut may_be_held) = (since, false);
        // An earlier round that may still be carried out somewhere, whatever is said of later ones.
        let mut unknown = None;
        let mut splits = wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE);
        let mut silences = wait::pauses(wait::FIRST_PAUSE, SILENT);
        if place.is_held_here() {
            place.pause(since.plus(AGAIN).min(deadline.instant())).await;
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
            let outcome = self.round(attempt, Some(since), self.until()).await;
            let now = SystemClock.now();
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
                    // Whoever refuses it from now on counts this client as a waiter.
                    let (queues, lock) = (self.queues.clone(), place.lock().to_owned());
                    rest.look_at_the_rest(move |answer| {
                        if answer.is_ok_and(|said| !said.yes) {
                            queues.is_registered(&lock);
                        }
                    });
                    // Those that have not answered yet may have refused it too. Those that have granted it have taken the client
                    // out, but in the first round, in which it may not have waited for a whole microsecond.
                    if place.deregisters() {
                        self.releases.stop_waiting(place.lock(), if rounds > 1 { &by } else { &[] });
                    }
                    return Ok(Some(grant));
                }
                Ok(Round::Held(ends_in)) => {
                    may_be_held = true;
                    splits = wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE);
                    let again = if self.are_told() { AGAIN } else { UNTOLD };
                    ends_in.map_or(again, |ends_in| again.min(ends_in + ROUNDING))
                }
                Ok(Round::MayBeHeld) => {
                    may_be_held = true;
                    split(&mut splits)
                }
                Ok(Round::Split) => split(&mut splits),
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                    if deadline.has_passed(now) || now.since(answered) >= attempt.patience {
                        return Err(unknown.unwrap_or(error));
                    }
                    if error.kind() == ErrorKind::Indeterminate {
                        unknown.get_or_insert(error);
                    }
                    silences.next().unwrap_or(SILENT)
                }
                Err(error) => return Err(unknown.unwrap_or(error)),
            };
            if deadline.has_passed(now) {
                return match unknown {
                    Some(unknown) if !may_be_held => Err(unknown),
                    _ => self.refused(may_be_held),
                };
            }
            place.pause(now.plus(pause).min(deadline.instant())).await;
        }
    }

    /// Whether a majority of the servers can tell this client of a release.
    fn are_told(&self) -> bool {
        self.pushes.iter().filter(|push| push.is_up()).count() >= self.majority()
    }

    /// What a caller is told who has not got the lock in time: that somebody else holds it only if that may be so.
    fn refused(&self, may_be_held: bool) -> Result<Option<Grant>, Error> {
        if may_be_held {
            return Ok(None);
        }
        let what = "nobody holds the lock: several try to get it, and none has found a majority in time";
        Err(Error::new(ErrorKind::Unavailable, Phase::Acquire, what).with_backend(NAME))
    }

    /// Refuses a TTL that outlasts the time for which a server that has started counts as forgetful, and takes note of
    /// any other.
    pub(super) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        match self.limit {
            Some(limit) if ttl > limit => {
                let what = format!("the TTL is {ttl:?}, above longest_ttl ({limit:?}) of this quorum's configuration");
                Err(Error::invalid(Phase::Configure, what).with_backend(NAME))
            }
            _ => {
                self.predecessors.asks_for(ttl);
                Ok(())
            }
        }
    }

    /// Asks every server once, for a try or for a wait that began at `waits_since`.
    async fn round(
        &self,
        attempt: &Attempt,
        waits_since: Option<BootInstant>,
        until: BootInstant,
    ) -> Result<Round, Error> {
        self.check_reachable()?;
        let sent_at = SystemClock.now();
        let round = u64::try_from(sent_at.since_origin().as_micros()).unwrap_or(u64::MAX);
        if attempt.note() == 0 {
            attempt.set_note(round.max(1));
        }
        let waited = waits_since.map(|since| sent_at.since(since));
        let mut votes = Votes::of(self, self.take(attempt, round, waited)?, until);
        let verdict = votes.verdict(until).await;
        if verdict == Standing::Granted {
            // Every server that granted it began its TTL after this instant.
            let Votes { asked: rest, granted: by, refused, .. } = votes;
            let grant = Grant::new(None, sent_at, attempt.ttl);
            return Ok(Round::Granted { grant, by, contested: !refused.is_empty(), rest });
        }
        let Votes { granted, refused, ends_in, mut reasons, .. } = votes;
        reasons.extend(self.undo(attempt, round, granted, &refused, until).await);
        match verdict {
            Standing::Held => Ok(Round::Held(ends_in)),
            Standing::MayBeHeld => Ok(Round::MayBeHeld),
            Standing::Split => Ok(Round::Split),
            _ => Err(self.too_few(Phase::Acquire, reasons)),
        }
    }

    /// Where no majority can be reached, the others are not bothered.
    fn check_reachable(&self) -> Result<(), Error> {
        let down: Vec<_> = self.members.iter().filter_map(|member| member.link.outage()).collect();
        let up = self.members.len() - down.len();
        if up >= self.majority() { Ok(()) } else { Err(self.too_few(Phase::Acquire, down)) }
    }

    fn take(&self, attempt: &Attempt, round: u64, waited: Option<Duration>) -> Result<Request, Error> {
        let card = serde_json::to_string(&attempt.owner)
            .map_err(|e| Error::invalid(Phase::Acquire, "the owner cannot be written").with_source(e))?;
        let client = waited.map_or_else(String::new, |_| self.releases.client.to_string());
        let waited = waited.unwrap_or_default().as_micros().to_string();
        let keys = self.releases.checked_keys(&attempt.name)?;
        Ok(Request {
            script: &scripts::ACQUIRE,
            keys: vec![keys.lock.clone(), keys.waiters().into_owned()],
            args: vec![attempt.id.to_string(), round.to_string(), milliseconds(attempt.ttl), card, client, waited],
            phase: Phase::Acquire,
        })
    }

    /// Undoes a round on every server but those that have refused it, and waits for those that have granted it until `until`,
    /// or at least for a moment; why some of these did not confirm. The requests themselves have an operation timeout of
    /// their own, and go on in the background.
    async fn undo(
        &self,
        attempt: &Attempt,
        round: u64,
        mut granted: Vec<usize>,
        refused: &[usize],
        until: BootInstant,
    ) -> Vec<Error> {
        let mut reasons = Vec::new();
        let until = until.max(SystemClock.now().plus(MOMENT));
        let mut asked = self.releases.send_except(&self.releases.undo(attempt, round), refused);
        while !granted.is_empty() {
            let answered = tokio::select! {
                biased;
                answered = asked.next() => answered,
                () = SystemClock.sleep_until(until) => None,
            };
            let Some((place, answer)) = answered else { break };
            let before = granted.len();
            granted.retain(|other| *other != place);
            if let Err(failed) = answer
                && granted.len() < before
            {
                reasons.push(failed.error);
            }
        }
        reasons
    }
}

/// The votes on one round, as they come in.
struct Votes {
    asked: FanOut<Result<ScriptVote, Failed>>,
    tally: Tally,
    /// The servers that have granted it.
    granted: Vec<usize>,
    /// The servers where somebody else has it.
    refused: Vec<usize>,
    /// The shortest time after which it may be free at one of those.
    ends_in: Option<Duration>,
    /// Why the others did not answer.
    reasons: Vec<Error>,
}

impl Votes {
    fn of(quorum: &QuorumBackend, take: Request, until: BootInstant) -> Self {
        let take = Arc::new(take);
        let asked = FanOut::all(
            &quorum.background,
            quorum.members.iter().map(|member| member.clone().put(take.clone(), until)),
        );
        Self {
            asked,
            tally: Tally::of(quorum.members.len()),
            granted: Vec::new(),
            refused: Vec::new(),
            ends_in: None,
            reasons: Vec::new(),
        }
    }

    /// Waits for as many votes as decide.
    async fn verdict(&mut self, until: BootInstant) -> Standing {
        loop {
            let verdict = self.tally.verdict();
            if verdict != Standing::Open {
                return verdict;
            }
            match self.asked.next_until(until).await {
                Some((place, answer)) => self.count(place, answer),
                // All have voted: then there is a verdict. Or the time is over, and those that are missing have failed.
                None => {
                    let what = "no answer within the operation timeout";
                    self.reasons.push(Error::indeterminate(Phase::Acquire, what).with_backend(NAME));
                    return Standing::Failed;
                }
            }
        }
    }

    fn count(&mut self, place: usize, answer: Result<ScriptVote, Failed>) {
        self.tally.count(match answer {
            Ok(ScriptVote { yes: true, .. }) => {
                self.granted.push(place);
                Vote::Granted
            }
            Ok(ScriptVote { yes: false, rest }) => {
                self.refused.push(place);
                // A key without an end says -1.
                let (ends_in, holder) = rest.split_once(':').unwrap_or(("", &rest));
                if let Ok(ends_in) = ends_in.parse().map(Duration::from_millis) {
                    self.ends_in = Some(self.ends_in.map_or(ends_in, |shortest| shortest.min(ends_in)));
                }
                Vote::Held(holder.to_owned())
            }
            Err(failed) => {
                self.reasons.push(failed.error);
                Vote::Failed
            }
        });
    }
}
