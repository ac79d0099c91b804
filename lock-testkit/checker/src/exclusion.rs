//! ME, RW and SEM: who held what at the same time.
//!
//! Only certain intervals accuse. If they respect the bound, the order "every acquisition just before its answer, every
//! release just after its request" is legal; if they do not, no order is. So the sweep is exact, in O(n log n).

use std::collections::BTreeSet;

use super::belief::pieces;
use super::check::Check;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::Mark;
use super::piece::Piece;
use super::violation::Findings;
use crate::history::event::{Kind, Truth};

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        let mut held: Vec<_> = lock.claims.iter().flat_map(|claim| pieces(ledger, *claim)).collect();
        held.sort_by_key(|piece| piece.from);
        match lock.kind {
            Kind::Sem => permits(ledger, lock, &held, findings),
            _ => exclusion(ledger, lock, &held, findings),
        }
        shown_together(lock, findings);
    }
}

/// ME: the server itself never shows two holders of a mutex. (What it shows of the other kinds may be put together from
/// several answers.)
fn shown_together(lock: &LockClaims<'_>, findings: &mut Findings) {
    let several = |truth: &Truth| truth.kind == Kind::Mutex && truth.holders.iter().collect::<BTreeSet<_>>().len() > 1;
    for (mark, truth) in lock.truths.iter().filter(|(_, truth)| several(truth)) {
        let what = format!("the server has {} holders: {}", truth.holders.len(), truth.holders.join(", "));
        findings.add(Finding::new(Check::ME, what).of(lock.res).shown_by([*mark]));
    }
}

/// One step of the sweep. The order is the one that steps at one instant must have: a hold that ends there does not meet
/// one that begins there, and a hold of no length meets neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Ends,
    Touches,
    Begins,
}

/// Goes through the pieces in the order of time; `meet` is told of each one that begins.
fn sweep<'p>(held: &'p [Piece], mut meet: impl FnMut(Turn, usize, &'p Piece)) {
    let mut turns = Vec::with_capacity(2 * held.len());
    for (place, piece) in held.iter().enumerate() {
        if piece.from.t == piece.to.t {
            turns.push((piece.from.t, Turn::Touches, place));
        } else {
            turns.push((piece.from.t, Turn::Begins, place));
            turns.push((piece.to.t, Turn::Ends, place));
        }
    }
    turns.sort_unstable();
    for (_, turn, place) in turns {
        meet(turn, place, &held[place]);
    }
}

fn exclusion(ledger: &Ledger<'_>, lock: &LockClaims<'_>, held: &[Piece], findings: &mut Findings) {
    let (mut exclusive, mut shared) = (BTreeSet::new(), BTreeSet::new());
    sweep(held, |turn, place, piece| {
        let set = if piece.kind.is_exclusive() { &mut exclusive } else { &mut shared };
        if turn == Turn::Ends {
            set.remove(&place);
            return;
        }
        let meets = |other: &&usize| are_different(ledger, piece, &held[**other]);
        let readers = piece.kind.is_exclusive().then(|| shared.iter().rev().find(meets)).flatten();
        if let Some(other) = exclusive.iter().rev().find(meets).or(readers) {
            findings.add(overlap(ledger, lock, &held[*other], piece));
        }
        if turn == Turn::Begins {
            if piece.kind.is_exclusive() {
                exclusive.insert(place)
            } else {
                shared.insert(place)
            };
        }
    });
}

/// Whether two holds exclude each other. The levels of one owner's reentrant lock do not, nor does what one owner holds of
/// a read-write lock in two ways; every grant of a mutex is somebody else's.
fn are_different(ledger: &Ledger<'_>, one: &Piece, other: &Piece) -> bool {
    let [a, b] = [one, other].map(|piece| &ledger.claims[piece.claim]);
    one.claim != other.claim && (one.kind == Kind::Mutex || a.ask.owner != b.ask.owner)
}

fn overlap(ledger: &Ledger<'_>, lock: &LockClaims<'_>, one: &Piece, other: &Piece) -> super::violation::Violation {
    let check = if lock.kind.space() == "rwlock" { Check::RW } else { Check::ME };
    let [a, b] = [one, other].map(|piece| &ledger.claims[piece.claim]);
    let until = one.to.min(other.to);
    let time = super::finding::time(until.t.saturating_sub(other.from.t));
    let what = format!("{} ({:?}) and {} ({:?}) held it together for {time}", a.id, one.kind, b.id, other.kind);
    Finding::new(check, what).of(lock.res).shown_by([one.from, other.from, one.to, other.to])
}

fn permits(ledger: &Ledger<'_>, lock: &LockClaims<'_>, held: &[Piece], findings: &mut Findings) {
    // Clients that disagree are refused; a limit that changed was at most the largest one.
    let limit = ledger.claims_of(lock).map(|claim| u64::from(claim.ask.limit)).max().unwrap_or_default();
    let (mut in_use, mut sum) = (BTreeSet::new(), 0_u64);
    sweep(held, |turn, place, piece| {
        let permits = u64::from(piece.permits);
        if turn == Turn::Ends {
            in_use.remove(&(piece.permits, place));
            sum -= permits;
            return;
        }
        if sum + permits > limit {
            findings.add(excess(lock, held, &in_use, piece, limit));
        }
        if turn == Turn::Begins {
            in_use.insert((piece.permits, place));
            sum += permits;
        }
    });
}

/// The fewest holds that are too many together: the largest ones.
fn excess(
    lock: &LockClaims<'_>,
    held: &[Piece],
    in_use: &BTreeSet<(u32, usize)>,
    last: &Piece,
    limit: u64,
) -> super::violation::Violation {
    let mut sum = u64::from(last.permits);
    let mut witness = vec![last.from, last.to];
    for (permits, place) in in_use.iter().rev() {
        if sum > limit {
            break;
        }
        sum += u64::from(*permits);
        witness.extend([held[*place].from, held[*place].to]);
    }
    let what = format!("{sum} permits of {limit} were held by {} at once", witness.len() / 2);
    let marks: Vec<Mark> = witness;
    Finding::new(Check::SEM, what).of(lock.res).shown_by(marks)
}
