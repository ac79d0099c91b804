//! The grants of one lock in memory.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::Kind;
use crate::owner::{GrantId, Owner};
use crate::token::FencingToken;

/// A grant.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) id: GrantId,
    pub(super) client: u64,
    pub(super) kind: Kind,
    pub(super) owner: Owner,
    pub(super) token: FencingToken,
    pub(super) since: BootInstant,
    pub(super) expires: BootInstant,
}

/// The grants of one lock: several readers, several permits, the entries of one owner, or a single one.
#[derive(Debug)]
pub(super) struct Holders {
    by_id: HashMap<GrantId, Holding>,
    /// The sum of what they hold.
    used: u64,
    /// An instant before which none ends. It may be too early, after a renewal or a release.
    none_ends_before: BootInstant,
}

impl Default for Holders {
    fn default() -> Self {
        Self { by_id: HashMap::new(), used: 0, none_ends_before: BootInstant::FAR_FUTURE }
    }
}

impl Holders {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: GrantId) -> Option<&Holding> {
        self.by_id.get(&id)
    }

    /// Any one of them. Kind, limit and, for a reentrant lock, owner and token are those of all: no other request is granted
    /// beside them.
    pub(super) fn any(&self) -> Option<&Holding> {
        self.by_id.values().next()
    }

    /// The sum of what they hold.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// An instant before which none of them ends.
    pub(super) fn none_ends_before(&self) -> BootInstant {
        self.none_ends_before
    }

    pub(super) fn insert(&mut self, holding: Holding) {
        self.used += u64::from(weight(holding.kind));
        self.none_ends_before = self.none_ends_before.min(holding.expires);
        self.by_id.insert(holding.id, holding);
    }

    /// Takes a grant away.
    pub(super) fn remove(&mut self, id: GrantId) -> Option<Holding> {
        let held = self.by_id.remove(&id)?;
        self.used -= u64::from(weight(held.kind));
        Some(held)
    }

    /// Takes every grant away.
    pub(super) fn remove_all(&mut self) -> Vec<Holding> {
        std::mem::take(self).by_id.into_values().collect()
    }

    /// Takes away what has expired. Looks at all of them only if one may have.
    pub(super) fn expire(&mut self, now: BootInstant) {
        if now < self.none_ends_before {
            return;
        }
        self.by_id.retain(|_, held| held.expires > now);
        self.used = self.by_id.values().map(|held| u64::from(weight(held.kind))).sum();
        let ends = self.by_id.values().map(|held| held.expires);
        self.none_ends_before = ends.min().unwrap_or(BootInstant::FAR_FUTURE);
    }

    /// Extends a grant; whether it is there.
    pub(super) fn renew(&mut self, id: GrantId, ttl: Duration, now: BootInstant) -> bool {
        let Some(held) = self.by_id.get_mut(&id) else { return false };
        // A renewal may come after a longer extension by hand.
        held.expires = held.expires.max(now.plus(ttl));
        true
    }

    /// Changes the kind of a grant; whether it is there.
    pub(super) fn change(&mut self, id: GrantId, to: impl FnOnce(Kind) -> Kind) -> bool {
        let Some(held) = self.by_id.get_mut(&id) else { return false };
        self.used -= u64::from(weight(held.kind));
        held.kind = to(held.kind);
        self.used += u64::from(weight(held.kind));
        true
    }

    /// All of them in the order in which they were granted.
    pub(super) fn in_order(&self) -> Vec<&Holding> {
        let mut all: Vec<_> = self.by_id.values().collect();
        all.sort_unstable_by_key(|held| (held.since, held.token, held.id));
        all
    }
}

/// The permits that a grant of this kind holds.
pub(super) fn weight(kind: Kind) -> u32 {
    match kind {
        Kind::Permits { permits, .. } => permits,
        _ => 1,
    }
}
