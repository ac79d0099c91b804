//! Common parts of the backends' benchmarks: which parts are to be run, series of latencies, tasks and
//! processes that take turns, crowds that are granted, what a process has used, and the locks of other libraries.
//!
//! A benchmark measures every figure beside its baseline, in turn with it, in the same run on the same server.

#![forbid(unsafe_code)]

mod cycle;
mod grants;
mod hands;
mod peers;
mod plan;
mod process;
mod series;
mod usage;

pub use cycle::{Cycle, for_a_while};
pub use grants::{granted, release_all};
pub use hands::{Baton, Hands};
pub use peers::peers;
pub use plan::Plan;
pub use process::Process;
pub use series::{Series, jain};
pub use usage::{cpu_seconds, resident_bytes};

/// The result of a part of a benchmark.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
