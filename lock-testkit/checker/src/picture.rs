//! A history as it can be drawn: who waited and held when, what was wrong when, and what proves a violation.

use serde::Serialize;

use super::belief::belief;
use super::claim::Claim;
use super::judge;
use super::ledger::Ledger;
use super::mark::CallEnd;
use super::verdict::Judgement;
use super::violation::Violation;
use crate::history::History;
use crate::history::Rules;
use crate::history::event::{Kind, Text, What};

/// A history as a page needs it to draw it. All times are in microseconds from the first event.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Picture {
    /// The backend, if the history says so.
    pub backend: Option<Text>,
    /// The seed that replays the run.
    pub seed: Option<u64>,
    /// The `t` of the first event, in nanoseconds: where all times here begin.
    pub origin: u64,
    /// The time of the last event.
    pub end: u64,
    /// The verdict and what was seen.
    pub judgement: Judgement,
    /// The events of each violation's witness, in the order of the violations.
    pub witnesses: Vec<Vec<Seen>>,
    /// Every acquisition.
    pub bars: Vec<Bar>,
    /// Every fault.
    pub faults: Vec<Shade>,
}

/// An event of a witness.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Seen {
    /// When.
    pub t: u64,
    /// The event's line in the file.
    pub line: u32,
    /// The acquisition that it is about.
    pub id: Option<Text>,
    /// The event itself.
    pub text: String,
}

/// One acquisition.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Bar {
    /// The acquisition's id.
    pub id: Text,
    /// The lock.
    pub res: Text,
    /// The process.
    pub proc: Text,
    /// The identity that the lock goes by.
    pub owner: Text,
    /// The kind.
    pub kind: Kind,
    /// The time of the request.
    pub asked: u64,
    /// The time of the answer, or the death of the process that asked.
    pub answered: Option<u64>,
    /// How: `granted`, `refused`, `failed`, `unclear`, `died` or `pending`.
    pub outcome: &'static str,
    /// The time from which and to which the holder certainly believed in it.
    pub held: Option<(u64, u64)>,
    /// The end of the time in which the server may have had it.
    pub possible: Option<u64>,
    /// The time at which its holder was told that it is lost, and why.
    pub lost: Option<(u64, Text)>,
    /// The token.
    pub token: Option<u64>,
}

/// One fault.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Shade {
    /// The fault's name.
    pub name: Text,
    /// At whom.
    pub target: Text,
    /// The fault's beginning.
    pub from: u64,
    /// The fault's end.
    pub to: u64,
}

/// Judges a history, as [`check`](super::check()) does, and prepares its picture.
#[must_use]
pub fn picture(history: &History, rules: Option<&Rules>) -> Picture {
    let ledger = judge::read(history, rules);
    let judgement = judge::judge(history, &ledger);
    let scale = Scale { origin: history.events().first().map_or(0, |event| event.t), end: ledger.end };
    let run = history.events().iter().find_map(|event| match &event.what {
        What::Run(run) => Some(run),
        _ => None,
    });
    let windows = ledger.windows.all().iter();
    Picture {
        backend: run.map(|run| run.backend.clone()),
        seed: run.and_then(|run| run.seed),
        origin: scale.origin,
        end: scale.micros(ledger.end),
        witnesses: judgement.violations.iter().map(|violation| witness(history, scale, violation)).collect(),
        judgement,
        bars: ledger.claims.iter().map(|claim| bar(&ledger, scale, claim)).collect(),
        faults: windows
            .map(|window| Shade {
                name: window.name.clone(),
                target: window.target.clone(),
                from: scale.micros(window.from),
                to: scale.micros(window.to.unwrap_or(u64::MAX)),
            })
            .collect(),
    }
}

#[derive(Clone, Copy)]
struct Scale {
    origin: u64,
    end: u64,
}

impl Scale {
    fn micros(self, t: u64) -> u64 {
        t.min(self.end).saturating_sub(self.origin) / 1_000
    }
}

fn witness(history: &History, scale: Scale, violation: &Violation) -> Vec<Seen> {
    let events = violation.witness.iter().filter_map(|place| Some((*place, history.events().get(*place)?)));
    let seen = events.map(|(place, event)| Seen {
        t: scale.micros(event.t),
        line: history.line(place),
        id: event.what.id().cloned(),
        // An event is made of numbers and texts: it can always be written.
        text: serde_json::to_string(event).unwrap_or_default(),
    });
    seen.collect()
}

fn bar(ledger: &Ledger<'_>, scale: Scale, claim: &Claim<'_>) -> Bar {
    let died = ledger.deaths.get(claim.proc).copied();
    Bar {
        id: claim.id.clone(),
        res: claim.ask.res.clone(),
        proc: claim.proc.clone(),
        owner: claim.ask.owner.clone(),
        kind: claim.ask.kind,
        asked: scale.micros(claim.asked.t),
        answered: claim.answer.mark().or(died).map(|mark| scale.micros(mark.t)),
        outcome: match claim.answer {
            CallEnd::Ok(..) => "granted",
            CallEnd::Fail(..) if claim.is_refused() => "refused",
            CallEnd::Fail(..) => "failed",
            CallEnd::Info(..) => "unclear",
            CallEnd::Pending if died.is_some() => "died",
            CallEnd::Pending => "pending",
        },
        held: belief(claim).map(|(from, to)| (scale.micros(from.t), scale.micros(to.t))),
        possible: ledger.possible_until(claim).map(|t| scale.micros(t)),
        lost: claim.lost.map(|(mark, reason)| (scale.micros(mark.t), reason.clone())),
        token: claim.token(),
    }
}
