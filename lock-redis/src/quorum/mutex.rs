//! The mutex: rounds of asking every server at once.
//!
//! A round ends when a majority has granted the lock, or when it is certain that none will. The lease counts from before
//! the first request was sent, and the core looks at the clock when it takes the grant: a reply that was delayed, by the
//! network or by a pause of this process, has used up that much of it. A round that fails is undone on every server,
//! also where it seems to have got nothing, before the next one begins. There is no queue: who waits tries again after
//! growing pauses of random length, so that those who split the votes once do not do so for ever.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::backend::{Attempt, Grant, MutexBackend};
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::{Error, ErrorKind, Phase, wait};

use super::NAME;
use super::asked::Asked;
use super::backend::QuorumBackend;
use super::member::{Request, Said};
use super::scripts;
use super::tally::{Tally, Verdict, Vote};
use crate::backend::milliseconds;
use crate::connection::request::Failed;

/// How long servers that are well take at most: no round begins that has less, and the undo of one whose time is over is
/// waited for that long.
const MOMENT: Duration = Duration::from_millis(100);

/// How a round ended.
enum Round {
    Granted(Grant),
    /// Somebody else has it.
    Held,
    /// Somebody else has it, or tries to get it, where too few servers answer to tell these apart.
    MayBeHeld,
    /// Nobody has it: several try to get it.
    Split,
}

#[async_trait]
impl MutexBackend for QuorumBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.check_ttl(attempt.ttl)?;
        let until = self.until();
        let mut may_be_held = false;
        for pause in wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE) {
            match self.round(attempt, until).await? {
                Round::Granted(grant) => return Ok(Some(grant)),
                Round::Held => return Ok(None),
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
        let (mut answered, mut may_be_held) = (SystemClock.now(), false);
        for pause in wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE) {
            let outcome = self.round(attempt, self.until()).await;
            let now = SystemClock.now();
            match outcome {
                Ok(Round::Granted(grant)) => return Ok(Some(grant)),
                Ok(round) => {
                    answered = now;
                    may_be_held |= !matches!(round, Round::Split);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                    if deadline.has_passed(now) || now.since(answered) >= attempt.patience {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            if deadline.has_passed(now) {
                break;
            }
            SystemClock.sleep_until(now.plus(pause).min(deadline.instant())).await;
        }
        self.refused(may_be_held)
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
                self.ledger.asks_for(ttl);
                Ok(())
            }
        }
    }

    /// Asks every server once.
    async fn round(&self, attempt: &Attempt, until: BootInstant) -> Result<Round, Error> {
        self.check_reachable()?;
        let sent_at = SystemClock.now();
        let round = u64::try_from(sent_at.since_origin().as_micros()).unwrap_or(u64::MAX);
        if attempt.note() == 0 {
            attempt.set_note(round.max(1));
        }
        let mut votes = Votes::of(self, self.take(attempt, round)?, until);
        let verdict = votes.verdict().await;
        if verdict == Verdict::Granted {
            // Every server that granted it began its TTL after this instant.
            return Ok(Round::Granted(Grant::new(None, sent_at, attempt.ttl)));
        }
        let Votes { granted, mut reasons, .. } = votes;
        reasons.extend(self.undo(attempt, round, granted, until).await);
        match verdict {
            Verdict::Held => Ok(Round::Held),
            Verdict::MayBeHeld => Ok(Round::MayBeHeld),
            Verdict::Split => Ok(Round::Split),
            _ => Err(self.too_few(Phase::Acquire, reasons)),
        }
    }

    /// Where no majority can be reached, the others are not bothered.
    fn check_reachable(&self) -> Result<(), Error> {
        let down: Vec<_> = self.members.iter().filter_map(|member| member.link.outage()).collect();
        let up = self.members.len() - down.len();
        if up >= self.majority() { Ok(()) } else { Err(self.too_few(Phase::Acquire, down)) }
    }

    fn take(&self, attempt: &Attempt, round: u64) -> Result<Request, Error> {
        let card = serde_json::to_string(&attempt.owner)
            .map_err(|e| Error::invalid(Phase::Acquire, "the owner cannot be written").with_source(e))?;
        Ok(Request {
            script: &scripts::TAKE,
            keys: vec![self.keys(&attempt.name).lock],
            args: vec![attempt.id.to_string(), round.to_string(), milliseconds(attempt.ttl), card],
            phase: Phase::Acquire,
        })
    }

    /// Undoes a round on every server, and waits for those that have granted it until `until`, or at least for a moment;
    /// why some of these did not confirm. The requests themselves have an operation timeout of their own, and go on in the
    /// background.
    async fn undo(&self, attempt: &Attempt, round: u64, mut granted: Vec<usize>, until: BootInstant) -> Vec<Error> {
        let mut reasons = Vec::new();
        let until = until.max(SystemClock.now().plus(MOMENT));
        let mut asked = self.give(&self.debt(attempt, round, Phase::Cancel));
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
    asked: Asked<Result<Said, Failed>>,
    tally: Tally,
    /// Who has granted it.
    granted: Vec<usize>,
    /// Why the others did not answer.
    reasons: Vec<Error>,
}

impl Votes {
    fn of(quorum: &QuorumBackend, take: Request, until: BootInstant) -> Self {
        let take = Arc::new(take);
        let asked =
            Asked::all(&quorum.background, quorum.members.iter().map(|member| member.clone().put(take.clone(), until)));
        Self { asked, tally: Tally::of(quorum.members.len()), granted: Vec::new(), reasons: Vec::new() }
    }

    /// Waits for as many votes as decide.
    async fn verdict(&mut self) -> Verdict {
        loop {
            let verdict = self.tally.verdict();
            if verdict != Verdict::Open {
                return verdict;
            }
            match self.asked.next().await {
                Some((place, answer)) => self.count(place, answer),
                // All have voted: then there is a verdict.
                None => return Verdict::Failed,
            }
        }
    }

    fn count(&mut self, place: usize, answer: Result<Said, Failed>) {
        self.tally.count(match answer {
            Ok(Said { yes: true, .. }) => {
                self.granted.push(place);
                Vote::Granted
            }
            Ok(Said { yes: false, rest }) => Vote::Held(rest),
            Err(failed) => {
                self.reasons.push(failed.error);
                Vote::Failed
            }
        });
    }
}
