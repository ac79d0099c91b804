//! Upper bounds on how much of a lock was taken at some time: they excuse a refusal.

use super::claim::Claim;
use super::ledger::{Ledger, LockClaims};

/// The possible intervals of a lock's claims, with their weights.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// By beginning and by end; the weights are summed up.
    begun: Vec<(u64, u64)>,
    ended: Vec<(u64, u64)>,
}

impl Presence {
    /// Of those claims of a lock that may have been in the way; waiters count, because they may be next in the queue.
    pub(super) fn of<'c>(
        ledger: &'c Ledger<'_>,
        lock: &'c LockClaims<'_>,
        counts: impl Fn(&Claim<'_>) -> bool,
    ) -> Self {
        let mut presence = Self::default();
        for claim in ledger.claims_of(lock).filter(|claim| counts(claim)) {
            if let Some((from, to)) = span(ledger, claim) {
                presence.begun.push((from, weight(claim)));
                presence.ended.push((to, weight(claim)));
            }
        }
        sum_up(&mut presence.begun);
        sum_up(&mut presence.ended);
        presence
    }

    /// The weight of everybody who may have been there at some instant of this time.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        let begun = self.begun.partition_point(|(t, _)| *t <= to);
        let ended = self.ended.partition_point(|(t, _)| *t < from);
        let sum = |sums: &[(u64, u64)], upto: usize| if upto == 0 { 0 } else { sums[upto - 1].1 };
        sum(&self.begun, begun) - sum(&self.ended, ended)
    }
}

/// Returns how much of its lock a claim takes.
pub(super) fn weight(claim: &Claim<'_>) -> u64 {
    u64::from(claim.ask.permits)
}

/// From the request until nothing of it can be left. A waiter that gave up may be in the queue until it is cleaned up; a
/// refused try never was, or only until its answer.
pub(super) fn span(ledger: &Ledger<'_>, claim: &Claim<'_>) -> Option<(u64, u64)> {
    match (ledger.possible_until(claim), claim.answer.mark()) {
        (Some(until), _) => Some((claim.asked.t, until)),
        (None, refused) if claim.is_try() && claim.is_refused() => {
            refused.filter(|_| ledger.rules.tries_meet).map(|refused| (claim.asked.t, refused.t))
        }
        (None, answered) => {
            let answered = answered.map_or(u64::MAX, |mark| mark.t);
            let usual = answered.saturating_add(ledger.rules.op_timeout);
            // Who is cut off cannot leave the queue.
            let is_felt = ledger.windows.touch(claim.proc, answered, usual);
            Some((claim.asked.t, if is_felt { ledger.forgotten(claim, usual) } else { usual }))
        }
    }
}

fn sum_up(weights: &mut [(u64, u64)]) {
    weights.sort_unstable();
    let mut sum = 0;
    for (_, weight) in weights {
        sum += *weight;
        *weight = sum;
    }
}
