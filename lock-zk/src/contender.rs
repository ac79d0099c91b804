//! One node of a lock's directory: who has made it, what it is for, and whom it waits for.

use lock_core::GrantId;

/// What stands between the id and the number of permits in the name of a node for many of them.
const PERMITS: &str = "-permits-";

/// What stands before the number of a node, and says what the node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Curator's `InterProcessMutex`, and Go's `Lock`.
    Lock,
    /// A reader of Curator's `InterProcessReadWriteLock`.
    Read,
    /// A writer of the same.
    Write,
    /// A permit of Curator's `InterProcessSemaphoreV2`.
    Lease,
}

impl Role {
    const ALL: [Self; 4] = [Self::Lock, Self::Read, Self::Write, Self::Lease];

    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Lock => "lock-",
            Self::Read => "__READ__",
            Self::Write => "__WRIT__",
            Self::Lease => "lease-",
        }
    }

    /// Whether both may stand in one directory.
    pub(crate) fn belongs_with(self, other: Self) -> bool {
        let of_rwlock = |role| matches!(role, Self::Read | Self::Write);
        self == other || (of_rwlock(self) && of_rwlock(other))
    }
}

/// One node of a lock's directory: somebody who holds or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) number: i32,
    /// The grant that made it, if its client writes 128 bits, as we, Curator and Go do.
    pub(crate) grant: Option<GrantId>,
    /// How many permits it stands for.
    pub(crate) permits: u32,
}

impl Contender {
    /// Reads a node's name; gives it back if it is none of Curator's.
    pub(crate) fn parse(name: String) -> Result<Self, String> {
        let parsed = Role::ALL.into_iter().find_map(|role| {
            let (before, number) = name.rsplit_once(role.token())?;
            // kazoo's `__lock__`, and a bare `lock-`, make other lines than Curator's.
            let id = before.strip_prefix("_c_")?.strip_suffix('-')?;
            let digits = number.strip_prefix('-').unwrap_or(number);
            let is_number = digits.len() == 10 && digits.bytes().all(|digit| digit.is_ascii_digit());
            let (id, permits) = match id.rsplit_once(PERMITS) {
                Some((id, permits)) if role == Role::Lease => (id, permits.parse().ok()?),
                _ => (id, 1),
            };
            is_number.then_some((role, number.parse().ok()?, id.replace('-', "").parse().ok(), permits))
        });
        match parsed {
            Some((role, number, grant, permits)) => Ok(Self { name, role, number, grant, permits }),
            None => Err(name),
        }
    }

    /// Whether this grant made it.
    pub(crate) fn is_of(&self, grant: GrantId) -> bool {
        self.grant == Some(grant)
    }
}

/// Whom the contender at this index of a line waits for: `None` if it is granted.
///
/// Only the nearest that matters is watched, so that a release wakes one: a mutex and a writer wait for whoever is
/// before them, a reader for the nearest writer before it.
pub(crate) fn waits_for(line: &[Contender], index: usize) -> Option<&Contender> {
    let mut before = line[..index].iter().rev();
    match line[index].role {
        Role::Lock | Role::Write => before.next(),
        Role::Read => before.find(|contender| contender.role == Role::Write),
        Role::Lease => None,
    }
}

/// What the name of this grant's node begins with; the server adds the number.
pub(crate) fn stem(grant: GrantId, role: Role) -> String {
    format!("_c_{}-{}", uuid(grant), role.token())
}

/// The same of one node that stands for this many permits.
pub(crate) fn stem_of_many(grant: GrantId, permits: u32) -> String {
    format!("_c_{}{PERMITS}{permits}-{}", uuid(grant), Role::Lease.token())
}

pub(crate) fn uuid(grant: GrantId) -> String {
    let hex = grant.to_string();
    // 32 digits, of one byte each.
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn what_is_written_is_read() {
        let grant = ID.parse().unwrap();
        for (stem, role, permits) in [
            (stem(grant, Role::Lock), Role::Lock, 1),
            (stem(grant, Role::Write), Role::Write, 1),
            (stem(grant, Role::Lease), Role::Lease, 1),
            (stem_of_many(grant, u32::MAX), Role::Lease, u32::MAX),
        ] {
            let read = Contender::parse(format!("{stem}0000000007")).unwrap();
            assert!(read.is_of(grant), "{stem}");
            assert_eq!((read.role, read.permits, read.number), (role, permits, 7), "{stem}");
        }
    }

    #[test]
    fn only_what_has_curators_form_is_a_contender() {
        for foreign in
            ["garbage", "deadbeef__lock__0000000001", "lock-0000000001", "_c_x-lock-1", "_c_x-lock-00000000012"]
        {
            assert_eq!(Contender::parse(foreign.to_owned()), Err(foreign.to_owned()));
        }
        let of_another_library = Contender::parse("_c_x-lock--2147483648".to_owned()).unwrap();
        assert_eq!((of_another_library.grant, of_another_library.number), (None, i32::MIN));
    }
}
