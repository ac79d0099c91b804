//! Behaviour at scale and after outages. Each figure stands beside its baseline of the same run, and beside its bar.
//!
//! A slow script here is one that took long by the server's clock (`SLOWLOG`): on a busy machine that includes the time in
//! which the server did not run.

mod crowds;
mod far;
mod leavers;
mod names;
mod outage;
mod renewals;
mod replicas;
mod rights;
mod shard;
mod table;
mod truth;

use std::time::Duration;

use crate::{Bench, Outcome};

pub(crate) use crowds::child;
pub(crate) use table::judged;

/// The scenes, each of which can be asked for by itself, as `storm/names`.
pub(crate) const SCENES: [&str; 9] =
    ["outage", "names", "crowds", "leavers", "waiters", "replicas", "shard", "rights", "renewals"];

/// The shortest time in which a rate is measured.
const LONG_ENOUGH: Duration = Duration::from_secs(5);

pub(crate) async fn run(bench: &Bench, wanted: impl Fn(&str) -> bool) -> Outcome {
    for scene in SCENES {
        if !wanted(&format!("storm/{scene}")) {
            continue;
        }
        match scene {
            "outage" => outage::run(bench).await?,
            "names" => names::run(bench).await?,
            "crowds" => crowds::run(bench).await?,
            "leavers" => leavers::run(bench).await?,
            "waiters" => crate::waiters::run(bench).await?,
            "replicas" => replicas::run(bench).await?,
            "shard" => shard::run(bench).await?,
            "rights" => rights::run(bench).await?,
            _ => renewals::run(bench).await?,
        }
    }
    match table::missed() {
        0 => Ok(()),
        // Quick runs are no measurement.
        _ if bench.is_quick => Ok(()),
        missed => Err(format!("{missed} bars were missed").into()),
    }
}

/// The time in which a rate is measured.
fn time(bench: &Bench) -> Duration {
    (bench.round * bench.rounds * 2).max(LONG_ENOUGH)
}
