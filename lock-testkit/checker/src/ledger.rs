//! A history, put together: every acquisition with what became of it, lock by lock.

use std::collections::{HashMap, HashSet};

use super::claim::Claim;
use super::mark::{CallEnd, Deed, Mark};
use super::theft::{Theft, Thefts};
use super::windows::Windows;
use crate::history::History;
use crate::history::Rules;
use crate::history::event::{Access, Ask, Call, Granted, Kind, Step, Text, Truth, What, Woken};
use crate::history::recipe::{Lead, RecordSeen, SlotAnswer, SlotAsk, Work};

/// One lock, with the places of its claims, in the order of their requests.
#[derive(Debug)]
pub(super) struct LockClaims<'h> {
    pub(super) res: &'h Text,
    pub(super) kind: Kind,
    pub(super) claims: Vec<usize>,
    pub(super) truths: Vec<(Mark, &'h Truth)>,
}

/// A call for a slot.
pub(super) type SlotCall<'h> = Deed<'h, SlotAsk, SlotAnswer>;

/// One use of a resource, with the claim under which it was made.
#[derive(Debug)]
pub(super) struct Use<'h> {
    pub(super) at: Mark,
    pub(super) access: &'h Access,
    pub(super) claim: Option<usize>,
}

/// Everything that the checks need.
#[derive(Debug, Default)]
pub(super) struct Ledger<'h> {
    pub(super) rules: Rules,
    pub(super) claims: Vec<Claim<'h>>,
    pub(super) locks: Vec<LockClaims<'h>>,
    /// The places of the claims that were asked for at once.
    pub(super) groups: HashMap<&'h Text, Vec<usize>>,
    pub(super) uses: Vec<Use<'h>>,
    pub(super) woken: Vec<(Mark, &'h Woken)>,
    pub(super) residues: Vec<(Mark, &'h [Text])>,
    /// Calls for slots of jobs.
    pub(super) slots: Vec<SlotCall<'h>>,
    pub(super) works: Vec<(Mark, &'h Work)>,
    pub(super) leads: Vec<(Mark, &'h Lead)>,
    pub(super) records: Vec<(Mark, &'h RecordSeen)>,
    pub(super) deaths: HashMap<&'h Text, Mark>,
    pub(super) windows: Windows,
    pub(super) thefts: Thefts<'h>,
    /// The time of the last event.
    pub(super) end: u64,
    pub(super) has_ended: bool,
    /// Whether the history tells of renewals.
    pub(super) sees_renewals: bool,
    /// Events that fit nothing.
    pub(super) misfits: Vec<(usize, &'static str)>,
    /// Acquisitions that were answered before they were asked for, so far.
    early: HashMap<&'h Text, Mark>,
    by_id: HashMap<&'h Text, usize>,
    slot_places: HashMap<&'h Text, usize>,
    lock_places: HashMap<(&'h Text, &'static str), usize>,
}

impl<'h> Ledger<'h> {
    pub(super) fn of(history: &'h History, rules: Option<&Rules>) -> Self {
        let mut ledger = Self::default();
        for (event, place) in history.events().iter().zip(0..) {
            ledger.note(Mark { t: event.t, event: place }, &event.proc, &event.what);
            ledger.end = event.t;
        }
        if let Some(rules) = rules {
            ledger.rules = rules.clone();
        }
        let lone = ledger.early.values().map(|early| (early.event, "an answer without a request"));
        ledger.misfits.extend(lone);
        ledger.misfits.sort_unstable();
        let processes: HashSet<_> = ledger.claims.iter().map(|claim| claim.proc).collect();
        let longest = ledger.claims.iter().map(|claim| claim.ask.ttl).max().unwrap_or_default();
        let settle = ledger.rules.recovery.saturating_add(ledger.rules.longest(longest));
        ledger.windows.finish(settle, |target| processes.contains(target));
        ledger
    }

    pub(super) fn claims_of(&self, lock: &LockClaims<'h>) -> impl DoubleEndedIterator<Item = &Claim<'h>> {
        lock.claims.iter().map(|claim| &self.claims[*claim])
    }

    /// The claims that were asked for at once with this one, which is among them.
    pub(super) fn together<'c>(&'c self, claim: &'c Claim<'h>) -> impl Iterator<Item = &'c Claim<'h>> {
        let group = claim.ask.group.as_ref().and_then(|group| self.groups.get(group));
        let alone = group.is_none().then_some(claim);
        alone.into_iter().chain(group.into_iter().flatten().map(|place| &self.claims[*place]))
    }

    /// Whether it is the first of those that were asked for at once: what is wrong with all of them is said once.
    pub(super) fn speaks_for_all(&self, claim: &Claim<'h>) -> bool {
        self.together(claim).next().is_some_and(|first| first.id == claim.id)
    }

    /// Returns the thefts from the holder of this claim.
    pub(super) fn thefts_from(&self, claim: &Claim<'_>) -> impl Iterator<Item = Theft> {
        let name = claim.granted().and_then(|(_, granted)| granted.grant.as_ref());
        self.thefts.of(name, self.rules.longest(claim.ask.ttl))
    }

    /// Returns when the server has surely forgotten what a process left there at this instant.
    pub(super) fn forgotten(&self, claim: &Claim<'_>, t: u64) -> u64 {
        let lease = self.rules.longest(claim.ask.ttl);
        self.windows.after(claim.proc, t).saturating_add(self.rules.op_timeout).saturating_add(lease)
    }

    /// Returns until when a claim may have stood in the way of others; `None` if it never did.
    ///
    /// A claim that was not confirmed goes on until the server has surely forgotten it, or until the next holder. A fault of
    /// the server delays that, because a request that lies before it is still carried out when it goes on.
    pub(super) fn possible_until(&self, claim: &Claim<'_>) -> Option<u64> {
        let until = self.forgotten_by_itself(claim)?;
        Some(claim.gone_by.map_or(until, |gone| gone.min(until)))
    }

    fn forgotten_by_itself(&self, claim: &Claim<'_>) -> Option<u64> {
        let lease = self.rules.longest(claim.ask.ttl);
        let later = |t| self.forgotten(claim, t);
        let granted = match claim.answer {
            // What was had of several locks is released as a guard that is dropped.
            CallEnd::Fail(mark, _) if claim.is_grouped() => return Some(later(mark.t)),
            CallEnd::Fail(..) => return None,
            CallEnd::Ok(..) => true,
            CallEnd::Info(..) | CallEnd::Pending => false,
        };
        let mut ends = Vec::new();
        for release in &claim.releases {
            match release.outcome {
                CallEnd::Ok(mark, _) => ends.push(mark.t),
                CallEnd::Fail(mark, _) => ends.push(mark.t.saturating_add(lease)),
                CallEnd::Info(mark) => ends.push(later(mark.t)),
                CallEnd::Pending => ends.push(later(release.asked.t)),
            }
        }
        ends.extend(claim.lost.map(|(mark, _)| later(mark.t)));
        ends.extend(self.deaths.get(claim.proc).map(|mark| later(mark.t)));
        if let (false, CallEnd::Info(mark)) = (granted || claim.is_early, &claim.answer) {
            ends.push(later(mark.t));
        }
        Some(ends.into_iter().min().unwrap_or(u64::MAX))
    }

    /// Returns the call in which a job worked.
    pub(super) fn slot_of(&self, work: &Work) -> Option<&SlotCall<'h>> {
        self.slots.get(*self.slot_places.get(&work.id)?)
    }

    fn note(&mut self, at: Mark, proc: &'h Text, what: &'h What) {
        match what {
            What::Run(run) => self.rules = run.rules.clone(),
            What::Acquire(call) => self.note_acquisition(at, proc, call),
            What::Renew(call) => {
                self.sees_renewals = true;
                let known = self.claim(&call.id).map(|claim| match outcome(at, &call.step) {
                    Err(_) => claim.renewals.push((at, CallEnd::Pending)),
                    Ok(end) => match claim.renewals.last_mut() {
                        Some((_, last)) if matches!(last, CallEnd::Pending) => *last = end,
                        _ => claim.renewals.push((at, end)),
                    },
                });
                self.expect(known, at, "a renewal of nothing");
            }
            What::Change(call) => {
                let known = self.claim(&call.id).map(|claim| follow(&mut claim.changes, at, &call.step));
                self.expect(known.flatten(), at, "a change of nothing");
            }
            What::Release(call) => {
                let known = self.claim(&call.id).map(|claim| follow(&mut claim.releases, at, &call.step));
                self.expect(known.flatten(), at, "a release of nothing");
            }
            What::Check(check) => {
                let known = self.claim(&check.id).map(|claim| claim.checks.push((at, check.sample)));
                self.expect(known, at, "a check of nothing");
            }
            What::Lost(lost) => {
                let known = self.claim(&lost.id).map(|claim| _ = claim.lost.get_or_insert((at, &lost.reason)));
                self.expect(known, at, "a loss of nothing");
            }
            What::Access(access) => {
                let claim = self.by_id.get(&access.id).copied();
                self.uses.push(Use { at, access, claim });
            }
            What::Fault(fault) => self.windows.note(at.t, fault),
            What::Death(death) => {
                self.windows.note_death(at.t, &death.victim);
                self.deaths.insert(&death.victim, at);
            }
            What::Theft(theft) => self.thefts.note(at, theft),
            What::Truth(truth) => {
                let lock = self.lock(&truth.res, truth.kind);
                self.locks[lock].truths.push((at, truth));
            }
            What::Woken(woken) => self.woken.push((at, woken)),
            What::Residue(residue) => self.residues.push((at, &residue.entries)),
            What::Slot(call) => self.note_slot(at, call),
            What::Work(work) => self.works.push((at, work)),
            What::Lead(lead) => self.leads.push((at, lead)),
            What::Record(seen) => self.records.push((at, seen)),
            What::End => self.has_ended = true,
        }
    }

    fn note_acquisition(&mut self, at: Mark, proc: &'h Text, call: &'h Call<Ask, Granted>) {
        let Step::Invoke(ask) = &call.step else {
            let end = outcome(at, &call.step).unwrap_or(CallEnd::Pending);
            let known = self.claim(&call.id).filter(|claim| matches!(claim.answer, CallEnd::Pending));
            if let Some(claim) = known {
                // What it was granted is not known then: nothing can be done with a lock before it is granted.
                let is_late = claim.is_in_use();
                claim.answer = if is_late { CallEnd::Info(at) } else { end };
                self.expect((!is_late).then_some(()), at, "an answer from after a use of its lock");
                return;
            }
            if !self.by_id.contains_key(&call.id) {
                self.early.insert(&call.id, at);
                return;
            }
            self.misfits.push((at.event, "an answer without a request"));
            return;
        };
        let place = self.claims.len();
        // When it was asked for, and what became of it, is not known then: only that it may be in the way since its answer.
        let early = self.early.remove(&call.id);
        if let Some(early) = early {
            self.misfits.push((early.event, "an answer from before its request"));
        }
        if self.by_id.insert(&call.id, place).is_some() {
            self.misfits.push((at.event, "an id that is used twice"));
        }
        let lock = self.lock(&ask.res, ask.kind);
        self.locks[lock].claims.push(place);
        if let Some(group) = &ask.group {
            self.groups.entry(group).or_default().push(place);
        }
        self.claims.push(Claim {
            id: &call.id,
            proc,
            lock,
            asked: early.unwrap_or(at),
            ask,
            is_early: early.is_some(),
            answer: early.map_or(CallEnd::Pending, CallEnd::Info),
            checks: Vec::new(),
            renewals: Vec::new(),
            changes: Vec::new(),
            releases: Vec::new(),
            lost: None,
            gone_by: None,
        });
    }

    fn note_slot(&mut self, at: Mark, call: &'h Call<SlotAsk, SlotAnswer>) {
        match outcome(at, &call.step) {
            Err(asks) => {
                let place = self.slots.len();
                self.slots.push(SlotCall { asked: at, asks, outcome: CallEnd::Pending });
                let known = self.slot_places.insert(&call.id, place).is_none().then_some(());
                self.expect(known, at, "an id that is used twice");
            }
            Ok(end) => {
                let place = self.slot_places.get(&call.id).copied();
                let known = place.and_then(|place| self.slots.get_mut(place)).map(|call| call.outcome = end);
                self.expect(known, at, "an answer without a request");
            }
        }
    }

    fn claim(&mut self, id: &Text) -> Option<&mut Claim<'h>> {
        let place = *self.by_id.get(id)?;
        self.claims.get_mut(place)
    }

    fn lock(&mut self, res: &'h Text, kind: Kind) -> usize {
        let next = self.locks.len();
        let place = *self.lock_places.entry((res, kind.space())).or_insert(next);
        if place == next {
            self.locks.push(LockClaims { res, kind, claims: Vec::new(), truths: Vec::new() });
        }
        place
    }

    fn expect(&mut self, known: Option<()>, at: Mark, misfit: &'static str) {
        if known.is_none() {
            self.misfits.push((at.event, misfit));
        }
    }
}

/// Returns how a call ended, or what it asks for.
fn outcome<'h, I, O>(at: Mark, step: &'h Step<I, O>) -> Result<CallEnd<'h, O>, &'h I> {
    match step {
        Step::Invoke(asks) => Err(asks),
        Step::Ok(answer) => Ok(CallEnd::Ok(at, answer)),
        Step::Fail(failed) => Ok(CallEnd::Fail(at, failed)),
        Step::Info(_) => Ok(CallEnd::Info(at)),
    }
}

fn follow<'h, I, O>(deeds: &mut Vec<Deed<'h, I, O>>, at: Mark, step: &'h Step<I, O>) -> Option<()> {
    match outcome(at, step) {
        Err(asks) => deeds.push(Deed { asked: at, asks, outcome: CallEnd::Pending }),
        Ok(end) => deeds.iter_mut().find(|deed| matches!(deed.outcome, CallEnd::Pending))?.outcome = end,
    }
    Some(())
}
