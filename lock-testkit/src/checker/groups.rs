//! MULTI: several locks at once are all or nothing. That each of them excludes others is checked by ME.

use std::collections::HashMap;

use super::found::Found;
use super::ledger::{Claim, Ledger, Outcome};
use super::verdict::{Check, Findings};

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    let mut groups: HashMap<_, Vec<&Claim<'_>>> = HashMap::new();
    for claim in &ledger.claims {
        if let Some(group) = &claim.ask.group {
            groups.entry(group).or_default().push(claim);
        }
    }
    for (group, claims) in groups {
        let granted = claims.iter().find_map(|claim| claim.granted());
        let refused = claims.iter().find_map(|claim| match claim.answer {
            Outcome::Fail(mark, _) => Some((mark, claim)),
            _ => None,
        });
        if let (Some((mark, _)), Some((other, claim))) = (granted, refused) {
            let what = format!("only some locks of {group} were granted");
            findings.add(Found::new(Check::MULTI, what).of(&claim.ask.res).shown_by([mark, other]));
        }
    }
}
