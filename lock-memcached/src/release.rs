//! Releases and cancellations: what an attempt has is released, and others are woken.

use std::sync::Arc;

use lock_core::driver::{Attempt, Cancelled, Kind, Released};
use lock_core::{Error, Phase};

use crate::client::link::Link;
use crate::registry::{Entry, Piece, Registry};
use crate::store::keys::{self, Key};
use crate::store::pieces::{Pieces, Removed};
use crate::store::record::Records;
use crate::wait::hand_over::{HandOver, HandedOver};
use crate::wait::queue::WaitQueues;

/// Releases and cancels attempts.
pub(crate) struct Releaser {
    pub(crate) link: Arc<Link>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) hand_over: Arc<HandOver>,
    pub(crate) pieces: Arc<Pieces>,
    pub(crate) records: Arc<Records>,
}

impl Releaser {
    pub(crate) async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let Some(entry) = self.registry.get(attempt.id) else { return Ok(Released::NotHeld(None)) };
        let handed = match queue_of_next(&entry.lock, attempt.kind) {
            Some(queue) => self.hand_over.hand_over(&queue, attempt, &entry).await,
            None => HandedOver::No,
        };
        if handed == HandedOver::Yes {
            self.records.forget_soon(&entry);
            self.registry.close(attempt.id);
            return Ok(Released::Done);
        }
        let removed = self.release_all(attempt, &entry, Phase::Release).await?;
        self.records.forget_soon(&entry);
        self.registry.close(attempt.id);
        self.wake(&entry.lock, attempt.kind);
        if handed == HandedOver::Perhaps || removed.gone == 0 && removed != Removed::default() {
            return Ok(Released::Done);
        }
        let reasons = Box::pin(self.records.read_reasons([entry.nonce].into_iter())).await;
        Ok(Released::NotHeld(reasons.into_iter().next().flatten()))
    }

    pub(crate) async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(entry) = self.registry.get(attempt.id) else { return Ok(Cancelled::Settled) };
        let undone = async {
            // A request that is under way is carried through first.
            let _turn = entry.turn().await;
            self.pieces.release_all(&entry, Phase::Cancel).await?;
            self.pieces.release_unanswered(&entry, Phase::Cancel).await
        };
        self.link.within(attempt, Phase::Cancel, undone).await?;
        self.records.forget_soon(&entry);
        self.wake(&entry.lock, attempt.kind);
        Ok(if self.registry.close(attempt.id) { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    /// Releases some of what an attempt is known to have. Nobody is woken.
    pub(crate) async fn release_some(
        &self,
        attempt: &Attempt,
        entry: &Entry,
        pieces: Vec<Piece>,
        phase: Phase,
    ) -> Result<Removed, Error> {
        self.link.within(attempt, phase, self.pieces.release_some(entry, pieces, phase)).await
    }

    /// Releases everything that an attempt is known to have. Nobody is woken.
    pub(crate) async fn release_all(&self, attempt: &Attempt, entry: &Entry, phase: Phase) -> Result<Removed, Error> {
        self.link.within(attempt, phase, self.pieces.release_all(entry, phase)).await
    }

    /// Has the waiters of a lock look at once, which may be free now.
    pub(crate) fn wake(&self, lock: &Key, kind: Kind) {
        self.queues.wake_lock(lock, kind);
    }
}

/// The queue in which a holder of the whole lock finds the next one.
fn queue_of_next(lock: &Key, kind: Kind) -> Option<Key> {
    match kind {
        Kind::Mutex | Kind::Reentrant => Some(lock.clone()),
        Kind::Write => Some(keys::writer(lock)),
        _ => None,
    }
}
