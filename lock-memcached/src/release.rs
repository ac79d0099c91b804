//! Releases and cancellations: what an attempt has is released, and others are woken. A lock for which others of this client
//! wait stays within the process: one command turns its item into that of the first one in the queue.

use std::sync::Arc;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Cancelled, Grant, Kind, Released};
use lock_core::{Error, ErrorKind, Phase};

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::epoch::GateVerdict;
use crate::epoch::gate::{self, EpochGate};
use crate::items::pieces::{Pieces, ReleaseCount};
use crate::items::reason::ForcedReasons;
use crate::items::record::HolderRecords;
use crate::items::refresh::lasts;
use crate::registry::{Entry, Piece, Registry};
use crate::store::keys::{self, Key, Nonce, item_ttl};
use crate::wait::WaitQueues;
use crate::wait::hand_over::{HandOverAnswer, HandedOver};
use crate::wait::looks::Offer;

const NO_ANSWER: &str =
    "no answer came to a hand-over, so it is unknown whether the lock was released by it or had been lost before";

/// Whether the item was found to be the next one's, after a hand-over without an answer.
type IsFound = bool;

/// Releases and cancels attempts.
pub(crate) struct Releaser {
    link: Arc<Link>,
    gate: Arc<EpochGate>,
    registry: Arc<Registry>,
    queues: Arc<WaitQueues>,
    pieces: Arc<Pieces>,
    records: Arc<HolderRecords>,
    reasons: Arc<ForcedReasons>,
}

impl Releaser {
    pub(crate) fn new(
        link: &Arc<Link>,
        gate: &Arc<EpochGate>,
        registry: &Arc<Registry>,
        queues: &Arc<WaitQueues>,
        pieces: &Arc<Pieces>,
        records: &Arc<HolderRecords>,
        reasons: &Arc<ForcedReasons>,
    ) -> Arc<Self> {
        Arc::new(Self {
            link: link.clone(),
            gate: gate.clone(),
            registry: registry.clone(),
            queues: queues.clone(),
            pieces: pieces.clone(),
            records: records.clone(),
            reasons: reasons.clone(),
        })
    }

    pub(crate) async fn release(self: &Arc<Self>, attempt: &Attempt) -> Result<Released, Error> {
        // One operation timeout for all steps.
        let until = self.link.deadline();
        let Some(entry) = self.registry.get(attempt.id) else {
            // A renewal may have found it gone, and nobody was told.
            return Ok(Released::NotHeld(Box::pin(self.reasons.read_by(Nonce::of(attempt.id), until)).await));
        };
        let handed = match queue_of_next(&entry.lock, attempt.kind).filter(|queue| self.queues.has(queue)) {
            // Not a part of every release's future.
            Some(queue) => Some(Box::pin(self.hand_over(queue, attempt, &entry, until)).await),
            None => None,
        };
        let (handed, is_found) = handed.flatten().unwrap_or((HandedOver::No, false));
        let count = if handed.ends_release() {
            None
        } else {
            let released = self.pieces.release_all(&entry, Phase::Release, until).await;
            let told = |error| match handed {
                HandedOver::Perhaps => self.in_doubt(attempt).with_source(error),
                _ => error,
            };
            Some(released.map_err(told)?)
        };
        self.records.forget_soon(&entry);
        self.registry.close(attempt.id);
        let Some(count) = count else { return Ok(Released::Done) };
        self.wake(&entry.lock, attempt.kind);
        // A renewal may have found something gone, and nobody was told.
        let gone = count.gone + usize::from(entry.is_lost());
        match handed.was_held(count.released, gone) {
            Some(true) => Ok(Released::Done),
            Some(false) => Ok(Released::NotHeld(Box::pin(self.reasons.read_by(entry.nonce, until)).await)),
            None if is_found => Ok(Released::Done),
            None => match Box::pin(self.reasons.read_by(entry.nonce, until)).await {
                Some(reason) => Ok(Released::NotHeld(Some(reason))),
                None => Err(self.in_doubt(attempt)),
            },
        }
    }

    /// The error of a release after a hand-over without an answer.
    fn in_doubt(&self, attempt: &Attempt) -> Error {
        let error = attempt.error(ErrorKind::Indeterminate, Phase::Release, NO_ANSWER);
        error.with_server(self.link.address().to_string())
    }

    /// Hands a lock of one piece to the first one in its queue, if there is one. Returns what came of it, and to whom.
    ///
    /// Carried through although this future is dropped: the lock may be the other one's by then.
    async fn hand_over(
        self: &Arc<Self>,
        queue: Key,
        attempt: &Attempt,
        entry: &Arc<Entry>,
        until: BootInstant,
    ) -> Option<(HandedOver, IsFound)> {
        let [piece] = &*entry.pieces() else { return None };
        // A writer that became a reader has a key that nobody waits for in this queue.
        if piece.key != queue {
            return None;
        }
        let offer = self.queues.offer(&queue)?;
        let (releaser, entry, piece) = (self.clone(), entry.clone(), piece.clone());
        let work = self.link.detach_on_drop(async move { releaser.hand_to(offer, &entry, piece, until).await });
        let handed = self.link.within(attempt, Phase::Release, async { Ok(work.await) }).await;
        Some(handed.unwrap_or((HandedOver::Perhaps, false)))
    }

    /// Turns the item into the other one's.
    async fn hand_to(
        &self,
        offer: Offer,
        entry: &Entry,
        Piece { key, seen }: Piece,
        until: BootInstant,
    ) -> (HandedOver, IsFound) {
        let claimed_before = !offer.entry.is_answered();
        let sent_at = SystemClock.now();
        let gone_by = self.link.gone_by(sent_at, offer.ttl);
        offer.entry.claiming(&key, gone_by);
        offer.entry.kept(sent_at, offer.ttl);
        let seconds = item_ttl(offer.ttl);
        let (own, to) = (entry.own(seen), offer.entry.nonce);
        let change = Command::HandOver { key: key.clone(), own, to, seconds };
        let commands = [change, Command::Look { key: key.clone() }].into_iter();
        let (answers, judged) = self.gate.run_together(commands, sent_at, until).await;
        let mut answers = answers.into_iter();
        let (changed, look) = (answers.next(), answers.next());
        let lasts = look.is_some_and(|look| matches!(lasts(&look, seconds), Ok(true)));
        let epoch = judged.ok().and_then(GateVerdict::counts);
        let (handed, seen) = match changed {
            Some(CommandAnswer::Done(seen)) => (HandOverAnswer::Done { lasts, counts: epoch.is_some() }, Some(seen)),
            Some(CommandAnswer::Failed(failure)) if failure.is_unknown => (HandOverAnswer::Unknown, None),
            _ => (HandOverAnswer::NotDone, None),
        };
        let handed = HandedOver::by(handed);
        if let Some(seen) = seen {
            entry.lost(&key);
            offer.entry.won(&key, seen);
        }
        match handed {
            HandedOver::Granted => {
                let token = seen.zip(epoch).and_then(|(seen, epoch)| gate::token(epoch, seen.cas));
                let ttl = offer.ttl;
                offer.grant(Grant::new(token, sent_at, ttl));
            }
            HandedOver::Void => {
                // Not to be told: it looks for itself, once this one is gone. Whatever becomes of this future and of the request, it
                // does not count on the item by what it had.
                offer.entry.doubt(&offer.entry.pieces(), gone_by);
                // What is left of it is found as a claim that was not answered.
                let _ = self.pieces.release_unanswered(&offer.entry, Phase::Release, until).await;
            }
            HandedOver::No => offer.entry.refused(&key),
            // As long as the offer has its turn here, nothing but this can have made the item the other one's.
            HandedOver::Perhaps if !claimed_before => {
                let found = self.link.find_own([(to, &key)].into_iter(), until).await;
                return (handed, matches!(found.as_slice(), [Ok(Some(_))]));
            }
            HandedOver::Perhaps => {}
        }
        (handed, false)
    }

    pub(crate) async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let Some(entry) = self.registry.get(attempt.id) else { return Ok(Cancelled::Settled) };
        let undone = async {
            // A request that is under way is carried through first.
            let _turn = entry.turn().await;
            let until = self.link.deadline();
            self.pieces.release_all(&entry, Phase::Cancel, until).await?;
            self.pieces.release_unanswered(&entry, Phase::Cancel, until).await
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
    ) -> Result<ReleaseCount, Error> {
        let released = self.pieces.release_some(entry, pieces, phase, self.link.deadline());
        self.link.within(attempt, phase, released).await
    }

    /// Has the waiters of a lock that may be free now look at once.
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
