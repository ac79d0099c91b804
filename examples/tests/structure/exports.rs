//! A backend's crate re-exports what its users need of `lock_core`: whoever names one backend needs no second crate.

use std::collections::BTreeSet;

use crate::source::{code, modules, name};

/// Not for users: what authors of a backend use, and what is hidden.
const NOT_FOR_USERS: [&str; 2] = ["driver", "lease_state"];

#[test]
fn every_backend_re_exports_whatever_users_need_of_lock_core() {
    let core = root_of("lock-core/src");
    let users: BTreeSet<_> = exported(&core, "").into_iter().filter(|name| !NOT_FOR_USERS.contains(&&**name)).collect();
    assert!(users.contains("Mutex") && users.contains("clock"), "the exports are not found: {users:?}");
    for root in ["lock-redis/src", "lock-zk/src", "lock-memcached/src"] {
        let offered = exported(&root_of(root), "lock_core::");
        let (missing, others) = (users.difference(&offered), offered.difference(&users));
        let wrong: Vec<_> = missing.chain(others).collect();
        assert!(wrong.is_empty(), "{root} does not re-export just what users need of lock_core: {wrong:?}");
    }
}

#[test]
fn exports_are_found_in_groups_and_alone() {
    let text = "pub mod a;\nmod b;\npub(crate) use b::No;\npub use b::{One, c::Of as Two,\n    three};\npub use lock_core::{\n    X, y,\n};\n";
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(exported(text, ""), set(&["a", "One", "Two", "three", "X", "y"]));
    assert_eq!(exported(text, "lock_core::"), set(&["X", "y"]));
}

/// The text of the crate's root.
fn root_of(root: &str) -> String {
    modules(root).remove(&Vec::new()).unwrap()
}

/// The names that a crate's root makes public from paths with this beginning; its own modules too, if that is empty.
fn exported(text: &str, from: &str) -> BTreeSet<String> {
    let text = code(text).collect::<Vec<_>>().join("\n");
    let uses = text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = uses.filter_map(|path| path.strip_prefix(from)).flat_map(|path| path.rsplit('{').next());
    let names = names.flat_map(|group| group.trim_end_matches(['}', '\n']).split(','));
    let names = names.filter_map(|path| path.trim().rsplit("::").next()?.split(" as ").last().map(ToOwned::to_owned));
    let own = format!("\n{text}");
    let own = own.split("\npub mod ").skip(1).map(|rest| name(rest).to_owned()).filter(|_| from.is_empty());
    names.chain(own).filter(|name| !name.is_empty()).collect()
}
