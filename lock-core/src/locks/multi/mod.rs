//! Several locks at once: all or nothing, in one order everywhere, so that two callers never wait for each other.
//!
//! # In one step or one by one
//! A step of the server that takes all of them or none is tried first, if it has one: one request, and nobody ever sees a part of them
//! held. In memory there always is one; on Redis for up to 64 locks on one server, or in one slot of a cluster; on ZooKeeper for up to
//! 64 that are not at shared paths.
//!
//! If one of them is held, a try is over. A wait goes on one by one, in the order of the names: a caller that waits for a lock holds only
//! locks before it, so no two callers wait for each other. Without such a step, locks are taken one by one from the start.

mod all_held;
mod guard;
mod lockable;
mod lost_one;
mod one_guard;
mod one_step;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{Core, Wait};
use crate::clock::Deadline;
use crate::driver::bound;
use crate::error::{Error, Phase};
#[cfg(doc)]
use crate::{ErrorKind, Mutex};

pub use guard::MultiGuard;
pub use lockable::Lockable;
pub use lost_one::LostOne;
pub use one_guard::OneGuard;
use one_step::{Certainty, OneStep, one_step};
use taking::Taking;

/// Locks all of these, waiting as long as it takes.
///
/// Any mix of mutexes and write locks, fenced or not: anything that is a [`Lockable`]. They are taken
/// [in one step](self#in-one-step-or-one-by-one), or else one after the other in the order of their names, not of the arguments. All
/// must come from one client: names of different clients have no common order.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let both = lock_core::multi::lock_all([locks.mutex("to"), locks.mutex("from")]).await?;
/// assert_eq!(both.guards()[0].name().as_str(), "from");
/// both.release().await
/// # }
/// ```
///
/// # Errors
/// Those of [`Mutex::lock`]; [`ErrorKind::InvalidArgument`] if there is none, if a lock
/// comes twice, or if they come from different clients; [`ErrorKind::Lost`] if one was lost while
/// the others were waited for: the wait that it cuts short is undone in the background. What was taken is released first. If that is not confirmed in time (as for [`try_lock_all`]), it goes on in the
/// background, and the error is [`ErrorKind::Indeterminate`] with the other one as its source.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
///
/// Do not keep this future without polling it (in a `select!` loop, say): it keeps what it has taken and its place in the next queue, and
/// may be handed a lock that blocks everybody, each for up to one TTL, on ZooKeeper a place for as long as its client lives. Spawn it, or
/// drop it.
pub async fn lock_all(locks: impl IntoIterator<Item = impl Into<Lockable>>) -> Result<MultiGuard, Error> {
    let (locks, core) = sorted(locks)?;
    let before = match one_step(&core, &locks, Wait::Until(Deadline::NEVER)).await? {
        OneStep::Taken(all) => return Ok(all),
        OneStep::Held => Certainty::Known,
        OneStep::OneByOne(before) => before,
    };
    let mut taking = Taking::begin(core.clone(), before);
    for lock in &locks {
        if let Err(error) = taking.one(async { lock.lock().await.map(Some) }).await {
            return Err(taking.put_back().await.after(error));
        }
    }
    taking.checked().await
}

/// Locks all of these without waiting; `Ok(None)` and none of them if one is held.
///
/// In [one step](self#in-one-step-or-one-by-one), a refusal leaves nothing to release. Otherwise the call first releases what it took. It
/// waits for that for at most 100 ms or, on a slow link, twice as long as the quickest of them took to acquire, and never longer than
/// one operation timeout. A release that is not confirmed by then goes on in the background.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::multi::try_lock_all;
///
/// let both = || [locks.mutex("from"), locks.mutex("to")];
/// let held = try_lock_all(both()).await?.expect("nobody else is here");
/// assert!(try_lock_all(both()).await?.is_none());
/// held.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::Unavailable`] or
/// [`ErrorKind::Indeterminate`] if the server does not answer, and the others of
/// [`lock_all`]. What was taken is released, as there.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn try_lock_all(locks: impl IntoIterator<Item = impl Into<Lockable>>) -> Result<Option<MultiGuard>, Error> {
    try_lock_all_for(locks, Duration::ZERO).await
}

/// Waits for all of these for at most this long in all; `Ok(None)` and none of them if one is still held then. What was taken is
/// released as in [`try_lock_all`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::multi::try_lock_all_for;
///
/// let held = locks.mutex("to").lock().await?;
/// let both = [locks.mutex("from"), locks.mutex("to")];
/// assert!(try_lock_all_for(both, std::time::Duration::from_millis(10)).await?.is_none());
/// assert!(locks.mutex("from").try_lock().await?.is_some()); // what it had is free again
/// held.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::Unavailable`] or
/// [`ErrorKind::Indeterminate`] if the server does not answer, and the others of
/// [`lock_all`]. What was taken is released, as there.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn try_lock_all_for(
    locks: impl IntoIterator<Item = impl Into<Lockable>>,
    wait: Duration,
) -> Result<Option<MultiGuard>, Error> {
    let (locks, core) = sorted(locks)?;
    let clock = &core.keeper.clock;
    let deadline = Deadline::after(clock.now(), wait);
    let before = match one_step(&core, &locks, core.deadline(wait)).await? {
        OneStep::Taken(all) => return Ok(Some(all)),
        OneStep::Held if deadline.has_passed(clock.now()) => {
            core.keeper.meters.refused();
            return Ok(None);
        }
        OneStep::Held => Certainty::Known,
        OneStep::OneByOne(before) => before,
    };
    let mut taking = Taking::begin(core.clone(), before);
    for lock in &locks {
        let wait = match deadline.has_passed(clock.now()) {
            true if wait.is_zero() => Wait::Try,
            true => Wait::Once,
            false => Wait::Until(deadline),
        };
        // One end for all of them, however many answers come late.
        let one = bound::by(&**clock, deadline.instant(), core.options.op_timeout, Phase::Wait, lock.acquire(wait));
        // That end says nothing of the lock.
        let complete = |error: Error| if error.name().is_some() { error } else { core.refuses(error, lock.name()) };
        match taking.one(async { one.await.map_err(complete) }).await {
            Ok(true) => {}
            Ok(false) => {
                // Nobody's next try is to meet what this one had.
                taking.put_back().await;
                return Ok(None);
            }
            Err(error) => return Err(taking.put_back().await.after(error)),
        }
    }
    taking.checked().await.map(Some)
}

/// The locks in the order in which they are taken, and their client's core.
fn sorted(locks: impl IntoIterator<Item = impl Into<Lockable>>) -> Result<(Vec<Lockable>, Arc<Core>), Error> {
    let mut locks: Vec<Lockable> = locks.into_iter().map(Into::into).collect();
    locks.sort_by(|one, other| one.place().cmp(&other.place()));
    let Some(first) = locks.first() else { return Err(Error::invalid(Phase::Configure, "no lock was named")) };
    let core = first.core().clone();
    for pair in locks.windows(2) {
        if pair[0].place() == pair[1].place() {
            let what = "a lock is named twice: the second would wait for the first for ever";
            return Err(core.refuses(Error::invalid(Phase::Configure, what), pair[0].name()));
        }
        if !Arc::ptr_eq(pair[0].core(), pair[1].core()) {
            let what = "the locks come from different clients, which have no common order";
            return Err(core.refuses(Error::invalid(Phase::Configure, what), pair[1].name()));
        }
    }
    Ok((locks, core))
}
