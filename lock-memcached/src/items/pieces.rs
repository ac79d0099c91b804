//! Releasing keys: only what is still ours, by its CAS number in that life of the server in which it was learned.

use std::sync::Arc;

use lock_core::clock::BootInstant;
use lock_core::{Error, Phase};

use crate::client::link::Link;
use crate::client::protocol::{Command, CommandAnswer};
use crate::error::Failure;
use crate::items::record::HolderRecords;
use crate::registry::{Entry, Piece};

/// Rounds for a piece that a renewal changes again and again.
const ROUNDS: usize = 20;

/// Count of a release, piece by piece.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReleaseCount {
    /// The number of pieces that this request has released, or an earlier one that was not answered.
    pub(crate) released: usize,
    /// The number of pieces that were not there any more.
    pub(crate) gone: usize,
}

/// Releases keys of grants.
pub(crate) struct Pieces {
    link: Arc<Link>,
    records: Arc<HolderRecords>,
}

impl Pieces {
    pub(crate) fn new(link: &Arc<Link>, records: &Arc<HolderRecords>) -> Arc<Self> {
        Arc::new(Self { link: link.clone(), records: records.clone() })
    }

    /// Releases everything that an attempt is known to have, by `until`.
    pub(crate) async fn release_all(
        &self,
        entry: &Entry,
        phase: Phase,
        until: BootInstant,
    ) -> Result<ReleaseCount, Error> {
        entry.end();
        let released = self.release_each(entry, entry.pieces(), until).await;
        released.map_err(|failure| self.link.error(failure, phase))
    }

    /// Releases some of what an attempt is known to have, by `until`. What is not answered stays asked for, also when this is dropped.
    pub(crate) async fn release_some(
        &self,
        entry: &Entry,
        pieces: Vec<Piece>,
        phase: Phase,
        until: BootInstant,
    ) -> Result<ReleaseCount, Error> {
        entry.asks_release(&pieces);
        self.release_each(entry, pieces, until).await.map_err(|failure| self.link.error(failure, phase))
    }

    async fn release_each(
        &self,
        entry: &Entry,
        mut pieces: Vec<Piece>,
        until: BootInstant,
    ) -> Result<ReleaseCount, Failure> {
        let mut count = ReleaseCount::default();
        let mut record = (entry.is_ending() && entry.hide()).then(|| self.records.forget(entry.nonce));
        for _ in 0..ROUNDS {
            if pieces.is_empty() {
                break;
            }
            let release = |Piece { key, seen }: &Piece| Command::Release { key: key.clone(), own: entry.own(*seen) };
            // Last, so that no piece is paired with its answer, which does not matter.
            let commands = pieces.iter().map(release).chain(record.take()).collect();
            let answers = self.link.run_with_others(commands, until).await;
            let (mut changed, mut failed) = (Vec::new(), None::<Failure>);
            for (piece, answer) in std::mem::take(&mut pieces).into_iter().zip(answers) {
                match answer {
                    CommandAnswer::Done(_) => count.released(entry, &piece),
                    CommandAnswer::Missing => count.gone(entry, &piece),
                    CommandAnswer::Failed(failure) => {
                        if !failure.is_unknown {
                            entry.release_refused(&piece.key);
                        }
                        failed = Some(failure.beside(failed));
                    }
                    CommandAnswer::Other | CommandAnswer::Item(_) => changed.push(piece),
                }
            }
            if let Some(failure) = failed {
                return Err(count.failed(entry, &changed, failure));
            }
            if changed.is_empty() {
                break;
            }
            let own = changed.iter().map(|piece| (entry.nonce, &piece.key));
            let found = Box::pin(self.link.find_own(own, until)).await;
            for (piece, found) in changed.into_iter().zip(found) {
                match found {
                    Ok(Some(seen)) => pieces.push(Piece { seen, ..piece }),
                    Ok(None) => count.gone(entry, &piece),
                    Err(failure) => {
                        entry.release_refused(&piece.key);
                        failed = Some(failure);
                    }
                }
            }
            if let Some(failure) = failed {
                return Err(count.failed(entry, &pieces, failure));
            }
        }
        if pieces.is_empty() {
            return Ok(count);
        }
        Err(count.failed(entry, &pieces, Failure::restless()))
    }

    /// Looks for claims that were not answered, and releases what they took, by `until`.
    pub(crate) async fn release_unanswered(
        &self,
        entry: &Entry,
        phase: Phase,
        until: BootInstant,
    ) -> Result<(), Error> {
        let keys = entry.unsure();
        if keys.is_empty() {
            return Ok(());
        }
        let released = async {
            let found = self.link.find_own(keys.iter().map(|key| (entry.nonce, key)), until).await;
            let (mut there, mut releases) = (Vec::new(), Vec::new());
            for (key, found) in keys.iter().zip(found) {
                let Some(seen) = found? else { continue };
                there.push(key);
                releases.push(Command::Release { key: key.clone(), own: entry.own(seen) });
            }
            for (key, answer) in there.into_iter().zip(self.link.run_by(releases, until).await) {
                match answer {
                    // A claim that was found is one that is not on its way any more.
                    CommandAnswer::Done(_) => entry.refused(key),
                    CommandAnswer::Failed(failure) => return Err(failure),
                    _ => {}
                }
            }
            Ok(())
        };
        released.await.map_err(|failure: Failure| self.link.error(failure, phase))
    }
}

impl ReleaseCount {
    fn released(&mut self, entry: &Entry, piece: &Piece) {
        self.released += 1;
        entry.lost(&piece.key);
    }

    /// Notes that a piece is not there: by an earlier request that was not answered, or else it was lost.
    fn gone(&mut self, entry: &Entry, piece: &Piece) {
        if entry.may_be_released(&piece.key) {
            self.released += 1;
        } else {
            self.gone += 1;
        }
        entry.lost(&piece.key);
    }

    /// The failure of a release of which this was done before. These pieces were found changed, and are kept.
    fn failed(self, entry: &Entry, kept: &[Piece], failure: Failure) -> Failure {
        kept.iter().for_each(|piece| entry.release_refused(&piece.key));
        if self.released > 0 { failure.partly_done() } else { failure }
    }
}
