//! The place of a table and its bars in docs/benchmarks.md, and its picture beside the page.

use std::fs;
use std::path::Path;

use bench_support::Outcome;

use crate::bars::Bars;
use crate::picture::Picture;
use crate::table::Table;

const PAGE: &str = "docs/benchmarks.md";
const PICTURES: &str = "docs/pictures";

/// Puts the results at one server in the place of those that the page had.
///
/// # Errors
/// If the page has no such place, or cannot be written.
pub(crate) fn write(server: &str, title: &str, conditions: &str, table: &Table, bars: &Bars<'_>) -> Outcome {
    let picture = format!("peers-{server}.svg");
    fs::create_dir_all(PICTURES)?;
    fs::write(Path::new(PICTURES).join(&picture), Picture { title, table }.to_string())?;
    let page = fs::read_to_string(PAGE)?;
    let (begin, end) = (format!("<!-- peers {server} -->\n"), format!("<!-- end of peers {server} -->"));
    let missing = || format!("{PAGE} has no place between {} and {end}", begin.trim_end());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    let results = format!("{conditions}\n\n![{title}](pictures/{picture})\n\n{table}\n{bars}");
    Ok(fs::write(PAGE, format!("{before}{begin}{results}{end}{after}"))?)
}
