//! The intervals in which a holder certainly believed in its lock.

use super::claim::Claim;
use super::ledger::Ledger;
use super::mark::{CallEnd, Mark};
use super::piece::Piece;
use crate::history::event::Sample;

/// From the first to the last instant at which the holder said that it held. Between two such answers it is taken to
/// have held, because a lock that was lost stays lost.
pub(super) fn belief(claim: &Claim<'_>) -> Option<(Mark, Mark)> {
    let (from, granted) = claim.granted()?;
    if granted.sample.held == Some(false) {
        return None;
    }
    let over = first_denial(claim);
    let is_before = |mark: Mark| over.is_none_or(|over| mark < over);
    let checks =
        claim.checks.iter().filter(|(mark, sample)| is_held(sample) && is_before(*mark)).map(|(mark, _)| *mark);
    let releases = claim.releases.first().filter(|release| is_before(release.asked));
    let released = releases.filter(|release| match release.asks.held {
        Some(held) => held,
        // Who cannot be asked is believed to hold until the release, unless its answer says otherwise.
        None => release.outcome.not_held().is_none(),
    });
    let to = checks.chain(released.map(|release| release.asked)).max().unwrap_or(from);
    Some((from, to.max(from)))
}

/// Returns the holder's first statement, or the first message to it, that it does not hold any more.
pub(super) fn first_denial(claim: &Claim<'_>) -> Option<Mark> {
    denials(claim).chain(claim.lost.map(|(mark, _)| mark)).min()
}

/// Returns the holder's statements that it does not hold any more.
pub(super) fn denials<'c>(claim: &'c Claim<'_>) -> impl Iterator<Item = Mark> + 'c {
    let checks = claim.checks.iter().filter(|(_, sample)| !is_held(sample)).map(|(mark, _)| *mark);
    let released = claim.releases.iter().filter(|release| !is_held(release.asks)).map(|release| release.asked);
    checks.chain(released)
}

fn is_held(sample: &Sample) -> bool {
    sample.held != Some(false)
}

/// The belief in parts, but for the time in which the holder could not know that it had been robbed.
pub(super) fn pieces(ledger: &Ledger<'_>, place: usize) -> Vec<Piece> {
    let claim = &ledger.claims[place];
    ledger
        .thefts_from(claim)
        .fold(parts(place, claim), |pieces, theft| pieces.into_iter().flat_map(|piece| theft.spare(piece)).collect())
}

/// A downgrade and a partial release make a belief weaker from the instant at which they are asked for.
fn parts(place: usize, claim: &Claim<'_>) -> Vec<Piece> {
    let Some((from, to)) = belief(claim) else { return Vec::new() };
    let mut pieces = vec![Piece { claim: place, from, to, kind: claim.ask.kind, permits: claim.ask.permits }];
    for change in &claim.changes {
        if matches!(change.outcome, CallEnd::Fail(..)) || change.asked >= to {
            continue;
        }
        if let Some(last) = pieces.last_mut() {
            last.to = change.asked.max(last.from);
        }
        // Without an answer nobody knows what is left of it.
        if !matches!(change.outcome, CallEnd::Ok(..)) {
            break;
        }
        let (kind, permits) = (change.asks.kind, change.asks.permits);
        pieces.push(Piece { claim: place, from: change.asked, to, kind, permits });
    }
    pieces
}
