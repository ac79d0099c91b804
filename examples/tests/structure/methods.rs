//! The methods of a type stand in the file that defines it, or in a module that is part of that file's: whoever reads a type
//! knows where to look for them. Traits may be implemented anywhere.

use std::collections::BTreeMap;

use crate::source::{Module, ROOTS, code, defined, modules, name};

#[test]
fn methods_stand_in_their_type_s_file_or_below_it() {
    for root in ROOTS {
        let astray = astray(&modules(root));
        assert!(astray.is_empty(), "{root} has methods outside of their type's file: {astray:#?}");
    }
}

#[test]
fn methods_in_another_file_are_found_and_those_of_a_child_or_a_trait_are_none() {
    let module = |name: &str| name.split("::").map(ToOwned::to_owned).collect::<Module>();
    let text = |text: &str| text.to_owned();
    let modules = BTreeMap::from([
        (module("a"), text("pub(crate) struct One<T>(T);\nimpl<T> One<T> {}\nmod b;\nimpl $any {}")),
        (module("a::b"), text("impl<T: Fn() -> u8> super::One<T> {\n}\nimpl One<u8> {}")),
        (
            module("c"),
            text("impl Drop for One<u8> {}\nimpl<'a> One<&'a u8> {\n}\n#[cfg(test)]\nmod tests { impl One {} }"),
        ),
    ]);
    assert_eq!(astray(&modules), [(module("c"), "impl<'a> One<&'a u8> {".to_owned())]);
}

/// The beginnings of methods that stand in none of the modules of their type.
fn astray(modules: &BTreeMap<Module, String>) -> Vec<(Module, String)> {
    let mut homes = BTreeMap::<&str, Vec<&Module>>::new();
    for (module, text) in modules {
        for name in code(text).filter_map(defined) {
            homes.entry(name).or_default().push(module);
        }
    }
    let mut astray = Vec::new();
    for (module, text) in modules {
        for (line, name) in code(text).filter_map(|line| Some((line, owner(line)?))) {
            let is_at_home = homes.get(name).is_some_and(|homes| homes.iter().any(|home| module.starts_with(home)));
            if !is_at_home {
                astray.push((module.clone(), line.trim().to_owned()));
            }
        }
    }
    astray
}

/// The type whose own methods begin with this line, if some do.
fn owner(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let rest = if rest.starts_with('<') { after_parameters(rest)? } else { rest.strip_prefix(' ')? };
    if rest.contains(" for ") {
        return None;
    }
    let path = rest.trim_start().split(['<', ' ']).next()?;
    // A macro's `$type` has no name here: its methods stand where it is used.
    path.rsplit("::").next().map(name).filter(|name| !name.is_empty())
}

/// Returns the text behind the parameters with which it begins, `<...>`.
fn after_parameters(text: &str) -> Option<&str> {
    let mut depth = 0;
    for (at, next) in text.char_indices() {
        match next {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[at + 1..]);
        }
    }
    None
}
