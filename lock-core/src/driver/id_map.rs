//! Maps by grants' ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by [`GrantId`](crate::GrantId)s, whose bits are random already: its hasher hardly mixes them. Not for ids that others choose.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// An odd number whose bits are as good as random.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// A hash of the first eight bytes that are written: an id writes eight. They are mixed a little, for ids of tests.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(self.0, |first| u64::from_le_bytes(*first).wrapping_mul(MIX));
    }

    /// The length of an id says nothing.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;
    use crate::owner::GrantId;

    #[test]
    fn ids_that_are_alike_have_hashes_that_are_not() {
        let hash = |id: GrantId| BuildHasherDefault::<IdHasher>::default().hash_one(id);
        let id = |first: u8| GrantId::from_bytes([first, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
        let hashes: HashSet<_> = (0..=255).map(|first| hash(id(first)) >> 48).collect();
        assert!(hashes.len() > 250, "{} of 256", hashes.len());
        let ids: IdMap<GrantId, ()> = (0..1000).map(|_| (GrantId::random().unwrap(), ())).collect();
        assert_eq!(ids.len(), 1000);
    }
}
