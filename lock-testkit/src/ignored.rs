//! The cases that do not apply, and why: summed up by reason, so that they do not drown those that ran.

use std::collections::BTreeMap;
use std::fmt;

/// Up to so many are told one by one.
const FEW: usize = 12;
/// The width in which ids are listed.
const WIDTH: usize = 110;

/// Cases that do not apply.
#[derive(Debug, Default)]
pub(crate) struct Ignored {
    all: Vec<One>,
}

#[derive(Debug)]
struct One {
    id: &'static str,
    name: String,
    reason: String,
}

impl Ignored {
    /// Adds one, by its id and its name as it is shown.
    pub(crate) fn add(&mut self, id: &'static str, name: String, reason: String) {
        self.all.push(One { id, name, reason });
    }
}

/// Nothing if there are none.
impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all.len() <= FEW {
            return self.all.iter().try_for_each(|one| writeln!(f, "ignored: {}: {}", one.name, one.reason));
        }
        let mut by_reason = BTreeMap::<&str, Vec<&str>>::new();
        for one in &self.all {
            by_reason.entry(&one.reason).or_default().push(one.id);
        }
        let mut reasons: Vec<_> = by_reason.into_iter().collect();
        reasons.sort_by_key(|(_, ids)| std::cmp::Reverse(ids.len()));
        writeln!(f, "ignored: {} cases in their forms (each by itself: --ignored)", self.all.len())?;
        for (reason, mut ids) in reasons {
            writeln!(f, "{:5}  {reason}", ids.len())?;
            ids.sort_unstable();
            ids.dedup();
            let mut line = String::new();
            for id in ids {
                if line.len() + id.len() > WIDTH {
                    writeln!(f, "       {line}")?;
                    line.clear();
                }
                line.push_str(if line.is_empty() { "" } else { " " });
                line.push_str(id);
            }
            writeln!(f, "       {line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_told_one_by_one_and_many_by_reason() {
        let mut ignored = Ignored::default();
        assert_eq!(ignored.to_string(), "");
        ignored.add("C-1", "C-1 a_case [mutex]".to_owned(), "no moon".to_owned());
        assert_eq!(ignored.to_string(), "ignored: C-1 a_case [mutex]: no moon\n");
        for form in 0..20 {
            ignored.add("C-2", format!("C-2 another_case [{form}]"), "no sun".to_owned());
        }
        let told = ignored.to_string();
        assert!(told.contains("21 cases") && told.contains("   20  no sun\n       C-2\n    1  no moon\n       C-1\n"));
    }
}
