//! The order of holders. Of two holders that exclude each other, the one that was there first is gone when the other one
//! certainly holds, whatever was heard of its release.
//!
//! The order goes by certain facts only: one had its hold behind it or was in it when its answer came, the other one is in its own
//! later. Holds have no gaps and do not overlap, so the first is over by then.

use super::belief::pieces;
use super::claim::Claim;
use super::ledger::{Ledger, LockClaims};
use super::mark::CallEnd;
use crate::history::event::{Kind, Text};

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
    for place in &lock.claims {
        let Some(piece) = pieces(ledger, *place).into_iter().next() else { continue };
        let hold = (piece.from.t, &ledger.claims[*place].ask.owner);
        all.push(hold);
        writers.extend(piece.kind.is_exclusive().then_some(hold));
    }
    let (all, writers) = (Beginnings::of(all), Beginnings::of(writers));
    let next = |place: &usize| {
        let claim = &ledger.claims[*place];
        let (since, others) = (begun_by(claim)?, if is_shared(claim) { &writers } else { &all });
        // An owner of a read-write lock does not keep itself out: a writer may read as well.
        let owner = (lock.kind != Kind::Mutex).then_some(&claim.ask.owner);
        Some((*place, others.after(since, owner)?))
    };
    lock.claims.iter().filter_map(next).collect()
}

/// The instants at which somebody certainly held, with the owner, in order.
struct Beginnings<'h> {
    holds: Vec<(u64, &'h Text)>,
    /// For each of them the place of the next one of another owner.
    next_owner: Vec<usize>,
}

impl<'h> Beginnings<'h> {
    fn of(mut holds: Vec<(u64, &'h Text)>) -> Self {
        holds.sort_unstable();
        let mut next_owner = vec![holds.len(); holds.len()];
        for place in (1..holds.len()).rev() {
            let is_another = holds[place - 1].1 != holds[place].1;
            next_owner[place - 1] = if is_another { place } else { next_owner[place] };
        }
        Self { holds, next_owner }
    }

    /// Returns the first instant after this one, of another owner than this one.
    fn after(&self, since: u64, owner: Option<&Text>) -> Option<u64> {
        let first = self.holds.partition_point(|(t, _)| *t <= since);
        let (t, by) = self.holds.get(first)?;
        if owner == Some(*by) { self.holds.get(self.next_owner[first]).map(|(t, _)| *t) } else { Some(*t) }
    }
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
