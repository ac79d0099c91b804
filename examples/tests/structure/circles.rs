//! The modules of a crate use each other in one direction only: no two use each other, neither at once nor by way of others. A
//! module and the one that it is part of may.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Module, ROOTS, code, modules};

/// Folders that use another one which also uses them, and why that stays. Their modules use each other in one direction.
const BOTH_WAYS: [(&str, &str, &str); 2] = [
    // A name that is refused is an error, and every error says which lock it is about.
    ("lock-core/src", "name", "error"),
    // A wait asks by an acquisition. The answer to each acquisition goes to the queue of those who wait, and so does that to a release,
    // also of a grant that replicas did not confirm.
    ("lock-redis/src", "wait", "acquire"),
];

#[test]
fn modules_use_each_other_in_one_direction() {
    for root in ROOTS {
        let modules = modules(root);
        let uses: BTreeMap<_, _> =
            modules.iter().map(|(module, text)| (module.clone(), uses(module, text, &modules))).collect();
        let circle = uses.keys().find_map(|module| circle(module, &uses));
        assert_eq!(circle, None, "modules of {root} use each other in a circle");
    }
}

#[test]
fn folders_use_each_other_in_one_direction() {
    let mut circles = Vec::new();
    for root in ROOTS {
        let modules = modules(root);
        let mut uses_of: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, text) in &modules {
            let folder = module.first().into_iter().cloned().collect::<Module>();
            let others = uses(module, text, &modules).into_iter().map(|other| other[..1].to_vec());
            uses_of.entry(folder).or_default().extend(others);
        }
        for (_, from, to) in BOTH_WAYS.iter().filter(|(of, ..)| *of == root) {
            assert!(uses_of[&vec![(*from).to_owned()]].contains(&vec![(*to).to_owned()]), "{from} uses {to} no more");
        }
        for (folder, used) in &mut uses_of {
            used.retain(|other| {
                other != folder
                    && !BOTH_WAYS.iter().any(|(of, from, to)| (*of, *from, *to) == (root, &*folder[0], &*other[0]))
            });
        }
        circles.extend(uses_of.keys().filter_map(|folder| Some((root, circle(folder, &uses_of)?))));
    }
    assert_eq!(circles, [], "folders use each other in circles");
}

#[test]
fn a_circle_is_found_and_parents_and_children_are_none() {
    let text = |text: &str| text.to_owned();
    let module = |name: &str| name.split("::").map(ToOwned::to_owned).collect::<Module>();
    let modules = BTreeMap::from([
        (module("a"), text("use crate::b::{self, Deep};")),
        (module("b"), text("fn f() { super::c::d::g() }")),
        (module("c"), text("use self::d::g; // crate::a")),
        (
            module("c::d"),
            text("use super::Parent; use crate::{x, a::{One as Other}};\n#[cfg(test)]\nmod tests { use crate::b; }"),
        ),
    ]);
    let uses: BTreeMap<_, _> =
        modules.iter().map(|(module, text)| (module.clone(), uses(module, text, &modules))).collect();
    assert_eq!(uses[&module("c")], BTreeSet::new());
    assert_eq!(uses[&module("c::d")], BTreeSet::from([module("a")]));
    assert_eq!(circle(&module("a"), &uses), Some(vec![module("a"), module("b"), module("c::d"), module("a")]));
    assert_eq!(circle(&module("c"), &uses), None);
}

/// The modules that this one names, without those that it is part of and its own parts.
fn uses(module: &Module, text: &str, modules: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let code = code(text).collect::<Vec<_>>().join(" ");
    let mut named = BTreeSet::new();
    for (at, _) in code.match_indices(['c', 's']) {
        let is_whole = !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':');
        if is_whole && ["crate::", "super::", "self::"].iter().any(|start| code[at..].starts_with(start)) {
            tree(&code[at..], &mut Vec::new(), &mut |path| named.extend(named_by(module, path, modules)));
        }
    }
    named.retain(|other| !other.starts_with(module) && !module.starts_with(other));
    named
}

/// Calls back with every path of a tree like `crate::a::{b, c::D}`. Returns what follows it.
fn tree<'a>(mut text: &'a str, path: &mut Vec<&'a str>, found: &mut impl FnMut(&[&'a str])) -> &'a str {
    let depth = path.len();
    loop {
        let end = text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len());
        if end > 0 {
            path.push(&text[..end]);
            text = &text[end..];
        }
        let Some(rest) = text.strip_prefix("::") else { break };
        text = rest;
        if let Some(mut rest) = text.strip_prefix('{') {
            while !rest.trim_start().is_empty() && !rest.trim_start().starts_with('}') {
                rest = tree(rest.trim_start(), path, found).trim_start();
                rest = rest.find([',', '}', '{', ';']).map_or("", |at| &rest[at..]);
                rest = rest.strip_prefix(',').unwrap_or(rest);
                if rest.starts_with(['{', ';']) {
                    break;
                }
            }
            path.truncate(depth);
            return rest.trim_start().strip_prefix('}').unwrap_or(rest);
        }
    }
    found(path);
    path.truncate(depth);
    text
}

/// The deepest module that a path as it stands in this module leads to.
fn named_by(module: &Module, path: &[&str], modules: &BTreeMap<Module, String>) -> Option<Module> {
    let mut at = if path[0] == "crate" { Module::new() } else { module.clone() };
    let mut parts = path.iter().skip_while(|part| ["crate", "self"].contains(*part)).peekable();
    while parts.next_if(|part| **part == "super").is_some() {
        at.pop();
    }
    let mut deepest = modules.contains_key(&at).then(|| at.clone());
    for part in parts {
        at.push((*part).to_owned());
        if !modules.contains_key(&at) {
            break;
        }
        deepest = Some(at.clone());
    }
    deepest
}

/// A way from this module back to itself, the shortest one.
fn circle(module: &Module, uses: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let (mut seen, mut ways) = (BTreeSet::new(), std::collections::VecDeque::from([vec![module.clone()]]));
    while let Some(way) = ways.pop_front() {
        for next in way.last().and_then(|last| uses.get(last)).into_iter().flatten() {
            let longer = || way.iter().chain([next]).cloned().collect();
            if next == module {
                return Some(longer());
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer());
            }
        }
    }
    None
}
