//! The one list of cases, under the headings under which `CASES.md` tells them.
//!
//! An entry declares and registers: the claim, its id, the promises that it proves, the function, the forms in which the
//! lock is met, and what else is needed. A, B, C are owners in different clients; the TTL is 2 s unless said; "free" means that
//! the servers have nothing left.

use lock_core::Guarantee;

use super::Case;
use crate::abilities::Need;

macro_rules! cases {
    ($($heading:literal {
        $($(#[doc = $claim:literal])+ $id:literal $proves:literal $file:ident::$name:ident $forms:ident [$($need:expr),*];)+
    })+) => {
        /// The cases of this file.
        pub(crate) const CASES: &[Case] = &[$($(Case {
            #[cfg(test)]
            heading: $heading,
            #[cfg(test)]
            claim: concat!($($claim),+),
            id: $id,
            #[cfg(test)]
            proves: $proves,
            name: stringify!($name),
            forms: $forms,
            needs: &[$($need),*],
            run: |cx| Box::pin($file::$name(cx)),
        }),+),+];
    };
}

const INSPECT: Need = Need::Promise(Guarantee::Inspect);
const FORCE: Need = Need::Promise(Guarantee::ForceRelease);
const FENCING: Need = Need::Promise(Guarantee::Fencing);
const FIFO: Need = Need::Promise(Guarantee::Fifo);
const PUSH: Need = Need::Promise(Guarantee::Push);
const LIMIT: Need = Need::Promise(Guarantee::LimitCheck);
const SHARED_OWNER: Need = Need::Promise(Guarantee::SharedOwner);
const FOREIGN: Need = Need::Promise(Guarantee::ForeignClients);
const RECORD: Need = Need::Promise(Guarantee::Record);
const ADOPTION: Need = Need::Promise(Guarantee::Adoption);
const LEAVE: Need = Need::Promise(Guarantee::Leave);

mod environment;
mod features;
mod kinds;
mod leases;

/// The cases of each file, in the order of `CASES.md`.
const PARTS: &[&[Case]] = &[kinds::CASES, leases::CASES, environment::CASES, features::CASES];

/// Every case.
pub(crate) const CASES: &[Case] = &joined::<{ count(PARTS) }>(PARTS);

/// The number of cases in all parts.
const fn count(parts: &[&[Case]]) -> usize {
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        count += parts[part].len();
        part += 1;
    }
    count
}

/// The cases of all parts, which are `N`, one after the other.
const fn joined<const N: usize>(parts: &[&[Case]]) -> [Case; N] {
    // Each is overwritten: the parts have `N` cases, and the compiler rejects an index beyond.
    let mut cases = [parts[0][0]; N];
    let (mut next, mut part) = (0, 0);
    while part < parts.len() {
        let mut case = 0;
        while case < parts[part].len() {
            cases[next] = parts[part][case];
            next += 1;
            case += 1;
        }
        part += 1;
    }
    cases
}
