//! Several acquisitions in one step of the backend: all of them, or none.

use std::sync::Arc;
use std::time::Duration;

use super::given_back::GivenBack;
use super::{AcquireRequest, Core, Undo, closed};
use crate::driver::bound::bounded;
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

/// Asks for all of these in one step, without waiting.
///
/// From before the first request until the outcome is known, dropping this future hands every attempt to the reaper.
///
/// # Errors
/// Those of one acquisition without waiting. Unless the backend told it and it is definite, every attempt is handed to the reaper.
pub(crate) async fn several(core: &Arc<Core>, requests: &[AcquireRequest<'_>]) -> Result<SeveralLeases, Error> {
    let undos = undos(core, requests, core.options.op_timeout)?;
    let began = core.keeper.clock.now();
    let mut operation = Operation::acquire_several(core.keeper.backend_name, requests.len());
    let outcome = operation.run(ask_past_own(core, undos, requests)).await;
    match &outcome {
        Ok(SeveralLeases::Granted(leases)) => {
            let waited = core.keeper.clock.now().since(began);
            leases.iter().for_each(|_| core.keeper.meters.granted(waited));
            operation.note("waited", tracing::field::debug(waited));
            operation.ends("granted");
        }
        Ok(SeveralLeases::Held) => operation.ends("refused"),
        Ok(SeveralLeases::OneByOne) => operation.ends("one_by_one"),
        Err(error) => operation.fails(error),
    }
    outcome
}

/// An attempt for each of these, which is undone unless it is disarmed.
fn undos<'a>(core: &'a Core, requests: &[AcquireRequest<'_>], op_timeout: Duration) -> Result<Vec<Undo<'a>>, Error> {
    let mut undos = Vec::with_capacity(requests.len());
    for request in requests {
        match core.attempt(request, op_timeout) {
            Ok(attempt) => undos.push(Undo::of(core, attempt)),
            Err(error) => {
                undos.into_iter().for_each(Undo::disarm);
                return Err(core.named(error, request.name));
            }
        }
    }
    Ok(undos)
}

/// Asks, and once more if one was refused while this client gave it back.
async fn ask_past_own<'a>(
    core: &'a Arc<Core>,
    mut undos: Vec<Undo<'a>>,
    requests: &[AcquireRequest<'_>],
) -> Result<SeveralLeases, Error> {
    let mut given_back = GivenBack::of(core, requests.iter().map(|request| request.name));
    loop {
        let outcome = ask(core, undos, requests).await;
        let (Ok(SeveralLeases::Held), Some(given_back)) = (&outcome, given_back.take()) else { return outcome };
        let Some(left) = given_back.tried(core).await else { return outcome };
        undos = self::undos(core, requests, left)?;
    }
}

async fn ask(core: &Arc<Core>, undos: Vec<Undo<'_>>, requests: &[AcquireRequest<'_>]) -> Result<SeveralLeases, Error> {
    // Those of one caller: an error is told with the name of the first.
    let named = |error: Error| requests.iter().take(1).fold(error, |error, first| core.named(error, first.name));
    if core.keeper.shutdown.has_begun() {
        undos.into_iter().for_each(Undo::disarm);
        return Err(named(closed()));
    }
    let attempts: Vec<Arc<Attempt>> = undos.iter().map(|undo| undo.attempt.clone()).collect();
    let attempts: Vec<&Attempt> = attempts.iter().map(|attempt| &**attempt).collect();
    let op_timeout = attempts.first().map_or(core.options.op_timeout, |attempt| attempt.op_timeout);
    let asked = core.keeper.backend.try_several(&attempts);
    let answer = tokio::select! {
        biased;
        answer = bounded(&*core.keeper.clock, op_timeout, Phase::Acquire, asked) => answer,
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
    let live = live.collect::<Result<Vec<_>, _>>()?;
    let each = undos.into_iter().zip(live).zip(grants);
    Ok(each.map(|((undo, live), grant)| core.leased(undo, live, grant)).collect())
}
