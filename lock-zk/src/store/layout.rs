//! The nodes of a lock, as Curator lays them out; their names in other [dialects](crate::store::node::Dialect).
//!
//! | node | what it is |
//! |---|---|
//! | `/<prefix>/<kind>/<name>` | the lock's directory, a container; the kind is `mutex`, `reentrant`, `rwlock` or `semaphore` |
//! | `<directory>/_c_<uuid>-lock-<number>` | a holder of, or waiter for, a mutex or a reentrant lock |
//! | `<directory>/_c_<uuid>-__READ__<number>` | a reader, `-__WRIT__` a writer |
//! | `<directory>/locks/_c_<uuid>-lock-<number>` | who waits for permits of a semaphore |
//! | `<directory>/leases/_c_<uuid>-lease-<number>` | one permit; `-permits-<n>-lease-` for a grant of more than one transaction can make |
//! | `/<prefix>/record/<name>` | the record beside a mutex; outlives sessions |
//! | `/<prefix>/record/.sweep` | the turn of the client that deletes records which have ended |
//! | `/<prefix>/forced/<uuid>` | who has freed a grant by force and why, until its holder has read it |
//!
//! The uuid is the grant's id. In a name, every byte that is not an ASCII letter or digit, `-` or `_` is written as `%` and
//! two hexadecimal digits. A path shared with clients of other libraries is used as it is.

use lock_core::driver::Kind;
use lock_core::{Error, ErrorKind, GrantId, LockName, Phase};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::client::{MOST_BYTES, NewNode};
use crate::store::node::{Contender, Dialect, Role, is_used_up, uuid};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The number of nodes that one grant may have, where one transaction can make them all.
const MOST_NODES: u32 = 1000;

/// The characters of somebody else's node that an error shows.
const LONGEST_SHOWN: usize = 100;

/// The directories of a semaphore: of its queue, and of its permits.
const QUEUE: &str = "/locks";
const LEASES: &str = "/leases";

/// The places of a client's locks, and their dialects.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) prefix: String,
    /// Of shared paths, without the first `/`.
    pub(crate) dialects: Vec<(String, Dialect)>,
    /// The number of bytes that the rights to a node take in the request for it.
    pub(crate) access_bytes: usize,
}

impl Layout {
    fn dialect(&self, name: &LockName) -> Dialect {
        let path = without_root(name.as_str());
        let spoken = self.dialects.iter().rev().find(|(spoken, _)| name.is_key() && spoken == path);
        spoken.map(|(_, dialect)| *dialect).unwrap_or_default()
    }
}

/// The directories of one lock, and the role of an attempt's node in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockPaths {
    /// The directory of the queue.
    pub(crate) directory: String,
    pub(crate) role: Role,
    /// The directory of the permits, of a semaphore.
    leases: Option<String>,
    /// The number of permits that there are, as this client believes.
    pub(crate) limit: Option<u32>,
    /// Whether clients of other libraries may be there.
    is_shared: bool,
    pub(crate) dialect: Dialect,
    access_bytes: usize,
}

impl LockPaths {
    /// Returns the paths of a lock of this name and kind.
    ///
    /// # Errors
    /// `InvalidArgument` if a shared path is none, `Unsupported` if its dialect has no such lock.
    pub(crate) fn of(layout: &Layout, name: &LockName, kind: Kind) -> Result<Self, Error> {
        let (role, needed) = match kind {
            Kind::Read => (Role::Read, Role::Read),
            Kind::Write => (Role::Write, Role::Write),
            Kind::Permits { .. } => (Role::Lock, Role::Permit),
            _ => (Role::Lock, Role::Lock),
        };
        let (directory, dialect, is_shared) =
            (directory(&layout.prefix, name, kind)?, layout.dialect(name), name.is_key());
        if !dialect.has(needed) {
            let what = format!("the dialect {dialect:?} has no {}", kind.space());
            return Err(Error::new(ErrorKind::Unsupported, Phase::Configure, what).with_name(name));
        }
        let leases = (needed == Role::Permit).then(|| format!("{directory}{LEASES}"));
        let directory = if leases.is_some() { format!("{directory}{QUEUE}") } else { directory };
        let limit = if let Kind::Permits { limit, .. } = kind { Some(limit) } else { None };
        Ok(Self { directory, role, leases, limit, is_shared, dialect, access_bytes: layout.access_bytes })
    }

    /// Whether clients of other libraries may be there.
    pub(crate) const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the directory that has those of a semaphore.
    pub(crate) fn semaphore_directory(&self) -> Option<&str> {
        self.leases.as_deref()?.strip_suffix(LEASES)
    }

    /// Refuses a lock's node beside the directories of a semaphore: somebody takes its path for another lock, and would fail
    /// because of them.
    ///
    /// # Errors
    /// `Protocol`, naming the node.
    pub(crate) fn check_beside(&self, names: &[String]) -> Result<(), Error> {
        names.iter().find(|name| Dialect::is_any(name)).map_or(Ok(()), |name| {
            let what =
                format!("the node {:?} at this path is of another kind of lock than a semaphore", beginning(name));
            Err(Error::new(ErrorKind::Protocol, Phase::Acquire, what))
        })
    }

    /// Every directory in which an attempt may have nodes.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &str> {
        [Some(&*self.directory), self.leases.as_deref()].into_iter().flatten()
    }

    /// Returns the directory of the permits; that of the queue, if this is no semaphore.
    pub(crate) fn permit_directory(&self) -> &str {
        self.leases.as_deref().unwrap_or(&self.directory)
    }

    /// Returns the beginning of the path of this grant's node; the server adds the number.
    pub(crate) fn stem(&self, grant: GrantId) -> String {
        self.queue_path(&self.dialect.stem(grant, self.role))
    }

    /// The path of this grant's node where there is no queue: of the number that the first one would have.
    pub(crate) fn unnumbered(&self, grant: GrantId) -> String {
        format!("{}0000000000", self.stem(grant))
    }

    /// The path of a node in this directory.
    pub(crate) fn queue_path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// The path of a permit.
    pub(crate) fn permit_path(&self, name: &str) -> String {
        format!("{}/{name}", self.permit_directory())
    }

    /// The nodes that stand for this many permits of a grant, each with so many bytes of data.
    ///
    /// # Errors
    /// `InvalidArgument` if they are more than clients of other libraries, which count nodes, can be shown.
    pub(crate) fn permits(&self, grant: GrantId, permits: u32, data: usize) -> Result<Vec<NewNode>, Error> {
        let wanted = |stem: String| NewNode::Sequential(self.permit_path(&stem));
        let one = wanted(self.dialect.stem(grant, Role::Permit));
        let fitting = MOST_BYTES / (one.path().len() + data + self.access_bytes).max(1);
        let most = u32::try_from(fitting).map_or(MOST_NODES, |fitting| fitting.clamp(1, MOST_NODES));
        if permits <= most {
            return Ok(vec![one; permits as usize]);
        }
        if self.is_shared {
            let what = format!("at this shared path one grant has at most {most} permits");
            return Err(Error::invalid(Phase::Acquire, what));
        }
        Ok(vec![wanted(self.dialect.stem_of_many(grant, permits))])
    }

    /// Returns the contenders in the queue, the first of them first.
    ///
    /// # Errors
    /// `Protocol`, naming the node, if one of them belongs to another kind of lock or to no lock at all: whoever made it
    /// would not respect us, nor we him.
    pub(crate) fn queue(&self, names: Vec<String>) -> Result<Vec<Contender>, Error> {
        let mut queue = contenders(self.dialect, &self.directory, self.role, names)?;
        queue.sort_unstable_by_key(|contender| (contender.order(), contender.role == Role::Read));
        Ok(queue)
    }

    /// Refuses a place in the queue whose number says nothing of who came first.
    ///
    /// # Errors
    /// `Unavailable`, naming the directory, if its numbers are used up.
    pub(crate) fn check_number(&self, path: &str) -> Result<(), Error> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        if self.dialect.number_of_own(self.role, name).is_none_or(|number| !is_used_up(number)) {
            return Ok(());
        }
        let what =
            format!("the numbers of {:?} are used up, until it is deleted and made anew", beginning(&self.directory));
        Err(Error::unavailable(Phase::Acquire, what))
    }

    /// A node of this lock in this directory, if that is what its name says.
    pub(crate) fn contender(&self, directory: &str, name: String) -> Option<Contender> {
        let role = if self.leases.as_deref() == Some(directory) { Role::Permit } else { self.role };
        self.dialect.read(role, name).ok()
    }

    /// The read lock's node for a writer's: it has the writer's place in the queue.
    pub(crate) fn downgraded(&self, path: &str) -> String {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        format!("{directory}/{}", self.dialect.downgraded(name))
    }

    /// Every permit that somebody has.
    ///
    /// # Errors
    /// Those of [`queue`](LockPaths::queue).
    pub(crate) fn held(&self, names: Vec<String>) -> Result<Vec<Contender>, Error> {
        contenders(self.dialect, self.permit_directory(), Role::Permit, names)
    }
}

/// Returns the directory of a lock.
fn directory(prefix: &str, name: &LockName, kind: Kind) -> Result<String, Error> {
    if !name.is_key() {
        return Ok(format!("/{prefix}/{}/{}", kind.space(), utf8_percent_encode(name.as_str(), ESCAPED)));
    }
    let path = without_root(name.as_str());
    let is_path = path.split('/').all(|part| !matches!(part, "" | "." | "..")) && !path.contains(char::is_control);
    if !is_path {
        let what = "a shared path has no empty, '.' or '..' part and no control characters";
        return Err(Error::invalid(Phase::Configure, what).with_name(name));
    }
    Ok(format!("/{path}"))
}

/// The spelling of a shared path with its first `/`; any other name as it is.
pub(crate) fn canonical(name: LockName) -> LockName {
    if !name.is_key() || name.as_str().starts_with('/') {
        return name;
    }
    // The longest of all names has no room for it, and is one lock all the same.
    LockName::from_key(format!("/{name}")).unwrap_or(name)
}

/// Whether the directories of this prefix could be nodes of a lock under another one: `lock/mutex` holds
/// `lock/mutex/mutex`, the directory of the mutex `mutex` of the prefix `lock`.
pub(crate) fn is_within_another(prefix: &str) -> bool {
    const KINDS: [&str; 7] = ["mutex", "reentrant", "rwlock", "semaphore", "record", "forced", "sessions"];
    prefix.split('/').skip(1).any(|part| KINDS.contains(&part))
}

/// A shared path may be written with or without its first `/`.
pub(crate) fn without_root(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}

fn contenders(dialect: Dialect, directory: &str, role: Role, names: Vec<String>) -> Result<Vec<Contender>, Error> {
    let foreign = |name: String| {
        let node = format!("{directory}/{}", beginning(&name));
        let what = format!("the node \"{node}\" is of no such lock in the dialect {dialect:?}");
        Error::new(ErrorKind::Protocol, Phase::Acquire, what)
    };
    names.into_iter().map(|name| dialect.read(role, name).map_err(foreign)).collect()
}

/// The beginning of a name that somebody else chose, which may be as long as the server lets it be.
fn beginning(name: &str) -> &str {
    name.char_indices().nth(LONGEST_SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// Returns the directory of the records beside mutexes.
pub(crate) fn record_directory(prefix: &str) -> String {
    format!("/{prefix}/record")
}

/// Returns the path of the record beside the mutex of this name.
pub(crate) fn record(prefix: &str, name: &LockName) -> String {
    format!("{}/{}", record_directory(prefix), utf8_percent_encode(name.as_str(), ESCAPED))
}

/// Returns the path of the turn to delete records that have ended. No record has it: the dot of a name is escaped.
pub(crate) fn sweep_turn(prefix: &str) -> String {
    format!("{}/.sweep", record_directory(prefix))
}

/// Returns the directory of the reasons of forced releases.
pub(crate) fn forced_directory(prefix: &str) -> String {
    format!("/{prefix}/forced")
}

/// Returns the path of the reason for the holder of this grant.
pub(crate) fn forced(prefix: &str, grant: GrantId) -> String {
    format!("{}/{}", forced_directory(prefix), uuid(grant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::wait::contention::ListedQueue;

    #[test]
    fn an_error_shows_the_beginning_of_a_foreign_name_only() {
        let long = "ü".repeat(100_000);
        let error = lock(Kind::Mutex).queue(vec![long.clone()]).unwrap_err();
        assert!(error.what().len() < 500 && error.what().contains(&long[..200]), "{} bytes", error.what().len());
        assert_eq!(beginning("short"), "short");
    }

    fn layout(dialects: &[(&str, Dialect)]) -> Layout {
        let dialects = dialects.iter().map(|(path, dialect)| ((*path).to_owned(), *dialect)).collect();
        Layout { prefix: "lock".to_owned(), dialects, access_bytes: 0 }
    }

    fn lock(kind: Kind) -> LockPaths {
        LockPaths::of(&layout(&[]), &LockName::from("a/ü.b"), kind).unwrap()
    }

    fn names(lock: &LockPaths, names: &[&str]) -> Vec<String> {
        let queue = lock.queue(names.iter().map(|name| (*name).to_owned()).collect()).unwrap();
        queue.into_iter().map(|contender| contender.name).collect()
    }

    const A: &str = "_c_ffffffff-0000-4000-8000-000000000000-";
    const B: &str = "_c_00000000000040008000000000000000-";

    #[test]
    fn names_become_directories_without_collisions() {
        assert_eq!(lock(Kind::Mutex).directory, "/lock/mutex/a%2F%C3%BC%2Eb");
        assert_eq!(lock(Kind::Read).directory, lock(Kind::Write).directory);
        let grant = "00112233445566778899aabbccddeeff".parse().unwrap();
        let stem = "/lock/mutex/a%2F%C3%BC%2Eb/_c_00112233-4455-6677-8899-aabbccddeeff-lock-";
        assert_eq!(lock(Kind::Mutex).stem(grant), stem);
    }

    #[test]
    fn a_shared_path_is_used_as_it_is() {
        let at = |path: &str| LockPaths::of(&layout(&[]), &LockName::from_key(path).unwrap(), Kind::Mutex);
        assert_eq!(at("/jobs/a b").unwrap().directory, "/jobs/a b");
        assert_eq!(at("jobs/a").unwrap().directory, "/jobs/a");
        for wrong in ["/", "/jobs/", "//jobs", "/a/../b"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_record_is_in_the_place_of_the_turn_to_sweep() {
        assert_ne!(record("lock", &LockName::from(".sweep")), sweep_turn("lock"));
        assert_eq!(sweep_turn("lock"), "/lock/record/.sweep");
    }

    #[test]
    fn a_shared_path_has_one_spelling() {
        let name = |path: &str| canonical(LockName::from_key(path).unwrap());
        assert_eq!(name("jobs/a"), name("/jobs/a"));
        assert_eq!(canonical("jobs/a".into()), "jobs/a".into(), "a name is no shared path");
        let longest = LockName::from_key("x".repeat(LockName::MAX_BYTES)).unwrap();
        assert_eq!(canonical(longest.clone()), longest);
    }

    #[test]
    fn a_queue_is_ordered_by_number_whatever_the_rest_of_the_names() {
        let (first, second) = (format!("{A}lock-0000000009"), format!("{B}lock-0000000010"));
        assert_eq!(names(&lock(Kind::Mutex), &[&second, &first]), [first, second]);
    }

    /// The last number that is given once stands before all that came when the numbers were used up.
    #[test]
    fn whoever_came_when_the_numbers_were_used_up_is_behind_everybody_else() {
        let numbers = ["0000000007", "2147483646", "2147483647", "-2147483648", "-2147483647"];
        let all = numbers.map(|number| format!("{A}lock-{number}"));
        for turn in 0..all.len() {
            let mut mixed = all.clone();
            mixed.rotate_left(turn);
            let queue = names(&lock(Kind::Mutex), &mixed.each_ref().map(|name| &**name));
            assert_eq!(queue[..2], all[..2], "given from {turn} on");
        }
    }

    #[test]
    fn a_place_whose_number_others_may_have_is_refused() {
        for kind in [Kind::Mutex, Kind::Write, Kind::Read, Kind::Permits { permits: 1, limit: 2 }] {
            let lock = lock(kind);
            let stem = lock.stem("00112233445566778899aabbccddeeff".parse().unwrap());
            let place = |number: &str| format!("{stem}{number}");
            for fit in ["0000000000", "2147483646"] {
                assert!(lock.check_number(&place(fit)).is_ok(), "{fit}");
            }
            for used_up in ["2147483647", "-2147483648", "-000000001"] {
                let error = lock.check_number(&place(used_up)).unwrap_err();
                assert!(error.is_definite() && error.what().contains(&lock.directory), "{error}");
            }
        }
    }

    #[test]
    fn what_is_not_of_the_lock_is_named() {
        let writer = format!("{A}__WRIT__0000000001");
        for foreign in ["garbage", "deadbeef__lock__0000000001", "lock-0000000001", "_c_x-lock-1", &writer] {
            let error = lock(Kind::Mutex).queue(vec![foreign.to_owned()]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(error.to_string().contains(foreign), "{error}");
        }
        assert!(lock(Kind::Read).queue(vec![writer]).is_ok());
    }

    #[test]
    fn readers_wait_for_writers_only_and_writers_for_everybody() {
        let nodes = ["__READ__0000000001", "__WRIT__0000000002", "__READ__0000000003", "__READ__0000000004"];
        let queue = lock(Kind::Read).queue(nodes.map(|node| format!("{A}{node}")).to_vec()).unwrap();
        let queue = ListedQueue::new(queue);
        let waits = |index| queue.waits_for(index).map(|before| queue.members()[before].number);
        assert_eq!([waits(0), waits(1), waits(2), waits(3)], [None, Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn a_downgrade_changes_the_node_and_not_the_directory() {
        let (directory, place) = ("/a/__WRIT__", lock(Kind::Write));
        assert_eq!(
            place.downgraded(&format!("{directory}/{A}__WRIT__0000000002")),
            format!("{directory}/{A}__READ__0000000002")
        );
    }

    #[test]
    fn a_shared_path_is_spoken_at_in_its_dialect() {
        let layout = layout(&[("jobs/a", Dialect::Kazoo), ("jobs/b", Dialect::ZooKeeper)]);
        let at = |path: &str, kind| LockPaths::of(&layout, &LockName::from_key(path).unwrap(), kind);
        for path in ["/jobs/a", "jobs/a"] {
            assert_eq!(at(path, Kind::Mutex).unwrap().dialect, Dialect::Kazoo, "{path}");
        }
        assert_eq!(at("/jobs/c", Kind::Mutex).unwrap().dialect, Dialect::Curator);
        let of_ours = LockPaths::of(&layout, &LockName::from("jobs/a"), Kind::Mutex).unwrap();
        assert_eq!(of_ours.dialect, Dialect::Curator, "a name is no shared path");
        let permits = Kind::Permits { permits: 1, limit: 2 };
        for (path, kind) in [("/jobs/a", permits), ("/jobs/b", permits), ("/jobs/b", Kind::Read)] {
            assert_eq!(at(path, kind).unwrap_err().kind(), ErrorKind::Unsupported, "{path}");
        }
    }

    #[test]
    fn permits_are_nodes_as_long_as_one_request_can_make_them() {
        let grant = "00112233445566778899aabbccddeeff".parse().unwrap();
        let nodes = |name: &str, data| {
            let lock = LockPaths::of(&layout(&[]), &LockName::from(name), Kind::Permits { permits: 1, limit: 1000 });
            lock.unwrap().permits(grant, 1000, data).unwrap().len()
        };
        assert_eq!(nodes("api", 300), 1000);
        assert_eq!(nodes(&"ü".repeat(500), 300), 1, "6 bytes of path for each letter");
        assert_eq!(nodes("api", 2000), 1);
        // Each node of a request brings its rights.
        let identity = |number: u32| ("digest".to_owned(), format!("user-{number}:{}", "b".repeat(28)));
        let access = Access::Only((0..20).map(identity).collect());
        let own = Layout { access_bytes: access.bytes(), ..layout(&[]) };
        let lock = LockPaths::of(&own, &LockName::from("api"), Kind::Permits { permits: 1, limit: 1000 }).unwrap();
        assert_eq!(lock.permits(grant, 1000, 300).unwrap().len(), 1);
        assert_eq!(lock.permits(grant, 100, 300).unwrap().len(), 100);
    }

    #[test]
    fn a_downgraded_writer_stands_behind_itself() {
        let nodes = ["__READ__0000000002", "__WRIT__0000000002", "__WRIT__0000000003"];
        let queue = lock(Kind::Read).queue(nodes.map(|node| format!("{A}{node}")).to_vec()).unwrap();
        assert_eq!((queue[0].role, queue[1].role), (Role::Write, Role::Read));
        let queue = ListedQueue::new(queue);
        let awaited = &queue.members()[queue.waits_for(2).unwrap()];
        assert_eq!(awaited.role, Role::Read, "a writer waits for the read lock");
    }
}
