//! The rates of all contenders, as a table.

use std::fmt;
use std::time::Duration;

use bench_support::Outcome;

use crate::contender::{Contender, Scene};

/// The columns: who does what.
const COLUMNS: [(Scene, usize, &str); 3] = [
    (Scene::Free, 1, "1 task, pairs/s"),
    (Scene::Free, 64, "64 tasks, pairs/s"),
    (Scene::HandOver, 16, "hand-overs/s, 16 tasks"),
];

/// The median rates, and the medians of their ratios to the first contender's.
pub(crate) struct Table {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    has_tokens: bool,
    cells: Vec<(f64, f64)>,
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
            for (scene, tasks, _) in COLUMNS {
                let share = contender.warm_up() / u32::try_from(COLUMNS.len())?;
                contender.rate(scene, tasks, share).await.map_err(|error| format!("{}: {error}", contender.name()))?;
            }
        }
        let mut rows: Vec<_> = contenders
            .iter()
            .map(|contender| Row {
                name: contender.name().to_owned(),
                has_tokens: contender.has_tokens(),
                cells: Vec::new(),
            })
            .collect();
        for (scene, tasks, what) in COLUMNS {
            let mut rates = vec![Vec::new(); contenders.len()];
            for round in 0..rounds {
                for (contender, rates) in contenders.iter_mut().zip(&mut rates) {
                    rates.push(
                        contender
                            .rate(scene, tasks, time)
                            .await
                            .map_err(|error| format!("{}: {error}", contender.name()))?,
                    );
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
                row.cells.push((median(rates), median(ratios)));
            }
        }
        Ok(Self { rows })
    }
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| lock | token |")?;
        for (_, _, what) in COLUMNS {
            write!(f, " {what} | ÷ first |")?;
        }
        writeln!(f, "\n|---|---|{}", "---|---|".repeat(COLUMNS.len()))?;
        for row in &self.rows {
            write!(f, "| {} | {} |", row.name, if row.has_tokens { "yes" } else { "no" })?;
            for (rate, ratio) in &row.cells {
                write!(f, " {rate:.0} | {ratio:.2} |")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
