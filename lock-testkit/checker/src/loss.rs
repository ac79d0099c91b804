//! L1-L3, E1 and R2: how long holders believe, how they learn that they have lost, and why.

use super::belief::{belief, denials};
use super::check::Check;
use super::claim::Claim;
use super::finding::{Finding, time};
use super::ledger::{Ledger, LockClaims};
use super::mark::{CallEnd, Mark};
use super::violation::Findings;
use crate::history::event::Kind;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        let releases = releases(ledger, lock);
        for claim in ledger.claims_of(lock) {
            own_word(lock, claim, findings);
            deadline(ledger, lock, claim, findings);
            revived(lock, claim, findings);
            final_loss(lock, claim, findings);
            news(ledger, lock, claim, findings);
            truth(ledger, lock, claim, findings);
            robbed(ledger, lock, claim, findings);
            cause(ledger, lock, claim, &releases, findings);
        }
    }
}

/// L1: a holder that says it holds, and that its lease was over before, is wrong by its own word, whatever was renewed.
fn own_word(lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let over = |(asked, deadline): &(Mark, Option<u64>)| deadline.is_some_and(|deadline| deadline < asked.t);
    if let Some((asked, _)) = assertions(claim).find(over) {
        let what = format!("{} said that it holds, and that its lease was over", claim.id);
        findings.add(Finding::new(Check::L1, what).of(lock.res).shown_by([asked]));
    }
}

/// L1: nobody believes in a lease for longer than it lasts from the sending of the request that it rests on. Where neither
/// the sending nor the renewals can be seen, the answer stands for the request, and a renewed lease is not judged. A renewal
/// that is sent when the lease is over gives nothing more.
fn deadline(ledger: &Ledger<'_>, lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let Some((granted, answer)) = claim.granted() else { return };
    if ledger.rules.renewed && !ledger.sees_renewals && answer.sent.is_none() {
        return;
    }
    let ends = |sent: u64, ttl: u64| sent.saturating_add(ledger.rules.shortest(ttl));
    let renewed = claim.renewals.iter().filter_map(|(asked, outcome)| {
        let (mark, renewed) = outcome.ok()?;
        // By the stamp before the request, where its sending cannot be seen, it was in time at the latest.
        let (first, sent) = (renewed.sent.unwrap_or(asked.t), renewed.sent.unwrap_or(mark.t));
        Some((mark, first, ends(sent, renewed.ttl.unwrap_or(claim.ask.ttl))))
    });
    let mut renewed = renewed.peekable();
    let (mut from, mut end) = (granted, ends(answer.sent.unwrap_or(granted.t), claim.ask.ttl));
    for (asked, held) in assertions(claim) {
        while let Some((mark, sent, until)) = renewed.next_if(|(mark, ..)| *mark <= asked) {
            if sent <= end && until > end {
                (from, end) = (mark, until);
            }
        }
        let until = held.unwrap_or(asked.t).max(asked.t);
        if until > end {
            let what = format!("{} believed for {} longer than its lease lasts", claim.id, time(until - end));
            findings.add(Finding::new(Check::L1, what).of(lock.res).shown_by([from, asked]));
        }
    }
}

/// L3: what the server was seen without is not renewed any more. Of a mutex only: the others are looked at in several parts, and
/// a hold that moves from one to the other meanwhile is seen in neither.
fn revived(lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    if !claim.changes.is_empty() || claim.renewals.is_empty() {
        return;
    }
    let Some((granted, name)) = claim.granted().and_then(|(mark, answer)| Some((mark, answer.grant.as_ref()?))) else {
        return;
    };
    let first = lock.truths.partition_point(|(mark, _)| mark.t < granted.t);
    let looks = lock.truths[first..].iter().filter(|(_, truth)| truth.kind == Kind::Mutex && truth.after >= granted.t);
    let Some((gone, _)) = looks.clone().find(|(_, truth)| !truth.holders.contains(name)) else { return };
    let renewed = claim.renewals.iter().filter(|(asked, _)| asked.t >= gone.t).find_map(|(_, outcome)| outcome.ok());
    if let Some((renewed, _)) = renewed {
        let what = format!("{} was renewed after it was gone", claim.id);
        findings.add(Finding::new(Check::L3, what).of(lock.res).shown_by([granted, *gone, renewed]));
    }
}

/// Returns the holder's statements that it holds, and until when it said it would. The last one is made at its release.
fn assertions<'c>(claim: &'c Claim<'_>) -> impl Iterator<Item = (Mark, Option<u64>)> + 'c {
    let granted = claim.granted().map(|(mark, granted)| (mark, granted.sample));
    let checks = claim.checks.iter().copied();
    let released = claim.releases.first().map(|release| (release.asked, *release.asks));
    granted
        .into_iter()
        .chain(checks)
        .chain(released)
        .filter(|(_, sample)| sample.held == Some(true))
        .map(|(mark, sample)| (mark, sample.deadline))
}

/// L1: what was lost stays lost. (A downgrade without an answer is in doubt until it is asked for again.)
fn final_loss(lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let told = claim.lost.map(|(mark, _)| mark);
    let denied = denials(claim).filter(|denied| !is_changing(claim, *denied));
    let Some(denied) = denied.chain(told).min() else { return };
    if let Some((again, _)) = assertions(claim).find(|(mark, _)| mark.t > denied.t) {
        let what = format!("{} held again after it had been lost", claim.id);
        findings.add(Finding::new(Check::L1, what).of(lock.res).shown_by([denied, again]));
    }
}

/// Whether a change was asked for by then, and had no answer that says what became of it: who cannot say what it has may say that
/// it has nothing.
fn is_changing(claim: &Claim<'_>, at: Mark) -> bool {
    let last = claim.changes.iter().rev().find(|change| change.asked <= at);
    last.is_some_and(|change| match change.outcome {
        CallEnd::Ok(answered, _) | CallEnd::Fail(answered, _) => at < answered,
        CallEnd::Info(_) | CallEnd::Pending => true,
    })
}

/// L2: who finds out by asking that the lock is lost is told so, soon.
fn news(ledger: &Ledger<'_>, lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let mut denied = claim.checks.iter().filter(|(_, sample)| sample.held == Some(false)).map(|(mark, _)| *mark);
    let Some(denied) = denied.find(|denied| !is_changing(claim, *denied)) else { return };
    let due = denied.t.saturating_add(ledger.rules.notice);
    let told = claim.lost.map(|(mark, _)| mark);
    // What is wrong with a server keeps nobody from looking at the clock.
    if !is_told_by(ledger, claim, due) && !ledger.windows.stood_still(claim.proc, denied.t, due) {
        let what = match told {
            Some(told) => {
                format!("{} was told of its loss {} after it could be seen", claim.id, time(told.t - denied.t))
            }
            None => format!("{} was never told of its loss", claim.id),
        };
        findings.add(Finding::new(Check::L2, what).of(lock.res).shown_by([Some(denied), told].into_iter().flatten()));
    }
}

/// Whether the holder was told of its loss by then, if it still listened.
fn is_told_by(ledger: &Ledger<'_>, claim: &Claim<'_>, due: u64) -> bool {
    let released = claim.releases.first().map(|release| release.asked.t);
    let died = ledger.deaths.get(claim.proc).map(|mark| mark.t);
    let listened_until = [released, died].into_iter().flatten().min().unwrap_or(ledger.end);
    claim.lost.is_some_and(|(told, _)| told.t <= due) || listened_until <= due
}

/// L3: whose entry is gone at the server does not believe in it for longer than one lease. A hold that has changed may have been in
/// none of the parts that were looked at.
fn truth(ledger: &Ledger<'_>, lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    if !claim.changes.is_empty() {
        return;
    }
    let (Some((granted, answer)), Some((_, until))) = (claim.granted(), belief(claim)) else { return };
    let Some(name) = &answer.grant else { return };
    let latest = until.t.saturating_sub(ledger.rules.longest(claim.ask.ttl));
    let first = lock.truths.partition_point(|(mark, _)| mark.t < granted.t);
    let looks = lock.truths[first..].iter().take_while(|(mark, _)| mark.t < latest);
    let gone = looks.filter(|(_, truth)| truth.after >= granted.t).find(|(_, truth)| !truth.holders.contains(name));
    if let Some((look, _)) = gone {
        let what = format!("{} believed in its lock {} after it was gone", claim.id, time(until.t - look.t));
        findings.add(Finding::new(Check::L3, what).of(lock.res).shown_by([granted, *look, until]));
    }
}

/// L3: who was robbed hears of it within one lease, and believes for no longer. (A waiter may have lost its place only.)
fn robbed(ledger: &Ledger<'_>, lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let (Some((granted, _)), Some((_, until))) = (claim.granted(), belief(claim)) else { return };
    for theft in ledger.thefts_from(claim).filter(|theft| granted.t <= theft.after) {
        let stood_still = ledger.windows.stood_still(claim.proc, theft.after, theft.due);
        if until.t > theft.due {
            let what = format!("{} believed in its lock {} after it was taken", claim.id, time(until.t - theft.done.t));
            findings.add(Finding::new(Check::L3, what).of(lock.res).shown_by([granted, theft.done, until]));
        } else if claim.changes.is_empty() && !stood_still && !is_told_by(ledger, claim, theft.due) {
            let what = format!("{} was not told within its lease that the lock was taken from it", claim.id);
            let told = claim.lost.map(|(mark, _)| mark);
            let marks = [Some(granted), Some(theft.done), told].into_iter().flatten();
            findings.add(Finding::new(Check::L3, what).of(lock.res).shown_by(marks));
        }
    }
}

/// A release, of whom, from its request until its answer.
type Released = (Mark, u64, usize);

fn releases(ledger: &Ledger<'_>, lock: &LockClaims<'_>) -> Vec<Released> {
    let mut releases: Vec<Released> = Vec::new();
    for place in &lock.claims {
        for release in &ledger.claims[*place].releases {
            let until = release.outcome.mark().map_or(u64::MAX, |mark| mark.t);
            releases.push((release.asked, until, *place));
        }
    }
    releases.sort_unstable();
    releases
}

/// E1: every loss has a cause. R2: if the only cause is somebody else's release, that is the bug.
fn cause(
    ledger: &Ledger<'_>,
    lock: &LockClaims<'_>,
    claim: &Claim<'_>,
    releases: &[Released],
    findings: &mut Findings,
) {
    let Some((from, until)) = belief(claim) else { return };
    let Some((noticed, forced)) = loss(claim) else { return };
    let lease = ledger.rules.longest(claim.ask.ttl);
    let expires = !ledger.rules.renewed && noticed.t >= from.t.saturating_add(ledger.rules.shortest(lease / 2));
    // The last renewal may have succeeded a whole lease before the holder said for the last time that it holds.
    let is_robbed = ledger.thefts_from(claim).any(|theft| theft.after <= noticed.t);
    if forced || expires || is_robbed || ledger.windows.touch(claim.proc, until.t.saturating_sub(lease), noticed.t) {
        return;
    }
    let begun = releases.partition_point(|(asked, ..)| asked.t <= noticed.t);
    let recent = releases[..begun].iter().rev().take_while(|(asked, ..)| asked.t.saturating_add(lease) >= from.t);
    let hit = |(asked, answered, whose): &&Released| {
        lock.kind.is_exclusive() && *answered >= from.t && ledger.claims[*whose].id != claim.id && asked.t <= noticed.t
    };
    if let Some((asked, _, whose)) = recent.clone().find(hit) {
        let what = format!("{} lost the lock when {} released it", claim.id, ledger.claims[*whose].id);
        findings.add(Finding::new(Check::R2, what).of(lock.res).shown_by([from, *asked, noticed]));
    } else {
        let what = format!("{} lost the lock without a cause", claim.id);
        findings.add(Finding::new(Check::E1, what).of(lock.res).shown_by([from, until, noticed]));
    }
}

/// Returns the first notice of a loss, and whether an operator had forced it.
fn loss(claim: &Claim<'_>) -> Option<(Mark, bool)> {
    let forced = claim.lost.is_some_and(|(_, reason)| &**reason == "forced");
    let refused = claim.releases.first().and_then(|release| release.outcome.not_held());
    let renewal = claim.renewals.iter().find_map(|(_, outcome)| outcome.not_held());
    let noticed = [claim.lost.map(|(mark, _)| mark), refused, renewal].into_iter().flatten().min()?;
    Some((noticed, forced))
}
