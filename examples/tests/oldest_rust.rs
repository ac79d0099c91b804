//! The Rust that is promised is the Rust that is needed: `scripts/msrv` builds with it where it is installed; here it is only
//! seen, everywhere, that the documents promise the same one, and that no locked dependency that says what it needs, and is
//! built on Linux, asks for a newer one.

#![cfg(test)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// `1.88` or `1.88.0`, so that versions compare as numbers.
fn version(text: &str) -> Vec<u32> {
    let mut parts: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
    parts.resize(3, 0);
    parts
}

/// Every package that is built on this platform, as cargo tells of it.
fn packages() -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let mut metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

#[test]
fn no_dependency_needs_a_newer_rust_than_is_promised() {
    let promised = version(env!("CARGO_PKG_RUST_VERSION"));
    let packages = packages();
    assert!(packages.len() > 100, "cargo told of {} packages only", packages.len());
    let newer: Vec<String> = packages
        .iter()
        .filter_map(|package| Some((package, package["rust_version"].as_str()?)))
        .filter(|(_, needed)| version(needed) > promised)
        .map(|(package, needed)| format!("{} needs Rust {needed}", package["id"]))
        .collect();
    assert!(newer.is_empty(), "Rust {} is promised, but {newer:#?}", env!("CARGO_PKG_RUST_VERSION"));
}

#[test]
fn the_documents_promise_the_same_rust() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let sentence = format!("Rust {} or newer", env!("CARGO_PKG_RUST_VERSION"));
    for document in ["README.md", "lock-core/README.md", "lock-memcached/README.md"] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        assert!(text.contains(&sentence), "{document} does not say: {sentence}");
    }
}
