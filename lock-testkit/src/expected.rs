//! The cases that are expected to be ignored, as a backend's author keeps them in a file: a case that ceases to be tried is
//! noticed, whatever the reason.

use std::collections::BTreeSet;
use std::path::Path;

/// The variable that, set to `1`, writes the file anew.
const UPDATE_VARIABLE: &str = "UPDATE_DOCS";

/// Compares the cases that are ignored in all of their forms, one line each, with the file.
///
/// # Errors
/// The lines in which they differ, or what keeps the file from being read or written.
pub(crate) fn compare(file: &Path, ignored: &BTreeSet<String>) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", file.display());
    if std::env::var(UPDATE_VARIABLE).is_ok_and(|value| value == "1") {
        let lines: String = ignored.iter().map(|line| format!("{line}\n")).collect();
        return std::fs::write(file, lines).map_err(told);
    }
    let text = std::fs::read_to_string(file).map_err(told)?;
    let expected: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    let unexpected = ignored.difference(&expected).map(|line| format!("\n+ {line}"));
    let absent = expected.difference(ignored).map(|line| format!("\n- {line}"));
    let difference: String = unexpected.chain(absent).collect();
    if difference.is_empty() {
        return Ok(());
    }
    Err(format!("{} is not what is ignored ({UPDATE_VARIABLE}=1 writes it anew):{difference}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_is_ignored_or_tried_unexpectedly_is_told() {
        let file = std::env::temp_dir().join(format!("expected-ignored-{}", std::process::id()));
        std::fs::write(&file, "C-1: no moon\nC-2: no sun\n").unwrap();
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let same = compare(&file, &lines(&["C-2: no sun", "C-1: no moon"]));
        let other = compare(&file, &lines(&["C-2: no sun", "C-3: no star"]));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(same, Ok(()));
        let told = other.unwrap_err();
        assert!(told.ends_with("\n+ C-3: no star\n- C-1: no moon"), "{told}");
        assert!(compare(&file, &BTreeSet::new()).is_err(), "a file that is missing is no list");
    }
}
