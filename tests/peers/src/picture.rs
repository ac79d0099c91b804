//! A table of rates as a picture: a panel of bars for each column.

use std::fmt::{self, Write};

use crate::table::{COLUMNS, Table};

/// The widths of the names, and of a panel with and without its margin, in pixels.
const NAMES: usize = 360;
const PANEL: usize = 230;
const BARS: usize = 150;
/// The heights of the heads of the panels, and of a line.
const HEAD: usize = 44;
const LINE: usize = 24;

const OURS: &str = "#1d4ed8";
const OTHERS: &str = "#94a3b8";

/// The picture of a table, with a title.
pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    pub(crate) table: &'a Table,
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = &self.table.rows;
        let (width, height) = (NAMES + COLUMNS.len() * PANEL, HEAD + rows.len() * LINE + 10);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" role="img" aria-label="{}">"#,
            escaped(self.title)
        )?;
        writeln!(f, r#"<rect width="{width}" height="{height}" fill="white"/>"#)?;
        for (line, row) in rows.iter().enumerate() {
            let (y, weight) = (HEAD + line * LINE + 16, if row.is_ours { "bold" } else { "normal" });
            let (name, x) = (escaped(&row.name), NAMES - 10);
            writeln!(f, r#"<text x="{x}" y="{y}" text-anchor="end" font-weight="{weight}">{name}</text>"#)?;
        }
        for (column, (_, _, what)) in COLUMNS.iter().enumerate() {
            let left = NAMES + column * PANEL;
            writeln!(f, r#"<text x="{left}" y="26" font-weight="bold">{what}</text>"#)?;
            let rates = || rows.iter().map(|row| row.cells[column].as_ref().map(|cell| cell.rate));
            let most = rates().flatten().fold(1.0, f64::max);
            for (line, (row, rate)) in rows.iter().zip(rates()).enumerate() {
                let Some(rate) = rate else { continue };
                let (bar, y) = (pixels(rate / most), HEAD + line * LINE);
                let color = if row.is_ours { OURS } else { OTHERS };
                writeln!(f, r#"<rect x="{left}" y="{}" width="{bar}" height="16" fill="{color}"/>"#, y + 3)?;
                writeln!(f, r#"<text x="{}" y="{}">{}</text>"#, left + bar + 5, y + 16, short(rate))?;
            }
        }
        writeln!(f, "</svg>")
    }
}

/// The length of a bar, one pixel at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a small number"
)]
fn pixels(part: f64) -> usize {
    ((part * BARS as f64).round() as usize).max(1)
}

/// Three digits or so.
fn short(rate: f64) -> String {
    match rate {
        rate if rate < 1_000.0 => format!("{rate:.0}"),
        rate if rate < 10_000.0 => format!("{:.1} k", rate / 1_000.0),
        rate if rate < 1_000_000.0 => format!("{:.0} k", rate / 1_000.0),
        rate => format!("{:.1} M", rate / 1_000_000.0),
    }
}

/// A text without Markdown's signs, and with XML's written out.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars().filter(|letter| !matches!(letter, '*' | '`')) {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '"' => escaped.push_str("&quot;"),
            letter => {
                // A String takes every letter.
                let _ = escaped.write_char(letter);
            }
        }
    }
    escaped
}
