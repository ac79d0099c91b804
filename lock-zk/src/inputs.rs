//! Inputs from outside break nothing: names of nodes and their data, paths and URLs, at random and nearly right.
//!
//! Some thousands each; more by `LOCK_FUZZ_INPUTS=10000000 cargo test --release -p lock-zk --lib inputs`.

use lock_core::driver::Kind;
use lock_core::{GrantId, LockName, Phase};
use lock_testkit::{SeededRng, fuzz};
use percent_encoding::percent_decode_str;

use crate::client::{Created, Node};
use crate::records::record_in;
use crate::store::layout::{Layout, LockPaths, canonical};
use crate::store::node::{Contender, Dialect, HolderRecord, Role};
use crate::url::Target;
use crate::wait::contention::{ListedQueue, Member, are_granted};

const DIALECTS: [Dialect; 4] = [Dialect::Curator, Dialect::CuratorAndKazoo, Dialect::Kazoo, Dialect::ZooKeeper];
const ROLES: [Role; 4] = [Role::Lock, Role::Read, Role::Write, Role::Permit];

/// Text of up to so many pieces, most of them such as parsers look for.
fn text(rng: &mut SeededRng, pieces: &[&str], most: u64) -> String {
    const ODD: [&str; 12] = ["", "-", "0", "9", "/", "%", "é", "\u{1f512}", "\0", " ", "x", "2147483648"];
    let length = rng.below(most + 1);
    (0..length).map(|_| if rng.once_in(4) { rng.one_of(&ODD) } else { rng.one_of(pieces) }).collect()
}

fn grant(rng: &mut SeededRng) -> GrantId {
    format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()).parse().unwrap()
}

/// A text in which one character may be another one, gone or doubled.
fn bent(rng: &mut SeededRng, text: &str) -> String {
    let mut characters: Vec<_> = text.chars().collect();
    if characters.is_empty() {
        return String::new();
    }
    let at = usize::try_from(rng.below(characters.len() as u64)).unwrap();
    match rng.below(4) {
        0 => drop(characters.remove(at)),
        1 => characters.insert(at, characters[at]),
        2 => characters[at] = rng.one_of(&['-', '_', '0', 'g', 'é', '\0']),
        _ => {}
    }
    characters.into_iter().collect()
}

fn layout() -> Layout {
    Layout { prefix: "lock".to_owned(), dialects: Vec::new(), access_bytes: 0 }
}

#[test]
fn names_of_nodes_are_read_or_returned() {
    const PIECES: [&str; 10] = [
        "_c_",
        "-lock-",
        "-lease-",
        "-__READ__",
        "-__WRIT__",
        "__lock__",
        "-permits-",
        "x-",
        "0000000001",
        "0f8fad5bd9cb469fa16570867728950e",
    ];
    fuzz::with_rng("names of nodes", |rng| {
        let (dialect, role) = (rng.one_of(&DIALECTS), rng.one_of(&ROLES));
        let (id, number) = (grant(rng), rng.next_u64() as u32 as i32);
        let (name, is_right) = match rng.below(3) {
            0 => (text(rng, &PIECES, 6), false),
            right if dialect.has(role) => {
                let name = format!("{}{number:010}", dialect.stem(id, role));
                if right == 1 { (name, true) } else { (bent(rng, &name), false) }
            }
            _ => (text(rng, &PIECES, 6), false),
        };
        match dialect.read(role, name.clone()) {
            Ok(contender) => {
                assert_eq!(contender.name, name);
                assert!(name.ends_with(&contender.number.unsigned_abs().to_string()), "{contender:?}");
                if is_right {
                    assert!(
                        contender.is_of(id) && contender.number == number && contender.permits == 1,
                        "{contender:?}"
                    );
                }
            }
            Err(returned) => {
                assert_eq!(returned, name);
                assert!(!is_right, "{dialect:?}, {role:?}: {name}");
            }
        }
        let _ = dialect.downgraded(&name);
    });
}

#[test]
fn a_queue_is_the_same_in_whatever_order_it_is_listed() {
    fuzz::with_rng("lines of nodes", |rng| {
        let kind = rng.one_of(&[Kind::Mutex, Kind::Read, Kind::Write]);
        let lock = LockPaths::of(&layout(), &"line".into(), kind).unwrap();
        let stems = if kind == Kind::Mutex { &["-lock-"][..] } else { &["-__READ__", "-__WRIT__"] };
        let mut numbers: Vec<_> = (0..rng.below(12)).map(|_| rng.below(1 << 30) as i32).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let right: Vec<_> = numbers
            .iter()
            .map(|number| {
                let (id, stem) = (grant(rng), rng.one_of(stems));
                format!("_c_{id}{stem}{:010}", number)
            })
            .collect();
        let mut listed = right.clone();
        for at in (1..listed.len()).rev() {
            listed.swap(at, usize::try_from(rng.below(at as u64 + 1)).unwrap());
        }
        let queue = lock.queue(listed).unwrap();
        assert_eq!(queue.iter().map(|contender| &contender.name).collect::<Vec<_>>(), right.iter().collect::<Vec<_>>());
        // Whoever is first waits for nobody, and nobody for one behind him.
        let (are_granted, listed) = (are_granted(&queue), ListedQueue::new(queue));
        let queue = listed.members();
        for (index, contender) in queue.iter().enumerate() {
            let node = Created { path: lock.queue_path(&contender.name), czxid: 1 };
            assert_eq!(Contender::position(queue, &node), Some(index));
            assert_eq!(are_granted[index], listed.waits_for(index).is_none());
            match listed.waits_for(index) {
                Some(before) => assert!(queue[before].number < contender.number),
                None => assert!(index == 0 || contender.role == Role::Read),
            }
        }
    });
}

#[test]
fn names_of_locks_become_directories_and_back() {
    fuzz::with_rng("names of locks as directories", |rng| {
        let name = text(rng, &["a", "A", "_", "-", ".", "..", "locks", "\u{7f}", "%2F", "ü"], 12);
        let Ok(name) = LockName::new(name) else { return };
        let directory = LockPaths::of(&layout(), &name, Kind::Mutex).unwrap().directory;
        let escaped = directory.strip_prefix("/lock/mutex/").unwrap();
        assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_%".contains(&byte)), "{escaped}");
        assert_eq!(percent_decode_str(escaped).decode_utf8().unwrap(), name.as_str());
    });
}

#[test]
fn shared_paths_are_paths_or_refused() {
    fuzz::with_rng("shared paths", |rng| {
        let path = text(rng, &["/", "/jobs", "a", ".", "..", "//", "\n", "ü"], 6);
        let Ok(name) = LockName::from_key(path) else { return };
        let name = canonical(name);
        assert_eq!(canonical(name.clone()), name);
        if let Ok(lock) = LockPaths::of(&layout(), &name, Kind::Mutex) {
            let parts = lock.directory.strip_prefix('/').unwrap().split('/');
            assert!(parts.into_iter().all(|part| !matches!(part, "" | "." | "..")), "{}", lock.directory);
            assert!(!lock.directory.contains(char::is_control), "{:?}", lock.directory);
        }
    });
}

#[test]
fn whatever_a_node_says_is_read_or_not() {
    const CARD: &str = r#"{"owner":{"id":"0f8fad5bd9cb469fa16570867728950e","host":"a","pid":7,"label":null},
        "ttl_ms":10000,"session_ms":10000,"token":12,"permits":{"asked":1,"limit":3}}"#;
    fuzz::with_rng("what nodes say", |rng| {
        let mut data = match rng.below(3) {
            0 => {
                text(rng, &["{", "}", "\"owner\":", "[", "18446744073709551616", "1e999", "null", ","], 20).into_bytes()
            }
            1 => bent(rng, "00000060:0000000000000007:0000000000000006:up to line 17").into_bytes(),
            _ => bent(rng, CARD).into_bytes(),
        };
        if rng.once_in(4) && !data.is_empty() {
            let at = usize::try_from(rng.below(data.len() as u64)).unwrap();
            data[at] = rng.next_u64() as u8;
        }
        let mut number = || rng.next_u64() as i64;
        let (czxid, made_at, changed_at, session) = (number(), number(), number(), number());
        let node = Node { data, czxid, made_at, changed_at, version: 0, session };
        if let Ok(record) = record_in(&node, Phase::Hold) {
            assert_eq!(record.to_bytes(), node.data);
        }
        let record = HolderRecord::parse(&node);
        let _ = HolderRecord::token(record.as_ref(), &node);
        if let Some(record) = record {
            let again = Node { data: record.to_bytes(), ..node };
            assert_eq!(HolderRecord::parse(&again), Some(record));
        }
    });
}

#[test]
fn urls_name_servers_or_are_refused() {
    fuzz::with_rng("URLs of servers", |rng| {
        let pieces = ["zk://", "zks://", "a", ":2181", ",", "[::1]", "/", "/x", "@", ":0", ":65536", "..", "?", "#"];
        let begins = rng.one_of(&["zk://", "zookeepers://", ""]);
        let url = format!("{begins}{}", text(rng, &pieces, 8));
        if let Ok(target) = Target::parse(&url) {
            for server in target.servers.split(',') {
                let (host, port) = server.rsplit_once(':').unwrap();
                assert!(!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0), "{url:?}: {server:?}");
            }
            assert!(
                target.chroot.is_empty() || target.chroot.starts_with('/') && !target.chroot.ends_with('/'),
                "{url:?}"
            );
        }
    });
}
