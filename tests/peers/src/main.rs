//! Our locks beside those of other libraries: uncontended pairs and hand-overs, on one server, in turn, in one run.
//!
//! `scripts/peers` gets the other libraries and runs this.

#![forbid(unsafe_code)]

mod contender;
mod foreign;
mod memcached;
mod ours;
mod page;
mod picture;
mod quorum;
mod redis;
mod table;
mod zookeeper;

use std::time::Duration;

use bench_support::Outcome;

use crate::contender::Contender;
use crate::table::Table;

/// The rounds of which the median is told.
const ROUNDS: usize = 3;

/// One deployment: its server, which runs as long as this is kept, and who is measured on it, the floor first.
struct Field {
    server: Box<dyn std::any::Any>,
    title: &'static str,
    contenders: Vec<Box<dyn Contender>>,
}

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let (round, writes) = match arguments.next().as_deref() {
        None => (Duration::from_secs(3), false),
        Some("--quick") => (Duration::from_millis(300), false),
        Some("--write") => (Duration::from_secs(3), true),
        Some(other) => return Err(format!("there is no {other:?}, but --quick and --write").into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let field = match wanted.as_str() {
            "redis" => redis::field().await?,
            "quorum" => quorum::field().await?,
            "zookeeper" => zookeeper::field().await?,
            "memcached" => memcached::field().await?,
            other => return Err(format!("there is no {other:?}, but redis, quorum, zookeeper and memcached").into()),
        };
        let Field { server, title, contenders } = field;
        let table = Table::measure(contenders, ROUNDS, round).await?;
        println!("## {title}\n\n{table}");
        if writes {
            page::write(&wanted, title, &std::env::var("PEERS_CONDITIONS").unwrap_or_default(), &table)?;
        }
        drop(server);
        Ok(())
    })
}
