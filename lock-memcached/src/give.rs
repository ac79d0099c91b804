//! Giving back: by the CAS number, so that nothing is freed that is not ours.

use lock_core::clock::{Clock, SystemClock};
use lock_core::{Error, Phase};

use crate::backend::Shared;
use crate::connection::command::{Answer, Command};
use crate::connection::plain::Plain;
use crate::error::Failure;
use crate::grants::{Entry, Piece};
use crate::keys::Key;
use crate::nonce::Nonce;

/// How often a piece is looked at anew that a renewal has changed meanwhile.
const ROUNDS: usize = 20;

/// What became of an attempt's pieces.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    /// So many were there and are gone.
    pub(crate) freed: usize,
    /// So many were not there any more.
    pub(crate) gone: usize,
}

impl Shared {
    /// Frees everything that an attempt is known to have.
    pub(crate) async fn free_pieces(&self, entry: &Entry, phase: Phase) -> Result<Freed, Error> {
        entry.end();
        self.free_now(entry, entry.pieces(), phase).await
    }

    /// Frees some of what an attempt is known to have.
    pub(crate) async fn free(&self, entry: &Entry, pieces: Vec<Piece>, phase: Phase) -> Result<Freed, Error> {
        let _giving = entry.giving(&pieces);
        self.free_now(entry, pieces, phase).await
    }

    async fn free_now(&self, entry: &Entry, pieces: Vec<Piece>, phase: Phase) -> Result<Freed, Error> {
        let freed = if SystemClock.now() < entry.kept_until() {
            self.free_in_time(entry, pieces).await
        } else {
            Box::pin(self.free_late(entry, pieces)).await
        };
        freed.map_err(|failure| self.link.error(failure, phase))
    }

    /// As long as the lease lasts, nobody can have been granted the lock by another life of the server, so that the CAS
    /// number tells enough.
    async fn free_in_time(&self, entry: &Entry, mut pieces: Vec<Piece>) -> Result<Freed, Failure> {
        let mut count = Freed::default();
        let mut card = (entry.is_ending() && entry.hide()).then(|| self.forget(entry));
        for _ in 0..ROUNDS {
            if pieces.is_empty() {
                break;
            }
            let deletions = pieces.iter().map(|Piece { key, cas }| Command::Release { key: key.clone(), cas: *cas });
            // Last, so that no piece is paired with its answer, which does not matter.
            let answers = self.link.run(deletions.chain(card.take()).collect()).await;
            let mut changed = Vec::new();
            for (piece, answer) in std::mem::take(&mut pieces).into_iter().zip(answers) {
                match answer {
                    Answer::Done(_) => count.freed(entry, &piece),
                    Answer::Missing => count.gone(entry, &piece),
                    Answer::Failed(failure) => return Err(failure),
                    Answer::Other | Answer::Item(_) => changed.push(piece),
                }
            }
            if changed.is_empty() {
                break;
            }
            let found = Box::pin(self.mine(changed.iter().map(|piece| (entry.nonce, &piece.key)))).await;
            for (piece, found) in changed.into_iter().zip(found) {
                match found? {
                    Some(cas) => pieces.push(Piece { cas, ..piece }),
                    None => count.gone(entry, &piece),
                }
            }
        }
        if pieces.is_empty() { Ok(count) } else { Err(Failure::protocol("the item changes all the time")) }
    }

    /// The CAS number that each of these items has now; none for one that is not this grant's (any more).
    pub(crate) async fn mine(
        &self,
        items: impl Iterator<Item = (Nonce, &Key)> + Clone,
    ) -> Vec<Result<Option<u64>, Failure>> {
        let reads = items.clone().map(|(_, key)| Command::Read { key: key.clone() });
        let answers = self.link.run(reads.collect()).await;
        let mine = items.zip(answers).map(|((nonce, _), answer)| {
            let found = answer.item()?.filter(|item| Nonce::read(&item.value) == Some(nonce));
            Ok(found.map(|item| item.cas))
        });
        mine.collect()
    }

    /// When the lease is over, the server may have begun a new life, in which the same CAS number belongs to somebody else's
    /// lock. So the item is read first, over the connection that then deletes it.
    async fn free_late(&self, entry: &Entry, pieces: Vec<Piece>) -> Result<Freed, Failure> {
        let mut count = Freed::default();
        if pieces.is_empty() {
            return Ok(count);
        }
        let mut plain = Plain::open(self.link.address(), SystemClock.now().plus(self.op_timeout)).await?;
        for piece in pieces {
            let found = plain.read(&piece.key).await?;
            let mine = found.filter(|item| Nonce::read(&item.value) == Some(entry.nonce));
            match mine {
                Some(item) if plain.delete(&piece.key, item.cas).await? => count.freed(entry, &piece),
                _ => count.gone(entry, &piece),
            }
        }
        Ok(count)
    }

    /// Looks for claims that were not answered, and frees what they took.
    pub(crate) async fn free_unsure(&self, entry: &Entry, phase: Phase) -> Result<(), Error> {
        let keys = entry.unsure();
        if keys.is_empty() {
            return Ok(());
        }
        let until = SystemClock.now().plus(self.op_timeout);
        let freed = async {
            let mut plain = Plain::open(self.link.address(), until).await?;
            for key in keys {
                let found = plain.read(&key).await?;
                if let Some(item) = found.filter(|item| Nonce::read(&item.value) == Some(entry.nonce))
                    && plain.delete(&key, item.cas).await?
                {
                    // A claim that was found is one that is not on its way any more.
                    entry.refused(&key);
                }
            }
            Ok(())
        };
        freed.await.map_err(|failure: Failure| self.link.error(failure, phase))
    }
}

impl Freed {
    fn freed(&mut self, entry: &Entry, piece: &Piece) {
        self.freed += 1;
        entry.lost(&piece.key);
    }

    fn gone(&mut self, entry: &Entry, piece: &Piece) {
        self.gone += 1;
        entry.lost(&piece.key);
    }
}
