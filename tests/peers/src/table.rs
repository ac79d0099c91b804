//! The rates of all contenders, as a table.

use std::fmt;
use std::time::Duration;

use bench_support::Outcome;

use crate::contender::{Contender, Scene};

/// The columns: who does what.
pub(crate) const COLUMNS: [(Scene, usize, &str); 4] = [
    (Scene::Free, 1, "1 task, pairs/s"),
    (Scene::Free, 64, "64 tasks, pairs/s"),
    (Scene::HandOver, 16, "hand-overs/s, 16 tasks"),
    (Scene::Processes, 8, "grants/s, 8 processes"),
];

/// The figures of all contenders.
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

/// The figures of one contender.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) is_ours: bool,
    has_tokens: bool,
    /// Nothing where it cannot take part.
    pub(crate) cells: Vec<Option<Cell>>,
    /// The rates of each column's rounds.
    rates: Vec<Vec<f64>>,
}

impl Row {
    /// The ratios to another line's rates in the same rounds of a column, the least first.
    pub(crate) fn ratios(&self, other: &Self, column: usize) -> Vec<f64> {
        let mut ratios: Vec<_> =
            self.rates[column].iter().zip(&other.rates[column]).map(|(ours, other)| ours / other).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }
}

/// The median rate, and the median of its ratios to the first contender's.
pub(crate) struct Cell {
    pub(crate) rate: f64,
    ratio: f64,
}

impl Table {
    /// Measures everybody in turn, in so many rounds of this length.
    ///
    /// # Errors
    /// The first one of a contender.
    pub(crate) async fn measure(
        mut contenders: Vec<Box<dyn Contender>>,
        rounds: usize,
        time: Duration,
    ) -> Outcome<Self> {
        for contender in &mut contenders {
            let scenes: Vec<_> = COLUMNS.into_iter().filter(|(scene, ..)| contender.takes_part(*scene)).collect();
            let share = contender.warm_up() / u32::try_from(scenes.len().max(1))?;
            for (scene, tasks, _) in scenes {
                contender.rate(scene, tasks, share).await.map_err(|error| format!("{}: {error}", contender.name()))?;
            }
        }
        let mut rows: Vec<_> = contenders
            .iter()
            .map(|contender| Row {
                name: contender.name().to_owned(),
                is_ours: contender.is_ours(),
                has_tokens: contender.has_tokens(),
                cells: Vec::new(),
                rates: Vec::new(),
            })
            .collect();
        for (scene, tasks, what) in COLUMNS {
            let mut rates = vec![Vec::new(); contenders.len()];
            for round in 0..rounds {
                for (contender, rates) in contenders.iter_mut().zip(&mut rates) {
                    if contender.takes_part(scene) {
                        let rate = contender.rate(scene, tasks, time).await;
                        rates.push(rate.map_err(|error| format!("{}: {error}", contender.name()))?);
                    }
                }
                eprintln!(
                    "{what}, round {}: {:.0?}",
                    round + 1,
                    rates.iter().filter_map(|rates| rates.last()).collect::<Vec<_>>()
                );
            }
            let floor = rates[0].clone();
            for (row, rates) in rows.iter_mut().zip(rates) {
                let ratios = rates.iter().zip(&floor).map(|(rate, floor)| rate / floor).collect();
                row.rates.push(rates.clone());
                row.cells.push(median(rates).zip(median(ratios)).map(|(rate, ratio)| Cell { rate, ratio }));
            }
        }
        Ok(Self { rows })
    }
}

/// The one in the middle, if there is any.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| lock | token |")?;
        for (_, _, what) in COLUMNS {
            write!(f, " {what} | ÷ first |")?;
        }
        writeln!(f, "\n|---|---|{}", "---|---|".repeat(COLUMNS.len()))?;
        for row in &self.rows {
            let name = if row.is_ours { format!("**{}**", row.name) } else { row.name.clone() };
            write!(f, "| {name} | {} |", if row.has_tokens { "yes" } else { "no" })?;
            for cell in &row.cells {
                match cell {
                    Some(Cell { rate, ratio }) => write!(f, " {rate:.0} | {ratio:.2} |")?,
                    None => write!(f, " - | - |")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
