//! Renewing leases: all of a batch together, with the epoch, which tells whether the server's clock runs.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Kind, Renewal, Renewed, wait};
use lock_core::{Error, ErrorKind, LossReason, Phase};

use crate::client::link::Link;
use crate::client::protocol::Command;
use crate::client::rights::Precedence;
use crate::config::LongestLease;
use crate::epoch::GateVerdict;
use crate::epoch::gate::EpochGate;
use crate::error::Failure;
use crate::items::reason::ForcedReasons;
use crate::items::record::HolderRecords;
use crate::items::refresh::{ItemRefresh, Refresher};
use crate::registry::{Entry, Piece, Registry};
use crate::slots::{self, reader_slots};
use crate::store::keys::{Keys, Nonce, item_ttl};

/// One lease of a batch.
struct LeaseRenewal<'a> {
    attempt: &'a Attempt,
    ttl: Duration,
    entry: Option<Arc<Entry>>,
    pieces: Vec<Piece>,
    sent_at: BootInstant,
}

/// Whether a lease lives on.
type Fate = Result<bool, Failure>;

/// Renews leases.
pub(crate) struct Renewer {
    link: Arc<Link>,
    refresher: Refresher,
    registry: Arc<Registry>,
    records: Arc<HolderRecords>,
    reasons: Arc<ForcedReasons>,
    keys: Arc<Keys>,
    longest: LongestLease,
}

impl Renewer {
    pub(crate) fn new(
        link: &Arc<Link>,
        gate: &Arc<EpochGate>,
        registry: &Arc<Registry>,
        records: &Arc<HolderRecords>,
        reasons: &Arc<ForcedReasons>,
        keys: &Arc<Keys>,
        longest: LongestLease,
    ) -> Self {
        Self {
            link: link.clone(),
            refresher: Refresher::new(link, gate),
            registry: registry.clone(),
            records: records.clone(),
            reasons: reasons.clone(),
            keys: keys.clone(),
            longest,
        }
    }

    pub(crate) async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let until = SystemClock.now().plus(patience(batch, self.link.op_timeout()));
        let leases: Vec<_> = batch.iter().map(|renewal| LeaseRenewal::new(&self.registry, renewal)).collect();
        let Some(mut renewed) = wait::before(&SystemClock, |_| until, self.renew_all(&leases)).await else {
            let unknown = |renewal: &Renewal<'_>| {
                let what = "no answer in time";
                Renewed::Unknown(renewal.attempt.error(ErrorKind::Indeterminate, Phase::Renew, what))
            };
            return batch.iter().map(unknown).collect();
        };
        // What is known is told in time, also without a reason.
        wait::before(&SystemClock, |_| until, self.give_reasons(&leases, &mut renewed)).await;
        renewed
    }

    async fn renew_all(&self, leases: &[LeaseRenewal<'_>]) -> Vec<Renewed> {
        let mut dues: Vec<_> = leases.iter().flat_map(LeaseRenewal::dues).collect();
        let of_rwlocks = leases.iter().any(|lease| matches!(lease.attempt.kind, Kind::Read | Kind::Write));
        let slots = of_rwlocks.then(|| reader_slots::keep(&self.keys));
        let beside = leases.iter().flat_map(|lease| self.kept_beside(lease)).chain(slots).collect();
        let verdict = self.refresher.refresh(&mut dues, beside).await;
        let mut fates = dues.into_iter().filter_map(|due| due.fate);
        let renewed = leases.iter().map(|lease| {
            let fate = lease.fate(fates.by_ref().take(lease.pieces.len()));
            self.renewed(lease, fate, &verdict)
        });
        renewed.collect()
    }

    fn renewed(&self, lease: &LeaseRenewal<'_>, fate: Fate, verdict: &Result<GateVerdict, Failure>) -> Renewed {
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

    fn unknown(&self, lease: &LeaseRenewal<'_>, failure: Failure) -> Error {
        self.link.error(failure, Phase::Renew).with_name(&lease.attempt.name)
    }

    /// Says of those that were released by force by whom, and why.
    async fn give_reasons(&self, leases: &[LeaseRenewal<'_>], renewed: &mut [Renewed]) {
        let lost = leases.iter().zip(renewed).filter(|(_, renewed)| matches!(renewed, Renewed::Lost(_)));
        // Its entry may be forgotten already: whoever found the loss first may not have been told.
        let lost: Vec<_> = lost.map(|(lease, renewed)| (Nonce::of(lease.attempt.id), renewed)).collect();
        let reasons = self.reasons.read(lost.iter().map(|(nonce, _)| *nonce), Precedence::Renewal).await;
        for ((_, renewed), reason) in lost.into_iter().zip(reasons) {
            if let Some(reason) = reason {
                *renewed = Renewed::Lost(reason);
            }
        }
    }

    /// Commands that keep what lives on with a lease: its record, and the limit of its semaphore.
    fn kept_beside(&self, lease: &LeaseRenewal<'_>) -> Vec<Command> {
        let seconds = item_ttl(lease.until().since(lease.sent_at));
        let record = lease.entry.as_ref().and_then(|entry| self.records.keep(entry, seconds));
        let is_semaphore = matches!(lease.attempt.kind, Kind::Permits { .. });
        let of_semaphore = lease.entry.as_ref().filter(|_| is_semaphore);
        record.into_iter().chain(of_semaphore.map(|entry| slots::keep_limit(&entry.lock, self.longest))).collect()
    }
}

impl<'a> LeaseRenewal<'a> {
    fn new(registry: &Registry, renewal: &Renewal<'a>) -> Self {
        let Renewal { attempt, ttl, .. } = *renewal;
        let entry = registry.get(attempt.id);
        let pieces = entry.as_ref().map(|entry| entry.pieces()).unwrap_or_default();
        Self { attempt, ttl, entry, pieces, sent_at: SystemClock.now() }
    }

    /// The end that is asked for.
    fn until(&self) -> BootInstant {
        let kept_until = self.entry.as_ref().map_or(self.sent_at, |entry| entry.kept_until());
        // It may be overtaken by an extension: it never asks for less than has been promised.
        self.sent_at.plus(self.ttl).max(kept_until)
    }

    fn dues(&self) -> Vec<ItemRefresh> {
        let due = |entry| self.pieces.iter().map(move |piece| ItemRefresh::new(entry, piece.clone(), self.until()));
        self.entry.iter().flat_map(due).collect()
    }

    /// Whether the lease lives on, by the fates of its items, in order. A lost item ends it; one whose release was asked for, only if it
    /// was the last. A lost lease stays lost: the answer may come too late, or to nobody.
    fn fate(&self, items: impl Iterator<Item = Fate>) -> Fate {
        let Some(entry) = &self.entry else { return Ok(false) };
        let mut fate = Ok(!self.pieces.is_empty() && !entry.is_lost());
        for (piece, item) in self.pieces.iter().zip(items) {
            match item {
                Ok(true) => {}
                Ok(false) if entry.is_released(&piece.key) => {}
                // The answer to its release was lost, or is on its way.
                Ok(false) if entry.is_release_asked(&piece.key) => {
                    entry.lost(&piece.key);
                    fate = fate.map(|lives| lives && entry.has_pieces());
                }
                Ok(false) => {
                    entry.lose();
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

/// Time for which renewals are waited for: an answer counts as long as what is asked for. The core sends another one meanwhile. A short
/// lease does not cut the others off.
fn patience(batch: &[Renewal<'_>], op_timeout: Duration) -> Duration {
    let longest = batch.iter().map(|renewal| renewal.ttl).max().unwrap_or(op_timeout);
    op_timeout.min(longest)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use lock_core::Owner;
    use lock_core::driver::MutexBackend;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

    use super::*;
    use crate::{MemcachedConfig, MemcachedLocks, RestartPolicy, connect};

    #[test]
    fn a_short_lease_does_not_cut_off_those_that_are_renewed_with_it() {
        let second = Duration::from_secs(1);
        let attempt = |ttl| Attempt::new("lock".into(), Kind::Mutex, Owner::new(), ttl).unwrap();
        let (short, long) = (attempt(second / 10), attempt(second * 10));
        let batch = [Renewal::new(&short, second / 10), Renewal::new(&long, second * 10)];
        assert_eq!(patience(&batch, second * 2), second * 2);
        assert_eq!(patience(&batch[..1], second * 2), second / 10);
        // What is asked for counts, and not the time for which it was taken.
        assert_eq!(patience(&[Renewal::new(&short, second * 10)], second * 2), second * 2);
    }

    const TTL: Duration = Duration::from_secs(60);
    const KEY: &str = "lock:mutex:a";

    /// Uses of the connection that wait for it. A renewal has fewer steps.
    const OTHERS: usize = 20;

    /// A renewal that needs several steps, of a lock that `changed` has changed meanwhile; it comes behind all who wait for the connection.
    async fn renewed_before_others(changed: impl AsyncFnOnce(&MemcachedServer, &Attempt)) -> Option<Renewed> {
        let server = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await)?;
        let config = MemcachedConfig::new(server.url())
            .with_restart_policy(RestartPolicy::Off)
            .with_longest_lease(TTL)
            .with_connections(1);
        let backend = connect::connect(&config).await.unwrap();
        let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), TTL).unwrap();
        backend.try_lock(&attempt).await.unwrap().unwrap();
        changed(&server, &attempt).await;
        let link = &backend.renewer.link;
        let in_use = link.for_steps(link.deadline()).await.unwrap();
        let mut others = Box::pin(join_all((0..OTHERS).map(|_| async {
            let used = link.for_steps(link.deadline()).await.unwrap();
            tokio::task::yield_now().await;
            drop(used);
        })));
        assert!((&mut others).now_or_never().is_none());
        let batch = [Renewal::new(&attempt, TTL)];
        let mut renewal = Box::pin(backend.renewer.renew(&batch));
        assert!((&mut renewal).now_or_never().is_none());
        drop(in_use);
        tokio::select! {
            biased;
            () = others.map(drop) => panic!("all others came before a step of the renewal"),
            mut renewed = renewal => renewed.pop(),
        }
    }

    #[tokio::test]
    async fn an_item_that_has_changed_is_found_again_before_others_have_the_connection() {
        let changed = async |server: &MemcachedServer, _: &Attempt| {
            let raw = server.client();
            let (value, unique) = raw.gets(KEY).await.unwrap().unwrap();
            assert!(raw.cas(KEY, std::str::from_utf8(&value).unwrap(), 60, unique).await.unwrap());
        };
        let Some(renewed) = renewed_before_others(changed).await else { return };
        assert!(matches!(renewed, Renewed::For(_)), "{renewed:?}");
    }

    #[tokio::test]
    async fn the_reason_of_a_loss_is_read_before_others_have_the_connection() {
        let changed = async |server: &MemcachedServer, attempt: &Attempt| {
            let config =
                MemcachedConfig::new(server.url()).with_restart_policy(RestartPolicy::Off).with_longest_lease(TTL);
            let operator = MemcachedLocks::connect_with(config).await.unwrap();
            assert!(operator.mutex("a").force_release(attempt.id, "it hangs").await.unwrap());
        };
        let Some(renewed) = renewed_before_others(changed).await else { return };
        assert!(matches!(renewed, Renewed::Lost(LossReason::ForceReleased { .. })), "{renewed:?}");
    }
}
