//! The claims that were believed last, so that a node that was cut off does not talk a client back to an older map.
//!
//! A claim stays until a newer one takes its slots, until its master itself does not make it any more, or until nobody has
//! confirmed it for a while: a master that is cut off stops taking writes after the cluster's node timeout, which is 15 s by
//! default, and a cluster that was built anew counts its epochs from the beginning.
//!
//! A master keeps the address by which it is connected, in whichever way nodes tell it: over a second connection to it a request could
//! overtake one that was sent before.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use lock_core::clock::BootInstant;

use super::map::{Map, SlotClaim, View};
use crate::address::Address;

/// The time for which a claim is believed that nobody confirms.
const BELIEVED: Duration = Duration::from_secs(30);

/// The number of other addresses of masters that are remembered.
const MOST_ALIASES: usize = 1024;

/// The claims that were believed last. Bounded by the number of masters.
#[derive(Debug, Default)]
pub(super) struct Memory {
    claims: Vec<(SlotClaim, BootInstant)>,
    /// Other addresses by which nodes have told masters, and those that they have in the map.
    aliases: HashMap<Address, Address>,
}

impl Memory {
    /// Returns the map by these views and by what is remembered, and remembers what prevails in it. `is_up` says to which addresses there is
    /// a connection.
    pub(super) fn map(&mut self, views: &[View], now: BootInstant, is_up: impl Fn(&Address) -> bool) -> Map {
        if views.is_empty() {
            return Map::of([]);
        }
        let told = self.named(views, is_up);
        self.claims.retain(|(claim, confirmed_at)| {
            let confirmed = told.iter().any(|other| other.id == claim.id && other.epoch >= claim.epoch);
            let denied = views.iter().any(|view| view.is_of_master(claim));
            !confirmed && !denied && now.since(*confirmed_at) < BELIEVED
        });
        // Among equals the later one counts.
        let remembered = std::mem::take(&mut self.claims);
        let all: Vec<_> = remembered.into_iter().chain(told.into_iter().map(|claim| (claim, now))).collect();
        let map = Map::of(all.iter().map(|(claim, _)| claim)).with_replicas(views.iter().flat_map(View::replicas));
        for (claim, confirmed_at) in all {
            let known = self.claims.iter().any(|(other, _)| *other == claim);
            if !known && map.is_master(&claim.master) {
                self.claims.push((claim, confirmed_at));
            }
        }
        let is_anothers = |alias: &Address, master: &Address| {
            views.iter().flat_map(View::others).any(|(id, other)| other == alias && map.master_of(id) != Some(master))
        };
        self.aliases.retain(|alias, master| map.is_master(master) && !is_anothers(alias, master));
        map.with_aliases(self.aliases.clone())
    }

    /// The claims of these views, with one address for each id: the present one while it is connected, and not another node's by now; or
    /// else that of the newest claim. Remembers the others.
    fn named(&mut self, views: &[View], is_up: impl Fn(&Address) -> bool) -> Vec<SlotClaim> {
        let mut told: Vec<_> = views.iter().flat_map(View::claims).cloned().collect();
        let is_anothers = |known: &SlotClaim| {
            told.iter().any(|claim| claim.id != known.id && claim.master == known.master)
                || views.iter().flat_map(View::others).any(|(id, other)| *other == known.master && id != known.id)
        };
        let known = self.claims.iter().map(|(claim, _)| claim);
        let present = known.filter(|claim| is_up(&claim.master) && !is_anothers(claim));
        let mut names: HashMap<_, _> = present.map(|claim| (claim.id.clone(), claim.master.clone())).collect();
        let mut newest: Vec<_> = told.iter().collect();
        newest.sort_by_key(|claim| Reverse(claim.epoch));
        for claim in newest {
            names.entry(claim.id.clone()).or_insert_with(|| claim.master.clone());
        }
        for claim in &mut told {
            let Some(name) = names.get(&claim.id).filter(|name| **name != claim.master) else { continue };
            let alias = std::mem::replace(&mut claim.master, name.clone());
            if self.aliases.len() >= MOST_ALIASES {
                self.aliases.clear();
            }
            self.aliases.insert(alias, name.clone());
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

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
        assert_eq!(memory.map(&[stale(), fresh()], at(0), |_| true).owner(0), Some(&address("10.0.0.2:2")));
        for second in 1..BELIEVED.as_secs() {
            assert_eq!(
                memory.map(&[stale()], at(second), |_| true).owner(0),
                Some(&address("10.0.0.2:2")),
                "after {second} s"
            );
        }
    }

    #[test]
    fn a_claim_that_nobody_confirms_is_forgotten_and_one_that_its_master_denies_is_so_at_once() {
        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0), |_| true);
        memory.map(&[fresh()], at(20), |_| true);
        assert_eq!(memory.map(&[stale()], at(49), |_| true).owner(0), Some(&address("10.0.0.2:2")));
        assert_eq!(memory.map(&[stale()], at(50), |_| true).owner(0), Some(&address("10.0.0.1:1")));

        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0), |_| true);
        let denies = View::read(
            "bb 10.0.0.2:2@12 myself,slave aa 0 0 1 connected\naa 10.0.0.1:1@11 master - 0 0 1 connected 0-16383\n",
            &Value::Nil,
            &address("10.0.0.2:2"),
        );
        assert_eq!(memory.map(&[denies], at(1), |_| true).owner(0), Some(&address("10.0.0.1:1")));
    }

    #[test]
    fn no_view_says_nothing() {
        let mut memory = Memory::default();
        memory.map(&[fresh()], at(0), |_| true);
        assert!(memory.map(&[], at(1), |_| true).serves_nothing());
        assert_eq!(memory.map(&[stale()], at(2), |_| true).owner(0), Some(&address("10.0.0.2:2")));
    }

    /// The view of the only master, whose host is told like this.
    fn told_as(host: &str) -> View {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = Value::Array(vec![text(host), Value::Int(6379), text("aa")]);
        let slots = Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16383), node])]);
        let nodes = "aa 10.0.0.1:6379@1 myself,master - 0 0 7 connected 0-16383\n";
        View::read(nodes, &slots, &address("10.0.0.1"))
    }

    #[test]
    fn a_master_keeps_the_address_by_which_it_is_connected_whichever_way_it_is_told() {
        for [present, other] in [["10.0.0.1", "redis-a"], ["redis-a", "10.0.0.1"]] {
            let mut memory = Memory::default();
            let (one, another) = (address(present), address(other));
            let first = memory.map(&[told_as(present)], at(0), |_| false);
            assert_eq!(first.owner(0), Some(&one));
            let orders: [&[&str]; 4] = [&[present, other], &[other, present], &[other], &[present]];
            for (order, second) in orders.into_iter().zip(1..) {
                let views: Vec<_> = order.iter().map(|host| told_as(host)).collect();
                let map = memory.map(&views, at(second), |node| *node == one);
                assert_eq!(map.owner(0), Some(&one), "{order:?}");
                assert!(map.serves_as(&first) && map.renamed(&first).next().is_none());
                assert_eq!(
                    map.named(another.clone()),
                    one,
                    "requests that are sent there go over the present connection"
                );
            }
            // Its connection has ended.
            let map = memory.map(&[told_as(other)], at(9), |_| false);
            assert_eq!(
                (map.owner(0), map.renamed(&first).collect::<Vec<_>>()),
                (Some(&another), vec![(&one, &another)])
            );
        }
    }

    #[test]
    fn a_view_that_lags_behind_takes_no_address_from_a_master() {
        let view = |line: &str| View::read(line, &Value::Nil, &address("10.0.0.9"));
        let by_ip = view("aa 10.0.0.1:6379@1 master - 0 0 7 connected 0-16383\n");
        let by_name = view("aa redis-a:6379@1 master - 0 0 7 connected 0-16383\n");
        let lags = view("aa redis-a:6379@1 slave bb 0 0 6 connected\n");
        let map = Memory::default().map(&[by_ip, by_name, lags], at(0), |_| false);
        assert_eq!(map.named(address("redis-a")), address("10.0.0.1"));
    }

    #[test]
    fn another_address_of_a_master_is_forgotten_when_a_node_without_slots_has_it() {
        let mut memory = Memory::default();
        let (present, other) = (address("10.0.0.1"), address("redis-a"));
        memory.map(&[told_as("10.0.0.1")], at(0), |_| true);
        let map = memory.map(&[told_as("redis-a")], at(1), |_| true);
        assert_eq!(map.named(other.clone()), present);
        let nodes = "aa 10.0.0.1:6379@1 master - 0 0 7 connected 0-16383\ngg redis-a:6379@1 master - 0 0 0 connected\n";
        let map = memory.map(&[View::read(nodes, &Value::Nil, &present)], at(2), |_| true);
        assert_eq!(map.named(other.clone()), other, "it imports a slot");
    }

    #[test]
    fn an_address_that_is_another_node_s_by_now_is_kept_by_none_that_had_it() {
        let nodes = |aa: &str, bb: &str, of_bb: &str| {
            let nodes = format!("aa {aa}@1 master - 0 0 7 connected 0-99\nbb {bb}@1 {of_bb}\n");
            View::read(&nodes, &Value::Nil, &address("10.0.0.9"))
        };
        for of_bb in ["master - 0 0 3 connected 100-199", "slave aa 0 0 7 connected"] {
            let mut memory = Memory::default();
            memory.map(&[nodes("10.0.0.1:1", "10.0.0.2:1", of_bb)], at(0), |_| true);
            let map = memory.map(&[nodes("10.0.0.3:1", "10.0.0.1:1", of_bb)], at(1), |_| true);
            assert_eq!(map.owner(0), Some(&address("10.0.0.3:1")), "{of_bb}");
        }
    }
}
