//! The backend: what every kind of lock shares.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::{Clock, SystemClock};
use lock_core::driver::{Attempt, Backend, Cancelled, Kind, Operator, Released, Renewal, Renewed};
use lock_core::{Error, ErrorKind, Guarantees, Phase, driver::wait};

use crate::client::health;
use crate::client::link::Link;
use crate::config::{MemcachedConfig, RestartPolicy};
use crate::epoch::gate::EpochGate;
use crate::registry::Registry;
use crate::renew;
use crate::store::keys::{self, Key, Keys};
use crate::store::pieces::Removed;
use crate::store::record::HolderInfoWriter;
use crate::store::ttl;
use crate::wait::hand_over::HandedOver;
use crate::wait::pace::Pace;
use crate::wait::queue::WaitQueues;

/// One client's connections to a server, and its waiters.
#[derive(Debug)]
pub struct MemcachedBackend {
    pub(crate) shared: Arc<Shared>,
    guarantees: Guarantees,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) gate: EpochGate,
    pub(crate) keys: Keys,
    pub(crate) registry: Registry,
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) pace: Pace,
    pub(crate) holder_info: HolderInfoWriter,
    pub(crate) op_timeout: Duration,
    pub(crate) longest_lease: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) readers: u32,
}

impl MemcachedBackend {
    pub(crate) async fn connect(config: &MemcachedConfig) -> Result<Self, Error> {
        let (address, op_timeout) = (config.check()?, config.client.op_timeout);
        let link = Link::new(address, config.connections, op_timeout).await?;
        let keys = Keys::new(&config.prefix);
        let gate = EpochGate::new(config, keys.epoch.clone());
        // First of all: its look at the server's clock has to go over a connection that was just opened.
        gate.begin(&link).await?;
        let evicts = health::check(&link, config).await?;
        let off = config.restart_policy == RestartPolicy::Off;
        let shared = Arc::new(Shared {
            link,
            gate,
            keys,
            registry: Registry::default(),
            queues: Arc::default(),
            pace: Pace::default(),
            holder_info: HolderInfoWriter::default(),
            op_timeout,
            longest_lease: if off { lock_core::LeaseOptions::MAX_TTL } else { config.longest_lease },
            longest_pause: config.longest_pause,
            readers: config.readers,
        });
        let guarantees = crate::guarantees(config.restart_policy);
        Ok(Self { shared, guarantees: if evicts { crate::evicting(guarantees) } else { guarantees } })
    }
}

impl Shared {
    /// Bounds a request by the attempt's operation timeout.
    pub(crate) async fn within<T>(
        &self,
        attempt: &Attempt,
        phase: Phase,
        request: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        // Pinned here: handed on by value, it would be part of each layer's future once more.
        let bounded = wait::within(&SystemClock, attempt, phase, pin!(request)).await;
        bounded.map_err(|error| error.with_server(self.link.address().to_string()))
    }

    /// Bounds what an operator asks for by the operation timeout.
    pub(crate) async fn in_time<T>(&self, request: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let late = SystemClock.sleep_until(SystemClock.now().plus(self.op_timeout));
        tokio::select! {
            biased;
            answer = pin!(request) => answer,
            () = late => {
                let error = Error::indeterminate(Phase::Inspect, "no answer within the operation timeout");
                Err(error.with_backend(crate::NAME).with_server(self.link.address().to_string()))
            }
        }
    }

    /// The key of a lock, if its lease is one that may be had.
    pub(crate) fn key_of(&self, attempt: &Attempt) -> Result<Key, Error> {
        self.check_ttl(attempt, attempt.ttl)?;
        self.keys.lock(&attempt.name, attempt.kind)
    }

    fn check_ttl(&self, attempt: &Attempt, ttl: Duration) -> Result<(), Error> {
        if ttl <= self.longest_lease {
            return Ok(());
        }
        let what = format!("the TTL is {ttl:?}, above the client's longest_lease of {:?}", self.longest_lease);
        Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what))
    }

    /// Has those in line look at once whose lock may be free now.
    pub(crate) fn wake(&self, lock: &Key, kind: Kind) {
        match kind {
            Kind::Read | Kind::Write => {
                self.queues.wake(&keys::writer(lock));
                self.queues.wake(&keys::readers(lock));
            }
            _ => self.queues.wake(lock),
        }
    }
}

/// The line in which a holder of the whole lock finds the next one.
fn queue_of_next(lock: &Key, kind: Kind) -> Option<Key> {
    match kind {
        Kind::Mutex | Kind::Reentrant => Some(lock.clone()),
        Kind::Write => Some(keys::writer(lock)),
        _ => None,
    }
}

#[async_trait]
impl Backend for MemcachedBackend {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        let shared = &self.shared;
        if let Some(renewal) = batch.iter().find(|renewal| renewal.ttl > shared.longest_lease)
            && let Err(error) = shared.check_ttl(renewal.attempt, renewal.ttl)
        {
            // Only an extension by hand asks for so much, and asks alone.
            return vec![Renewed::Unknown(error)];
        }
        let late = SystemClock.sleep_until(SystemClock.now().plus(renew::patience(batch, shared.op_timeout)));
        tokio::select! {
            biased;
            renewed = shared.renew_all(batch) => renewed,
            () = late => {
                let unknown = |renewal: &Renewal<'_>| {
                    let what = "no answer in time";
                    Renewed::Unknown(renewal.attempt.error(ErrorKind::Indeterminate, Phase::Renew, what))
                };
                batch.iter().map(unknown).collect()
            }
        }
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        let shared = &self.shared;
        let Some(entry) = shared.registry.get(attempt.id) else { return Ok(Released::NotHeld(None)) };
        let handed = match queue_of_next(&entry.lock, attempt.kind) {
            Some(queue) => shared.hand_over(&queue, attempt, &entry).await,
            None => HandedOver::No,
        };
        if handed == HandedOver::Yes {
            shared.forget_holder(&entry);
            shared.registry.close(attempt.id);
            return Ok(Released::Done);
        }
        let freed = shared.within(attempt, Phase::Release, shared.release_all(&entry, Phase::Release)).await?;
        shared.forget_holder(&entry);
        shared.registry.close(attempt.id);
        shared.wake(&entry.lock, attempt.kind);
        if handed == HandedOver::Perhaps || freed.gone == 0 && freed != Removed::default() {
            return Ok(Released::Done);
        }
        let reasons = Box::pin(shared.forced([entry.nonce].into_iter())).await;
        Ok(Released::NotHeld(reasons.into_iter().next().flatten()))
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        let shared = &self.shared;
        let Some(entry) = shared.registry.get(attempt.id) else { return Ok(Cancelled::Settled) };
        let undone = async {
            // A request that is under way is carried through first.
            let _turn = entry.turn().await;
            shared.release_all(&entry, Phase::Cancel).await?;
            shared.release_unanswered(&entry, Phase::Cancel).await
        };
        shared.within(attempt, Phase::Cancel, undone).await?;
        shared.forget_holder(&entry);
        shared.wake(&entry.lock, attempt.kind);
        Ok(if shared.registry.close(attempt.id) { Cancelled::Settled } else { Cancelled::AskAgain })
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.shared.registry.get(attempt.id).is_none()
    }

    fn outlasts_lease(&self) -> Duration {
        ttl::OUTLASTS
    }

    fn forget(&self, attempt: &Attempt) {
        self.shared.registry.forget(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }
}
