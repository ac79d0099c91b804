//! Locks of several keys of one kind: the slots of a semaphore, and those of a read-write lock's readers.

pub(crate) mod reader_slots;
pub(crate) mod rwlock;
pub(crate) mod semaphore;

use std::sync::Arc;

use lock_core::driver::Attempt;
use lock_core::{Error, ErrorKind, Phase};

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer, Item};
use crate::config::LongestLease;
use crate::error::Failure;
use crate::registry::Entry;
use crate::store::keys::{self, Key, Nonce, number};

/// Number of tries, each after somebody else was faster, before it counts as full.
pub(crate) const TRIES: u32 = 4;

/// Slots at which a look looks at once.
pub(crate) const CHUNK: u32 = 64;

/// The most that a client takes for the number of slots of one lock: each is a key, and all of them are looked at.
pub(crate) const MOST: u32 = 1000;

/// A slot that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TakenSlot {
    pub(crate) number: u32,
    /// The number of whoever has it; `None` for what is none of ours.
    nonce: Option<Nonce>,
}

/// Looks at slots.
pub(crate) struct Slots {
    link: Arc<Link>,
}

impl Slots {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self { link: link.clone() }
    }

    /// The numbers of slots, of so many, that nobody holds: looks no further when enough have been found.
    pub(crate) async fn free_slots(
        &self,
        attempt: &Attempt,
        lock: &Key,
        many: u32,
        enough: usize,
    ) -> Result<Vec<u32>, Error> {
        let mut free = Vec::new();
        let mut from = 0;
        while from < many && free.len() < enough {
            let to = many.min(from + CHUNK);
            free.extend(self.free_of(attempt, lock, from..to).await?);
            from = to;
        }
        Ok(free)
    }

    /// The numbers of those of these slots that nobody holds.
    pub(crate) async fn free_of(
        &self,
        attempt: &Attempt,
        lock: &Key,
        some: impl Iterator<Item = u32> + Clone + Send,
    ) -> Result<Vec<u32>, Error> {
        let looked = async {
            let free = self.look_at_slots(lock, some).await;
            free.map_err(|failure| self.link.error(failure, Phase::Acquire))
        };
        self.link.within(attempt, Phase::Acquire, looked).await
    }

    /// Those of these slots that somebody has.
    pub(crate) async fn taken_of(
        &self,
        attempt: &Attempt,
        lock: &Key,
        some: impl Iterator<Item = u32> + Clone + Send,
    ) -> Result<Vec<TakenSlot>, Error> {
        let looked = async {
            let answers = self.link.run(reads(lock, some.clone()).collect()).await;
            taken(some, answers).map_err(|failure| self.link.error(failure, Phase::Acquire))
        };
        self.link.within(attempt, Phase::Acquire, looked).await
    }

    /// Looks for slots that nobody holds, not bounded in time.
    async fn look_at_slots(
        &self,
        lock: &Key,
        some: impl Iterator<Item = u32> + Clone + Send,
    ) -> Result<Vec<u32>, Failure> {
        let answers = self.link.run(looks(lock, some.clone()).collect()).await;
        let mut free = Vec::new();
        for (number, answer) in some.zip(answers) {
            if !answer.is_there()? {
                free.push(number);
            }
        }
        Ok(free)
    }
}

/// A look at each of these slots.
fn looks(lock: &Key, some: impl Iterator<Item = u32>) -> impl Iterator<Item = Command> {
    some.map(|number| Command::Look { key: keys::slot(lock, number) })
}

/// A look at each of these slots that tells whose it is.
pub(crate) fn reads(lock: &Key, some: impl Iterator<Item = u32>) -> impl Iterator<Item = Command> {
    some.map(|number| Command::Read { key: keys::slot(lock, number) })
}

/// Those of these slots that somebody has, by the answers to the looks at them.
pub(crate) fn taken(
    some: impl Iterator<Item = u32>,
    answers: impl IntoIterator<Item = CommandAnswer>,
) -> Result<Vec<TakenSlot>, Failure> {
    let mut taken = Vec::new();
    for (number, answer) in some.zip(answers) {
        taken.extend(answer.item()?.map(|item| TakenSlot { number, nonce: Nonce::read(&item.value) }));
    }
    Ok(taken)
}

/// Chooses one of so many slots, another one for every attempt and try, so that they seldom meet.
pub(crate) fn any(entry: &Entry, turn: u32, many: u32) -> u32 {
    let number = entry.nonce.number() % u64::from(many.max(1));
    // It is below a number of 32 bits.
    u32::try_from(number).unwrap_or_default().wrapping_add(turn) % many.max(1)
}

/// Has the limit of a semaphore live on, as long as any lease.
pub(crate) fn keep_limit(lock: &Key, longest: LongestLease) -> Command {
    Command::Keep { key: keys::limit(lock), seconds: longest.item_ttl() }
}

/// The error of a change of a grant that is not there.
pub(crate) fn not_held(attempt: &Attempt, phase: Phase) -> Error {
    attempt.error(ErrorKind::NotHeld, phase, "the server has no such grant (any more)")
}

/// The number that an item holds on which clients have agreed.
pub(crate) fn stored_limit(item: Item) -> Result<(u32, Item), Failure> {
    let number = number(&item.value).and_then(|number| u32::try_from(number).ok());
    let limit = number.filter(|limit| (1..=MOST).contains(limit));
    limit.map(|limit| (limit, item)).ok_or_else(|| Failure::protocol("the key of a limit holds something else"))
}
