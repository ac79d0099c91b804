//! A name stands for one thing, or for two. The same role in several places counts as one: files of the same name have it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Module, ROOTS, code, defined, modules};

/// The number of names that may stand for three things or more.
const MOST: usize = 8;

/// The crates that are published, which come first.
const PUBLISHED: usize = 9;

#[test]
fn hardly_any_type_name_stands_for_three_things() {
    let crates: Vec<_> = ROOTS[..PUBLISHED].iter().map(|root| (*root, modules(root))).collect();
    let many = of_many(crates.iter().map(|(root, modules)| (*root, modules)));
    assert!(many.len() <= MOST, "{} names stand for three things or more: {many:#?}", many.len());
}

#[test]
fn a_role_in_several_crates_is_one_thing_and_three_roles_are_told() {
    let module = |name: &str| vec![name.to_owned()];
    let text = |text: &str| text.to_owned();
    let one = BTreeMap::from([
        (module("link"), text("pub struct Link;\nenum Kind {}")),
        (module("wait"), text("trait Kind {}\nimpl X {\n    type Link = u8;\n}")),
        (module("acquire"), text("type Link = u8;\nstruct Kind;")),
    ]);
    let other =
        BTreeMap::from([(module("link"), text("pub(crate) struct Link {}")), (module("x"), text("// struct Kind"))]);
    let many = of_many([("one", &one), ("other", &other)].into_iter());
    assert_eq!(many.into_keys().collect::<Vec<_>>(), ["Kind"]);
}

/// The names that stand for three things or more, with the files that define them.
fn of_many<'a>(
    crates: impl Iterator<Item = (&'a str, &'a BTreeMap<Module, String>)>,
) -> BTreeMap<&'a str, BTreeSet<String>> {
    let mut roles = BTreeMap::<_, BTreeSet<&str>>::new();
    let mut files = BTreeMap::<_, BTreeSet<String>>::new();
    for (root, modules) in crates {
        for (module, text) in modules {
            for name in code(text).filter_map(defined) {
                roles.entry(name).or_default().insert(module.last().map_or("lib", String::as_str));
                files.entry(name).or_default().insert(format!("{root}: {}", module.join("::")));
            }
        }
    }
    files.retain(|name, _| roles[name].len() >= 3);
    files
}
