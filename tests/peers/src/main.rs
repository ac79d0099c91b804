//! Our locks beside those of other libraries: uncontended pairs and hand-overs, on one server, in turn, in one run.
//!
//! `scripts/peers` gets the other libraries and runs this.

#![forbid(unsafe_code)]

mod bars;
mod contender;
mod foreign;
mod memcached;
mod ours;
mod page;
mod picture;
mod processes;
mod quorum;
mod redis;
mod table;
mod zookeeper;

use std::time::Duration;

use bench_support::Outcome;
use tokio::runtime::Runtime;

use crate::bars::Bars;
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
    if wanted == processes::CHILD {
        return child(arguments.collect());
    }
    let (round, writes) = match arguments.next().as_deref() {
        None => (Duration::from_secs(3), false),
        Some("--quick") => (Duration::from_millis(300), false),
        Some("--write") => (Duration::from_secs(3), true),
        Some(other) => return Err(format!("there is no {other:?}, but --quick and --write").into()),
    };
    runtime()?.block_on(async {
        let field = match wanted.as_str() {
            redis::SERVER => redis::field().await?,
            quorum::SERVER => quorum::field().await?,
            zookeeper::SERVER => zookeeper::field().await?,
            memcached::SERVER => memcached::field().await?,
            other => return Err(format!("there is no {other:?}, but redis, quorum, zookeeper and memcached").into()),
        };
        let Field { server, title, contenders } = field;
        let table = Table::measure(contenders, ROUNDS, round).await?;
        let bars = Bars::of(&wanted, &table);
        println!("## {title}\n\n{table}\n{bars}");
        if writes {
            page::write(&wanted, title, &std::env::var("PEERS_CONDITIONS").unwrap_or_default(), &table, &bars)?;
        }
        drop(server);
        Ok(())
    })
}

fn runtime() -> Outcome<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Is one of several processes: of a server, the number of a contender, and where the server is.
fn child(arguments: Vec<String>) -> Outcome {
    let [server, index, urls @ ..] = &arguments[..] else { return Err("usage: child SERVER NUMBER URL…".into()) };
    let index: usize = index.parse()?;
    runtime()?.block_on(async {
        let contenders = match server.as_str() {
            redis::SERVER => redis::local(&urls[0]).await?,
            zookeeper::SERVER => zookeeper::local(&urls[0]).await?,
            memcached::SERVER => memcached::local(&urls[0]).await?,
            quorum::SERVER => quorum::local(urls.to_vec()).await?,
            other => return Err(format!("there is no {other:?}").into()),
        };
        let mut contender = contenders.into_iter().nth(index).ok_or("there is no such contender")?;
        processes::serve(&mut *contender).await
    })
}
