//! One node of a lock's directory: who has made it, what it is for, and whom it waits for.

use lock_core::GrantId;

/// What a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
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
    /// How many permits it stands for.
    pub(crate) permits: u32,
}

impl Contender {
    /// Whether this grant made it.
    pub(crate) fn is_of(&self, grant: GrantId) -> bool {
        self.grant == Some(grant)
    }
}

/// Whom the contender at this index of a queue waits for: `None` if it is granted.
///
/// Only the nearest that matters is watched, so that a release wakes one: a mutex and a writer wait for whoever is
/// before them, a reader for the nearest writer before it.
pub(crate) fn waits_for(queue: &[Contender], index: usize) -> Option<&Contender> {
    let mut before = queue[..index].iter().rev();
    match queue[index].role {
        Role::Lock | Role::Write => before.next(),
        Role::Read => before.find(|contender| contender.role == Role::Write),
        Role::Permit => None,
    }
}
