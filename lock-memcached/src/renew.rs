//! Renewing leases: all of a batch in one pipeline, and the epoch, which tells whether the server's clock runs.

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
            by_one.push(answers.by_ref().take(asked.pieces.len()).collect::<Vec<_>>());
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
        for (piece, answer) in asked.pieces.iter().zip(answers) {
            match self.settled(entry, piece, answer, asked.until).await {
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
    async fn settled(
        &self,
        entry: &Entry,
        piece: &Piece,
        mut answer: Answer,
        until: BootInstant,
    ) -> Result<bool, Failure> {
        for round in 0.. {
            match answer {
                Answer::Done(cas) => {
                    entry.renewed(&piece.key, cas);
                    return Ok(true);
                }
                Answer::Failed(failure) => return Err(failure),
                Answer::Missing => break,
                // It was there each time: others of this client renew it all the time, or it is being given back.
                Answer::Other if round == ROUNDS || entry.is_ending() => {
                    return Err(Failure::protocol("the item changes all the time"));
                }
                Answer::Other | Answer::Item(_) => {}
            }
            let Some(Piece { key, cas }) = self.mine(entry, piece).await? else { break };
            let left = until.max(entry.kept_until()).since(SystemClock.now());
            answer = self.link.run_one(Command::Renew { key, cas, seconds: wire::seconds(left) }).await;
        }
        entry.lost(&piece.key);
        Ok(false)
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

/// One lease of a batch.
struct Asked {
    entry: Option<Arc<Entry>>,
    pieces: Vec<Piece>,
    sent_at: BootInstant,
    /// Until when its items are to live.
    until: BootInstant,
    /// What is kept beside them, and for how many seconds.
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
        Self { pieces, sent_at, until, kept: holder.into_iter().chain(limit.flatten()).collect(), entry }
    }

    fn commands(&self) -> impl Iterator<Item = Command> {
        let seconds = wire::seconds(self.until.since(self.sent_at));
        let renew = move |Piece { key, cas }: &Piece| Command::Renew { key: key.clone(), cas: *cas, seconds };
        self.pieces.iter().map(renew).chain(self.kept.iter().cloned())
    }
}

/// A renewal that is not answered within a third of the shortest lease is to be tried again meanwhile.
pub(crate) fn patience(batch: &[Renewal<'_>], op_timeout: Duration) -> Duration {
    let shortest = batch.iter().map(|renewal| renewal.attempt.ttl).min().unwrap_or(op_timeout);
    op_timeout.min(shortest / 3)
}
