//! The claims that were believed last, so that a node that was cut off does not talk a client back to an older map.
//!
//! A claim stays until a newer one takes its slots, until its master itself does not make it any more, or until nobody has
//! confirmed it for a while: a master that is cut off stops taking writes after the cluster's node timeout, which is 15 s by
//! default, and a cluster that was built anew counts its epochs from the beginning.

use std::time::Duration;

use lock_core::clock::BootInstant;

use super::map::{Map, SlotClaim, View};

/// The time for which a claim is believed that nobody confirms.
const BELIEVED: Duration = Duration::from_secs(30);

/// The claims that were believed last. Bounded by the number of masters.
#[derive(Debug, Default)]
pub(super) struct Memory {
    claims: Vec<(SlotClaim, BootInstant)>,
}

impl Memory {
    /// Returns the map by these views and by what is remembered, and remembers what prevails in it.
    pub(super) fn map(&mut self, views: &[View], now: BootInstant) -> Map {
        if views.is_empty() {
            return Map::of([]);
        }
        let told = || views.iter().flat_map(View::claims);
        self.claims.retain(|(claim, confirmed_at)| {
            let confirmed = told().any(|other| other.master == claim.master && other.epoch >= claim.epoch);
            let denied = views.iter().any(|view| *view.asked() == claim.master);
            !confirmed && !denied && now.since(*confirmed_at) < BELIEVED
        });
        // Among equals the later one counts.
        let remembered = std::mem::take(&mut self.claims);
        let all: Vec<_> = remembered.iter().cloned().chain(told().map(|claim| (claim.clone(), now))).collect();
        let map = Map::of(all.iter().map(|(claim, _)| claim)).with_replicas(views.iter().flat_map(View::replicas));
        for (claim, confirmed_at) in all {
            let known = self.claims.iter().any(|(other, _)| *other == claim);
            if !known && map.is_master(&claim.master) {
                self.claims.push((claim, confirmed_at));
            }
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;
    use crate::address::Address;

    fn address(text: &str) -> Address {
        Address::parse(text, 6379).unwrap()
    }

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    /// The cut-off master's view, and that of the one that replaced it.
    fn stale() -> View {
        View::read("aa 10.0.0.1:1@11 myself,master - 0 0 1 connected 0-16383\n", &Value::Nil, &address("10.0.0.1:1"))
    }

    fn fresh() -> View {
        let nodes = "bb 10.0.0.2:2@12 myself,master - 0 0 2 connected 0-16383\n\
                     aa 10.0.0.1:1@11 slave,fail bb 0 0 2 connected\n";
        View::read(nodes, &Value::Nil, &address("10.0.0.2:2"))
    }

    #[test]
    fn an_older_map_does_not_replace_a_newer_one_whoever_answers_first() {
        let mut memory = Memory::default();
        assert_eq!(memory.map(&[stale(), fresh()], at(0)).owner(0), Some(&address("10.0.0.2:2")));
        for second in 1..BELIEVED.as_secs() {
            assert_eq!(memory.map(&[stale()], at(second)).owner(0), Some(&address("10.0.0.2:2")), "after {second} s");
        }
    }

    #[test]
    fn a_claim_that_nobody_confirms_is_forgotten_and_one_that_its_master_denies_is_so_at_once() {
        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0));
        memory.map(&[fresh()], at(20));
        assert_eq!(memory.map(&[stale()], at(49)).owner(0), Some(&address("10.0.0.2:2")));
        assert_eq!(memory.map(&[stale()], at(50)).owner(0), Some(&address("10.0.0.1:1")));

        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0));
        let denies = View::read(
            "bb 10.0.0.2:2@12 myself,slave aa 0 0 1 connected\naa 10.0.0.1:1@11 master - 0 0 1 connected 0-16383\n",
            &Value::Nil,
            &address("10.0.0.2:2"),
        );
        assert_eq!(memory.map(&[denies], at(1)).owner(0), Some(&address("10.0.0.1:1")));
    }

    #[test]
    fn no_view_says_nothing() {
        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0));
        assert!(memory.map(&[], at(1)).serves_nothing());
        assert_eq!(memory.map(&[stale()], at(2)).owner(0), Some(&address("10.0.0.2:2")));
    }
}
