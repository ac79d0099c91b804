//! The read-write lock: one key for the writer, and one for each reader there is room for.
//!
//! Both sides write first and look afterwards: a reader takes a slot and then looks for a writer, a writer takes its key and
//! then looks for readers. Whoever sees the other gives way, but for a writer that waits: its key keeps new readers out
//! until the ones inside have left. So writers go first, and two that look at the same time never both come in.
//!
//! A waiting writer waits only for the readers that it saw right after it took its key. A reader that came in had looked for that key
//! before the key was there, and had its slot by then; one that takes a slot later gives way, and may do so again and again. That holds as
//! long as the key's item is the same one, which its CAS number tells. If anything but the writer's own renewals has changed it, it may
//! have been gone for a while: then the writer takes the key anew, and all readers that are there count.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::Attempt;
use lock_core::{Error, ErrorKind, Phase};

use crate::acquire::{Acquirer, ClaimRound, TryOutcome, WantedLock};
use crate::client::link::Link;
use crate::client::protocol::Command;
use crate::epoch::GateVerdict;
use crate::items::record::HolderRecords;
use crate::registry::{Entry, Piece, Registry};
use crate::release::Releaser;
use crate::slots::reader_slots::ReaderSlots;
use crate::slots::{self, Slots, TRIES, TakenSlot};
use crate::store::keys::{self, Key, Keys, Nonce};

/// The read-write locks of one client.
pub(crate) struct RwLocks {
    link: Arc<Link>,
    registry: Arc<Registry>,
    acquirer: Arc<Acquirer>,
    releaser: Arc<Releaser>,
    records: Arc<HolderRecords>,
    slots: Slots,
    readers: ReaderSlots,
}

impl RwLocks {
    /// The read-write locks of a client with room for so many readers.
    pub(crate) fn new(
        link: &Arc<Link>,
        registry: &Arc<Registry>,
        acquirer: &Arc<Acquirer>,
        releaser: &Arc<Releaser>,
        records: &Arc<HolderRecords>,
        keys: &Arc<Keys>,
        readers: u32,
    ) -> Self {
        Self {
            link: link.clone(),
            registry: registry.clone(),
            acquirer: acquirer.clone(),
            releaser: releaser.clone(),
            records: records.clone(),
            slots: Slots::new(link),
            readers: ReaderSlots::new(link, acquirer, keys, readers),
        }
    }

    /// The lock of an attempt, to be read.
    pub(crate) fn reader<'a>(&'a self, attempt: &'a Attempt) -> Result<Reader<'a>, Error> {
        Ok(Reader { locks: self, attempt, entry: self.registry.register(attempt)?, is_full: AtomicBool::default() })
    }

    /// The lock of an attempt, to be written; `stays` says whether it waits, and keeps new readers out meanwhile.
    pub(crate) fn writer<'a>(&'a self, attempt: &'a Attempt, stays: bool) -> Result<Writer<'a>, Error> {
        let entry = self.registry.register(attempt)?;
        let (readers, looked_at) = (Mutex::default(), AtomicU32::default());
        Ok(Writer { locks: self, attempt, entry, stays, readers, looked_at })
    }

    /// Takes the answers to the looks of a claim, and returns the slots that are taken.
    fn take_there(&self, round: &mut ClaimRound) -> Result<Vec<TakenSlot>, Error> {
        slots::taken(0.., round.also.drain(..)).map_err(|failure| self.acquirer.error(failure))
    }

    /// Takes a reader's slot before it releases the writer's key, and looks at that key once the slot is there: whoever takes it
    /// from then on finds a reader. So a key whose release was asked for may go in whatever way, as long as the slot is there.
    pub(crate) async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        let not_held = || slots::not_held(attempt, Phase::Downgrade);
        let entry = self.registry.get(attempt.id).ok_or_else(not_held)?;
        let key = keys::writer(&entry.lock);
        let (writer, slots): (Vec<_>, Vec<_>) = entry.pieces().into_iter().partition(|piece| piece.key == key);
        let is_ours = if !slots.is_empty() {
            let asked = writer.iter().filter(|piece| !entry.is_release_asked(&piece.key));
            self.are_ours(attempt, &entry, slots.iter().chain(asked).map(|piece| &piece.key)).await?
        } else {
            !writer.is_empty() && self.add_slot(attempt, &entry).await?
        };
        if !is_ours || self.releaser.release_some(attempt, &entry, writer, Phase::Downgrade).await?.gone > 0 {
            self.release_lost(attempt, &entry).await;
            return Err(not_held());
        }
        self.releaser.wake(&entry.lock, attempt.kind);
        Ok(())
    }

    /// Whether each of these keys has the attempt's number.
    async fn are_ours(
        &self,
        attempt: &Attempt,
        entry: &Entry,
        keys: impl Iterator<Item = &Key> + Clone + Send,
    ) -> Result<bool, Error> {
        let link = &self.link;
        let found = async { Ok(link.find_own(keys.map(|key| (entry.nonce, key)), link.deadline()).await) };
        for found in link.within(attempt, Phase::Downgrade, found).await? {
            if found.map_err(|failure| self.acquirer.error(failure))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Releases a lock that was lost: nothing of it is renewed from now on, whatever becomes of this.
    async fn release_lost(&self, attempt: &Attempt, entry: &Entry) {
        let pieces = entry.pieces();
        self.doubt(attempt, entry, &pieces);
        let released = self.releaser.release_some(attempt, entry, pieces.clone(), Phase::Downgrade).await;
        if released.is_ok() {
            pieces.iter().for_each(|piece| entry.refused(&piece.key));
        }
    }

    /// These pieces may be there until their time is over.
    fn doubt(&self, attempt: &Attempt, entry: &Entry, pieces: &[Piece]) {
        entry.doubt(pieces, self.link.gone_by(SystemClock.now(), entry.lasts(attempt.ttl)));
    }

    /// Takes a reader's slot. Returns whether the writer's key was the attempt's own once the slot was there.
    async fn add_slot(&self, attempt: &Attempt, entry: &Arc<Entry>) -> Result<bool, Error> {
        let key = keys::writer(&entry.lock);
        for turn in 0..TRIES * 4 {
            let slot = keys::slot(&entry.lock, slots::any(entry, turn, self.readers.many()));
            let look = Command::Read { key: key.clone() };
            let mut round = self.acquirer.claim(attempt, entry, vec![slot], vec![look]).await?;
            let slot: Vec<_> = entry.pieces().into_iter().filter(|piece| piece.key != key).collect();
            match round.verdict {
                GateVerdict::Counts(_) if slot.is_empty() => {}
                GateVerdict::Counts(_) => {
                    // Without an answer if the slot was won by an earlier claim.
                    let Some(answer) = round.also.pop() else {
                        return self.are_ours(attempt, entry, [&key].into_iter()).await;
                    };
                    let found = answer.item().map_err(|failure| self.acquirer.error(failure))?;
                    return Ok(found.is_some_and(|item| Nonce::read(&item.value) == Some(entry.nonce)));
                }
                GateVerdict::No(why) => {
                    let released = self.releaser.release_some(attempt, entry, slot.clone(), Phase::Downgrade).await;
                    if let Err(error) = released {
                        // It is not to be taken for a reader's slot by another call.
                        self.doubt(attempt, entry, &slot);
                        let what = "it is unknown whether a reader's slot is still taken";
                        return Err(attempt.error(ErrorKind::Indeterminate, Phase::Downgrade, what).with_source(error));
                    }
                    return Err(why.into_error(Phase::Downgrade));
                }
            }
        }
        Err(attempt.error(ErrorKind::Unavailable, Phase::Downgrade, "there is no room for one more reader now"))
    }
}

/// A lock to be read, by one attempt.
pub(crate) struct Reader<'a> {
    locks: &'a RwLocks,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    /// Whether every slot was taken when it looked last.
    is_full: AtomicBool,
}

/// A lock to be written, by one attempt.
pub(crate) struct Writer<'a> {
    locks: &'a RwLocks,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    /// Whether it waits, and keeps new readers out meanwhile.
    stays: bool,
    readers: Mutex<SeenReaders>,
    /// The number of slots that it has looked at in vain since it paused last.
    looked_at: AtomicU32,
}

/// The readers for which a writer waits.
#[derive(Debug, Default)]
struct SeenReaders {
    /// The slots in which they were when its key was taken, but for those that were seen to have left since.
    slots: Vec<TakenSlot>,
    /// The CAS number that the key's item had when they were looked at last: another one is that of an item that was taken anew.
    cas: u64,
}

impl Reader<'_> {
    /// Takes one of the slots, and looks for a writer afterwards; `None` if there is no slot.
    async fn take_slot(&self) -> Result<Option<ClaimRound>, Error> {
        let Self { locks, attempt, entry, .. } = self;
        let (readers, lock) = (&locks.readers, &entry.lock);
        let mut number = slots::any(entry, 0, readers.many());
        for turn in 1..=TRIES {
            let look = vec![Command::Look { key: keys::writer(lock) }];
            let round = readers.claim(attempt, entry, keys::slot(lock, number), look).await?;
            if entry.has_pieces() {
                self.is_full.store(false, Ordering::Relaxed);
                return Ok(Some(round));
            }
            let free = locks.slots.free_slots(attempt, lock, readers.many(), 1).await?;
            self.is_full.store(free.is_empty(), Ordering::Relaxed);
            let one = slots::any(entry, turn, u32::try_from(free.len()).unwrap_or(u32::MAX));
            let Some(next) = free.get(usize::try_from(one).unwrap_or_default()) else { break };
            number = *next;
        }
        Ok(None)
    }
}

impl WantedLock for Reader<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        self.locks.acquirer.is_free(self.attempt, &keys::writer(&self.entry.lock)).await
    }

    fn take_looks(&self) -> u32 {
        if self.is_full.load(Ordering::Relaxed) { self.locks.readers.many() } else { 1 }
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        self.locks.acquirer.release_unanswered(&self.entry).await?;
        let Some(mut round) = self.take_slot().await? else { return Ok(TryOutcome::Held) };
        let is_complete = self.locks.take_there(&mut round)?.is_empty();
        self.locks.acquirer.settle(self.attempt, &self.entry, &round, is_complete).await
    }

    fn queue(&self) -> Key {
        keys::readers(&self.entry.lock)
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Writer<'_> {
    fn readers(&self) -> MutexGuard<'_, SeenReaders> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reads(&self) -> Vec<Command> {
        slots::reads(&self.entry.lock, 0..self.locks.readers.many()).collect()
    }

    /// Notes the readers that were there when the key was taken; of a key that was kept since its item had this CAS number, only those that
    /// were seen before. Returns whether the writer waits for one of them.
    fn sees(&self, kept_since: Option<u64>, mut there: Vec<TakenSlot>) -> bool {
        let mut readers = self.readers();
        if kept_since == Some(readers.cas) {
            let known: HashSet<_> = readers.slots.drain(..).collect();
            there.retain(|slot| known.contains(slot));
        }
        *readers = SeenReaders { slots: there, cas: self.entry.newest_cas() };
        !readers.slots.is_empty()
    }

    /// Whether a reader that was seen before is still there, so that nothing else need be looked at; false when the writer's key is due for
    /// renewal.
    ///
    /// It looks at one of them, and at twice as many when those have left: a slot is looked at in vain once only, however many
    /// readers leave one after the other, and a few rounds tell when all have left together.
    async fn still_reads(&self) -> Result<bool, Error> {
        let left = self.entry.kept_until().since(SystemClock.now());
        if left < self.attempt.ttl / 2 {
            return Ok(false);
        }
        let mut many = 1;
        loop {
            let (rest, asked) = {
                let readers = self.readers();
                let rest = readers.slots.len().saturating_sub(many);
                (rest, readers.slots[rest..].to_vec())
            };
            if asked.is_empty() {
                return Ok(false);
            }
            self.looked_at.fetch_add(u32::try_from(asked.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
            let numbers = asked.iter().map(|slot| slot.number);
            let there: HashSet<_> =
                self.locks.slots.taken_of(self.attempt, &self.entry.lock, numbers).await?.into_iter().collect();
            let mut readers = self.readers();
            readers.slots.truncate(rest);
            readers.slots.extend(asked.iter().filter(|slot| there.contains(slot)));
            if readers.slots.len() > rest {
                return Ok(true);
            }
            many *= 2;
        }
    }

    /// Takes the key, and looks for readers afterwards.
    async fn enter(&self) -> Result<TryOutcome, Error> {
        let (locks, attempt, entry) = (self.locks, self.attempt, &self.entry);
        if !self.stays {
            // A try that has no chance does not turn readers away.
            let free = locks.slots.free_of(attempt, &self.entry.lock, 0..locks.readers.many()).await?;
            if u32::try_from(free.len()).is_ok_and(|free| free < locks.readers.many()) {
                // Otherwise the number is read with the claim.
                locks.readers.check_number(attempt).await?;
                return Ok(TryOutcome::Held);
            }
        }
        let mut round = locks.readers.claim(attempt, entry, keys::writer(&self.entry.lock), self.reads()).await?;
        let readers = locks.take_there(&mut round)?;
        let is_read = !readers.is_empty();
        let waits = self.stays && is_read && matches!(round.verdict, GateVerdict::Counts(_));
        if waits && entry.has_pieces() {
            self.sees(None, readers);
            locks.records.describe_waiting(attempt, entry);
        }
        if waits || !entry.has_pieces() && matches!(round.verdict, GateVerdict::Counts(_)) {
            return Ok(TryOutcome::Held);
        }
        locks.acquirer.settle(attempt, entry, &round, !is_read && entry.has_pieces()).await
    }

    /// Keeps the key, and looks whether the readers have left; `None` if the key has to be taken anew.
    async fn stay(&self) -> Result<Option<TryOutcome>, Error> {
        let (locks, attempt, entry) = (self.locks, self.attempt, &self.entry);
        let since = entry.newest_cas();
        let Some(mut round) = locks.acquirer.keep(attempt, entry, self.reads()).await? else {
            return Ok(entry.has_pieces().then_some(TryOutcome::Held));
        };
        self.looked_at.fetch_add(locks.readers.many(), Ordering::Relaxed);
        let is_read = self.sees(Some(since), locks.take_there(&mut round)?);
        if is_read && matches!(round.verdict, GateVerdict::Counts(_)) {
            return Ok(Some(TryOutcome::Held));
        }
        locks.acquirer.settle(attempt, entry, &round, true).await.map(Some)
    }
}

impl WantedLock for Writer<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        if self.entry.has_pieces() {
            return Ok(!self.still_reads().await?);
        }
        self.locks.acquirer.is_free(self.attempt, &keys::writer(&self.entry.lock)).await
    }

    /// Takes the number of keys that were read since the last call: one slot while a reader that was there stays, otherwise every slot.
    fn take_looks(&self) -> u32 {
        self.looked_at.swap(0, Ordering::Relaxed).max(1)
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        if self.entry.has_pieces()
            && let Some(outcome) = self.stay().await?
        {
            return Ok(outcome);
        }
        // At once, however long the pauses are: new readers come in meanwhile.
        self.enter().await
    }

    fn queue(&self) -> Key {
        keys::writer(&self.entry.lock)
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        !self.entry.has_pieces()
    }
}
