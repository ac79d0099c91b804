//! The grants of one lock in memory.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::IdMap;
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
#[derive(Debug, Default)]
pub(super) struct Holders {
    by_id: IdMap<GrantId, Holding>,
    /// The sum of what they hold.
    used: u64,
    /// The ends of all of them, so that one that ends costs as little however many there are.
    ends: BTreeSet<(BootInstant, GrantId)>,
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

    /// The instant at which the first of them ends.
    pub(super) fn first_end(&self) -> BootInstant {
        self.ends.first().map_or(BootInstant::FAR_FUTURE, |(end, _)| *end)
    }

    pub(super) fn insert(&mut self, holding: Holding) {
        self.used += u64::from(weight(holding.kind));
        self.ends.insert((holding.expires, holding.id));
        self.by_id.insert(holding.id, holding);
    }

    /// Takes a grant away.
    pub(super) fn remove(&mut self, id: GrantId) -> Option<Holding> {
        let held = self.by_id.remove(&id)?;
        self.ends.remove(&(held.expires, id));
        self.used -= u64::from(weight(held.kind));
        Some(held)
    }

    /// Takes every grant away.
    pub(super) fn remove_all(&mut self) -> Vec<Holding> {
        std::mem::take(self).by_id.into_values().collect()
    }

    /// Takes away what has expired.
    pub(super) fn expire(&mut self, now: BootInstant) {
        while let Some(&(end, id)) = self.ends.first()
            && end <= now
        {
            self.ends.pop_first();
            self.remove(id);
        }
    }

    /// Extends a grant; whether it is there.
    pub(super) fn renew(&mut self, id: GrantId, ttl: Duration, now: BootInstant) -> bool {
        let Some(held) = self.by_id.get_mut(&id) else { return false };
        // A renewal may come after a longer extension by hand.
        let expires = held.expires.max(now.plus(ttl));
        self.ends.remove(&(held.expires, id));
        self.ends.insert((expires, id));
        held.expires = expires;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ends_at_its_own_time_and_whatever_goes_leaves_nothing() {
        let at = |seconds| BootInstant::from_origin(Duration::from_secs(seconds));
        let id = |number| GrantId::from_bytes([number; 16]);
        let mut holders = Holders::default();
        for (number, end) in [(1, 10), (2, 20), (3, 30), (4, 30)] {
            let (kind, owner, token) =
                (Kind::Permits { permits: 2, limit: 9 }, Owner::new(), FencingToken::new(1).unwrap());
            holders.insert(Holding { id: id(number), client: 1, kind, owner, token, since: at(0), expires: at(end) });
        }
        assert!(holders.renew(id(1), Duration::from_secs(15), at(5)) && !holders.renew(id(9), Duration::ZERO, at(5)));
        assert_eq!((holders.first_end(), holders.used()), (at(20), 8));
        holders.expire(at(19));
        assert_eq!(holders.len(), 4);
        // Of two that end at once, both.
        holders.expire(at(20));
        assert_eq!((holders.len(), holders.used(), holders.first_end()), (2, 4, at(30)));
        assert!(holders.remove(id(3)).is_some() && holders.remove(id(4)).is_some());
        assert_eq!((holders.len(), holders.used(), holders.first_end()), (0, 0, BootInstant::FAR_FUTURE));
    }
}
