//! P1-P4 and P6: that waiters get on, and calls come back.

use std::collections::{BTreeMap, HashSet};

use super::check::Check;
use super::claim::Claim;
use super::finding::{Finding, time};
use super::ledger::{Ledger, LockClaims};
use super::mark::{CallEnd, Mark};
use super::presence::{Presence, weight};
use super::violation::Findings;
use crate::history::event::{Kind, Text};

/// The time that a call may take beyond its wait and one request: a timer is never early.
const SLACK: u64 = 50_000_000;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        for gap in gaps(ledger, lock) {
            idle(ledger, lock, gap, findings);
        }
        for claim in ledger.claims_of(lock) {
            late(ledger, lock, claim, findings);
        }
    }
    forgotten(ledger, findings);
    refusals(ledger, findings);
    for (mark, woken) in &ledger.woken {
        if woken.count > ledger.rules.herd {
            let what = format!("one release woke up {} waiters", woken.count);
            findings.add(Finding::new(Check::P6, what).of(&woken.res).shown_by([*mark]));
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

/// A change of a lock's state, in the order in which changes of one instant count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Waits,
    Holds,
    /// Perhaps holds already, while others are waited for.
    MayHold,
    GivesUp,
    Leaves,
}

/// All gaps of a lock. A claim holds from its answer (without one: from its request) until nothing of it can be left. One of
/// several at once may hold from its request, and waits for nobody knows which of them.
pub(super) fn gaps(ledger: &Ledger<'_>, lock: &LockClaims<'_>) -> Vec<Gap> {
    let mut turns = Vec::new();
    let end = Mark { t: ledger.end, event: usize::MAX };
    for claim in ledger.claims_of(lock) {
        let weight = weight(claim);
        let answered = claim.answer.mark().or_else(|| ledger.deaths.get(claim.proc).copied()).unwrap_or(end);
        if !claim.is_try() && !claim.is_grouped() {
            turns.push((claim.asked, Turn::Waits, weight));
            turns.push((answered, Turn::GivesUp, weight));
        }
        if let Some(until) = ledger.possible_until(claim) {
            // Whoever waits without an answer does not hold: it would be the one to be accused of waiting.
            let (from, turn) = match claim.answer {
                _ if claim.is_grouped() => (claim.asked, Turn::MayHold),
                CallEnd::Ok(mark, _) => (mark, Turn::Holds),
                CallEnd::Pending if !ledger.deaths.contains_key(claim.proc) => continue,
                _ => (claim.asked, Turn::Holds),
            };
            turns.push((from, turn, weight));
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
            Turn::Holds | Turn::MayHold => held += weight,
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
        // Whoever asks for most may be the first in the queue.
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
fn idle(ledger: &Ledger<'_>, lock: &LockClaims<'_>, gap: Gap, findings: &mut Findings) {
    let idle = ledger.windows.longest_undisturbed(gap.from.t, gap.to.t);
    if idle > ledger.rules.hand_over {
        let what = format!("it was free for {} while somebody waited and nothing was wrong", time(idle));
        let marks = [gap.from, gap.to].into_iter().filter(|mark| mark.event != usize::MAX);
        findings.add(Finding::new(Check::P1, what).of(lock.res).shown_by(marks));
    }
}

/// P2: once nothing is wrong any more, everybody who waits without limit gets its turn.
fn forgotten(ledger: &Ledger<'_>, findings: &mut Findings) {
    let healed = ledger.windows.last_heal();
    let queues: Vec<_> = ledger.locks.iter().map(|lock| PatientWaits::of(ledger, lock, healed)).collect();
    for (lock, PatientWaits { waits, .. }) in ledger.locks.iter().zip(&queues) {
        for (claim, until) in waits.iter().filter(|(claim, _)| ledger.speaks_for_all(claim)) {
            let waited = ledger.windows.undisturbed(claim.asked.t.max(healed), until.t);
            let lease = ledger.rules.longest(claim.ask.ttl).saturating_add(ledger.rules.recovery);
            // Several locks are waited for one after the other.
            let bounds = ledger
                .together(claim)
                .map(|part| lease.saturating_add(queues[part.lock].turns_before(ledger, part, until.t)));
            if waited > bounds.fold(0, u64::saturating_add) {
                let what = format!("{} waited for {} although nothing was wrong", claim.id, time(waited));
                findings.add(Finding::new(Check::P2, what).of(lock.res).shown_by([claim.asked, *until]));
            }
        }
    }
}

/// The waits for a lock without limit when nothing is wrong any more, with the end of what is known of their wait.
struct PatientWaits<'c, 'h> {
    waits: Vec<(&'c Claim<'h>, Mark)>,
    /// The beginnings and the ends of these waits, each in order.
    asked: Vec<u64>,
    ended: Vec<u64>,
    /// The other grants, which were waited for with a limit or in a process that died: the requests, and the grants, each in order.
    others_asked: Vec<u64>,
    others_granted: Vec<u64>,
    /// The two that kept others waiting for longest.
    holds: Vec<(u64, &'h Text)>,
}

impl<'c, 'h> PatientWaits<'c, 'h> {
    fn of(ledger: &'c Ledger<'h>, lock: &'c LockClaims<'h>, healed: u64) -> Self {
        let pending = |claim: &&Claim<'_>| matches!(claim.answer, CallEnd::Pending);
        let waiters: HashSet<_> = ledger.claims_of(lock).filter(pending).map(|claim| &claim.ask.owner).collect();
        // Who waits for itself would hold for ever.
        let others = ledger.claims_of(lock).filter(|claim| !waiters.contains(&claim.ask.owner));
        let mut holds: Vec<_> = others.filter_map(|claim| Some((hold(ledger, claim)?, claim.id))).collect();
        holds.sort_unstable_by(|one, other| other.cmp(one));
        holds.truncate(2);
        let patient = |claim: &&Claim<'_>| claim.ask.wait.is_none() && !ledger.deaths.contains_key(claim.proc);
        let waits = ledger.claims_of(lock).filter(patient).filter_map(|claim| {
            let until = match claim.answer {
                CallEnd::Pending => Mark { t: ledger.end, event: claim.asked.event },
                CallEnd::Ok(mark, _) => mark,
                _ => return None,
            };
            (until.t > healed).then_some((claim, until))
        });
        let waits: Vec<_> = waits.collect();
        let others = ledger.claims_of(lock).filter(|claim| !patient(claim));
        let others = others.filter_map(|claim| Some((claim.asked.t, claim.granted()?.0.t)));
        let (mut others_asked, mut others_granted): (Vec<_>, Vec<_>) = others.filter(|(_, t)| *t > healed).unzip();
        let mut asked: Vec<_> = waits.iter().map(|(claim, _)| claim.asked.t).collect();
        let mut ended: Vec<_> = waits.iter().map(|(_, until)| until.t).collect();
        for instants in [&mut asked, &mut ended, &mut others_asked, &mut others_granted] {
            instants.sort_unstable();
        }
        Self { waits, asked, ended, others_asked, others_granted, holds }
    }

    /// Returns how long it takes at most until everybody has had a turn who waited at some instant of a wait of this claim until `until`,
    /// itself included: somebody may have held when it began. Nobody waits for itself. Of those with a limit, whoever may have
    /// come before it has a turn; whoever came later had none to expect.
    fn turns_before(&self, ledger: &Ledger<'_>, claim: &Claim<'_>, until: u64) -> u64 {
        let longest = self.holds.iter().find(|(_, whose)| *whose != claim.id).map_or(0, |(hold, _)| *hold);
        let begun = self.asked.partition_point(|asked| *asked <= until);
        let over = self.ended.partition_point(|ended| *ended < claim.asked.t);
        let came = claim.asked.t.saturating_add(ledger.rules.enqueue);
        let others_begun = self.others_asked.partition_point(|asked| *asked <= came);
        let others_over = self.others_granted.partition_point(|granted| *granted < claim.asked.t);
        let turns = begun.saturating_sub(over) + others_begun.saturating_sub(others_over);
        longest.saturating_mul(turns as u64)
    }
}

/// Returns how long a claim kept others waiting, at most. One of several at once may do so while the others are waited
/// for.
fn hold(ledger: &Ledger<'_>, claim: &Claim<'_>) -> Option<u64> {
    let from = if claim.is_grouped() { claim.asked } else { claim.granted()?.0 };
    Some(ledger.possible_until(claim)?.min(ledger.end).saturating_sub(from.t))
}

/// P3: a wait ends when it was to end, at most one request later; of several locks at once, one for each. Of what has no answer the
/// history's end is the earliest that it can come back, unless its process is dead.
fn late(ledger: &Ledger<'_>, lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let Some(wait) = claim.ask.wait.filter(|_| ledger.speaks_for_all(claim)) else { return };
    let answered = claim.answer.mark();
    if answered.is_none() && ledger.deaths.contains_key(claim.proc) {
        return;
    }
    let back = answered.map_or(ledger.end, |mark| mark.t);
    let requests = ledger.together(claim).map(|_| ledger.rules.op_timeout).fold(SLACK, u64::saturating_add);
    let due = claim.asked.t.saturating_add(wait).saturating_add(requests);
    // A process that stands still is late whatever it calls; a server that does is what the slack is for.
    if back > due && !ledger.windows.stood_still(claim.proc, claim.asked.t, back) {
        let late = time(back - due);
        let what = match answered {
            Some(_) => format!("{} came back {late} too late", claim.id),
            None => format!("{} had not come back {late} after it was to", claim.id),
        };
        findings.add(
            Finding::new(Check::P3, what).of(lock.res).shown_by([Some(claim.asked), answered].into_iter().flatten()),
        );
    }
}

/// P4: whoever is refused is so only because somebody else may have been in the way: of several locks at once, of any of them.
fn refusals(ledger: &Ledger<'_>, findings: &mut Findings) {
    let obstacles: Vec<_> = ledger.locks.iter().map(|lock| Obstacles::of(ledger, lock)).collect();
    for claim in ledger.claims.iter().filter(|claim| is_judged(ledger, claim)) {
        let Some(refused) = claim.answer.mark().filter(|_| ledger.speaks_for_all(claim)) else { continue };
        let is_obstructed = ledger
            .together(claim)
            .any(|part| obstacles[part.lock].as_ref().is_none_or(|obstacles| obstacles.meet(ledger, part, refused.t)));
        if !is_obstructed && !ledger.windows.touch(claim.proc, claim.asked.t, refused.t) {
            let what = format!("{} was refused although nobody was in the way", claim.id);
            findings.add(Finding::new(Check::P4, what).of(&claim.ask.res).shown_by([claim.asked, refused]));
        }
    }
}

/// Whether it was refused, and not because its wait may have been over before its request could be answered.
fn is_judged(ledger: &Ledger<'_>, claim: &Claim<'_>) -> bool {
    let is_long = claim.ask.wait.is_none_or(|wait| wait > ledger.rules.enqueue);
    claim.is_refused() && (claim.is_try() || is_long)
}

/// The claims that may have been in the way of somebody who was refused.
struct Obstacles {
    all: Presence,
    writers: Presence,
}

impl Obstacles {
    /// `None` of a lock of which nobody was refused.
    fn of(ledger: &Ledger<'_>, lock: &LockClaims<'_>) -> Option<Self> {
        ledger.claims_of(lock).any(|claim| is_judged(ledger, claim)).then(|| Self {
            all: Presence::of(ledger, lock, |_| true),
            writers: Presence::of(ledger, lock, |claim| claim.ask.kind != Kind::Read),
        })
    }

    fn meet(&self, ledger: &Ledger<'_>, claim: &Claim<'_>, refused: u64) -> bool {
        let in_the_way = if claim.ask.kind == Kind::Read { &self.writers } else { &self.all };
        // A wait is among those who are there, but for a reader among writers, and so is a try where tries meet; of several
        // locks at once it always is.
        let is_there = !claim.is_try() || ledger.rules.tries_meet || claim.is_grouped();
        let counts = is_there && claim.ask.kind != Kind::Read;
        let itself = if counts { weight(claim) } else { 0 };
        let there = in_the_way.within(claim.asked.t, refused).saturating_sub(itself);
        there + weight(claim) > u64::from(claim.ask.limit)
    }
}
