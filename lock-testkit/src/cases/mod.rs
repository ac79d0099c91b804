//! The cases, by what they are about; `list/` declares and registers each.
//!
//! The functions are private to this module's files, so that one that is not listed is dead code. Every case that a
//! backend's abilities admit is run; nobody picks.

mod adoption;
mod cancel;
#[cfg(test)]
mod claims;
mod foreign;
mod forgetting;
mod interposed;
mod lease;
mod leave;
mod list;
mod mutex;
mod naming;
mod observe;
mod outage;
mod process;
#[cfg(test)]
mod promises;
mod record;
mod record_survival;
mod reentrant;
mod refusals;
mod renewal;
mod replies;
mod runtimes;
mod rwlock;
mod semaphore;
mod servers;
mod session;
mod several;
mod stale;
mod swallowed;
mod waiting;

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;

pub(crate) use self::list::CASES;
use crate::abilities::Need;
use crate::adapters::Form;
use crate::context::Cx;
use crate::failure::Verdict;

/// One claim, and how to try it.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The heading of `CASES.md` under which it is told.
    #[cfg(test)]
    pub(crate) heading: &'static str,
    /// The claim in words; for the document only.
    #[cfg(test)]
    pub(crate) claim: &'static str,
    /// The id that tests and comments mention, which never changes.
    pub(crate) id: &'static str,
    /// The promises that it proves, such as `"K1 K3"`; for the document only.
    #[cfg(test)]
    pub(crate) proves: &'static str,
    /// The claim as a function's name.
    pub(crate) name: &'static str,
    /// The forms in which the lock is met.
    pub(crate) forms: &'static [Form],
    /// Its further needs.
    pub(crate) needs: &'static [Need],
    /// The case itself.
    pub(crate) run: fn(Arc<Cx>) -> LocalBoxFuture<'static, Verdict>,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_case_has_an_id_of_its_own_a_form_a_claim_and_a_name_that_reads_as_a_sentence() {
        let ids: HashSet<_> = CASES.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), CASES.len(), "an id is given twice");
        for case in CASES {
            assert!(!case.forms.is_empty(), "{} is never run", case.id);
            assert!(case.name.split('_').count() >= 4, "{} is no sentence", case.name);
            assert!(case.claim.ends_with('.'), "{} claims no sentence: {}", case.id, case.claim);
        }
    }
}
