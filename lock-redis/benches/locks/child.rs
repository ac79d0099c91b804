//! A process that a benchmark has started.

use std::time::{Duration, Instant};

use lock_core::clock::{Clock, SystemClock};
use redis::cmd;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::turns::{Turn, URL, VARIANT};
use crate::{Bench, Outcome, death, storm, waiters};

/// The server's URL, if this process was started by a benchmark.
pub(crate) fn is_child() -> Option<String> {
    std::env::var(URL).ok()
}

/// One process: says that it is ready, waits for the word, takes turns, and says when.
pub(crate) async fn run(url: String) -> Outcome {
    if let Some(outcome) = storm::child(&url).await {
        return outcome;
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let bench = Bench { url, round: Duration::ZERO, rounds: 1, is_quick: true };
    let mut turns: Vec<Turn> = Vec::new();
    if std::env::var(VARIANT)? == death::HOLDER {
        return death::hold(&bench, &mut input).await;
    }
    if std::env::var(VARIANT)? == "tokens" {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(&*bench.url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let _: (String, String) = cmd("BLPOP").arg("bare:tokens").arg(0).query_async(&mut connection).await?;
            turns.push((now(), now()));
            let _: i64 = cmd("RPUSH").arg("bare:tokens").arg("token").query_async(&mut connection).await?;
        }
    } else {
        let mutex = match std::env::var(VARIANT)?.as_str() {
            "quorum" => waiters::connect(bench.url.split(',')).await?.mutex("processes"),
            _ => bench.locks().await?.mutex("processes"),
        };
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let guard = mutex.lock().await?;
            turns.push((now(), now()));
            guard.release().await?;
        }
    }
    println!("{}", serde_json::to_string(&turns)?);
    Ok(())
}

async fn ready(input: &mut tokio::io::Lines<BufReader<tokio::io::Stdin>>) -> Outcome<Instant> {
    println!("ready");
    let milliseconds = input.next_line().await?.ok_or("no word came")?.parse()?;
    Ok(Instant::now() + Duration::from_millis(milliseconds))
}

fn now() -> u64 {
    u64::try_from(SystemClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}
