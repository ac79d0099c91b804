//! The bars that a table decides: one of our locks against another line, in one column.

use std::fmt;

use crate::contender::Scene;
use crate::table::{COLUMNS, Table};

/// A ratio that one of our locks is to reach.
struct Bar {
    /// The beginning of our line's name.
    ours: &'static str,
    scene: Scene,
    tasks: usize,
    /// The beginning of the other line's name.
    other: &'static str,
    least: f64,
}

/// The bars of one deployment, as they were met or missed in a table.
pub(crate) struct Bars<'a> {
    server: &'a str,
    table: &'a Table,
}

impl<'a> Bars<'a> {
    pub(crate) fn of(server: &'a str, table: &'a Table) -> Self {
        Self { server, table }
    }
}

const fn free(ours: &'static str, tasks: usize, other: &'static str, least: f64) -> Bar {
    Bar { ours, scene: Scene::Free, tasks, other, least }
}

const fn handed_over(ours: &'static str, other: &'static str, least: f64) -> Bar {
    Bar { ours, scene: Scene::HandOver, tasks: 16, other, least }
}

const fn of_processes(ours: &'static str, other: &'static str, least: f64) -> Bar {
    Bar { ours, scene: Scene::Processes, tasks: 8, other, least }
}

fn bars(server: &str) -> Vec<Bar> {
    match server {
        crate::redis::SERVER => vec![
            free("lock-redis mutex", 1, "floor", 0.9),
            free("lock-redis mutex", 1, "rslock", 0.95),
            free("lock-redis mutex", 64, "rslock", 1.4),
            free("lock-redis read lock", 64, "floor", 0.7),
            free("lock-redis permit", 64, "floor", 0.7),
            handed_over("lock-redis mutex", "floor", 0.75),
            handed_over("lock-redis write lock", "floor", 0.6),
            handed_over("lock-redis permit", "floor", 0.6),
            of_processes("lock-redis mutex", "floor", 0.45),
            of_processes("lock-redis write lock", "floor", 0.4),
            of_processes("lock-redis permit", "floor", 0.4),
        ],
        crate::quorum::SERVER => vec![free("lock-redis quorum", 64, "rslock", 1.3)],
        crate::zookeeper::SERVER => vec![
            free("lock-zk mutex", 64, "floor", 3.0),
            free("lock-zk write lock", 64, "floor", 3.0),
            free("lock-zk permit", 1, "floor", 0.85),
            handed_over("lock-zk mutex", "Curator 5.9.0 mutex", 2.0),
            handed_over("lock-zk write lock", "Curator 5.9.0 write", 2.0),
            handed_over("lock-zk permit", "Curator 5.9.0 permit", 2.0),
            of_processes("lock-zk mutex", "floor", 1.0),
            of_processes("lock-zk write lock", "floor", 1.0),
            of_processes("lock-zk permit", "floor", 0.85),
        ],
        crate::memcached::SERVER => {
            vec![free("lock-memcached mutex", 1, "floor", 0.85), free("lock-memcached mutex", 64, "floor", 1.5)]
        }
        _ => Vec::new(),
    }
}

impl fmt::Display for Bars<'_> {
    /// A table; each ratio is the median of those of the rounds, which stand beside it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| bar | at least | seen | of the rounds | |")?;
        writeln!(f, "|---|---|---|---|---|")?;
        for bar in bars(self.server) {
            let column = COLUMNS.iter().position(|(scene, tasks, _)| (*scene, *tasks) == (bar.scene, bar.tasks));
            let row = |name: &str| self.table.rows.iter().find(|row| row.name.starts_with(name));
            let ratios =
                column.zip(row(bar.ours).zip(row(bar.other))).map(|(column, (ours, other))| ours.ratios(other, column));
            let what = COLUMNS[column.unwrap_or_default()].2;
            write!(f, "| {} ÷ {}, {what} | {} | ", bar.ours, bar.other, bar.least)?;
            match ratios.as_deref() {
                Some(sorted @ [.., _]) => {
                    let seen = sorted[sorted.len() / 2];
                    let rounds: Vec<_> = sorted.iter().map(|ratio| format!("{ratio:.2}")).collect();
                    let outcome = if seen >= bar.least { "met" } else { "**missed**" };
                    writeln!(f, "{seen:.2} | {} | {outcome} |", rounds.join(", "))?;
                }
                _ => writeln!(f, "- | - | not measured |")?,
            }
        }
        Ok(())
    }
}
