//! The addresses that masters had before in the map: what was sent there may still be carried out by the same node.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::clock::BootInstant;

use crate::address::Address;

/// The former addresses of masters, with the present ones, and when they became former ones.
#[derive(Debug, Default)]
pub(super) struct FormerAddresses(HashMap<Address, (Address, BootInstant)>);

impl FormerAddresses {
    /// Adds that a node has another address from now on.
    pub(super) fn add(&mut self, former: &Address, present: &Address, now: BootInstant) {
        for (address, _) in self.0.values_mut().filter(|(address, _)| address == former) {
            *address = present.clone();
        }
        self.0.insert(former.clone(), (present.clone(), now));
        self.0.remove(present);
    }

    /// The present address of the node that had this one, if another one has taken its place.
    pub(super) fn present<'a>(&'a self, address: &'a Address) -> &'a Address {
        self.0.get(address).map_or(address, |(present, _)| present)
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
        former.add(&a, &b, at(0));
        former.add(&b, &c, at(5));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&c, &c, &c]);
        // It has its first address again.
        former.add(&c, &a, at(6));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&a, &a, &a]);
        former.forget(at(15), Duration::from_secs(10));
        assert_eq!([&a, &b, &c].map(|address| former.present(address)), [&a, &b, &a]);
        former.forget(at(16), Duration::from_secs(10));
        assert!(former.is_empty());
    }
}
