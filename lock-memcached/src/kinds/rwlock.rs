//! The read-write lock: one key for the writer, and one for each reader there is room for.
//!
//! Both sides write first and look afterwards: a reader takes a slot and then looks for a writer, a writer takes its key and
//! then looks for readers. Whoever sees the other gives way, but for a writer that waits: its key keeps new readers out
//! until the ones inside have left. So writers go first, and two that look at the same time never both come in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lock_core::clock::{Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, RwLockBackend};
use lock_core::{Error, ErrorKind, Phase};

use crate::acquire::{ClaimRound, TryOutcome};
use crate::backend::{MemcachedBackend, Shared};
use crate::client::command::{Command, CommandAnswer};
use crate::epoch::gate::GateVerdict;
use crate::error::Failure;
use crate::kinds::slots::{self, TRIES};
use crate::registry::Entry;
use crate::store::keys::{self, Key};
use crate::store::{refresh, ttl};
use crate::wait::queue::locked;
use crate::wait::{self, WantedLock};

/// A lock to be read, by one attempt.
struct Reader<'a> {
    shared: &'a Arc<Shared>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    lock: Key,
    /// Whether every slot was taken when it looked last.
    is_full: AtomicBool,
}

/// A lock to be written, by one attempt.
struct Writer<'a> {
    shared: &'a Arc<Shared>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    lock: Key,
    /// Whether it waits, and keeps new readers out meanwhile.
    stays: bool,
    /// A slot in which a reader was when it looked at all of them.
    reader: Mutex<Option<u32>>,
}

impl<'a> Reader<'a> {
    fn new(shared: &'a Arc<Shared>, attempt: &'a Attempt) -> Result<Self, Error> {
        let lock = shared.key_of(attempt)?;
        let (entry, is_full) = (shared.registry.of(attempt, &lock), AtomicBool::default());
        Ok(Self { shared, attempt, entry, lock, is_full })
    }

    /// Takes one of the slots, and looks for a writer afterwards; `None` if there is no slot.
    async fn take_slot(&self) -> Result<Option<ClaimRound>, Error> {
        let Self { shared, attempt, entry, lock, .. } = self;
        let mut number = slots::any(entry, 0, shared.readers);
        for turn in 1..=TRIES {
            let look = vec![Command::Look { key: keys::writer(lock) }];
            let round = shared.claim_with_slots_agreed(attempt, entry, keys::slot(lock, number), look).await?;
            if entry.has_pieces() {
                self.is_full.store(false, Ordering::Relaxed);
                return Ok(Some(round));
            }
            let free = shared.free_slots(attempt, lock, shared.readers, 1).await?;
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
        self.shared.looks_free(self.attempt, &keys::writer(&self.lock)).await
    }

    fn keys(&self) -> u32 {
        if self.is_full.load(Ordering::Relaxed) { self.shared.readers } else { 1 }
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let Some(round) = self.take_slot().await? else { return Ok(TryOutcome::Held) };
        let is_complete = self.shared.first_there(&round)?.is_none();
        self.shared.settle(self.attempt, &self.entry, &round, is_complete).await
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl<'a> Writer<'a> {
    fn new(shared: &'a Arc<Shared>, attempt: &'a Attempt, stays: bool) -> Result<Self, Error> {
        let lock = shared.key_of(attempt)?;
        Ok(Self { shared, attempt, entry: shared.registry.of(attempt, &lock), lock, stays, reader: Mutex::default() })
    }

    fn looks(&self) -> Vec<Command> {
        slots::looks(&self.lock, 0..self.shared.readers).collect()
    }

    /// Whether a reader is there who was there before, so that nothing else need be looked at; not when its key is to be
    /// renewed.
    async fn still_reads(&self) -> Result<bool, Error> {
        let Some(number) = *locked(&self.reader) else { return Ok(false) };
        let left = self.entry.kept_until().since(SystemClock.now());
        if left < self.attempt.ttl / 2 {
            return Ok(false);
        }
        Ok(!self.shared.looks_free(self.attempt, &keys::slot(&self.lock, number)).await?)
    }

    /// Takes the key, and looks for readers afterwards.
    async fn enter(&self) -> Result<TryOutcome, Error> {
        let (shared, attempt, entry) = (self.shared, self.attempt, &self.entry);
        if !self.stays {
            // A try that has no chance does not turn readers away.
            let free = shared.free_of(attempt, &self.lock, 0..shared.readers).await?;
            if u32::try_from(free.len()).is_ok_and(|free| free < shared.readers) {
                return Ok(TryOutcome::Held);
            }
        }
        let round = shared.claim_with_slots_agreed(attempt, entry, keys::writer(&self.lock), self.looks()).await?;
        let reader = shared.first_there(&round)?;
        let waits = self.stays && reader.is_some() && matches!(round.verdict, GateVerdict::Counts(_));
        if waits && entry.has_pieces() {
            *locked(&self.reader) = reader;
            shared.describe_waiting(attempt, entry);
        }
        if waits || !entry.has_pieces() && matches!(round.verdict, GateVerdict::Counts(_)) {
            return Ok(TryOutcome::Held);
        }
        shared.settle(attempt, entry, &round, reader.is_none() && entry.has_pieces()).await
    }

    /// Keeps the key, and looks whether the readers have left.
    async fn stay(&self) -> Result<TryOutcome, Error> {
        let (shared, attempt, entry) = (self.shared, self.attempt, &self.entry);
        let renewed = async {
            let _turn = entry.turn().await;
            let Some(piece) = entry.pieces().pop() else { return Ok(None) };
            let sent_at = SystemClock.now();
            let seconds = ttl::seconds(attempt.ttl);
            let renewal = refresh::renewal(&piece.key, entry.own(piece.seen), seconds);
            let record = entry.is_shown().then(|| Command::Keep { key: shared.keys.holder(entry.nonce), seconds });
            let has_record = record.is_some();
            let beside = record.into_iter().chain(shared.gate.look());
            let commands = renewal.into_iter().chain(self.looks()).chain(beside);
            let mut answers = shared.link.run(commands.collect()).await;
            let verdict = shared.gate.verdict(&mut answers, sent_at)?;
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
                    entry.doubt(std::slice::from_ref(&piece), shared.gone_by(sent_at, attempt.ttl));
                    return Ok(None);
                }
            }
            if !refresh::lasts(&answers.remove(0), seconds)? {
                return Ok(None);
            }
            entry.kept(sent_at, attempt.ttl);
            Ok(Some(ClaimRound { sent_at, verdict, also: answers }))
        };
        let renewed = async { renewed.await.map_err(|failure: Failure| shared.link.error(failure, Phase::Wait)) };
        let Some(round) = shared.within(attempt, Phase::Wait, renewed).await? else { return Ok(TryOutcome::Held) };
        let reader = shared.first_there(&round)?;
        *locked(&self.reader) = reader;
        if reader.is_some() && matches!(round.verdict, GateVerdict::Counts(_)) {
            return Ok(TryOutcome::Held);
        }
        shared.settle(attempt, entry, &round, true).await
    }
}

impl WantedLock for Writer<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        if self.entry.has_pieces() {
            return Ok(!self.still_reads().await?);
        }
        self.shared.looks_free(self.attempt, &keys::writer(&self.lock)).await
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        if self.entry.has_pieces() { self.stay().await } else { self.enter().await }
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        !self.entry.has_pieces()
    }
}

impl Shared {
    /// The first one that is there of what was looked at beside the claim.
    fn first_there(&self, round: &ClaimRound) -> Result<Option<u32>, Error> {
        let mut first = None;
        for (number, answer) in (0..).zip(&round.also) {
            if answer.is_there().map_err(|failure| self.link.error(failure, Phase::Acquire))? {
                first = first.or(Some(number));
            }
        }
        Ok(first)
    }

    /// Takes a reader's slot before it frees the writer's key.
    async fn downgrade(self: &Arc<Self>, attempt: &Attempt) -> Result<(), Error> {
        let not_held =
            || attempt.error(ErrorKind::NotHeld, Phase::Downgrade, "the server has no such grant (any more)");
        let entry = self.registry.get(attempt.id).ok_or_else(not_held)?;
        let lock = &entry.lock;
        let key = keys::writer(lock);
        let (writer, slots): (Vec<_>, Vec<_>) = entry.pieces().into_iter().partition(|piece| piece.key == key);
        if writer.is_empty() {
            return if slots.is_empty() { Err(not_held()) } else { Ok(()) };
        }
        if slots.is_empty() {
            self.add_slot(attempt, &entry).await?;
        }
        let freed = self.within(attempt, Phase::Downgrade, self.release_some(&entry, writer, Phase::Downgrade)).await?;
        if freed.gone > 0 {
            // It was lost before: whoever writes now did not see the slot in time.
            self.within(attempt, Phase::Downgrade, self.release_all(&entry, Phase::Downgrade)).await?;
            return Err(not_held());
        }
        self.wake(lock, attempt.kind);
        Ok(())
    }

    async fn add_slot(self: &Arc<Self>, attempt: &Attempt, entry: &Arc<Entry>) -> Result<(), Error> {
        let key = keys::writer(&entry.lock);
        for turn in 0..TRIES * 4 {
            let number = slots::any(entry, turn, self.readers);
            let round = self.claim(attempt, entry, vec![keys::slot(&entry.lock, number)], Vec::new()).await?;
            let slot: Vec<_> = entry.pieces().into_iter().filter(|piece| piece.key != key).collect();
            match round.verdict {
                GateVerdict::Counts(_) if slot.is_empty() => {}
                GateVerdict::Counts(_) => return Ok(()),
                GateVerdict::No(why) => {
                    self.within(attempt, Phase::Downgrade, self.release_some(entry, slot, Phase::Downgrade)).await?;
                    return Err(why.into_error(Phase::Downgrade));
                }
            }
        }
        Err(attempt.error(ErrorKind::Unavailable, Phase::Downgrade, "there is no room for one more reader now"))
    }
}

#[async_trait]
impl RwLockBackend for MemcachedBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.once(&Reader::new(&self.shared, attempt)?, attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.once(&Writer::new(&self.shared, attempt, false)?, attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let wanted = Reader::new(&self.shared, attempt)?;
        wait::wait(&self.shared, &keys::readers(&wanted.lock), &wanted, attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let wanted = Writer::new(&self.shared, attempt, true)?;
        wait::wait(&self.shared, &keys::writer(&wanted.lock), &wanted, attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.shared.downgrade(attempt).await
    }
}
