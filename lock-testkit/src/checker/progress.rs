//! P1-P4 and P6: that waiters get on, and calls come back.

use std::collections::{BTreeMap, HashSet};

use super::found::{Found, time};
use super::ledger::{Claim, Ledger, Lock, Mark, Outcome};
use super::presence::{Presence, weight};
use super::verdict::{Check, Findings};
use crate::history::event::Kind;

/// What a call may take beyond its wait and one request: a timer is never early.
const SLACK: u64 = 50_000_000;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        for gap in gaps(ledger, lock) {
            idle(ledger, lock, gap, findings);
        }
        forgotten(ledger, lock, findings);
        for claim in ledger.claims_of(lock) {
            late(ledger, lock, claim, findings);
        }
        refusals(ledger, lock, findings);
    }
    for (mark, woken) in &ledger.woken {
        if woken.count > ledger.rules.herd {
            let what = format!("one release woke up {} waiters", woken.count);
            findings.add(Found::new(Check::P6, what).of(&woken.res).shown_by([*mark]));
        }
    }
}

/// A time in which a lock was surely free while somebody waited for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    from: Mark,
    to: Mark,
    pub(super) was_ended_by_a_grant: bool,
}

impl Gap {
    pub(super) fn length(&self) -> u64 {
        self.to.t.saturating_sub(self.from.t)
    }
}

/// What changes a lock's state, in the order in which changes of one instant count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Waits,
    Holds,
    GivesUp,
    Leaves,
}

/// All gaps of a lock. A claim holds from its answer (without one: from its request) until nothing of it can be left.
pub(super) fn gaps(ledger: &Ledger<'_>, lock: &Lock<'_>) -> Vec<Gap> {
    let mut turns = Vec::new();
    let end = Mark { t: ledger.end, event: usize::MAX };
    for claim in ledger.claims_of(lock) {
        let weight = weight(claim);
        let answered = claim.answer.mark().or_else(|| ledger.deaths.get(claim.proc).copied()).unwrap_or(end);
        if !claim.is_try() {
            turns.push((claim.asked, Turn::Waits, weight));
            turns.push((answered, Turn::GivesUp, weight));
        }
        if let Some(until) = ledger.possible_until(claim) {
            // Whoever waits without an answer does not hold: it would be the one to be accused of waiting.
            let from = match claim.answer {
                Outcome::Ok(mark, _) => mark,
                Outcome::Pending if !ledger.deaths.contains_key(claim.proc) => continue,
                _ => claim.asked,
            };
            turns.push((from, Turn::Holds, weight));
            if until <= ledger.end {
                let by = claim.releases.first().and_then(|release| release.outcome.mark());
                turns.push((
                    by.filter(|by| by.t == until).unwrap_or(Mark { t: until, event: from.event }),
                    Turn::Leaves,
                    weight,
                ));
            }
        }
    }
    turns.sort_unstable_by_key(|(mark, turn, _)| (mark.t, *turn));
    let limit = match lock.kind {
        Kind::Sem => ledger.claims_of(lock).map(|claim| u64::from(claim.ask.limit)).min().unwrap_or(1),
        _ => 1,
    };
    find_gaps(&turns, limit)
}

fn find_gaps(turns: &[(Mark, Turn, u64)], limit: u64) -> Vec<Gap> {
    let (mut gaps, mut open) = (Vec::new(), None);
    let (mut held, mut waiting) = (0_u64, BTreeMap::<u64, usize>::new());
    for (mark, turn, weight) in turns {
        match turn {
            Turn::Holds => held += weight,
            Turn::Leaves => held -= weight,
            Turn::Waits => *waiting.entry(*weight).or_default() += 1,
            Turn::GivesUp => {
                if let Some(count) = waiting.get_mut(weight) {
                    *count -= 1;
                    if *count == 0 {
                        waiting.remove(weight);
                    }
                }
            }
        }
        // Whoever asks for most may be the first in line.
        let is_idle = waiting.last_key_value().is_some_and(|(most, _)| held + most <= limit);
        match (is_idle, open) {
            (true, None) => open = Some(*mark),
            (false, Some(from)) => {
                gaps.push(Gap { from, to: *mark, was_ended_by_a_grant: *turn == Turn::Holds });
                open = None;
            }
            _ => {}
        }
    }
    gaps
}

/// P1.
fn idle(ledger: &Ledger<'_>, lock: &Lock<'_>, gap: Gap, findings: &mut Findings) {
    if gap.length() > ledger.rules.hand_over && !ledger.windows.touch_anybody(gap.from.t, gap.to.t) {
        let what = format!("it was free for {} while somebody waited", time(gap.length()));
        let marks = [gap.from, gap.to].into_iter().filter(|mark| mark.event != usize::MAX);
        findings.add(Found::new(Check::P1, what).of(lock.res).shown_by(marks));
    }
}

/// P2: once nothing is wrong any more, everybody who waits without limit gets its turn.
fn forgotten(ledger: &Ledger<'_>, lock: &Lock<'_>, findings: &mut Findings) {
    let healed = ledger.windows.last_heal();
    let pending = |claim: &&Claim<'_>| matches!(claim.answer, Outcome::Pending);
    let waiters: HashSet<_> = ledger.claims_of(lock).filter(pending).map(|claim| &claim.ask.owner).collect();
    // Who waits for itself would hold for ever.
    let lengths = ledger.claims_of(lock).filter(|claim| !waiters.contains(&claim.ask.owner)).filter_map(|claim| {
        let (granted, _) = claim.granted()?;
        Some(ledger.possible_until(claim)?.min(ledger.end).saturating_sub(granted.t))
    });
    let longest_hold = lengths.max().unwrap_or_default();
    let patient = |claim: &&Claim<'_>| claim.ask.wait.is_none() && !ledger.deaths.contains_key(claim.proc);
    let waits = ledger.claims_of(lock).filter(patient).filter_map(|claim| {
        let until = match claim.answer {
            Outcome::Pending => Mark { t: ledger.end, event: claim.asked.event },
            Outcome::Ok(mark, _) => mark,
            _ => return None,
        };
        (until.t > healed).then_some((claim, until))
    });
    let waits: Vec<_> = waits.collect();
    let queue = waits.len() as u64;
    for (claim, until) in waits {
        let waited = until.t.saturating_sub(claim.asked.t.max(healed));
        let lease = ledger.rules.longest(claim.ask.ttl);
        let bound = lease.saturating_add(ledger.rules.recovery).saturating_add(longest_hold.saturating_mul(queue));
        if waited > bound {
            let what = format!("{} waited for {} although nothing was wrong", claim.id, time(waited));
            findings.add(Found::new(Check::P2, what).of(lock.res).shown_by([claim.asked, until]));
        }
    }
}

/// P3: a wait ends when it was to end, at most one request later.
fn late(ledger: &Ledger<'_>, lock: &Lock<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let (Some(wait), Some(mark)) = (claim.ask.wait, claim.answer.mark()) else { return };
    let due = claim.asked.t.saturating_add(wait).saturating_add(ledger.rules.op_timeout).saturating_add(SLACK);
    // A process that stands still is late whatever it calls; a server that does is what the slack is for.
    if mark.t > due && !ledger.windows.stood_still(claim.proc, claim.asked.t, mark.t) {
        let what = format!("{} came back {} too late", claim.id, time(mark.t - due));
        findings.add(Found::new(Check::P3, what).of(lock.res).shown_by([claim.asked, mark]));
    }
}

/// P4: a try is refused only if somebody else may have been in the way.
fn refusals(ledger: &Ledger<'_>, lock: &Lock<'_>, findings: &mut Findings) {
    if !ledger.claims_of(lock).any(|claim| claim.is_try() && claim.is_refused()) {
        return;
    }
    let all = Presence::of(ledger, lock, |_| true);
    let writers = Presence::of(ledger, lock, |claim| claim.ask.kind != Kind::Read);
    for claim in ledger.claims_of(lock).filter(|claim| claim.is_try() && claim.is_refused()) {
        let Some(refused) = claim.answer.mark() else { continue };
        let in_the_way = if claim.ask.kind == Kind::Read { &writers } else { &all };
        // Where tries meet, this one is among those who are there, but for a reader among writers.
        let counts = ledger.rules.tries_meet && claim.ask.kind != Kind::Read;
        let itself = if counts { weight(claim) } else { 0 };
        let there = in_the_way.within(claim.asked.t, refused.t) - itself;
        if there + weight(claim) <= u64::from(claim.ask.limit)
            && !ledger.windows.touch(claim.proc, claim.asked.t, refused.t)
        {
            let what = format!("{} was refused although nobody was in the way", claim.id);
            findings.add(Found::new(Check::P4, what).of(lock.res).shown_by([claim.asked, refused]));
        }
    }
}
