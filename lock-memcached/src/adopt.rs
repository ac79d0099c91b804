//! Adoption: the item of a mutex that another client has detached becomes this attempt's, and keeps its token.
//!
//! The server compares the item's number and changes it in one step, so that of all who have the message one adopts the lock. An answer
//! that was lost is asked for once more: whoever finds its own number there has it.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};
use lock_core::{Error, FencingToken, GrantId, Phase};

use crate::client::cas::{CasNumber, OwnItem};
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::client::rights::Precedence;
use crate::epoch::gate::{self, EpochGate};
use crate::epoch::{Epoch, GateVerdict};
use crate::error::Failure;
use crate::items::record::HolderRecords;
use crate::items::refresh::lasts;
use crate::registry::{Entry, Registry};
use crate::store::keys::{Nonce, item_ttl};

/// Rounds for an answer that was lost, an item that its former holder's last renewal has changed, or an epoch that was tended.
const ROUNDS: usize = 5;

/// Adopts mutexes.
pub(crate) struct Adopter {
    link: Arc<Link>,
    gate: Arc<EpochGate>,
    registry: Arc<Registry>,
    records: Arc<HolderRecords>,
}

/// A grant that is to become another one.
#[derive(Debug, Clone, Copy)]
struct Adoption {
    from: Nonce,
    to: Nonce,
    /// The grant's token, as the message says.
    token: Option<FencingToken>,
    seconds: u32,
}

/// Outcome of one round.
enum Round {
    Ends(Option<Grant>),
    /// Nothing of it counts yet, and why not.
    Again(Error),
}

impl Adopter {
    pub(crate) fn new(
        link: &Arc<Link>,
        gate: &Arc<EpochGate>,
        registry: &Arc<Registry>,
        records: &Arc<HolderRecords>,
    ) -> Arc<Self> {
        Arc::new(Self { link: link.clone(), gate: gate.clone(), registry: registry.clone(), records: records.clone() })
    }

    /// Takes over the grant with this id; `None` if the server has no such grant.
    pub(crate) async fn adopt(
        self: &Arc<Self>,
        attempt: &Attempt,
        from: GrantId,
        token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error> {
        let entry = self.registry.register(attempt)?;
        let (to, seconds) = (entry.nonce, item_ttl(attempt.ttl));
        let adoption = Adoption { from: Nonce::of(from), to, token, seconds };
        let adopted = self.link.within(attempt, Phase::Acquire, self.take_over(attempt, &entry, adoption)).await;
        match &adopted {
            Ok(Some(_)) => self.records.forget_number_soon(adoption.from),
            _ => drop(self.registry.close(attempt.id)),
        }
        Ok(self.records.described(attempt, &entry, adopted?))
    }

    async fn take_over(
        self: &Arc<Self>,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        adoption: Adoption,
    ) -> Result<Option<Grant>, Error> {
        let mut failed = None;
        for _ in 0..ROUNDS {
            match self.round(attempt, entry, adoption).await {
                Ok(Round::Ends(granted)) => return Ok(granted),
                Ok(Round::Again(error)) => failed = Some(error),
                Err(error) => return Err(self.told(entry, error)),
            }
        }
        Err(self.told(entry, failed.unwrap_or_else(|| self.busy())))
    }

    /// Looks whose the item is, and changes it if it is the one that is meant.
    async fn round(
        self: &Arc<Self>,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        adoption: Adoption,
    ) -> Result<Round, Error> {
        let look = [Command::Read { key: entry.lock.clone() }].into_iter();
        let (answers, verdict) = self.gate.run(look, SystemClock.now(), Precedence::Usual).await;
        let found = CommandAnswer::expected(answers.into_iter().next());
        let found = found.item().map_err(|failure| self.error(failure))?;
        let epoch = match verdict.map_err(|failure| self.error(failure))? {
            GateVerdict::Counts(epoch) => epoch,
            GateVerdict::No(why) => {
                self.gate.tend(why).await?;
                return Ok(Round::Again(why.into_error(Phase::Acquire)));
            }
        };
        let Some(change) = found.and_then(|item| adoption.change(entry, &item, epoch)) else {
            // A request of before can change nothing any more: the item that it is about has had its last number.
            entry.settled(&entry.lock);
            entry.lost(&entry.lock);
            return Ok(Round::Ends(None));
        };
        let sent_at = SystemClock.now();
        entry.kept(sent_at, attempt.ttl);
        if matches!(change, Command::HandOver { .. }) {
            entry.claiming(&entry.lock, self.link.gone_by(sent_at, attempt.ttl));
        }
        let (adopter, of, seconds) = (self.clone(), entry.clone(), adoption.seconds);
        // Once sent it is carried through: what it came to has to be known to whoever undoes it.
        let work = self.link.detach_on_drop(async move {
            let _turn = of.turn().await;
            adopter.change(&of, change, seconds, sent_at).await
        });
        match work.await {
            Ok(Some((seen, GateVerdict::Counts(epoch)))) => {
                let token = adoption.token_of(epoch, seen);
                Ok(Round::Ends(Some(Grant::new(token, sent_at, attempt.ttl))))
            }
            Ok(Some((_, GateVerdict::No(why)))) => {
                self.gate.tend(why).await?;
                Ok(Round::Again(why.into_error(Phase::Acquire)))
            }
            Ok(None) => Ok(Round::Again(self.busy())),
            Err(failure) if failure.is_unknown => Ok(Round::Again(self.error(failure))),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// Changes the item as it was found, and looks how long it lives: its number, and whether that counts, if it lives for the whole time.
    async fn change(
        &self,
        entry: &Entry,
        change: Command,
        seconds: u32,
        sent_at: BootInstant,
    ) -> Result<Option<(CasNumber, GateVerdict)>, Failure> {
        let key = &entry.lock;
        let is_hand_over = matches!(change, Command::HandOver { .. });
        // A renewal of what an earlier command may have brought says nothing about that command.
        let refused = || {
            if is_hand_over {
                entry.refused(key)
            }
        };
        let commands = [change, Command::Look { key: key.clone() }].into_iter();
        let (answers, verdict) = self.gate.run(commands, sent_at, Precedence::Usual).await;
        let mut answers = answers.into_iter();
        let seen = match answers.next() {
            Some(CommandAnswer::Done(seen)) => seen,
            Some(CommandAnswer::Failed(failure)) => {
                if !failure.is_unknown {
                    refused();
                }
                return Err(failure);
            }
            // It has changed since it was read.
            _ => {
                refused();
                return Ok(None);
            }
        };
        // Whatever was asked before named a CAS number that no item has any more.
        entry.won(key, seen);
        entry.settled(key);
        let is_whole = answers.next().map_or(Ok(false), |look| lasts(&look, seconds))?;
        Ok(if is_whole { Some((seen, verdict?)) } else { None })
    }

    /// The error, which is definite only if nothing of the attempt is there, nor may come.
    fn told(&self, entry: &Entry, error: Error) -> Error {
        if entry.is_empty() {
            return error;
        }
        Error::indeterminate(Phase::Acquire, "it is unknown whether the lock was adopted")
            .with_server(self.link.address().to_string())
            .with_source(error)
    }

    fn busy(&self) -> Error {
        self.error(Failure::busy("the item changes all the time"))
    }

    fn error(&self, failure: Failure) -> Error {
        self.link.error(failure, Phase::Acquire)
    }
}

impl Adoption {
    /// The command that makes an item this attempt's for the whole time; nothing if it is not the one that is meant.
    fn change(self, entry: &Entry, item: &Item, epoch: Option<Epoch>) -> Option<Command> {
        let (key, seconds) = (entry.lock.clone(), self.seconds);
        let nonce = Nonce::read(&item.value)?;
        let own = OwnItem { value: nonce.number(), seen: item.seen };
        if nonce == self.to {
            return Some(Command::Renew { key, own, seconds, is_strict: false });
        }
        // One that was granted in a former life of the server's memory has ended with that.
        let is_of_now = epoch.zip(self.token).is_none_or(|(epoch, token)| epoch.may_have_given(token, item.seen.cas));
        (nonce == self.from && is_of_now).then_some(Command::HandOver { key, own, to: self.to, seconds })
    }

    /// The token of what was adopted in this epoch: the one that it had, if it had one.
    fn token_of(self, epoch: Option<Epoch>, seen: CasNumber) -> Option<FencingToken> {
        epoch.and_then(|epoch| self.token.or_else(|| gate::token(Some(epoch), seen.cas)))
    }
}
