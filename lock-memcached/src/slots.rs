//! Locks of several keys of one kind: the slots of a semaphore, and those of a read-write lock's readers.

use lock_core::backend::Attempt;
use lock_core::{Error, Phase};

use crate::backend::Shared;
use crate::connection::command::Command;
use crate::error::Failure;
use crate::grants::Entry;
use crate::keys::{self, Key};

/// How often others are let go first when somebody else was faster, before a try says that there is no room.
pub(crate) const TRIES: u32 = 4;

impl Shared {
    /// The numbers of the slots, of so many, that nobody holds.
    pub(crate) async fn free_slots(&self, attempt: &Attempt, lock: &Key, many: u32) -> Result<Vec<u32>, Error> {
        let looked = async {
            let free = self.look_at_slots(lock, many).await;
            free.map_err(|failure| self.link.error(failure, Phase::Acquire))
        };
        self.within(attempt, Phase::Acquire, looked).await
    }

    /// The same, not bounded in time.
    pub(crate) async fn look_at_slots(&self, lock: &Key, many: u32) -> Result<Vec<u32>, Failure> {
        let answers = self.link.run(looks(lock, many).collect()).await;
        let mut free = Vec::new();
        for (number, answer) in (0..).zip(answers) {
            if !answer.is_there()? {
                free.push(number);
            }
        }
        Ok(free)
    }
}

/// A look at each of so many slots.
pub(crate) fn looks(lock: &Key, many: u32) -> impl Iterator<Item = Command> {
    (0..many).map(|number| Command::Look { key: keys::slot(lock, number) })
}

/// One of so many slots, another one for every attempt and try, so that they seldom meet.
pub(crate) fn any(entry: &Entry, turn: u32, many: u32) -> u32 {
    let number = entry.nonce.number() % u64::from(many.max(1));
    // It is below a number of 32 bits.
    u32::try_from(number).unwrap_or_default().wrapping_add(turn) % many.max(1)
}
