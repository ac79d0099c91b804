//! Tables of figures with baseline and bar.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bars that this run has missed.
static MISSED: AtomicUsize = AtomicUsize::new(0);

/// Returns how many bars this run has missed so far.
pub(super) fn missed() -> usize {
    MISSED.load(Ordering::Relaxed)
}

/// Says whether a bar is met, and counts it if it is missed.
pub(crate) fn judged(is_met: bool) -> &'static str {
    if is_met {
        return "met";
    }
    MISSED.fetch_add(1, Ordering::Relaxed);
    "missed"
}

/// A table whose heading has been printed.
pub(super) struct Table;

/// The bar of a figure.
pub(super) enum Bar {
    AtMost(f64),
    /// The figure is told, and has none.
    None,
}

impl Table {
    pub(super) fn begin(title: &str, baseline: &str) -> Self {
        println!("\n## Storm: {title}\n");
        println!("| figure | seen | {baseline} | ÷ | bar | |\n|---|---|---|---|---|---|");
        Self
    }

    /// Prints one figure.
    #[expect(clippy::unused_self, reason = "there is a heading")]
    pub(super) fn row(&self, what: &str, seen: f64, baseline: Option<f64>, bar: Bar) {
        let (bar, met) = match bar {
            Bar::AtMost(most) => (format!("≤ {}", shown(most)), judged(seen <= most)),
            Bar::None => (String::new(), ""),
        };
        let ratio = baseline.filter(|baseline| *baseline > 0.0).map(|baseline| format!("{:.2}", seen / baseline));
        let (baseline, ratio) = (baseline.map(shown).unwrap_or_default(), ratio.unwrap_or_default());
        println!("| {what} | {} | {baseline} | {ratio} | {bar} | {met} |", shown(seen));
    }
}

fn shown(number: f64) -> String {
    if number.fract() == 0.0 || number >= 1000.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}
