//! MULTI: several locks at once are all or nothing. That each of them excludes others is checked by ME.

use std::collections::{HashMap, HashSet};

use super::check::Check;
use super::claim::Claim;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::{CallEnd, Mark};
use super::violation::Findings;
use crate::history::event::Text;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for (group, places) in &ledger.groups {
        halved(group, places.iter().map(|place| &ledger.claims[*place]), findings);
    }
    for lock in &ledger.locks {
        kept(ledger, lock, findings);
    }
}

fn halved<'c>(group: &Text, claims: impl Iterator<Item = &'c Claim<'c>> + Clone, findings: &mut Findings) {
    let granted = claims.clone().find_map(|claim| claim.granted());
    let refused = claims.clone().find_map(|claim| match claim.answer {
        CallEnd::Fail(mark, _) => Some((mark, claim)),
        _ => None,
    });
    if let (Some((mark, _)), Some((other, claim))) = (granted, refused) {
        let what = format!("only some locks of {group} were granted");
        findings.add(Finding::new(Check::MULTI, what).of(&claim.ask.res).shown_by([mark, other]));
    }
}

/// A lock that is kept although not all could be had: the server has a grant of it that nobody was told of, for longer than
/// any request can have left it there.
fn kept(ledger: &Ledger<'_>, lock: &LockClaims<'_>, findings: &mut Findings) {
    let suspects = Suspects::of(ledger, lock);
    if suspects.grouped.0.is_empty() {
        return;
    }
    for Stranger { first, last, after } in strangers(ledger, lock) {
        let is_explained = suspects.all.until(first.t).is_some_and(|(until, _)| until >= after);
        let group = suspects.grouped.until(first.t).filter(|(until, _)| *until >= first.t);
        if let (false, Some((until, claim))) = (is_explained, group) {
            let time = super::finding::time(after.saturating_sub(until));
            let what = format!("{} was not granted with the others, but the server had it {time} later", claim.id);
            let marks = [Some(claim.asked), claim.answer.mark(), Some(first), Some(last)];
            findings.add(Finding::new(Check::MULTI, what).of(lock.res).shown_by(marks.into_iter().flatten()));
        }
    }
}

/// A grant at the server that no holder has the name of.
#[derive(Debug, Clone, Copy)]
struct Stranger {
    first: Mark,
    last: Mark,
    /// The last instant after which the grant was still there.
    after: u64,
}

fn strangers(ledger: &Ledger<'_>, lock: &LockClaims<'_>) -> impl Iterator<Item = Stranger> {
    let granted = ledger.claims_of(lock).filter_map(|claim| claim.granted());
    let known: HashSet<_> = granted.filter_map(|(_, granted)| granted.grant.as_ref()).collect();
    let mut strangers = HashMap::<&Text, Stranger>::new();
    for (mark, truth) in &lock.truths {
        for holder in truth.holders.iter().filter(|holder| !known.contains(holder)) {
            let seen = Stranger { first: *mark, last: *mark, after: truth.after };
            let stranger = strangers.entry(holder).or_insert(seen);
            (stranger.last, stranger.after) = (*mark, stranger.after.max(truth.after));
        }
    }
    strangers.into_values()
}

/// Claims that were not granted: the server may have granted them all the same, and be told to forget them later.
#[derive(Debug, Default)]
struct Suspects<'c> {
    all: Longest<'c>,
    grouped: Longest<'c>,
}

impl<'c> Suspects<'c> {
    fn of(ledger: &'c Ledger<'_>, lock: &'c LockClaims<'_>) -> Self {
        let mut suspects = Self::default();
        for claim in ledger.claims_of(lock).filter(|claim| claim.granted().is_none()) {
            let answered = claim.answer.mark().or_else(|| ledger.deaths.get(claim.proc).copied());
            let until = answered.map_or(u64::MAX, |mark| ledger.forgotten(claim, mark.t));
            suspects.all.add(until, claim);
            if claim.is_grouped() {
                suspects.grouped.add(until, claim);
            }
        }
        suspects
    }
}

/// Of those who had asked by some time, the one of whom something may be left for longest.
#[derive(Debug, Default)]
struct Longest<'c>(Vec<(u64, u64, &'c Claim<'c>)>);

impl<'c> Longest<'c> {
    /// In the order of their requests.
    fn add(&mut self, until: u64, claim: &'c Claim<'c>) {
        let (until, claim) = match self.0.last() {
            Some((_, longest, other)) if *longest >= until => (*longest, *other),
            _ => (until, claim),
        };
        self.0.push((claim.asked.t, until, claim));
    }

    fn until(&self, asked_by: u64) -> Option<(u64, &'c Claim<'c>)> {
        let begun = self.0.partition_point(|(asked, ..)| *asked <= asked_by);
        self.0[..begun].last().map(|(_, until, claim)| (*until, *claim))
    }
}
