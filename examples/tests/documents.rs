//! The documents say nothing that is not there: their links lead somewhere, and the guide's code is code that runs.

#![cfg(test)]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Markdown file of the workspace.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the targets between `](` and `)`, outside of code blocks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            links.extend(line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())));
        }
    }
    links
}

/// A heading's anchor, as renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).collect::<String>().replace(' ', "-")
}

/// The code blocks in this language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("\n```{language}\n");
    text.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap_or_default()).collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        for link in links(&read(&document)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            let there = target.exists()
                && (fragment.is_empty()
                    || read(&target).lines().any(|line| {
                        line.strip_prefix('#').is_some_and(|rest| anchor(rest.trim_start_matches('#')) == fragment)
                    }));
            if !there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_document_of_docs_is_in_its_index() {
    let docs = root().join("docs");
    let index = links(&read(&docs.join("README.md")));
    let missing: Vec<_> = documents()
        .into_iter()
        .filter_map(|path| path.strip_prefix(&docs).ok().map(|path| path.to_string_lossy().into_owned()))
        .filter(|path| path != "README.md" && !index.contains(path))
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

#[test]
fn the_code_of_the_authors_guide_is_compiled_and_run() {
    let guide = read(&root().join("docs/writing-a-backend.md"));
    let code = ["examples/src/sample_backend.rs", "examples/tests/sample_backend.rs"]
        .map(|path| read(&root().join(path)))
        .join("\n");
    let blocks = blocks(&guide, "rust");
    assert!(blocks.len() >= 5, "the guide has lost its code");
    for block in blocks {
        assert!(code.contains(block), "not in the sample backend nor in its test:\n{block}");
    }
}

#[test]
fn whatever_the_authors_guide_names_of_a_type_is_there() {
    let guide = read(&root().join("docs/writing-a-backend.md"));
    let sources = ["lock-core/src", "lock-testkit/src"].map(|folder| sources(&root().join(folder))).concat();
    let named = members(&guide);
    assert!(named.len() >= 20, "the guide has lost its names: {named:?}");
    let missing: Vec<_> = named.iter().filter(|(of, member)| !is_there(&sources, of, member)).collect();
    assert!(missing.is_empty(), "named in docs/writing-a-backend.md, and not there: {missing:?}");
    let known = [("Attempt", "mark_sent"), ("Attempt", "patience"), ("Left", "UntilReleased"), ("Guarantee", "Fifo")];
    assert!(known.iter().all(|(of, member)| is_there(&sources, of, member)));
    let unknown = [("Attempt", "set_note"), ("Attempt", "mark"), ("Left", "Until"), ("Operator", "mark_sent")];
    assert!(!unknown.iter().any(|(of, member)| is_there(&sources, of, member)));
}

#[test]
fn the_readme_of_the_suite_names_every_method_of_a_harness() {
    let readme = read(&root().join("lock-testkit/README.md"));
    let harness = read(&root().join("lock-testkit/src/harness.rs"));
    let (_, body) = harness.split_once("pub trait Harness").expect("the trait is there");
    let (body, _) = body.split_once("\n}\n").expect("it ends");
    let methods: Vec<_> = body.split("fn ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0)).collect();
    assert!(methods.len() >= 15, "the trait has lost its methods: {methods:?}");
    let is_named = |method: &&str| readme.contains(&format!("`{method}`")) || readme.contains(&format!("fn {method}("));
    let missing: Vec<_> = methods.iter().filter(|method| !is_named(method)).collect();
    assert!(missing.is_empty(), "not named in lock-testkit/README.md: {missing:?}");
}

#[test]
fn the_suite_shows_the_same_harness_in_its_readme_and_in_its_documentation() {
    let readme = read(&root().join("lock-testkit/README.md"));
    let shown = blocks(&readme, "rust,no_run").join("\n");
    let shown: Vec<_> = shown.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    assert!(shown.len() >= 20, "the README has lost its harness");
    let documentation = read(&root().join("lock-testkit/src/lib.rs")).replace("//!", "");
    assert!(words(&documentation).contains(&words(&shown.join("\n"))), "lock-testkit/src/lib.rs shows another harness");
}

/// The texts of the source files below this folder.
fn sources(folder: &Path) -> Vec<String> {
    let (mut texts, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(read(&path));
            }
        }
    }
    texts
}

/// The types and their members that a text names as `Type::member`, outside of code blocks.
fn members(text: &str) -> Vec<(String, String)> {
    let mut named = Vec::new();
    // Every second part stands in a code block, and in the others between backticks.
    for prose in text.split("```").step_by(2) {
        for code in prose.split('`').skip(1).step_by(2) {
            let path = code.split(|next: char| !next.is_alphanumeric() && !"_:".contains(next)).next();
            let mut parts = path.unwrap_or_default().rsplit("::");
            if let (Some(member), Some(of)) = (parts.next(), parts.next())
                && of.starts_with(char::is_uppercase)
            {
                named.push((of.to_owned(), member.to_owned()));
            }
        }
    }
    named
}

/// Whether a file that defines this type or has methods of it declares a function, a public field or a variant of this name.
fn is_there(sources: &[String], of: &str, member: &str) -> bool {
    let is_word = |line: &str, word: &str| {
        line.split(|next: char| !next.is_alphanumeric() && next != '_').any(|found| found == word)
    };
    let is_home = |line: &str| {
        let kinds = ["impl", "struct", "enum", "trait"];
        is_word(line, of) && kinds.iter().any(|kind| is_word(line, kind))
    };
    let declares = |line: &str| {
        let line = line.trim_start();
        let (is_function, rest) = match line.split_once("fn ") {
            Some((_, rest)) => (true, rest),
            None => (false, line.strip_prefix("pub ").unwrap_or(line)),
        };
        let is_field = line.starts_with("pub ");
        rest.strip_prefix(member).is_some_and(|rest| match rest.chars().next() {
            Some('(' | '<') if is_function => true,
            Some(':') => is_field,
            next => !is_function && member.starts_with(char::is_uppercase) && matches!(next, Some(',' | '(' | ' ')),
        })
    };
    sources.iter().any(|text| text.lines().any(is_home) && text.lines().any(declares))
}

/// The words of a text, with one space between them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_about_fencing_shows_what_its_tests_run() {
    let page = read(&root().join("docs/fencing.md"));
    let folder = root().join("examples/tests/fencing");
    let code = ["postgres.rs", "redis.rs", "object_store.rs"].map(|file| words(&read(&folder.join(file)))).join(" ");
    let shown: Vec<_> = ["sql", "lua", "rust"].into_iter().flat_map(|language| blocks(&page, language)).collect();
    assert!(shown.len() >= 5, "the page has lost its code");
    for block in shown {
        assert!(code.contains(&words(block)), "not in the tests:\n{block}");
    }
}
