//! Renewing leases: all of a batch together, with the epoch, which tells whether the server's clock runs.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Kind, Renewal, Renewed};
use lock_core::{Error, LossReason, Phase};

use crate::backend::Shared;
use crate::client::command::Command;
use crate::epoch::gate::GateVerdict;
use crate::error::Failure;
use crate::registry::{Entry, Piece};
use crate::store::refresh::ItemRefresh;
use crate::store::ttl;

/// One lease of a batch.
struct Lease<'a> {
    attempt: &'a Attempt,
    ttl: Duration,
    entry: Option<Arc<Entry>>,
    pieces: Vec<Piece>,
    sent_at: BootInstant,
}

/// Whether a lease lives on.
type Fate = Result<bool, Failure>;

impl Shared {
    pub(crate) async fn renew_all(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let leases: Vec<_> = batch.iter().map(|renewal| Lease::new(self, renewal)).collect();
        let mut dues: Vec<_> = leases.iter().flat_map(Lease::dues).collect();
        let of_rwlocks = leases.iter().any(|lease| matches!(lease.attempt.kind, Kind::Read | Kind::Write));
        let room = of_rwlocks.then(|| self.keep_reader_slots());
        let beside = leases.iter().flat_map(|lease| self.kept_beside(lease)).chain(room).collect();
        let verdict = self.refresh(&mut dues, beside).await;
        let mut fates = dues.into_iter().filter_map(|due| due.fate);
        let renewed = leases.iter().map(|lease| {
            let fate = lease.fate(fates.by_ref().take(lease.pieces.len()));
            self.renewed(lease, fate, &verdict)
        });
        let mut renewed: Vec<_> = renewed.collect();
        self.give_reasons(&leases, &mut renewed).await;
        renewed
    }

    fn renewed(&self, lease: &Lease<'_>, fate: Fate, verdict: &Result<GateVerdict, Failure>) -> Renewed {
        match (fate, verdict) {
            (Ok(true), Ok(GateVerdict::Counts(_))) => {
                lease.kept();
                Renewed::For(lease.ttl)
            }
            // It is there, but its end is not where it should be: the server's clock stands, or the epoch is gone.
            (Ok(true), Ok(GateVerdict::No(_))) => Renewed::Held,
            (Ok(true), Err(failure)) => Renewed::Unknown(self.unknown(lease, failure.clone())),
            (Ok(false), _) => {
                self.registry.close(lease.attempt.id);
                Renewed::Lost(LossReason::Taken)
            }
            (Err(failure), _) => Renewed::Unknown(self.unknown(lease, failure)),
        }
    }

    fn unknown(&self, lease: &Lease<'_>, failure: Failure) -> Error {
        self.link.error(failure, Phase::Renew).with_name(&lease.attempt.name)
    }

    /// Says of those that were freed by force by whom, and why.
    async fn give_reasons(&self, leases: &[Lease<'_>], renewed: &mut [Renewed]) {
        let lost = leases.iter().zip(renewed).filter(|(_, renewed)| matches!(renewed, Renewed::Lost(_)));
        let lost: Vec<_> = lost.filter_map(|(lease, renewed)| Some((lease.entry.as_ref()?.nonce, renewed))).collect();
        let reasons = self.forced(lost.iter().map(|(nonce, _)| *nonce)).await;
        for ((_, renewed), reason) in lost.into_iter().zip(reasons) {
            if let Some(reason) = reason {
                *renewed = Renewed::Lost(reason);
            }
        }
    }

    /// What is to live on with a lease: who holds it, and the limit of its semaphore.
    fn kept_beside(&self, lease: &Lease<'_>) -> Vec<Command> {
        let shown = lease.entry.as_ref().filter(|entry| entry.is_shown());
        let seconds = ttl::seconds(lease.until().since(lease.sent_at));
        let holder = shown.map(|entry| Command::Keep { key: self.keys.holder(entry.nonce), seconds });
        let is_semaphore = matches!(lease.attempt.kind, Kind::Permits { .. });
        let of_semaphore = lease.entry.as_ref().filter(|_| is_semaphore);
        holder.into_iter().chain(of_semaphore.map(|entry| self.keep_limit(&entry.lock))).collect()
    }
}

impl<'a> Lease<'a> {
    fn new(shared: &Shared, renewal: &Renewal<'a>) -> Self {
        let Renewal { attempt, ttl, .. } = *renewal;
        let entry = shared.registry.get(attempt.id);
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        Self { attempt, ttl, entry, pieces, sent_at: SystemClock.now() }
    }

    /// Until when it is to live.
    fn until(&self) -> BootInstant {
        let kept_until = self.entry.as_ref().map_or(self.sent_at, |entry| entry.kept_until());
        // It may be overtaken by an extension: it never asks for less than has been promised.
        self.sent_at.plus(self.ttl).max(kept_until)
    }

    fn dues(&self) -> Vec<ItemRefresh> {
        let due = |entry| self.pieces.iter().map(move |piece| ItemRefresh::new(entry, piece.clone(), self.until()));
        self.entry.iter().flat_map(due).collect()
    }

    /// Whether it lives on, out of the fates of its items, in order. It is lost with the first of them, unless that is being
    /// given back.
    fn fate(&self, items: impl Iterator<Item = Fate>) -> Fate {
        let Some(entry) = &self.entry else { return Ok(false) };
        let mut fate = Ok(!self.pieces.is_empty());
        for (piece, item) in self.pieces.iter().zip(items) {
            match item {
                Ok(true) => {}
                Ok(false) if entry.is_released(&piece.key) => {}
                Ok(false) => {
                    entry.lost(&piece.key);
                    fate = Ok(false);
                }
                Err(failure) => fate = fate.and_then(|lives| if lives { Err(failure) } else { Ok(false) }),
            }
        }
        fate
    }

    fn kept(&self) {
        if let Some(entry) = &self.entry {
            entry.kept(self.sent_at, self.ttl);
        }
    }
}

/// How long renewals are waited for: an answer counts as long as the lease lasts. The core sends another one meanwhile.
pub(crate) fn patience(batch: &[Renewal<'_>], op_timeout: Duration) -> Duration {
    let shortest = batch.iter().map(|renewal| renewal.attempt.ttl).min().unwrap_or(op_timeout);
    op_timeout.min(shortest)
}
