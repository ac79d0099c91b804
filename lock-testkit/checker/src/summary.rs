//! Figures of a run: what it contained.

use std::fmt;

use serde::Serialize;

use super::belief::pieces;
use super::finding::time;
use super::ledger::Ledger;
use super::presence::{Presence, weight};
use super::resource::lost;
use super::{order, progress, slots, terms};
use crate::history::History;
use crate::history::event::Text;

/// The contents of a run in figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Events.
    pub events: usize,
    /// Grants.
    pub grants: usize,
    /// Grants of a lock that somebody else may have held, or waited for, when it was asked for.
    pub contended: usize,
    /// Grants of several locks at once, each of which is among the grants.
    pub groups: usize,
    /// Refusals and waits that ran out.
    pub refusals: usize,
    /// Acquisitions and releases of which nobody knows the outcome.
    pub unclear: usize,
    /// Losses that holders were told of.
    pub losses: usize,
    /// Faults that were chosen and proven.
    pub faults: usize,
    /// The time in which nobody can have felt a fault: that is when waiters are judged (P1, P5). In nanoseconds.
    pub undisturbed: u64,
    /// The largest number of holders of one lock at once.
    pub holders: usize,
    /// The largest number of times that a waiter was overtaken by somebody who surely came later.
    pub overtaken: usize,
    /// Resources: name, whether fenced, lost updates, acknowledged updates, refused uses.
    pub resources: Vec<(Text, bool, u64, u64, usize)>,
    /// Slots of jobs: asked for, worked on, and how often in all.
    pub slots: (usize, usize, usize),
    /// Terms in which somebody was seen to lead.
    pub terms: usize,
    /// Faults after which, and before the next one, another process was seen to lead than before.
    pub rounds: usize,
    /// The number of times that somebody was seen to lead, by each way of asking.
    pub leads: Vec<(Text, usize)>,
    /// Readings of records.
    pub records: usize,
    /// From the request to the grant.
    pub wait: Spread,
    /// The times for which holders believed.
    pub hold: Spread,
    /// The times for which a lock was free while somebody waited, until the next grant.
    pub hand_over: Spread,
    /// The time left of a lease when its holder was asked.
    pub margin: Spread,
}

/// Durations in nanoseconds, by size.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// The number of values.
    pub count: usize,
    /// Half of them are not longer.
    pub median: u64,
    /// 99 of 100 are not longer.
    pub p99: u64,
    /// None is longer.
    pub most: u64,
    /// The number of values in each power of two of microseconds: below 1, below 2, below 4, and so on.
    pub buckets: Vec<usize>,
}

impl Summary {
    pub(super) fn of(history: &History, ledger: &Ledger<'_>) -> Self {
        let granted = || ledger.claims.iter().filter_map(|claim| Some((claim, claim.granted()?)));
        let margins = ledger.claims.iter().flat_map(|claim| &claim.checks);
        let margins = margins.filter_map(|(mark, sample)| Some(sample.deadline?.saturating_sub(mark.t)));
        let (terms, leads) = terms::figures(ledger);
        let handed_over = ledger.locks.iter().flat_map(|lock| progress::gaps(ledger, lock));
        Self {
            events: history.events().len(),
            grants: granted().count(),
            contended: contended(ledger),
            groups: groups(ledger),
            refusals: ledger.claims.iter().filter(|claim| claim.is_refused()).count(),
            unclear: ledger.claims.iter().filter(|claim| is_unclear(claim)).count(),
            losses: ledger.claims.iter().filter(|claim| claim.lost.is_some()).count(),
            faults: ledger.windows.all().iter().filter(|window| window.is_chosen() && window.proven).count(),
            undisturbed: history.events().first().map_or(0, |first| ledger.windows.undisturbed(first.t, ledger.end)),
            holders: holders(ledger),
            overtaken: order::most_overtaken(ledger),
            resources: resources(ledger),
            slots: slots::figures(ledger),
            terms,
            rounds: terms::rounds(ledger),
            leads,
            records: ledger.records.len(),
            wait: Spread::of(granted().map(|(claim, (mark, _))| mark.t.saturating_sub(claim.asked.t))),
            hold: Spread::of(ledger.claims.iter().filter_map(|claim| {
                let (from, to) = super::belief::belief(claim)?;
                Some(to.t.saturating_sub(from.t))
            })),
            hand_over: Spread::of(handed_over.filter(|gap| gap.was_ended_by_a_grant).map(|gap| gap.length())),
            margin: Spread::of(margins),
        }
    }
}

fn is_unclear(claim: &super::claim::Claim<'_>) -> bool {
    use super::mark::CallEnd::{Info, Pending};
    matches!(claim.answer, Info(..) | Pending)
        || claim.releases.iter().any(|release| matches!(release.outcome, Info(..) | Pending))
}

fn contended(ledger: &Ledger<'_>) -> usize {
    let mut contended = 0;
    for lock in &ledger.locks {
        let presence = Presence::of(ledger, lock, |_| true);
        let met = |claim: &&super::claim::Claim<'_>| {
            presence.within(claim.asked.t, claim.asked.t) > weight(claim) && !claim.is_nested()
        };
        contended += ledger.claims_of(lock).filter(|claim| claim.granted().is_some()).filter(met).count();
    }
    contended
}

fn groups(ledger: &Ledger<'_>) -> usize {
    let granted = |place: &usize| ledger.claims[*place].granted().is_some();
    ledger.groups.values().filter(|places| places.iter().all(granted)).count()
}

fn holders(ledger: &Ledger<'_>) -> usize {
    let most = |lock: &super::ledger::LockClaims<'_>| {
        let held = lock.claims.iter().flat_map(|claim| pieces(ledger, *claim));
        let mut turns: Vec<_> = held.flat_map(|piece| [(piece.from.t, 1), (piece.to.t, -1)]).collect();
        turns.sort_unstable();
        let mut now = 0_isize;
        let counts = turns.iter().map(|(_, turn)| {
            now += turn;
            now
        });
        counts.max().unwrap_or_default().unsigned_abs()
    };
    ledger.locks.iter().map(most).max().unwrap_or_default()
}

fn resources(ledger: &Ledger<'_>) -> Vec<(Text, bool, u64, u64, usize)> {
    let mut targets: Vec<_> = ledger.uses.iter().map(|usage| (&usage.access.target, usage.access.fenced)).collect();
    targets.sort_unstable();
    targets.dedup();
    let figures = targets.into_iter().map(|(target, fenced)| {
        let refused =
            ledger.uses.iter().filter(|usage| usage.access.target == *target && !usage.access.accepted).count();
        let (lost, acknowledged) = lost(ledger, target);
        (target.clone(), fenced, lost, acknowledged, refused)
    });
    figures.collect()
}

impl Spread {
    fn of(durations: impl Iterator<Item = u64>) -> Self {
        let mut durations: Vec<_> = durations.collect();
        durations.sort_unstable();
        let Some(most) = durations.last().copied() else { return Self::default() };
        let at = |percent: usize| durations[(durations.len() * percent / 100).min(durations.len() - 1)];
        let mut buckets = Vec::new();
        for nanos in &durations {
            let micros = nanos / 1_000;
            let place = (u64::BITS - micros.leading_zeros()) as usize;
            if buckets.len() <= place {
                buckets.resize(place + 1, 0);
            }
            buckets[place] += 1;
        }
        Self { count: durations.len(), median: at(50), p99: at(99), most, buckets }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "median {}, 99 % {}, longest {}", time(self.median), time(self.p99), time(self.most))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, grants, contended, refusals, unclear, losses, faults, holders, overtaken, .. } = self;
        let several = if self.groups > 0 { format!(", {} of several at once", self.groups) } else { String::new() };
        writeln!(
            f,
            "{events} events: {grants} grants ({contended} contended{several}), {refusals} refusals, {unclear} unclear"
        )?;
        let undisturbed = time(self.undisturbed);
        writeln!(f, "{faults} proven faults, {losses} losses; nobody felt any for {undisturbed}")?;
        writeln!(f, "at most {holders} holders; overtaken by {overtaken}")?;
        for (target, fenced, lost, acknowledged, refused) in &self.resources {
            let fenced = if *fenced { "fenced" } else { "unfenced" };
            writeln!(f, "{target} ({fenced}): {lost} of {acknowledged} updates lost, {refused} uses refused")?;
        }
        let (asked, done, times) = self.slots;
        if asked > 0 {
            let records = self.records;
            writeln!(f, "{asked} slots asked for, {done} worked on, {times} times in all; {records} looks at records")?;
        }
        if self.terms > 0 {
            let ways = self.leads.iter().map(|(by, count)| format!("{count} by {by}")).collect::<Vec<_>>().join(", ");
            let rounds = self.rounds;
            writeln!(f, "{} terms of leaders, another one after {rounds} faults; seen to lead: {ways}", self.terms)?;
        }
        let spreads =
            [("wait", &self.wait), ("hold", &self.hold), ("hand-over", &self.hand_over), ("margin", &self.margin)];
        for (place, (name, spread)) in spreads.into_iter().filter(|(_, spread)| spread.count > 0).enumerate() {
            let line_break = if place == 0 { "" } else { "\n" };
            write!(f, "{line_break}{name}: {spread}")?;
        }
        Ok(())
    }
}
