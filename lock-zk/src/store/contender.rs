//! One node of a lock's directory: its maker, and its role.

use lock_core::GrantId;

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A mutex, or a place in a semaphore's queue.
    Lock,
    /// A reader of a read-write lock.
    Read,
    /// A writer of the same.
    Write,
    /// A permit of a semaphore.
    Permit,
}

/// One node of a lock's directory: somebody who holds or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) number: i32,
    /// The grant that made it, if its client writes 128 bits, as we, Curator, Go and kazoo do.
    pub(crate) grant: Option<GrantId>,
    /// The number of permits for which it stands.
    pub(crate) permits: u32,
}

impl Contender {
    /// Whether this grant made it.
    pub(crate) fn is_of(&self, grant: GrantId) -> bool {
        self.grant == Some(grant)
    }
}
