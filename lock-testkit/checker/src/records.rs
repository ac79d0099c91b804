//! REC: a record never goes back, whoever is late.

use std::collections::HashMap;

use super::check::Check;
use super::finding::Finding;
use super::ledger::Ledger;
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::Text;
use crate::history::recipe::RecordSeen;

type Seen<'h> = (Mark, &'h RecordSeen);

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    if !ledger.rules.records {
        return;
    }
    let mut records: HashMap<&Text, Vec<Seen<'_>>> = HashMap::new();
    for (at, seen) in &ledger.records {
        records.entry(&seen.res).or_default().push((*at, seen));
    }
    for (res, seen) in &records {
        for (at, seen) in seen.iter().filter(|(_, seen)| seen.written > Some(seen.term)) {
            let what = format!("its data is of token {:?}, its latest holder's is {}", seen.written, seen.term);
            findings.add(Finding::new(Check::REC, what).of(res).shown_by([*at]));
        }
        never_back(res, seen, findings);
    }
}

/// A question that is put after an answer is told of no earlier holder, nor of data of an earlier one.
fn never_back(res: &Text, seen: &[Seen<'_>], findings: &mut Findings) {
    let (mut by_answer, mut by_question) = (seen.to_vec(), seen.to_vec());
    by_answer.sort_by_key(|(at, _)| *at);
    by_question.sort_by_key(|(_, seen)| seen.after);
    let mut answered = by_answer.into_iter().peekable();
    let (mut stamped, mut written) = (None::<Seen<'_>>, None::<Seen<'_>>);
    for (at, seen) in by_question {
        while let Some(before) = answered.next_if(|(before, _)| before.t < seen.after) {
            stamped = Some(stamped.filter(|(_, known)| known.term >= before.1.term).unwrap_or(before));
            written = Some(written.filter(|(_, known)| known.written >= before.1.written).unwrap_or(before));
        }
        let is_back = |known: &RecordSeen| known.term > seen.term || known.written > seen.written;
        if let Some((before, known)) = [stamped, written].into_iter().flatten().find(|(_, known)| is_back(known)) {
            let told = |seen: &RecordSeen| format!("{} with data of {:?}", seen.term, seen.written);
            let what = format!("it was of token {}, and then of {}", told(known), told(seen));
            findings.add(Finding::new(Check::REC, what).of(res).shown_by([before, at]));
        }
    }
}
