//! The source of the workspace, as the checks of its structure read it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A module's path from the crate's root.
pub(crate) type Module = Vec<String>;

pub(crate) const ROOTS: [&str; 20] = [
    "lock-core/src",
    "lock-redis/src",
    "lock-zk/src",
    "lock-memcached/src",
    "lock-recipes/src",
    "lock-testkit/src",
    "lock-testkit/checker/src",
    "lock-testkit/proxy/src",
    "lock-testkit/servers/src",
    "torture/src",
    "tests/bench-support/src",
    "tests/interop/src",
    "tests/models/src",
    "tests/simulation/src",
    "tests/simulation/tests/seeds",
    "tests/specimens/src",
    "lock-testkit/checker/tests/mutants",
    "lock-redis/tests/mechanisms",
    "lock-zk/tests/mechanisms",
    "lock-memcached/tests/mechanisms",
];

/// Every file below this folder of the workspace, as a module with its text.
pub(crate) fn modules(root: &str) -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root);
    let (mut modules, mut folders) = (BTreeMap::new(), vec![PathBuf::from(&root)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).unwrap().with_extension("");
                let mut module: Module = name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
                modules.insert(module, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(modules.len() > 3, "{} has hardly any modules", root.display());
    modules
}

/// The lines of a module without its comments and its own tests.
pub(crate) fn code(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default())
}

/// The name of the type or trait that this line defines, if it does.
pub(crate) fn defined(line: &str) -> Option<&str> {
    let is_item = !line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    // An indented `type` is one of an implementation or a trait.
    let is_definition = ["struct", "enum", "union", "trait"].contains(&keyword) || (keyword == "type" && is_item);
    is_definition.then(|| name(rest)).filter(|name| name.starts_with(char::is_uppercase))
}

/// The name at the beginning of a text.
pub(crate) fn name(text: &str) -> &str {
    &text[..text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len())]
}
