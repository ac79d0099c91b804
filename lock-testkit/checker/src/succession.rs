//! The order of holders. Of two holders that exclude each other, the one that was there first is gone when the other one
//! certainly holds, whatever was heard of its release.
//!
//! The order goes by certain facts only: one had its hold behind it or was in it when its answer came, the other one is in its own
//! later. Holds have no gaps and do not overlap, so the first is over by then.

use super::belief::pieces;
use super::claim::Claim;
use super::ledger::{Ledger, LockClaims};
use super::mark::CallEnd;
use crate::history::event::Kind;

/// Writes down by when each claim is gone, where a later holder proves it.
pub(super) fn note(ledger: &mut Ledger<'_>) {
    let mut gone = Vec::new();
    // Levels of one owner do not exclude each other, and of permits several are held at once.
    for lock in ledger.locks.iter().filter(|lock| !matches!(lock.kind, Kind::Reentrant | Kind::Sem)) {
        gone.extend(successions(ledger, lock));
    }
    for (place, by) in gone {
        ledger.claims[place].gone_by = Some(by);
    }
}

/// The places of claims, and the first instant after each at which somebody certainly held whom it excludes.
fn successions(ledger: &Ledger<'_>, lock: &LockClaims<'_>) -> Vec<(usize, u64)> {
    let (mut all, mut writers) = (Vec::new(), Vec::new());
    for piece in lock.claims.iter().filter_map(|place| pieces(ledger, *place).into_iter().next()) {
        all.push(piece.from.t);
        writers.extend(piece.kind.is_exclusive().then_some(piece.from.t));
    }
    all.sort_unstable();
    writers.sort_unstable();
    let next = |place: &usize| {
        let claim = &ledger.claims[*place];
        let (since, others) = (begun_by(claim)?, if is_shared(claim) { &writers } else { &all });
        Some((*place, *others.get(others.partition_point(|t| *t <= since))?))
    };
    lock.claims.iter().filter_map(next).collect()
}

/// Returns by when the server had granted it, if it ever did; `None` if that may still have happened later.
fn begun_by(claim: &Claim<'_>) -> Option<u64> {
    match claim.answer {
        CallEnd::Ok(mark, _) => Some(mark.t),
        CallEnd::Fail(mark, _) if claim.is_grouped() => Some(mark.t),
        CallEnd::Fail(..) | CallEnd::Info(_) | CallEnd::Pending => None,
    }
}

/// Whether readers may be beside it, in the end at least: a writer can become one.
fn is_shared(claim: &Claim<'_>) -> bool {
    claim.ask.kind == Kind::Read || !claim.changes.is_empty()
}
