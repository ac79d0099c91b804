//! The cost of waits that were abandoned in an outage, beside that of the same process without one.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::memory::{MemoryBackend, MemoryStore};
use lock_core::{Client, Error};
use rustix::time::{ClockId, clock_gettime};

use crate::Outcome;

const WAITS: usize = 20_000;
const NAMES: usize = 200;

/// For the first try of each clean-up.
const SETTLING: Duration = Duration::from_secs(2);

/// The state in which the waits are abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Abandoned {
    None,
    /// The outage came first: nothing of them was sent.
    Unsent,
    /// They were waiting in the queue when it came.
    InLine,
}

pub(crate) async fn run(measured: Duration) -> Outcome {
    let seconds = measured.as_secs();
    println!("\n## {WAITS} waits abandoned in an outage: the {seconds} s after\n");
    println!(
        "| abandoned | CPU, % of a core | ÷ none | memory, MiB | `close()` after {seconds} s | bar |\n|---|---|---|---|---|---|"
    );
    let mut none = None;
    for abandoned in [Abandoned::None, Abandoned::Unsent, Abandoned::InLine] {
        let (load, memory, closed) = one(abandoned, measured).await?;
        let ratio = load / *none.get_or_insert(load);
        let closed = closed.map_or_else(|error| error.to_string(), |()| "nothing is left".to_owned());
        println!("| {} | {load:.3} | {ratio:.1} | {memory:.1} | {closed} | < 1 % |", abandoned.shown());
    }
    Ok(())
}

impl Abandoned {
    const fn shown(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Unsent => "before anything was sent",
            Self::InLine => "in the queue",
        }
    }
}

/// The load in per cent of a core, the memory that the waits have left behind, and the word of the close.
async fn one(abandoned: Abandoned, measured: Duration) -> Outcome<(f64, f64, Result<(), Error>)> {
    let store = MemoryStore::new();
    let (client, other) = (store.connect(), store.connect());
    let mut held = Vec::new();
    for name in 0..NAMES {
        held.push(other.mutex(format!("storm {name}")).lock().await?);
    }
    let before = resident_mib()?;
    match abandoned {
        Abandoned::None => store.set_reachable(false),
        Abandoned::Unsent => {
            store.set_reachable(false);
            give_up(&client, Duration::from_micros(200)).await;
        }
        Abandoned::InLine => {
            let outage = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                store.set_reachable(false);
            };
            tokio::join!(give_up(&client, Duration::from_secs(2)), outage);
        }
    }
    tokio::time::sleep(SETTLING).await;
    let began = cpu();
    tokio::time::sleep(measured).await;
    let load = (cpu() - began).as_secs_f64() / measured.as_secs_f64() * 100.0;
    let memory = resident_mib()? - before;
    Ok((load, memory, client.close().await))
}

/// Waits whose callers have this much time.
async fn give_up(client: &Client<MemoryBackend>, limit: Duration) {
    let locks: Vec<_> = (0..WAITS).map(|wait| client.mutex(format!("storm {}", wait % NAMES))).collect();
    join_all(locks.iter().map(|lock| tokio::time::timeout(limit, lock.lock()))).await;
}

/// The processor time that this process has used.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn resident_mib() -> Outcome<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = statm.split(' ').nth(1).ok_or("no second field in statm")?.parse()?;
    Ok(pages * 4096.0 / f64::from(1 << 20))
}
