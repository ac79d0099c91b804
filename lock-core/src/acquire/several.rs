//! Several acquisitions in one step of the backend: all of them, or none.

use std::sync::Arc;

use super::own_releases::OwnReleases;
use super::{AcquireRequest, Core, Undo, Wait, closed};
use crate::clock::BootInstant;
use crate::driver::bound;
use crate::driver::{Attempt, Grant, SeveralOutcome};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::trace::Operation;

/// The outcome of one step for several locks.
#[derive(Debug)]
pub(crate) enum SeveralLeases {
    /// The leases, in the order of the requests.
    Granted(Vec<Lease>),
    /// One of them is held; nothing of any of them is left.
    Held,
    /// There is no such step here; nothing of any of them is left.
    OneByOne,
}

/// Asks for all of these in one step, without waiting: for a try, or at the beginning of a wait.
///
/// From before the first request until the outcome is known, dropping this future hands every attempt to the reaper.
///
/// # Errors
/// Those of one acquisition without waiting. Unless the backend told it and it is definite, every attempt is handed to the reaper.
pub(crate) async fn several(
    core: &Arc<Core>,
    requests: &[AcquireRequest<'_>],
    wait: Wait,
) -> Result<SeveralLeases, Error> {
    let began = core.keeper.clock.now();
    let mut own_releases = match wait {
        Wait::Try => OwnReleases::of(core, requests),
        Wait::Once | Wait::Until(_) => None,
    };
    let mut limit = None;
    loop {
        let outcome = once(core, requests, began, limit).await;
        let (Ok(SeveralLeases::Held), Some(own_releases)) = (&outcome, own_releases.take()) else { return outcome };
        limit = own_releases.tried(core).await;
        if limit.is_none() {
            return outcome;
        }
    }
}

/// One attempt at each of these, for a call that began at this instant. With a limit they are given up then.
async fn once(
    core: &Arc<Core>,
    requests: &[AcquireRequest<'_>],
    began: BootInstant,
    limit: Option<BootInstant>,
) -> Result<SeveralLeases, Error> {
    let mut undos = Vec::with_capacity(requests.len());
    for request in requests {
        match core.attempt(request) {
            Ok(attempt) => undos.push(Undo::of(core, attempt)),
            Err(error) => {
                undos.into_iter().for_each(Undo::disarm);
                return Err(core.named(error, request.name));
            }
        }
    }
    let mut operation = Operation::acquire_several(core.keeper.backend_name, requests.len());
    let outcome = operation.run(ask(core, undos, requests, limit)).await;
    match &outcome {
        Ok(SeveralLeases::Granted(leases)) => {
            let waited = core.keeper.clock.now().since(began);
            leases.iter().for_each(|_| core.keeper.meters.granted(waited));
            operation.note("waited", tracing::field::debug(waited));
            operation.ends("granted");
        }
        Ok(SeveralLeases::Held) => operation.ends("refused"),
        Ok(SeveralLeases::OneByOne) => operation.ends("one_by_one"),
        // Whether the call has failed is for its caller to say, which may have another way.
        Err(error) => operation.fails(error),
    }
    outcome
}

async fn ask(
    core: &Arc<Core>,
    undos: Vec<Undo<'_>>,
    requests: &[AcquireRequest<'_>],
    limit: Option<BootInstant>,
) -> Result<SeveralLeases, Error> {
    // Those of one caller: an error is told with the name of the first.
    let named = |error: Error| requests.iter().take(1).fold(error, |error, first| core.named(error, first.name));
    if core.keeper.shutdown.has_begun() {
        undos.into_iter().for_each(Undo::disarm);
        return Err(named(closed()));
    }
    core.keeper.reaper.ensure_running();
    let attempts: Vec<Arc<Attempt>> = undos.iter().map(|undo| undo.attempt.clone()).collect();
    let attempts: Vec<&Attempt> = attempts.iter().map(|attempt| &**attempt).collect();
    let (clock, op_timeout) = (&*core.keeper.clock, core.options.op_timeout);
    let asked = core.keeper.backend.try_several(&attempts);
    let answer = tokio::select! {
        biased;
        answer = bound::until(clock, clock.now(), op_timeout, limit, Phase::Acquire, asked) => answer,
        () = core.keeper.shutdown.begun() => Err(closed().ended_early()),
    };
    let refused = match answer {
        Ok(SeveralOutcome::Granted(grants)) => {
            return granted(core, undos, requests, &grants).map(SeveralLeases::Granted);
        }
        Ok(SeveralOutcome::Held) => Ok(SeveralLeases::Held),
        Ok(SeveralOutcome::OneByOne) => Ok(SeveralLeases::OneByOne),
        Err(error) if error.is_definite() => Err(named(error)),
        // Dropping `undos` undoes each.
        Err(error) => return Err(named(error)),
    };
    undos.into_iter().for_each(Undo::disarm);
    refused
}

/// Turns the grants into leases, unless one of them came so late that nothing is left of it: then all are released.
fn granted(
    core: &Arc<Core>,
    undos: Vec<Undo<'_>>,
    requests: &[AcquireRequest<'_>],
    grants: &[Grant],
) -> Result<Vec<Lease>, Error> {
    if grants.len() != requests.len() {
        let what =
            format!("the backend gave {} grants for {} attempts; they are released", grants.len(), requests.len());
        let error = Error::new(ErrorKind::Protocol, Phase::Acquire, what);
        return Err(requests.iter().take(1).fold(error, |error, first| core.named(error, first.name)));
    }
    let each = undos.iter().zip(requests).zip(grants);
    let live = each.map(|((undo, request), grant)| core.live(undo, request.lease, grant));
    // All are judged before one of them is disarmed: an error here drops `undos`, which releases every grant.
    let live = live.collect::<Result<Vec<_>, _>>()?;
    let each = undos.into_iter().zip(live).zip(grants);
    Ok(each.map(|((undo, live), grant)| core.leased(undo, live, grant)).collect())
}
