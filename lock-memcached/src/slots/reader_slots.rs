//! Number of slots that the read-write locks of a prefix have for readers.
//!
//! A writer looks at as many slots as it knows of, so clients that know of different numbers would not see each other. The
//! number is in an item of its own, which is read with each claim: a client with another number is refused.

use std::sync::Arc;

use lock_core::driver::Attempt;
use lock_core::{Error, Phase};

use crate::acquire::{Acquirer, ClaimRound};
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::error::Failure;
use crate::registry::Entry;
use crate::slots::stored_limit;
use crate::store::keys::{Key, Keys, LONGEST_TTL};

/// The TTL of the number, in seconds. It is stored anew in time.
const KEPT_FOR: u32 = LONGEST_TTL;

/// Slots of the readers, on whose number all clients of a prefix agree.
pub(crate) struct ReaderSlots {
    link: Arc<Link>,
    acquirer: Arc<Acquirer>,
    keys: Arc<Keys>,
    many: u32,
}

impl ReaderSlots {
    pub(crate) fn new(link: &Arc<Link>, acquirer: &Arc<Acquirer>, keys: &Arc<Keys>, many: u32) -> Self {
        Self { link: link.clone(), acquirer: acquirer.clone(), keys: keys.clone(), many }
    }

    /// The number of slots.
    pub(crate) fn many(&self) -> u32 {
        self.many
    }

    /// A claim that counts only if all clients have agreed on the number of slots; otherwise an error, and nothing is left of it.
    pub(crate) async fn claim(
        &self,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        key: Key,
        mut also: Vec<Command>,
    ) -> Result<ClaimRound, Error> {
        let number = self.keys.readers.clone();
        also.push(Command::Claim { key: number.clone(), value: self.many.into(), seconds: KEPT_FOR });
        also.push(Command::Read { key: number });
        let mut round = self.acquirer.claim(attempt, entry, vec![key], also).await?;
        let stored = round.also.pop();
        round.also.pop();
        if let Err(failure) = self.check(stored).await {
            self.acquirer.settle(attempt, entry, &round, false).await?;
            return Err(self.link.error(failure, Phase::Acquire));
        }
        Ok(round)
    }

    /// Refuses an attempt if the clients have agreed on another number.
    pub(crate) async fn check_number(&self, attempt: &Attempt) -> Result<(), Error> {
        let checked = async {
            let stored = self.link.run_one(Command::Read { key: self.keys.readers.clone() }).await;
            self.check(Some(stored)).await.map_err(|failure| self.link.error(failure, Phase::Acquire))
        };
        self.link.within(attempt, Phase::Acquire, checked).await
    }

    async fn check(&self, stored: Option<CommandAnswer>) -> Result<(), Failure> {
        let Some(item) = stored.map_or(Ok(None), CommandAnswer::item)? else { return Ok(()) };
        let (agreed, item) = stored_limit(item)?;
        if agreed != self.many {
            return Err(Failure::disagreement(format!(
                "the clients of this prefix have agreed on room for {agreed} readers, not {}",
                self.many
            )));
        }
        if item.left < i64::from(KEPT_FOR) / 2 {
            self.link.run_one(keep(&self.keys)).await;
        }
        Ok(())
    }
}

/// Has the agreement live on.
pub(crate) fn keep(keys: &Keys) -> Command {
    Command::Keep { key: keys.readers.clone(), seconds: KEPT_FOR }
}
