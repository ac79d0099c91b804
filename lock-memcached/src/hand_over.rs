//! A lock that stays within the process: from its holder to the first one in line, by one command.

use std::sync::Arc;

use lock_core::Phase;
use lock_core::backend::{Attempt, Grant};
use lock_core::clock::{Clock, SystemClock};

use crate::backend::Shared;
use crate::carried::carried;
use crate::connection::command::{Answer, Command};
use crate::grants::{Entry, Piece};
use crate::guard::{self, Verdict};
use crate::keys::Key;
use crate::line::Offer;
use crate::refresh::lasts;
use crate::wire;

impl Shared {
    /// Hands a lock of one piece to the first one in its line; `false` if it has to be given back as usual.
    ///
    /// Carried through although this future is dropped: the lock may be the other one's by then.
    pub(crate) async fn hand_over(self: &Arc<Self>, line: &Key, attempt: &Attempt, entry: &Arc<Entry>) -> bool {
        let [piece] = &*entry.pieces() else { return false };
        // A writer that became a reader has a key that nobody waits for in this line.
        if piece.key != *line || SystemClock.now() >= entry.kept_until() {
            return false;
        }
        let Some(offer) = self.lines.offer(line) else { return false };
        let (shared, entry, piece) = (self.clone(), entry.clone(), piece.clone());
        let work = carried(async move { shared.hand_to(offer, &entry, piece).await });
        self.within(attempt, Phase::Release, async { Ok(work.await) }).await.unwrap_or(false)
    }

    /// Turns the item into the other one's; whether it is not ours any more.
    async fn hand_to(&self, offer: Offer, entry: &Entry, Piece { key, cas }: Piece) -> bool {
        let (from, to) = (entry.nonce, offer.entry.nonce);
        let sent_at = SystemClock.now();
        let until = sent_at.plus(self.op_timeout).plus(offer.ttl);
        offer.entry.claiming(&key, until);
        offer.entry.kept(sent_at, offer.ttl);
        let seconds = wire::seconds(offer.ttl);
        let change = Command::HandOver { key: key.clone(), cas, from, to, seconds };
        let commands = [change, Command::Look { key: key.clone() }].into_iter().chain(self.guard.look());
        let mut answers = self.link.run(commands.collect()).await.into_iter();
        let cas = match answers.next() {
            Some(Answer::Done(cas)) => cas,
            Some(Answer::Failed(failure)) if failure.is_unknown => return false,
            _ => {
                offer.entry.refused(&key);
                return false;
            }
        };
        entry.lost(&key);
        offer.entry.won(&key, cas);
        let lasts = answers.next().is_some_and(|look| matches!(lasts(&look, seconds), Ok(true)));
        if let (true, Ok(Verdict::Counts(epoch))) = (lasts, self.guard.judge(answers.next(), sent_at)) {
            let (token, ttl) = (guard::token(epoch, cas), offer.ttl);
            offer.grant(Grant::new(token, sent_at, ttl));
        } else {
            // Not to be told: it looks for itself, once this one is gone.
            let _ = self.free_pieces(&offer.entry, Phase::Release).await;
        }
        true
    }
}
