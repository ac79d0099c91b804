//! A node of a lock as it stands at the servers: its name, as the libraries that share locks on ZooKeeper write it, and the record in it.
//!
//! | dialect | mutex | reader, writer | permit |
//! |---|---|---|---|
//! | Curator, Go | `_c_<uuid>-lock-` | `_c_<uuid>-__READ__`, `_c_<uuid>-__WRIT__` | `_c_<uuid>-lease-` |
//! | kazoo | `<32 digits>__lock__` | `<32 digits>__rlock__`, `<32 digits>__lock__` | |
//! | ZooKeeper's recipe | `x-<id>-` | | |
//!
//! Behind each stands the number that the server gives, with ten digits.
//!
//! The record says who made the node, as JSON. Curator writes its address instead, Go nothing.

use std::time::Duration;

use lock_core::driver::{Attempt, Kind};
use lock_core::{GrantId, Owner};
use serde::{Deserialize, Serialize};

use crate::client::Node;

/// The text between the id and the number of permits in the name of a node for many of them.
const PERMITS: &str = "-permits-";

/// The bytes of a node's name, at most, if a library has made it. Our own have fewer than a hundred.
pub(crate) const LONGEST_NAME: usize = 256;

/// The library whose clients share a path. Everybody there must speak the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// Curator's recipes, and Go's `zk.NewLock`.
    #[default]
    Curator,
    /// Writes Curator's nodes, and respects kazoo's too: for fleets in which every kazoo client sets
    /// `extra_lock_patterns=("-lock-",)`. A kazoo client without that respects nobody here.
    CuratorAndKazoo,
    /// kazoo's `Lock`, `ReadLock` and `WriteLock`. It has no semaphore here.
    Kazoo,
    /// The recipe `WriteLock` that comes with ZooKeeper 3.6 and later: a mutex only.
    ZooKeeper,
}

impl Dialect {
    /// Returns the text before the number of a node in this role; `None` if the dialect has no such lock.
    const fn token(self, role: Role) -> Option<&'static str> {
        match (self, role) {
            (Self::Curator | Self::CuratorAndKazoo, Role::Lock) => Some("-lock-"),
            (Self::Curator | Self::CuratorAndKazoo, Role::Read) => Some("-__READ__"),
            (Self::Curator | Self::CuratorAndKazoo, Role::Write) => Some("-__WRIT__"),
            (Self::Curator | Self::CuratorAndKazoo, Role::Permit) => Some("-lease-"),
            (Self::Kazoo, Role::Lock | Role::Write) => Some("__lock__"),
            (Self::Kazoo, Role::Read) => Some("__rlock__"),
            (Self::ZooKeeper, Role::Lock) => Some("-"),
            _ => None,
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Curator | Self::CuratorAndKazoo => "_c_",
            Self::Kazoo => "",
            Self::ZooKeeper => "x-",
        }
    }

    /// Whether it has a lock with such nodes.
    pub(crate) const fn has(self, role: Role) -> bool {
        self.token(role).is_some()
    }

    /// Returns the beginning of the name of this grant's node; the server adds the number.
    pub(crate) fn stem(self, grant: GrantId, role: Role) -> String {
        // Whoever asks has asked whether there is such a lock.
        let token = self.token(role).unwrap_or_default();
        format!("{}{token}", self.beginning(grant))
    }

    /// Returns the beginning of the name of every node of this grant.
    pub(crate) fn beginning(self, grant: GrantId) -> String {
        match self {
            Self::Curator | Self::CuratorAndKazoo => format!("{}{}", self.prefix(), uuid(grant)),
            Self::Kazoo | Self::ZooKeeper => format!("{}{grant}", self.prefix()),
        }
    }

    /// Returns the beginning of the name of one node that stands for this many permits.
    pub(crate) fn stem_of_many(self, grant: GrantId, permits: u32) -> String {
        let token = self.token(Role::Permit).unwrap_or_default();
        format!("{}{PERMITS}{permits}{token}", self.beginning(grant))
    }

    /// The name of a reader's node in the place of a writer's.
    pub(crate) fn downgraded(self, name: &str) -> String {
        match (self.token(Role::Write), self.token(Role::Read)) {
            (Some(write), Some(read)) => name.replace(write, read),
            _ => name.to_owned(),
        }
    }

    /// Reads the name of a node among others for this; returns it if nobody who speaks this dialect has made it.
    pub(crate) fn read(self, role: Role, name: String) -> Result<Contender, String> {
        let dialects = match self {
            Self::CuratorAndKazoo => &[Self::Curator, Self::Kazoo][..],
            ref other => std::slice::from_ref(other),
        };
        let neighbours: &[Role] = match role {
            Role::Read | Role::Write => &[Role::Read, Role::Write],
            Role::Lock => &[Role::Lock],
            Role::Permit => &[Role::Permit],
        };
        let all = dialects.iter().flat_map(|dialect| neighbours.iter().map(move |role| (*dialect, *role)));
        match all.into_iter().find_map(|(dialect, role)| dialect.parse(role, &name)) {
            Some((number, grant, permits)) => {
                let role = self.role_of(&name, role);
                let is_of_many = role == Role::Permit && name.contains(PERMITS);
                Ok(Contender { name, role, number, grant, permits, is_of_many })
            }
            None => Err(name),
        }
    }

    /// Returns the number of a node that this client has made in this role.
    pub(crate) fn number_of_own(self, role: Role, name: &str) -> Option<i32> {
        self.parse(role, name).map(|(number, ..)| number)
    }

    /// Whether a node of this name is of a lock of any library, in whatever role.
    pub(crate) fn is_any(name: &str) -> bool {
        let dialects = [Self::Curator, Self::Kazoo, Self::ZooKeeper];
        let roles = [Role::Lock, Role::Read, Role::Write, Role::Permit];
        dialects.iter().any(|dialect| roles.iter().any(|role| dialect.parse(*role, name).is_some()))
    }

    fn parse(self, role: Role, name: &str) -> Option<(i32, Option<GrantId>, u32)> {
        let number_at = name.len().checked_sub(10)?;
        let (before, digits) = name.split_at_checked(number_at)?;
        // The sign of a number below zero is one of ten characters, or stands before ten digits; before it, Curator's own dash.
        let token = self.token(role)?;
        let (before, number_at) = match before.strip_suffix('-') {
            Some(unsigned) if unsigned.ends_with(token) => (unsigned, number_at - 1),
            _ => (before, number_at),
        };
        let id = before.strip_suffix(token)?.strip_prefix(self.prefix())?;
        let unsigned = digits.strip_prefix('-').unwrap_or(digits);
        if id.is_empty() || !unsigned.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let (id, permits) = match (role == Role::Permit).then(|| id.rsplit_once(PERMITS)).flatten() {
            Some((id, permits)) => (id, permits.parse().ok()?),
            None => (id, 1),
        };
        let grant = grant_of(id);
        // kazoo writes 32 digits and nothing else: a name that merely ends like one of its own is somebody else's.
        if self == Self::Kazoo && (grant.is_none() || id.len() != 32) {
            return None;
        }
        Some((name.get(number_at..)?.parse().ok()?, grant, permits))
    }

    /// Returns the role of a node of this name, among others of `role`.
    fn role_of(self, name: &str, role: Role) -> Role {
        match role {
            Role::Read | Role::Write if name.contains("__READ__") || name.contains("__rlock__") => Role::Read,
            Role::Read | Role::Write => Role::Write,
            other => other,
        }
    }
}

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A mutex, or a place in a semaphore's queue.
    Lock,
    /// A reader of a read-write lock.
    Read,
    /// A writer of one.
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
    /// Whether it says that number: some of them are released by another node in its place.
    pub(crate) is_of_many: bool,
}

impl Contender {
    /// The order of its number in a queue.
    pub(crate) const fn order(&self) -> (bool, i32) {
        order(self.number)
    }

    /// Whether this grant made it.
    pub(crate) fn is_of(&self, grant: GrantId) -> bool {
        self.grant == Some(grant)
    }
}

/// Whether the servers may give a number again, or a lower one later: they count no further than to the last one, and give that to every node
/// from then on. Those that are asked for while others are under way get numbers below zero.
pub(crate) const fn is_used_up(number: i32) -> bool {
    number < 0 || number == i32::MAX
}

/// Reads the id of a grant, with dashes or without. Nothing is allocated: every try for a semaphore reads the names of all its permits.
fn grant_of(id: &str) -> Option<GrantId> {
    let (mut digits, mut count) = ([0; 32], 0);
    for byte in id.bytes().filter(|byte| *byte != b'-') {
        *digits.get_mut(count)? = byte;
        count += 1;
    }
    // Of fewer than 32 the rest is no digits.
    std::str::from_utf8(&digits).ok()?.parse().ok()
}

/// Returns the order of a number in a queue: whoever got one when they were used up came later than everybody else.
pub(crate) const fn order(number: i32) -> (bool, i32) {
    (is_used_up(number), number)
}

/// Returns the id of a grant as a UUID is written.
pub(crate) fn uuid(grant: GrantId) -> String {
    let hex = grant.to_string();
    // 32 digits, of one byte each.
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The record in a node, of the holder or waiter that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HolderRecord {
    pub(crate) owner: Owner,
    /// The lease that the holder asked for.
    ttl_ms: u64,
    /// The timeout of its session.
    session_ms: u64,
    /// The token of a grant that has changed its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
    /// Of a semaphore's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    permits: Option<PermitRequest>,
}

/// The permits that a grant has or waits for, and their limit, as its client believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PermitRequest {
    pub(crate) asked: u32,
    pub(crate) limit: u32,
}

impl HolderRecord {
    pub(crate) fn new(attempt: &Attempt, session_timeout: Duration) -> Self {
        Self {
            owner: attempt.owner.clone(),
            ttl_ms: milliseconds(attempt.ttl),
            session_ms: milliseconds(session_timeout),
            token: None,
            permits: match attempt.kind {
                Kind::Permits { permits, limit } => Some(PermitRequest { asked: permits, limit }),
                _ => None,
            },
        }
    }

    pub(crate) fn with_token(mut self, czxid: i64) -> Self {
        self.token = u64::try_from(czxid).ok();
        self
    }

    /// Reads the record of this node's maker; `None` for a client of another library.
    pub(crate) fn parse(node: &Node) -> Option<Self> {
        serde_json::from_slice(&node.data).ok()
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // A struct of texts and numbers has no form that JSON lacks.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }

    pub(crate) fn session_timeout(&self) -> Duration {
        Duration::from_millis(self.session_ms)
    }

    pub(crate) fn permits(&self) -> Option<PermitRequest> {
        self.permits
    }

    /// The grant's token.
    pub(crate) fn token(record: Option<&Self>, node: &Node) -> Option<u64> {
        record.and_then(|record| record.token).or_else(|| u64::try_from(node.czxid).ok())
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff";
    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const ALL: [Role; 4] = [Role::Lock, Role::Read, Role::Write, Role::Permit];

    #[test]
    fn what_is_written_is_read() {
        let grant = ID.parse().unwrap();
        for dialect in [Dialect::Curator, Dialect::CuratorAndKazoo, Dialect::Kazoo, Dialect::ZooKeeper] {
            for role in ALL.into_iter().filter(|role| dialect.has(*role)) {
                let numbers =
                    [("0000000007", 7), ("-2147483648", i32::MIN), ("-000000007", -7), ("2147483647", i32::MAX)];
                for (text, number) in numbers {
                    let name = format!("{}{text}", dialect.stem(grant, role));
                    let read = dialect.read(role, name.clone()).unwrap();
                    assert!(read.is_of(grant) && name.starts_with(&dialect.beginning(grant)), "{name}");
                    assert!(name.len() <= LONGEST_NAME, "{name}");
                    assert_eq!((read.role, read.permits, read.number), (role, 1, number), "{name}");
                }
            }
        }
        let many = format!("{}0000000007", Dialect::Curator.stem_of_many(grant, u32::MAX));
        assert_eq!(Dialect::Curator.read(Role::Permit, many).unwrap().permits, u32::MAX);
    }

    #[test]
    fn names_are_those_of_the_libraries() {
        let grant = ID.parse().unwrap();
        assert_eq!(Dialect::Curator.stem(grant, Role::Lock), format!("_c_{UUID}-lock-"));
        assert_eq!(Dialect::Curator.stem(grant, Role::Read), format!("_c_{UUID}-__READ__"));
        assert_eq!(Dialect::Curator.stem(grant, Role::Write), format!("_c_{UUID}-__WRIT__"));
        assert_eq!(Dialect::Curator.stem(grant, Role::Permit), format!("_c_{UUID}-lease-"));
        assert_eq!(Dialect::Kazoo.stem(grant, Role::Lock), format!("{ID}__lock__"));
        assert_eq!(Dialect::Kazoo.stem(grant, Role::Read), format!("{ID}__rlock__"));
        assert_eq!(Dialect::ZooKeeper.stem(grant, Role::Lock), format!("x-{ID}-"));
        for role in [Role::Read, Role::Permit] {
            assert!(!Dialect::ZooKeeper.has(role));
        }
    }

    #[test]
    fn a_name_of_another_dialect_is_none_of_ours() {
        let curators = format!("_c_{UUID}-lock-0000000001");
        let gos = format!("_c_{ID}-lock-0000000001");
        let kazoos = format!("{ID}__lock__0000000001");
        let recipes = "x-72057594037927937-0000000001".to_owned();
        let reads = |dialect: Dialect, name: &str| dialect.read(Role::Lock, name.to_owned()).is_ok();
        for (name, by) in [(&curators, [true, true, false, false]), (&gos, [true, true, false, false])] {
            let dialects = [Dialect::Curator, Dialect::CuratorAndKazoo, Dialect::Kazoo, Dialect::ZooKeeper];
            assert_eq!(dialects.map(|dialect| reads(dialect, name)), by, "{name}");
        }
        assert!(!reads(Dialect::Curator, &kazoos) && reads(Dialect::Kazoo, &kazoos));
        assert!(reads(Dialect::CuratorAndKazoo, &kazoos) && !reads(Dialect::ZooKeeper, &kazoos));
        assert!(reads(Dialect::ZooKeeper, &recipes) && !reads(Dialect::Curator, &recipes));
        for garbage in
            ["garbage", "lock-0000000001", "_c_x-lock-1", "x-0000000001", "__lock__0000000001", "ü0000000001"]
        {
            for dialect in [Dialect::Curator, Dialect::CuratorAndKazoo, Dialect::Kazoo] {
                assert!(!reads(dialect, garbage), "{garbage} in {dialect:?}");
            }
        }
        let reader = format!("{ID}__rlock__0000000001");
        assert!(Dialect::Kazoo.read(Role::Lock, reader.clone()).is_err());
        assert_eq!(Dialect::Kazoo.read(Role::Write, reader).unwrap().role, Role::Read);
    }

    #[test]
    fn the_last_number_and_those_below_zero_are_in_no_order() {
        let all = [0, 1, i32::MAX - 1, i32::MAX, i32::MIN, -1];
        assert_eq!(all.map(is_used_up), [false, false, false, true, true, true]);
    }

    #[test]
    fn a_downgrade_changes_what_the_node_is_for() {
        assert_eq!(Dialect::Curator.downgraded("_c_x-__WRIT__0000000002"), "_c_x-__READ__0000000002");
        assert_eq!(Dialect::Kazoo.downgraded("x__lock__0000000002"), "x__rlock__0000000002");
        assert_eq!(Dialect::Curator.downgraded("_c_x-__READ__0000000002"), "_c_x-__READ__0000000002");
    }
}
