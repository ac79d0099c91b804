//! The floor plan: every backend has the files and folders that `ARCHITECTURE.md` names, and no others; each file says first what is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The folders of the backends.
const BACKENDS: [&str; 4] = ["lock-redis/src", "lock-redis/src/quorum", "lock-zk/src", "lock-memcached/src"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_backend_has_the_files_and_folders_of_the_floor_plan_and_no_others() {
    let architecture = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let plan = planned(&architecture);
    for folder in BACKENDS.into_iter().chain(["lock-core/src"]) {
        let there = modules_of(folder);
        let planned = plan.get(folder).unwrap_or_else(|| panic!("{folder} has no floor plan"));
        let missing: Vec<_> = planned.difference(&there).collect();
        let unplanned: Vec<_> = there.difference(planned).collect();
        assert!(missing.is_empty(), "{folder} lacks what the floor plan of ARCHITECTURE.md names: {missing:?}");
        assert!(
            unplanned.is_empty(),
            "{folder} has what the floor plan of ARCHITECTURE.md does not name: {unplanned:?}"
        );
    }
    let heads: BTreeSet<_> = plan.keys().map(String::as_str).collect();
    assert_eq!(heads, BACKENDS.into_iter().chain(["lock-core/src"]).collect(), "each plan belongs to a folder");
    // The parts by which the plan answers the core's five questions are common to all backends.
    let common = ["acquire", "backend", "client", "inspect", "kinds", "registry", "release", "renew", "store", "wait"];
    for folder in BACKENDS {
        assert!(common.iter().all(|name| plan[folder].contains(*name)), "the plan of {folder} lacks one of {common:?}");
    }
}

#[test]
fn every_file_says_first_what_is_in_it() {
    let (mut silent, mut files) = (Vec::new(), 0);
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files += 1;
                if !says_first_what_is_in_it(&std::fs::read_to_string(&path).unwrap()) {
                    silent.push(path.strip_prefix(workspace()).unwrap().to_owned());
                }
            }
        }
    }
    assert!(files > 400, "only {files} files were found");
    assert!(silent.is_empty(), "files that do not begin with a `//!` line: {silent:?}");
}

#[test]
fn a_plan_is_read_for_every_folder_of_its_heading() {
    let text = "```text\na/src/  b/src/\n  lib.rs  one.rs  two/    whatever it is\na/src/\n  three.rs                only there\n```\n";
    let plan = planned(text);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(plan["a/src"], set(&["one", "two", "three"]));
    assert_eq!(plan["b/src"], set(&["one", "two"]));
    assert!(says_first_what_is_in_it("//! Locks.\n") && !says_first_what_is_in_it("use a;\n//! Locks.\n"));
    assert!(!says_first_what_is_in_it("//!\n//! Locks.\n") && !says_first_what_is_in_it(""));
}

/// The modules that the plan names for each folder, from the blocks of text whose unindented lines are folders.
fn planned(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut plan: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut folders = Vec::new();
    for line in text.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).flat_map(str::lines) {
        if !line.is_empty() && !line.starts_with(' ') {
            folders = line.split_whitespace().filter_map(|folder| folder.strip_suffix('/')).collect();
            continue;
        }
        let names =
            line.split_whitespace().map_while(|word| word.strip_suffix(".rs").or_else(|| word.strip_suffix('/')));
        for name in names.filter(|name| *name != "lib") {
            for folder in &folders {
                plan.entry((*folder).to_owned()).or_default().insert(name.to_owned());
            }
        }
    }
    plan
}

/// A backend is known by its file of that name, and is on the list.
#[test]
fn every_backend_is_held_to_the_floor_plan() {
    let crates = std::fs::read_dir(workspace()).unwrap().map(|entry| entry.unwrap().path());
    let with_backend = crates.filter(|path| path.join("src/backend.rs").exists());
    let names: BTreeSet<_> =
        with_backend.map(|path| format!("{}/src", path.file_name().unwrap().to_string_lossy())).collect();
    let listed = BACKENDS.into_iter().filter(|folder| folder.ends_with("/src")).map(str::to_owned).collect();
    assert_eq!(names, listed);
}

/// The modules right below this folder: files and folders.
fn modules_of(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(workspace().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let modules = entries.filter(|path| path.is_dir() || path.extension().is_some_and(|end| end == "rs"));
    let names = modules.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    names.filter(|name| !["lib", "mod"].contains(&name.as_str())).collect()
}

fn says_first_what_is_in_it(text: &str) -> bool {
    text.lines().next().and_then(|line| line.strip_prefix("//! ")).is_some_and(|line| !line.trim().is_empty())
}
