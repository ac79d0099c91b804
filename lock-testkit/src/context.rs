//! The context of a case: fresh names, independent clients, ground truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Error, ErrorKind, GrantId, Guarantee, Locks, Permit, Phase};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::abilities::Abilities;
use crate::adapters::{Exclusive, Form, Held};
use crate::failure::{Failure, OrFail, Verdict, ensure};
use crate::harness::{Admin, Foreign, Harness};
use crate::links::Links;
use crate::time::{eventually, hand_over, ms, pass, promptly, soon, ttl};

/// The surroundings of one run of one case.
pub(crate) struct Cx {
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) abilities: Abilities,
    pub(crate) form: Form,
    /// Fresh for this run: nothing else uses it.
    pub(crate) namespace: String,
    drain: OnceCell<std::sync::Mutex<Option<Permit>>>,
    /// The case's runtime, which outlives its isolated clients.
    home: Handle,
}

/// The lock that most cases are about; another one in every namespace.
pub(crate) const LOCK: &str = "the/lock";

impl Cx {
    pub(crate) fn new(
        harness: Arc<dyn Harness>,
        abilities: Abilities,
        form: Form,
        home: Handle,
    ) -> Result<Arc<Self>, Error> {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        // Random, because an existing deployment remembers earlier runs.
        let random = GrantId::random()?.to_string();
        let namespace = format!("testkit-{}-{}", &random[..12], RUNS.fetch_add(1, Ordering::Relaxed));
        Ok(Arc::new(Self { harness, abilities, form, namespace, drain: OnceCell::new(), home }))
    }

    /// A new client of this case's namespace.
    pub(crate) async fn client(&self) -> Result<Locks, Failure> {
        Ok(soon("connecting a client", ms(15_000), self.harness.connect(&self.namespace)).await??)
    }

    /// The case's lock in its form, through a client of its own.
    pub(crate) async fn contender(&self) -> Result<Exclusive, Failure> {
        self.lock_of(&self.client().await?).await
    }

    /// Links to the servers that nothing has gone over yet.
    pub(crate) fn links(&self) -> Result<Links, Failure> {
        Ok(Links::to(self.harness.linked().or_fail("the case needs links and did not say so")?)?)
    }

    /// A new client of this case's namespace, over these links.
    pub(crate) async fn client_at(&self, links: &Links) -> Result<Locks, Failure> {
        let linked = self.harness.linked().or_fail("the case needs links and did not say so")?;
        let connecting = linked.connect_at(&self.namespace, links.addresses());
        Ok(soon("connecting a client", ms(15_000), connecting).await??)
    }

    /// A contender with links of its own, over which a grant and its release have gone: no script is to be loaded and
    /// no directory to be made any more.
    pub(crate) async fn linked(&self) -> Result<(Exclusive, Links), Failure> {
        let links = self.links()?;
        let lock = self.lock_of(&self.client_at(&links).await?).await?;
        release(lock.lock().await?).await?;
        Ok((lock, links))
    }

    /// The case's lock in its form, through this client.
    pub(crate) async fn lock_of(&self, locks: &Locks) -> Result<Exclusive, Failure> {
        self.drained().await?;
        Ok(self.form.handle(locks, LOCK)?.with_ttl(ttl()))
    }

    /// Two contenders in independent clients.
    pub(crate) async fn two(&self) -> Result<(Exclusive, Exclusive), Failure> {
        Ok((self.contender().await?, self.contender().await?))
    }

    /// Three contenders in independent clients.
    pub(crate) async fn three(&self) -> Result<(Exclusive, Exclusive, Exclusive), Failure> {
        Ok((self.contender().await?, self.contender().await?, self.contender().await?))
    }

    /// Takes the permits that are not the case's, once.
    async fn drained(&self) -> Verdict {
        if self.form != Form::Drained {
            return Ok(());
        }
        let drain = async || -> Result<_, Failure> {
            let (harness, namespace, limit) = (self.harness.clone(), self.namespace.clone(), self.form.limit());
            // In the case's own runtime, even if an isolated client asks first: its client would go away with it.
            let drained = self.home.spawn(async move {
                let others = harness.connect(&namespace).await?.semaphore(LOCK, limit).or_fail("no semaphore")?;
                let permit = others.try_acquire_many(limit - 1).await?;
                permit.or_fail("a fresh semaphore has no free permits")
            });
            Ok(std::sync::Mutex::new(Some(soon("draining the semaphore", ms(15_000), drained).await???)))
        };
        self.drain.get_or_try_init(drain).await?;
        Ok(())
    }

    /// Releases the permits that are not the case's.
    async fn refill(&self) -> Verdict {
        let permit = self.drain.get().and_then(|slot| slot.lock().ok()?.take());
        if let Some(permit) = permit {
            permit.release().await?;
        }
        Ok(())
    }

    /// Waits until this many requests are in the queue. Where the backend does not show them, lets the time pass that a
    /// request may take to get in the queue.
    pub(crate) async fn queued(&self, lock: &Exclusive, waiters: usize) -> Verdict {
        if !(self.abilities.promises(Guarantee::Inspect) && self.abilities.promises(Guarantee::Fifo)) {
            pass(ms(50)).await;
            return Ok(());
        }
        let look = async || Ok((lock.inspect().await?.waiter_count() == waiters as u64).then_some(()));
        eventually(&format!("{waiters} waiters are in the queue"), hand_over(), look).await
    }

    /// The time by which the entry of a dead holder is free for others, at the latest: one second after the servers drop
    /// it.
    pub(crate) fn freed_by(&self, ttl: Duration) -> Duration {
        self.harness.kept_for(ttl) + ms(1000)
    }

    /// Somebody else, in a client of its own, is granted the lock within the time in which a free lock finds a waiter,
    /// and releases it.
    pub(crate) async fn is_obtainable(&self) -> Verdict {
        let other = self.contender().await?;
        let held = other.try_lock_for(hand_over()).await?.or_fail("the lock should be free, but was not granted")?;
        held.release().await?;
        Ok(())
    }

    /// Nobody else can have the lock: one try of this contender is refused.
    pub(crate) async fn is_refused(&self, other: &Exclusive) -> Verdict {
        let refused = soon("a try", promptly(), other.try_lock()).await??;
        ensure!(refused.is_none(), "the lock was granted although somebody holds it: {refused:?}");
        Ok(())
    }

    /// The servers have nothing left of this case (G5), where the harness can tell.
    pub(crate) async fn nothing_is_left(&self) -> Verdict {
        self.nothing_is_left_within(hand_over()).await
    }

    /// Expects nothing to be left after this time at the latest.
    pub(crate) async fn nothing_is_left_within(&self, within: std::time::Duration) -> Verdict {
        self.refill().await?;
        self.residue_within(within).await
    }

    /// The servers have nothing left of this case after this time at the latest.
    pub(crate) async fn residue_within(&self, within: std::time::Duration) -> Verdict {
        let Some(truth) = self.harness.ground_truth() else { return Ok(()) };
        let last = std::sync::Mutex::new(Vec::new());
        let look = async || {
            let residue = truth.residue(&self.namespace).await?;
            let clean = residue.is_empty();
            if let Ok(mut last) = last.lock() {
                *last = residue;
            }
            Ok(clean.then_some(()))
        };
        let outcome = eventually("the servers have nothing left", within, look).await;
        let last = last.into_inner().unwrap_or_default();
        outcome.map_err(|failure| failure.and(format_args!("left: {last:?}")))
    }

    pub(crate) fn admin(&self) -> Result<&dyn Admin, Failure> {
        self.harness.admin().or_fail("the case needs an admin and did not say so")
    }

    pub(crate) fn foreign(&self) -> Result<&dyn Foreign, Failure> {
        self.harness.foreign().or_fail("the case needs a foreign client and did not say so")
    }

    /// An admin deletes the entry of the case's lock.
    pub(crate) async fn delete_entry(&self) -> Verdict {
        Ok(self.admin()?.delete_entry(&self.namespace, &LOCK.into()).await?)
    }
}

/// An error that is about a lock carries its name and backend, and the phase in which it occurred.
pub(crate) fn is_complete(error: &Error, name: &str, phases: &[Phase]) -> Verdict {
    ensure!(error.name() == Some(name), "the error names the lock {:?}, not {name:?}: {error}", error.name());
    ensure!(error.backend().is_some(), "the error does not name the backend: {error}");
    ensure!(phases.contains(&error.phase()), "the error's phase is {}, not one of {phases:?}: {error}", error.phase());
    Ok(())
}

/// Releases what is still held, and says so if it was not.
pub(crate) async fn release(held: Held) -> Verdict {
    let lost = held.lost().now_or_never();
    let why = lost.map_or_else(String::new, |reason| format!(" ({reason})"));
    ensure!(held.is_held(), "the lock is not held any more before its release{why}: {held:?}");
    held.release().await?;
    Ok(())
}

/// A release whose reply was lost may have been done, or not be known to have been.
pub(crate) fn is_done_or_unknown(released: &Result<(), Error>) -> Verdict {
    let right = match released {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::Indeterminate && !error.is_definite(),
    };
    ensure!(right, "a release whose reply was lost says {released:?}");
    Ok(())
}
