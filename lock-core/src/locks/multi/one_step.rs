//! Several locks in one step, where the backend has one.

use std::sync::Arc;

use super::guard::MultiGuard;
use super::lockable::Lockable;
use crate::acquire::{Core, SeveralLeases, Wait, several};
use crate::error::{Error, ErrorKind};

/// The outcome of one step for all of the locks.
#[derive(Debug)]
pub(super) enum OneStep {
    Taken(MultiGuard),
    /// One of them is held.
    Held,
    /// They are to be taken one by one.
    OneByOne(Certainty),
}

/// The certainty that a step left nothing behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    Known,
    /// A part may be taken, and is undone in the background.
    Unknown,
}

impl Certainty {
    /// After a step that failed.
    fn after(error: &Error) -> Self {
        if error.is_definite() { Self::Known } else { Self::Unknown }
    }
}

/// Takes all of them in one step. After an error there is a second way as long as there is time.
pub(super) async fn one_step(core: &Arc<Core>, locks: &[Lockable], wait: Wait) -> Result<OneStep, Error> {
    // One lock is taken in one step anyway.
    if locks.len() < 2 {
        return Ok(OneStep::OneByOne(Certainty::Known));
    }
    let uses = locks.iter().map(Lockable::used).collect::<Result<Vec<_>, _>>()?;
    let requests: Vec<_> = locks.iter().map(Lockable::request).collect();
    let leases = match several(core, &requests, wait).await {
        Ok(SeveralLeases::Granted(leases)) => leases,
        Ok(SeveralLeases::Held) => return Ok(OneStep::Held),
        Ok(SeveralLeases::OneByOne) => return Ok(OneStep::OneByOne(Certainty::Known)),
        Err(error) if error.kind() == ErrorKind::Closed || wait.is_over(core.keeper.clock.now()) => {
            core.keeper.meters.failed(error.kind());
            return Err(error);
        }
        Err(error) => return Ok(OneStep::OneByOne(Certainty::after(&error))),
    };
    let mut all = MultiGuard::none();
    for ((lock, lease), used) in locks.iter().zip(leases).zip(uses) {
        all.push(lock.guard(lease, used)?);
    }
    Ok(OneStep::Taken(all))
}
