//! Claiming keys, in one pipeline with the epoch.
//!
//! A kind says what it wants ([`WantedLock`]): one cheap look, and one try.
//! `docs/decisions/0040-an-uncontended-lock-passes-eight-to-twelve-files.md` lists the files that an uncontended lock passes; a try
//! passes none of `wait/`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, ErrorKind, Phase};

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::client::rights::Precedence;
use crate::epoch::gate::{self, EpochGate};
use crate::epoch::{Epoch, GateVerdict, NotNow};
use crate::error::Failure;
use crate::items::pieces::Pieces;
use crate::items::record::HolderRecords;
use crate::items::refresh;
use crate::registry::{Entry, Piece, Registry};
use crate::store::keys::{Key, Nonce, item_ttl};

/// Outcome of one try.
#[derive(Debug)]
pub(crate) enum TryOutcome {
    Granted(Grant),
    /// Somebody else has the lock.
    Held,
    /// Nobody is granted anything now.
    NotNow(NotNow),
}

/// Outcome of one pipeline.
#[derive(Debug)]
pub(crate) struct ClaimRound {
    pub(crate) sent_at: BootInstant,
    pub(crate) verdict: GateVerdict,
    /// Answers to what else was asked.
    pub(crate) also: Vec<CommandAnswer>,
}

/// Whether a key was won, and by which claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Won {
    Not,
    /// By this one.
    Now,
    /// By an earlier one that was not answered.
    Before,
}

/// A lock that is wanted.
pub(crate) trait WantedLock: Send + Sync {
    /// Whether a claim has a chance, by one cheap read.
    fn looks_free(&self) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Tries once.
    fn take(&self) -> impl Future<Output = Result<TryOutcome, Error>> + Send;

    /// Takes the number of keys that the looks since the last call have read: at least one.
    fn take_looks(&self) -> u32 {
        1
    }

    /// The name of the queue in which this client's waiters stand.
    fn queue(&self) -> Key;

    /// The registry's entry of the attempt.
    fn entry(&self) -> &Arc<Entry>;

    /// Whether a holder of this process may hand its lock to the entry.
    fn can_receive(&self) -> bool {
        false
    }
}

/// Claims keys.
pub(crate) struct Acquirer {
    link: Arc<Link>,
    gate: Arc<EpochGate>,
    pieces: Arc<Pieces>,
    registry: Arc<Registry>,
    records: Arc<HolderRecords>,
}

impl Acquirer {
    pub(crate) fn new(
        link: &Arc<Link>,
        gate: &Arc<EpochGate>,
        pieces: &Arc<Pieces>,
        registry: &Arc<Registry>,
        records: &Arc<HolderRecords>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link: link.clone(),
            gate: gate.clone(),
            pieces: pieces.clone(),
            registry: registry.clone(),
            records: records.clone(),
        })
    }

    /// The registry's entry of an attempt, made when it first asks.
    pub(crate) fn register(&self, attempt: &Attempt) -> Result<Arc<Entry>, Error> {
        self.registry.register(attempt)
    }

    /// Whether nobody has this key, by a cheap read.
    pub(crate) async fn is_free(&self, attempt: &Attempt, key: &Key) -> Result<bool, Error> {
        let look = async {
            // There may be thousands of looks a second: each by itself, they would keep all connections from renewals.
            let looks = vec![Command::Look { key: key.clone() }];
            let mut answers = self.link.run_with_others(looks, self.link.deadline()).await;
            let there = CommandAnswer::expected(answers.pop()).is_there();
            there.map_err(|failure| self.link.error(failure, Phase::Wait))
        };
        Ok(!self.link.within(attempt, Phase::Wait, look).await?)
    }

    /// Tries once to take a lock of any kind. If it comes to nothing, nothing is left of it.
    pub(crate) async fn try_once(&self, wanted: &impl WantedLock, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        let taken = self.link.within(attempt, Phase::Acquire, wanted.take()).await;
        let granted = taken.and_then(|outcome| outcome.answer(Phase::Acquire));
        if !matches!(granted, Ok(Some(_))) {
            self.registry.close(attempt.id);
        }
        Ok(self.records.described(attempt, wanted.entry(), granted?))
    }

    /// Claims these keys, asks what else is to be asked, and reads the epoch. What was won is in the attempt's entry,
    /// whatever the verdict is. Once sent it is carried through, even if this future is dropped; before its turn it is not begun. All of it
    /// has one operation timeout.
    ///
    /// A key that an earlier, unanswered claim has won for this attempt counts as won, too. What else is to be asked, and the epoch, are
    /// asked for once more then: the first answers may be older than the lock. The grant counts if both looks at the epoch say so: the key
    /// was renewed between them, by the clock that the first look saw.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        keys: Vec<Key>,
        also: Vec<Command>,
    ) -> Result<ClaimRound, Error> {
        let (ttl, until) = (entry.lasts(attempt.ttl), self.link.deadline());
        let turn = entry.turn_by(until).await.map_err(|failure| self.error(failure))?;
        let (acquirer, entry) = (self.clone(), entry.clone());
        let claimed = self.link.detach_on_drop(async move {
            // Whoever undoes the attempt waits for this, from the beginning on: it goes on without its caller.
            let _turn = turn;
            acquirer.claim_now(&entry, &keys, also, ttl, until).await
        });
        claimed.await
    }

    async fn claim_now(
        &self,
        entry: &Entry,
        keys: &[Key],
        also: Vec<Command>,
        ttl: Duration,
        until: BootInstant,
    ) -> Result<ClaimRound, Error> {
        let (sent_at, seconds) = (SystemClock.now(), item_ttl(ttl));
        entry.kept(sent_at, ttl);
        let gone_by = self.link.gone_by(sent_at, ttl);
        // Only an attempt that may have something already can find a key won before this claim.
        let to_ask_again = (!entry.is_empty()).then(|| also.clone());
        let claim = |key: &Key| {
            // Noted before it is sent: if no answer comes, the key is known to be in doubt.
            entry.claiming(key, gone_by);
            Command::Claim { key: key.clone(), value: entry.nonce.number(), seconds }
        };
        let (answers, judged) = self.gate.run_together(keys.iter().map(claim).chain(also), sent_at, until).await;
        let mut answers = answers.into_iter();
        let (mut failed, mut is_older) = (None, false);
        for (key, answer) in keys.iter().zip(answers.by_ref()) {
            match self.told(entry, key, answer, seconds, until).await {
                Ok(won) => is_older |= won == Won::Before,
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        let to_ask_again = to_ask_again.filter(|_| is_older && matches!(judged, Ok(GateVerdict::Counts(_))));
        let (also, judged) = match to_ask_again {
            Some(also) => Box::pin(self.gate.run_together(also.into_iter(), SystemClock.now(), until)).await,
            None => (answers.collect(), judged),
        };
        let unread = also.iter().find_map(|answer| answer.failure().cloned());
        let (failure, is_answered) = match (failed, unread.map_or(judged, Err)) {
            (None, Ok(verdict)) => return Ok(ClaimRound { sent_at, verdict, also }),
            (None, Err(failure)) => (failure, true),
            (Some(failure), _) => (failure, false),
        };
        let won: Vec<_> = entry.pieces().into_iter().filter(|piece| keys.contains(&piece.key)).collect();
        if is_answered && won.is_empty() {
            // Nothing depends on what could not be read.
            return Ok(ClaimRound { sent_at, verdict: GateVerdict::Counts(None), also: Vec::new() });
        }
        Err(Box::pin(self.without_trace(entry, &won, gone_by, until, self.error(failure))).await)
    }

    /// Releases what claims have taken that were not answered, so that it keeps nobody out, not even the attempt itself. For locks whose
    /// next claim may be one of other keys.
    pub(crate) async fn release_unanswered(&self, entry: &Entry) -> Result<(), Error> {
        if entry.is_answered() {
            return Ok(());
        }
        // Seldom, and so not a part of every request's future.
        let released = Box::pin(async {
            let until = self.link.deadline();
            let _turn = entry.turn_by(until).await.map_err(|failure| self.error(failure))?;
            self.pieces.release_unanswered(entry, Phase::Acquire, until).await
        });
        released.await
    }

    /// Takes the answer to a claim.
    async fn told(
        &self,
        entry: &Entry,
        key: &Key,
        answer: CommandAnswer,
        seconds: u32,
        until: BootInstant,
    ) -> Result<Won, Failure> {
        match answer {
            CommandAnswer::Done(seen) => {
                entry.won(key, seen);
                if seen.cas == 0 { Err(Failure::without_cas()) } else { Ok(Won::Now) }
            }
            CommandAnswer::Failed(failure) => {
                if !failure.is_unknown {
                    entry.refused(key);
                }
                Err(failure)
            }
            _ => {
                entry.refused(key);
                // Whatever was known of it before: there is an item, and whose it is has to be seen.
                let before: Vec<_> = entry.pieces().into_iter().filter(|piece| piece.key == *key).collect();
                entry.doubt(&before, self.link.gone_by(SystemClock.now(), Duration::from_secs(seconds.into())));
                if !entry.unsure().contains(key) {
                    return Ok(Won::Not);
                }
                Box::pin(self.recognise(entry, key, seconds, until)).await
            }
        }
    }

    /// Takes what was not answered before for won, if it is there. A renewal gives it its full time.
    async fn recognise(&self, entry: &Entry, key: &Key, seconds: u32, until: BootInstant) -> Result<Won, Failure> {
        let mut connection = self.link.for_steps(until).await?;
        let found = connection.run_one(Command::Read { key: key.clone() }).await.item()?;
        let Some(item) = found.filter(|item| Nonce::read(&item.value) == Some(entry.nonce)) else {
            return Ok(Won::Not);
        };
        let renewal = refresh::renewal(key, entry.own(item.seen), seconds);
        let mut answers = connection.run(renewal.into()).await.into_iter();
        match (answers.next(), answers.next()) {
            (Some(CommandAnswer::Done(seen)), Some(look)) if refresh::lasts(&look, seconds)? => {
                entry.won(key, seen);
                Ok(Won::Before)
            }
            (Some(CommandAnswer::Failed(failure)), _) => Err(failure),
            _ => Ok(Won::Not),
        }
    }

    /// Releases the keys that a claim has won although something failed, so that the failure is definite; or says that it is not.
    /// Earlier keys of the attempt stay: a writer whose downgrade fails goes on writing.
    async fn without_trace(
        &self,
        entry: &Entry,
        won: &[Piece],
        gone_by: BootInstant,
        until: BootInstant,
        error: Error,
    ) -> Error {
        let is_certain = entry.unsure().is_empty();
        if self.pieces.release_some(entry, won.to_vec(), Phase::Acquire, until).await.is_err() {
            return self.in_doubt(entry, won, gone_by, error);
        }
        if is_certain { error } else { self.in_doubt(entry, &[], gone_by, error) }
    }

    /// The error of a try that may have left these pieces behind. They are treated as claimed without an answer: no later try relies on
    /// them before it has seen them at the server.
    fn in_doubt(&self, entry: &Entry, pieces: &[Piece], until: BootInstant, error: Error) -> Error {
        entry.doubt(pieces, until);
        Error::indeterminate(Phase::Acquire, "it is unknown whether the lock was taken")
            .with_server(self.link.address().to_string())
            .with_source(error)
    }

    /// A grant of what the entry has, or nothing and why. `is_complete` says whether it has what was asked for.
    pub(crate) async fn settle(
        &self,
        attempt: &Attempt,
        entry: &Entry,
        round: &ClaimRound,
        is_complete: bool,
    ) -> Result<TryOutcome, Error> {
        if let (true, GateVerdict::Counts(epoch)) = (is_complete, round.verdict) {
            return Ok(TryOutcome::Granted(self.grant(attempt, entry, epoch, round.sent_at)));
        }
        if entry.has_pieces() {
            Box::pin(self.abandon(attempt, entry, round.sent_at)).await?;
        }
        match round.verdict {
            GateVerdict::Counts(_) => Ok(TryOutcome::Held),
            GateVerdict::No(why) => {
                Box::pin(self.gate.tend(why)).await?;
                Ok(TryOutcome::NotNow(why))
            }
        }
    }

    /// Releases the keys of a try that comes to nothing.
    pub(crate) async fn abandon(&self, attempt: &Attempt, entry: &Entry, sent_at: BootInstant) -> Result<(), Error> {
        let _turn = entry.turn().await;
        let won = entry.pieces();
        // Everything that it is known to have, because it comes to nothing.
        let released = self.pieces.release_all(entry, Phase::Acquire, self.link.deadline()).await;
        let gone_by = self.link.gone_by(sent_at, attempt.ttl);
        released.map(drop).map_err(|error| self.in_doubt(entry, &won, gone_by, error))
    }

    /// Keeps the key that a waiting attempt has, asks what else is to be asked, and reads the epoch. `None` if the key is lost or may be,
    /// or if anything but its own renewals has changed its item: a kept key was there all the time.
    pub(crate) async fn keep(
        &self,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        also: Vec<Command>,
    ) -> Result<Option<ClaimRound>, Error> {
        let kept = async {
            let _turn = entry.turn().await;
            let Some(piece) = entry.pieces().pop() else { return Ok(None) };
            let (sent_at, seconds) = (SystemClock.now(), item_ttl(attempt.ttl));
            let (key, own) = (piece.key.clone(), entry.own(piece.seen));
            let renewal = [Command::Renew { key: key.clone(), own, seconds, is_strict: true }, Command::Look { key }];
            let record = self.records.keep(entry, seconds);
            let has_record = record.is_some();
            let commands = renewal.into_iter().chain(also).chain(record);
            let (mut answers, verdict) = self.gate.run(commands, sent_at, Precedence::Renewal).await;
            let verdict = verdict?;
            if has_record {
                answers.pop();
            }
            match answers.remove(0) {
                CommandAnswer::Done(seen) => entry.renewed(&piece.key, seen),
                CommandAnswer::Failed(failure) => return Err(failure),
                CommandAnswer::Missing => {
                    entry.lost(&piece.key);
                    return Ok(None);
                }
                // A renewal that was not answered may have changed it: the next claim looks whose it is.
                CommandAnswer::Other | CommandAnswer::Item(_) => {
                    entry.doubt(std::slice::from_ref(&piece), self.link.gone_by(sent_at, attempt.ttl));
                    return Ok(None);
                }
            }
            if !refresh::lasts(&answers.remove(0), seconds)? {
                return Ok(None);
            }
            entry.kept(sent_at, attempt.ttl);
            Ok(Some(ClaimRound { sent_at, verdict, also: answers }))
        };
        let kept = async { kept.await.map_err(|failure: Failure| self.link.error(failure, Phase::Wait)) };
        self.link.within(attempt, Phase::Wait, kept).await
    }

    /// The grant that a complete entry is.
    fn grant(&self, attempt: &Attempt, entry: &Entry, epoch: Option<Epoch>, sent_at: BootInstant) -> Grant {
        Grant::new(gate::token(epoch, entry.newest_cas()), sent_at, attempt.ttl)
    }

    /// An error of an acquisition.
    pub(crate) fn error(&self, failure: Failure) -> Error {
        self.link.error(failure, Phase::Acquire)
    }
}

impl TryOutcome {
    /// The answer to whoever wants the lock.
    pub(crate) fn answer(self, phase: Phase) -> Result<Option<Grant>, Error> {
        match self {
            Self::Granted(grant) => Ok(Some(grant)),
            Self::Held => Ok(None),
            Self::NotNow(why) => Err(why.into_error(phase)),
        }
    }
}

/// Whether a wait may go on after this error.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate)
}
