//! The addresses that masters had before in the map: what was sent there may still be carried out by the same node.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::clock::BootInstant;

use crate::address::Address;

/// The former addresses of masters, with the present ones, and when they became former ones.
#[derive(Debug, Default)]
pub(super) struct FormerAddresses(HashMap<Address, (Address, BootInstant)>);

impl FormerAddresses {
    /// Adds that these nodes have other addresses from now on, from there to here. One may have another one's.
    pub(super) fn add<'a>(&mut self, renamed: impl Iterator<Item = (&'a Address, &'a Address)>, now: BootInstant) {
        let renamed: HashMap<_, _> = renamed.collect();
        for (address, _) in self.0.values_mut() {
            if let Some(present) = renamed.get(address) {
                *address = (*present).clone();
            }
        }
        let added = renamed.into_iter().map(|(former, present)| (former.clone(), (present.clone(), now)));
        self.0.extend(added);
        self.0.retain(|former, (present, _)| former != present);
    }

    /// The present address of the node that had this one, if another one has taken its place.
    pub(super) fn present<'a>(&'a self, address: &'a Address) -> &'a Address {
        self.0.get(address).map_or(address, |(present, _)| present)
    }

    /// Whether what was sent to this address may be carried out by the node that has the other one now.
    pub(super) fn may_be(&self, address: &Address, present: &Address) -> bool {
        address == present || self.present(address) == present
    }

    /// Forgets those that became former ones longer ago than what was sent there can matter.
    pub(super) fn forget(&mut self, now: BootInstant, matters: Duration) {
        self.0.retain(|_, (_, since)| now.since(*since) < matters);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_address_leads_to_the_present_one_until_nothing_sent_there_matters() {
        let [a, b, c] = ["a", "b", "c"].map(|host| Address::parse(host, 6379).unwrap());
        let at = |seconds| BootInstant::from_origin(Duration::from_secs(seconds));
        let mut former = FormerAddresses::default();
        former.add([(&a, &b)].into_iter(), at(0));
        former.add([(&b, &c)].into_iter(), at(5));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&c, &c, &c]);
        // It has its first address again.
        former.add([(&c, &a)].into_iter(), at(6));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&a, &a, &a]);
        former.forget(at(15), Duration::from_secs(10));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&a, &b, &a]);
        former.forget(at(16), Duration::from_secs(10));
        assert!(former.is_empty());
    }

    #[test]
    fn addresses_that_move_on_from_node_to_node_at_once_lead_to_their_own_nodes() {
        let [a, b, c] = ["a", "b", "c"].map(|host| Address::parse(host, 6379).unwrap());
        let now = BootInstant::from_origin(Duration::ZERO);
        for moved in [[(&a, &b), (&b, &c)], [(&b, &c), (&a, &b)], [(&a, &b), (&b, &a)]] {
            let mut former = FormerAddresses::default();
            former.add(moved.into_iter(), now);
            for (from, to) in moved {
                assert!(former.present(from) == to && former.may_be(from, to) && former.may_be(to, to), "{moved:?}");
            }
        }
    }
}
