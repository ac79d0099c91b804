//! A lock that stays within the process: from its holder to the first one in the queue, by one command.

use std::sync::Arc;

use lock_core::Phase;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Grant};

use crate::client::detach_on_drop::detach_on_drop;
use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::epoch::gate::{self, EpochGate, GateVerdict};
use crate::registry::{Entry, Piece};
use crate::store::keys::Key;
use crate::store::pieces::Pieces;
use crate::store::refresh::lasts;
use crate::store::values;
use crate::wait::queue::{Offer, WaitQueues};

/// Outcome of a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// It is not ours any more.
    Yes,
    /// It has to be released as usual.
    No,
    /// No answer came: it has to be released as usual, and if it is not ours any more, that is no loss.
    Perhaps,
}

/// Hands locks to this client's own waiters.
pub(crate) struct HandOver {
    pub(crate) link: Arc<Link>,
    pub(crate) gate: Arc<EpochGate>,
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) pieces: Arc<Pieces>,
}

impl HandOver {
    /// Hands a lock of one piece to the first one in its queue.
    ///
    /// DetachOnDrop through although this future is dropped: the lock may be the other one's by then.
    pub(crate) async fn hand_over(self: &Arc<Self>, queue: &Key, attempt: &Attempt, entry: &Arc<Entry>) -> HandedOver {
        if !self.queues.has(queue) {
            return HandedOver::No;
        }
        let [piece] = &*entry.pieces() else { return HandedOver::No };
        // A writer that became a reader has a key that nobody waits for in this queue.
        if piece.key != *queue {
            return HandedOver::No;
        }
        let Some(offer) = self.queues.offer(queue) else { return HandedOver::No };
        let (hand_over, entry, piece) = (self.clone(), entry.clone(), piece.clone());
        let work = detach_on_drop(async move { hand_over.hand_to(offer, &entry, piece).await });
        self.link.within(attempt, Phase::Release, async { Ok(work.await) }).await.unwrap_or(HandedOver::Perhaps)
    }

    /// Turns the item into the other one's.
    async fn hand_to(&self, offer: Offer, entry: &Entry, Piece { key, seen }: Piece) -> HandedOver {
        let sent_at = SystemClock.now();
        let until = self.link.gone_by(sent_at, offer.ttl);
        offer.entry.claiming(&key, until);
        offer.entry.kept(sent_at, offer.ttl);
        let seconds = values::seconds(offer.ttl);
        let (own, to) = (entry.own(seen), offer.entry.nonce);
        let change = Command::HandOver { key: key.clone(), own, to, seconds };
        let commands = [change, Command::Look { key: key.clone() }].into_iter();
        let (answers, judged) = self.gate.run(commands, sent_at).await;
        let mut answers = answers.into_iter();
        let seen = match answers.next() {
            Some(CommandAnswer::Done(seen)) => seen,
            Some(CommandAnswer::Failed(failure)) if failure.is_unknown => return HandedOver::Perhaps,
            _ => {
                offer.entry.refused(&key);
                return HandedOver::No;
            }
        };
        entry.lost(&key);
        offer.entry.won(&key, seen);
        let lasts = answers.next().is_some_and(|look| matches!(lasts(&look, seconds), Ok(true)));
        if let (true, Ok(GateVerdict::Counts(epoch))) = (lasts, judged) {
            let (token, ttl) = (gate::token(epoch, seen.cas), offer.ttl);
            offer.grant(Grant::new(token, sent_at, ttl));
        } else {
            // Not to be told: it looks for itself, once this one is gone.
            let pieces = offer.entry.pieces();
            if self.pieces.release_all(&offer.entry, Phase::Release).await.is_err() {
                offer.entry.doubt(&pieces, until);
            }
        }
        HandedOver::Yes
    }
}
