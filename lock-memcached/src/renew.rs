//! Renewing leases: all of a batch in one pipeline, and the epoch, which tells whether the server's clock runs.
//!
//! What is left of an item is looked at after its renewal: while a client is slow to read the item, the server makes a new
//! one of it when it is changed, which does not get the new TTL (seen with 1.6.18), although the answer says so. Once
//! more is enough: the new one is read by nobody.

use std::sync::Arc;
use std::time::Duration;

use lock_core::backend::{Attempt, Kind, Renewal, Renewed};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{LossReason, Phase};

use crate::backend::Shared;
use crate::connection::command::{Answer, Command};
use crate::error::Failure;
use crate::grants::{Entry, Piece};
use crate::guard::Verdict;
use crate::keys::Key;
use crate::wire;

/// How often an item is looked at anew that somebody else of this client has renewed meanwhile.
const ROUNDS: usize = 3;

impl Shared {
    pub(crate) async fn renew_all(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let asked: Vec<_> = batch.iter().map(|renewal| Asked::new(self, renewal)).collect();
        let sent_at = SystemClock.now();
        let commands = asked.iter().flat_map(Asked::commands).chain(self.guard.look());
        let mut answers = self.link.run(commands.collect()).await.into_iter();
        let mut by_one = Vec::with_capacity(asked.len());
        for asked in &asked {
            by_one.push(answers.by_ref().take(2 * asked.pieces.len()).collect::<Vec<_>>());
            // What becomes of what is only shown does not matter.
            answers.by_ref().take(asked.kept.len()).for_each(drop);
        }
        let verdict = self.guard.judge(answers.next(), sent_at);
        let mut renewed = Vec::with_capacity(asked.len());
        for ((asked, answers), renewal) in asked.iter().zip(by_one).zip(batch) {
            renewed.push(self.renewed(asked, answers, renewal, &verdict).await);
        }
        renewed
    }

    async fn renewed(
        &self,
        asked: &Asked,
        answers: Vec<Answer>,
        renewal: &Renewal<'_>,
        verdict: &Result<Verdict, Failure>,
    ) -> Renewed {
        let Some(entry) = &asked.entry else { return Renewed::Lost(LossReason::Taken) };
        let mut is_lost = asked.pieces.is_empty();
        let mut answers = answers.into_iter();
        for piece in &asked.pieces {
            let (Some(answer), Some(look)) = (answers.next(), answers.next()) else { break };
            match self.settled(entry, piece, Told { answer, look, seconds: asked.seconds }, asked.until).await {
                Ok(true) => {}
                Ok(false) => is_lost = true,
                Err(failure) => return self.unknown(renewal.attempt, failure),
            }
        }
        if is_lost {
            return Renewed::Lost(self.why_lost(entry, renewal.attempt).await);
        }
        match verdict {
            Ok(Verdict::Counts(_)) => {
                entry.kept(asked.sent_at, renewal.ttl);
                Renewed::For(renewal.ttl)
            }
            // It is there, but its end is not where it should be: the server's clock stands, or the epoch is gone.
            Ok(Verdict::No(_)) => Renewed::Held,
            Err(failure) => self.unknown(renewal.attempt, failure.clone()),
        }
    }

    /// Whether the piece is still the attempt's. If its number has changed, another renewal was faster, or had been
    /// carried out without an answer.
    async fn settled(&self, entry: &Entry, piece: &Piece, mut told: Told, until: BootInstant) -> Result<bool, Failure> {
        for round in 0.. {
            let lasts = told.lasts()?;
            let cas = match told.answer {
                Answer::Done(cas) => {
                    entry.renewed(&piece.key, cas);
                    if lasts {
                        return Ok(true);
                    }
                    Some(cas)
                }
                Answer::Failed(failure) => return Err(failure),
                Answer::Missing => break,
                Answer::Other | Answer::Item(_) => None,
            };
            // It was there each time: others of this client renew it all the time, or it is being given back.
            if round == ROUNDS || entry.is_ending() {
                return Err(Failure::protocol("the item changes all the time"));
            }
            let cas = match cas {
                Some(cas) => cas,
                None => match self.mine(entry, piece).await? {
                    Some(now) => now.cas,
                    None => break,
                },
            };
            let left = until.max(entry.kept_until()).since(SystemClock.now());
            told = self.renew_one(&piece.key, cas, wire::seconds(left)).await;
        }
        entry.lost(&piece.key);
        Ok(false)
    }

    /// Renews one item.
    async fn renew_one(&self, key: &Key, cas: u64, seconds: u32) -> Told {
        let mut answers = self.link.run(renewal(key, cas, seconds).into()).await.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Answer::Failed(Failure::protocol("too few answers")));
        Told { answer: next(), look: next(), seconds }
    }

    /// Why a grant was lost. What else it had is freed by the core's cancellation.
    async fn why_lost(&self, entry: &Entry, attempt: &Attempt) -> LossReason {
        let forced = self.forced(entry.nonce).await;
        self.grants.close(attempt.id);
        forced.unwrap_or(LossReason::Taken)
    }

    fn unknown(&self, attempt: &Attempt, failure: Failure) -> Renewed {
        Renewed::Unknown(self.link.error(failure, Phase::Renew).with_name(&attempt.name))
    }
}

/// Renews an item, and looks how long it lives.
pub(crate) fn renewal(key: &Key, cas: u64, seconds: u32) -> [Command; 2] {
    [Command::Renew { key: key.clone(), cas, seconds }, Command::Look { key: key.clone() }]
}

/// What came of a [`renewal`].
struct Told {
    answer: Answer,
    look: Answer,
    seconds: u32,
}

impl Told {
    fn lasts(&self) -> Result<bool, Failure> {
        lasts(&self.look, self.seconds)
    }
}

/// Whether an item lives as long as it was told to. A second may have begun since.
pub(crate) fn lasts(look: &Answer, seconds: u32) -> Result<bool, Failure> {
    match look {
        Answer::Item(item) => Ok(item.left < 0 || item.left + 1 >= i64::from(seconds)),
        Answer::Failed(failure) => Err(failure.clone()),
        _ => Ok(false),
    }
}

/// One lease of a batch.
struct Asked {
    entry: Option<Arc<Entry>>,
    pieces: Vec<Piece>,
    sent_at: BootInstant,
    /// Until when its items are to live.
    until: BootInstant,
    seconds: u32,
    /// What is kept beside them.
    kept: Vec<Command>,
}

impl Asked {
    fn new(shared: &Shared, renewal: &Renewal<'_>) -> Self {
        let Renewal { attempt, ttl, .. } = renewal;
        let entry = shared.grants.get(attempt.id);
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        let sent_at = SystemClock.now();
        let kept_until = entry.as_ref().map_or(sent_at, |entry| entry.kept_until());
        // A renewal may be overtaken by an extension: it never asks for less than has been promised.
        let until = sent_at.plus(*ttl).max(kept_until);
        let seconds = wire::seconds(until.since(sent_at));
        let shown = entry.as_ref().filter(|entry| entry.is_shown());
        let holder = shown.map(|entry| Command::Keep { key: shared.keys.holder(entry.nonce), seconds });
        let is_semaphore = matches!(attempt.kind, Kind::Permits { .. });
        let limit = is_semaphore.then(|| Some(shared.keep_limit(&shared.keys.lock(&attempt.name, attempt.kind).ok()?)));
        Self { pieces, sent_at, until, seconds, kept: holder.into_iter().chain(limit.flatten()).collect(), entry }
    }

    fn commands(&self) -> impl Iterator<Item = Command> {
        let renew = |Piece { key, cas }: &Piece| renewal(key, *cas, self.seconds);
        self.pieces.iter().flat_map(renew).chain(self.kept.iter().cloned())
    }
}

/// A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
pub(crate) fn patience(batch: &[Renewal<'_>], op_timeout: Duration) -> Duration {
    let shortest = batch.iter().map(|renewal| renewal.attempt.ttl).min().unwrap_or(op_timeout);
    op_timeout.min(shortest / 3)
}
