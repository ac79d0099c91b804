//! The places of keys: which server has which of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Links, Masters};
use crate::address::Address;
use crate::guarantees::Topology;
use crate::store::slot::slot;

impl Links {
    /// The arrangement of the servers.
    pub(crate) fn topology(&self) -> Topology {
        match &self.masters {
            Masters::One { sentinels: None, .. } => Topology::Single,
            Masters::One { sentinels: Some(_), .. } => Topology::Sentinel,
            Masters::Cluster(_) => Topology::Cluster,
        }
    }

    /// The address of the master of this key, if there is one.
    pub(crate) fn master(&self, key: &str) -> Option<Address> {
        match &self.masters {
            Masters::One { link, .. } => link.present().map(|live| live.server.clone()),
            Masters::Cluster(router) => router.master(key),
        }
    }

    /// A number for the master of this key, hashed from its address; 0 with one server, or while no master is known.
    pub(crate) fn place(&self, key: impl FnOnce() -> String) -> u64 {
        match &self.masters {
            Masters::One { .. } => 0,
            Masters::Cluster(router) => router.master(&key()).map_or(0, |master| {
                let mut hasher = DefaultHasher::new();
                master.hash(&mut hasher);
                hasher.finish()
            }),
        }
    }

    /// Whether one run of a script can have all of these keys.
    pub(crate) fn are_together<'a>(&self, keys: impl IntoIterator<Item = &'a str>) -> bool {
        match &self.masters {
            Masters::One { .. } => true,
            Masters::Cluster(_) => {
                let mut slots = keys.into_iter().map(|key| slot(key.as_bytes()));
                slots.next().is_none_or(|first| slots.all(|other| other == first))
            }
        }
    }
}
