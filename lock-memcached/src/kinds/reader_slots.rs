//! How many readers the read-write locks of a prefix have room for.
//!
//! A writer looks at as many slots as it knows of, so clients that know of different numbers would not see each other. The
//! number is in an item of its own, which is read with each claim: a client with another number is refused.

use std::sync::Arc;

use lock_core::driver::Attempt;
use lock_core::{Error, Phase};

use crate::acquire::ClaimRound;
use crate::backend::Shared;
use crate::client::command::{Command, CommandAnswer};
use crate::error::Failure;
use crate::kinds::semaphore::stored_limit;
use crate::registry::Entry;
use crate::store::keys::Key;

/// For how long the number is stored, and stored anew in time: 30 days, the longest relative TTL.
const KEPT_FOR: u32 = 30 * 24 * 60 * 60;

impl Shared {
    /// A claim that counts only if all clients have agreed on the room; otherwise an error, and nothing is left of it.
    pub(crate) async fn claim_with_slots_agreed(
        self: &Arc<Self>,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        key: Key,
        mut also: Vec<Command>,
    ) -> Result<ClaimRound, Error> {
        let room = self.keys.readers.clone();
        also.push(Command::Claim { key: room.clone(), value: self.readers.into(), seconds: KEPT_FOR });
        also.push(Command::Read { key: room });
        let mut round = self.claim(attempt, entry, vec![key], also).await?;
        let stored = round.also.pop();
        round.also.pop();
        if let Err(failure) = self.check_reader_slots(stored).await {
            self.settle(attempt, entry, &round, false).await?;
            return Err(self.link.error(failure, Phase::Acquire));
        }
        Ok(round)
    }

    async fn check_reader_slots(&self, stored: Option<CommandAnswer>) -> Result<(), Failure> {
        let Some(item) = stored.map_or(Ok(None), CommandAnswer::item)? else { return Ok(()) };
        let (agreed, item) = stored_limit(item)?;
        if agreed != self.readers {
            return Err(Failure::disagreement(format!(
                "the clients of this prefix have agreed on room for {agreed} readers, not {}",
                self.readers
            )));
        }
        if item.left < i64::from(KEPT_FOR) / 2 {
            self.link.run_one(self.keep_reader_slots()).await;
        }
        Ok(())
    }

    /// Has the agreement live on.
    pub(crate) fn keep_reader_slots(&self) -> Command {
        Command::Keep { key: self.keys.readers.clone(), seconds: KEPT_FOR }
    }
}
