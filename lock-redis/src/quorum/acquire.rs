//! Rounds of asking every server at once: may I have it now.
//!
//! A round ends when a majority has granted the lock, or when it is certain that none will. The lease counts from before
//! the first request was sent, and the core looks at the clock when it takes the grant: a reply that was delayed, by the
//! network or by a pause of this process, has used up that much of it. A round that fails is undone on every server,
//! wherever it did not say that somebody else has the lock, before the next one begins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, wait};
use lock_core::{Error, ErrorKind, GrantId, Phase};

use super::NAME;
use super::ballot::{Ballot, Leftovers, ScriptVote, VoteState};
use super::client::fan_out::FanOut;
use super::client::members::Members;
use super::client::send_queue::ScriptRequest;
use super::release::requests::{ReleaseRequests, first_sent};
use super::store::scripts;
use crate::client::link::request::Failed;
use crate::store::call::Call;
use crate::store::call::OwnerText;
use crate::store::call::whole_milliseconds;
use crate::store::keys::{KeySpace, Keys};

/// The longest time that a healthy server takes. No round begins with less time left, and the undo of a round whose time is over is waited
/// for this long.
pub(super) const MOMENT: Duration = Duration::from_millis(100);

/// The outcome of a round.
pub(super) enum Round {
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

/// Asks for locks in rounds, each of which is one request to every server.
#[derive(Debug)]
pub(super) struct Acquirer {
    /// The client's id, under which servers count it among the waiters for a lock.
    client: GrantId,
    members: Arc<Members>,
    requests: Arc<ReleaseRequests>,
    keys: Arc<KeySpace>,
    pub(super) owner: OwnerText,
}

impl Acquirer {
    /// Asks these servers for the client of this id; failed rounds are undone by these requests.
    pub(super) fn new(
        client: GrantId,
        members: &Arc<Members>,
        requests: &Arc<ReleaseRequests>,
        keys: &Arc<KeySpace>,
    ) -> Self {
        let (members, requests, keys) = (members.clone(), requests.clone(), keys.clone());
        Self { client, members, requests, keys, owner: OwnerText::default() }
    }

    /// Refuses an attempt that cannot be granted here; returns the keys of its lock.
    pub(super) fn check(&self, attempt: &Attempt) -> Result<Keys, Error> {
        self.members.check_ttl(attempt.ttl)?;
        self.keys.checked(&attempt.name, Kind::Mutex)
    }

    /// The end of a round that begins now.
    pub(super) fn until(&self) -> BootInstant {
        self.members.until()
    }

    /// The servers at which an attempt that begins now may leave an entry: none so far.
    pub(super) fn leftovers(&self) -> Leftovers {
        Leftovers::of(self.members.count())
    }

    /// Tries until a round decides, or for one operation timeout.
    pub(super) async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.check(attempt)?;
        let until = self.members.until();
        let (mut may_be_held, mut left) = (false, self.leftovers());
        for pause in wait::pauses(wait::FIRST_PAUSE, wait::LONGEST_PAUSE) {
            match self.round(attempt, None, until, &mut left).await {
                Ok(Round::Granted { grant, rest, .. }) => {
                    self.note_answers(attempt, until, rest, |_| ());
                    return Ok(Some(grant));
                }
                Ok(Round::Held(_)) => return left.judge(Ok(None)),
                // What others only try is undone soon, or becomes a majority.
                Ok(Round::MayBeHeld) => may_be_held = true,
                Ok(Round::Split) => {}
                Err(error) => return left.judge(Err(error)),
            }
            if !has_time_after(pause, until).await {
                break;
            }
        }
        left.judge(refused(may_be_held))
    }

    /// Asks every server once, for a try or for a wait that began at `waits_since`. Takes note of what the round may have left.
    pub(super) async fn round(
        &self,
        attempt: &Attempt,
        waits_since: Option<BootInstant>,
        until: BootInstant,
        left: &mut Leftovers,
    ) -> Result<Round, Error> {
        self.check_reachable()?;
        let (sent_at, round) = begin(attempt);
        let request = self.request(attempt, round, waits_since.map(|since| sent_at.since(since)))?;
        let mut asked = self.members.ask(|member| member.put(request.clone(), until));
        // Dropped before the requests go on in the background.
        let over = OverAtTheEnd(&request);
        let mut votes = Ballot::of(self.members.count());
        let verdict = decide(&mut asked, &mut votes, until).await;
        if verdict == VoteState::Granted {
            self.note_granted(attempt, &votes, left, until);
            // Every server that granted it began its TTL after this instant.
            let grant = Grant::new(None, sent_at, attempt.ttl);
            return Ok(Round::Granted { grant, by: votes.granted, contested: !votes.refused.is_empty(), rest: asked });
        }
        // From here on they are answered in the background.
        drop((over, asked));
        votes.may_leave().for_each(|server| left.add(server));
        let Ballot { granted, refused, ends_in, mut reasons, .. } = votes;
        refused.iter().filter(|server| self.is_settled(attempt, **server)).for_each(|server| left.remove(*server));
        reasons.extend(self.undo(attempt, round, granted, &refused, until, left).await);
        match verdict {
            VoteState::Held => Ok(Round::Held(ends_in)),
            VoteState::MayBeHeld => Ok(Round::MayBeHeld),
            VoteState::Split => Ok(Round::Split),
            _ => Err(self.members.too_few(Phase::Acquire, reasons)),
        }
    }

    /// Takes note of the servers that may still carry out a request of this grant, which is sent until an instant: those that have not
    /// answered this round, and those that may have an earlier request, also if they could not be asked in this round.
    pub(super) fn note_granted(&self, attempt: &Attempt, votes: &Ballot, left: &Leftovers, until: BootInstant) {
        let owes = |server: &usize| !votes.granted.contains(server);
        let unanswered: Vec<_> = votes.may_leave().filter(owes).collect();
        let earlier = left.servers().filter(|server| !unanswered.contains(server));
        let unsettled: Vec<_> = earlier.filter(|server| !self.is_settled(attempt, *server)).collect();
        self.members.unanswered.add(attempt.id, unanswered.into_iter().chain(unsettled), until);
    }

    /// Has the answers that are still to come noted in the background, to requests that are sent until then, and votes looked at.
    pub(super) fn note_answers(
        &self,
        attempt: &Attempt,
        until: BootInstant,
        rest: FanOut<Result<ScriptVote, Failed>>,
        look: impl Fn(ScriptVote) + Send + 'static,
    ) {
        let (members, unanswered) = (self.members.all(), self.members.unanswered.clone());
        let (id, since) = (attempt.id, first_sent(attempt));
        rest.look_at_the_rest(move |server, answer| {
            let is_settled = since.is_none_or(|since| members[server].link.is_settled_since(since));
            let is_known = answer.as_ref().map_or_else(|failed| failed.error.is_definite(), |_| true);
            let over_at = (!is_settled || !is_known).then(|| SystemClock.now().max(until));
            unanswered.note(id, server, over_at);
            answer.into_iter().for_each(&look);
        });
    }

    /// Whether this server's answer covers all that it will ever carry out of this attempt; false while an earlier connection may still
    /// deliver an earlier request.
    fn is_settled(&self, attempt: &Attempt, server: usize) -> bool {
        first_sent(attempt).is_none_or(|since| self.members.at(server).link.is_settled_since(since))
    }

    /// Fails if no majority can be reached: then the others are not bothered.
    pub(super) fn check_reachable(&self) -> Result<(), Error> {
        let down: Vec<_> = self.members.outages().collect();
        let up = self.members.count() - down.len();
        if up >= self.members.majority() { Ok(()) } else { Err(self.members.too_few(Phase::Acquire, down)) }
    }

    fn request(&self, attempt: &Attempt, round: u64, waited: Option<Duration>) -> Result<Arc<ScriptRequest>, Error> {
        let (keys, mut digits) = (self.keys.checked(&attempt.name, Kind::Mutex)?, [0; GrantId::LENGTH]);
        let mut call = Call::of_two(&keys.lock, keys.beside(), ":w").with([attempt.id.encode(&mut digits)]);
        call.push_number(round);
        call.push_number(whole_milliseconds(attempt.ttl));
        call.push(&*self.owner.of(&attempt.owner)?);
        call.push(if waited.is_some() { self.client.encode(&mut digits) } else { "" });
        call.push_number(u64::try_from(waited.unwrap_or_default().as_micros()).unwrap_or(u64::MAX));
        Ok(Arc::new(ScriptRequest::new(&scripts::ACQUIRE, call, Phase::Acquire).with_others('a')))
    }

    /// Undoes a round on every server but those that have refused it, and waits for those that have granted it until `until`,
    /// or at least for a moment; why some of these did not confirm. The requests themselves have an operation timeout of
    /// their own, and go on in the background. Where the undo is confirmed, nothing is left.
    pub(super) async fn undo(
        &self,
        attempt: &Attempt,
        round: u64,
        mut granted: Vec<usize>,
        refused: &[usize],
        until: BootInstant,
        left: &mut Leftovers,
    ) -> Vec<Error> {
        let mut reasons = Vec::new();
        let until = until.max(SystemClock.now().plus(MOMENT));
        let mut asked = self.requests.send_except(&self.requests.undo(attempt, round), refused);
        loop {
            let answered = if granted.is_empty() {
                // The others are not waited for.
                asked.next().now_or_never().flatten()
            } else {
                tokio::select! {
                    biased;
                    answered = asked.next() => answered,
                    () = SystemClock.sleep_until(until) => None,
                }
            };
            let Some((server, answer)) = answered else { return reasons };
            let before = granted.len();
            granted.retain(|other| *other != server);
            match answer {
                Ok(_) if self.is_settled(attempt, server) => left.remove(server),
                Err(failed) if granted.len() < before => reasons.push(failed.error),
                _ => {}
            }
        }
    }
}

/// Has a request not sent again once its round has ended: then it is undone where it was not answered.
pub(super) struct OverAtTheEnd<'a>(pub(super) &'a ScriptRequest);

impl Drop for OverAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Begins a round: its instant, which the attempt takes note of, and its number, that instant in µs.
pub(super) fn begin(attempt: &Attempt) -> (BootInstant, u64) {
    let sent_at = SystemClock.now();
    let round = u64::try_from(sent_at.since_origin().as_micros()).unwrap_or(u64::MAX);
    attempt.mark_sent(round);
    (sent_at, round)
}

/// Waits for as many votes as decide.
pub(super) async fn decide(
    asked: &mut FanOut<Result<ScriptVote, Failed>>,
    votes: &mut Ballot,
    until: BootInstant,
) -> VoteState {
    loop {
        let verdict = votes.verdict();
        if verdict != VoteState::Open {
            return verdict;
        }
        match asked.next_until(until).await {
            Some((server, answer)) => votes.count(server, answer),
            // All have voted: then there is a verdict. Or the time is over, and those that are missing have failed.
            None => {
                let what = "no answer within the operation timeout";
                votes.reasons.push(Error::indeterminate(Phase::Acquire, what).with_backend(NAME));
                return VoteState::Failed;
            }
        }
    }
}

/// The answer to a caller who has not got the lock in time: that somebody else holds it only if that may be so.
pub(super) fn refused(may_be_held: bool) -> Result<Option<Grant>, Error> {
    if may_be_held {
        return Ok(None);
    }
    let what = "nobody holds the lock: several clients compete for it, and none won a majority in time";
    Err(Error::new(ErrorKind::Unavailable, Phase::Acquire, what).with_backend(NAME))
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
