//! Hand-over between eight processes, one task each, on one name: the rate against BLPOP, and every process's share.

use std::process::Stdio;
use std::time::{Duration, Instant};

use redis::cmd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::stats::jain;
use crate::{Bench, Outcome};

const PROCESSES: usize = 8;
const URL: &str = "LOCK_BENCH_CHILD_URL";
const VARIANT: &str = "LOCK_BENCH_CHILD_VARIANT";

/// The server's URL, if this process was started by [`run`].
pub(crate) fn is_child() -> Option<String> {
    std::env::var(URL).ok()
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, {PROCESSES} processes\n");
    println!("| variant | hand-overs/s | ÷ BLPOP | shares | Jain |");
    println!("|---|---|---|---|---|");
    let mut rates = [0.0; 2];
    let variants = ["tokens", "locks"];
    let mut shares = [[0; PROCESSES]; 2];
    for _ in 0..bench.rounds {
        for (variant, name) in variants.iter().enumerate() {
            let counts = round(bench, name).await?;
            shares[variant].iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
            rates[variant] += counts.iter().sum::<u64>() as f64 / bench.round.as_secs_f64() / f64::from(bench.rounds);
        }
    }
    for (variant, name) in ["BLPOP + RPUSH", "lock + release"].iter().enumerate() {
        let shares = &shares[variant];
        println!(
            "| {name} | {:.0} | {:.2} | {shares:?} | {:.3} |",
            rates[variant],
            rates[variant] / rates[0],
            jain(shares)
        );
    }
    Ok(())
}

/// Starts the processes, lets all of them begin at once, and collects how often each had its turn.
async fn round(bench: &Bench, variant: &str) -> Outcome<Vec<u64>> {
    let mut children = Vec::new();
    for _ in 0..PROCESSES {
        let mut child = Command::new(std::env::current_exe()?)
            .env(URL, &bench.url)
            .env(VARIANT, variant)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        children.push((child, lines));
    }
    for (_, lines) in &mut children {
        lines.next_line().await?.ok_or("a child ended before it was ready")?;
    }
    if variant == "tokens" {
        let mut connection = redis::Client::open(&*bench.url)?.get_multiplexed_async_connection().await?;
        let _: i64 = cmd("DEL").arg("bench:tokens").query_async(&mut connection).await?;
        let _: i64 = cmd("RPUSH").arg("bench:tokens").arg("token").query_async(&mut connection).await?;
    }
    let go = format!("{}\n", bench.round.as_millis());
    for (child, _) in &mut children {
        child.stdin.as_mut().ok_or("no stdin")?.write_all(go.as_bytes()).await?;
    }
    let mut counts = Vec::new();
    for (child, lines) in &mut children {
        counts.push(lines.next_line().await?.ok_or("a child ended without a count")?.parse()?);
        wait(child).await?;
    }
    Ok(counts)
}

async fn wait(child: &mut Child) -> Outcome {
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(format!("a child ended with {status}").into()) }
}

/// One process: says that it is ready, waits for the word, takes turns, and says how many it had.
pub(crate) async fn child(url: String) -> Outcome {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let bench = Bench { url, round: Duration::ZERO, rounds: 1 };
    let mut count = 0_u64;
    if std::env::var(VARIANT)? == "tokens" {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(&*bench.url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let _: (String, String) = cmd("BLPOP").arg("bench:tokens").arg(0).query_async(&mut connection).await?;
            count += 1;
            let _: i64 = cmd("RPUSH").arg("bench:tokens").arg("token").query_async(&mut connection).await?;
        }
    } else {
        let mutex = bench.locks().await?.mutex("processes");
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let guard = mutex.lock().await?;
            count += 1;
            guard.release().await?;
        }
    }
    println!("{count}");
    Ok(())
}

async fn ready(input: &mut tokio::io::Lines<BufReader<tokio::io::Stdin>>) -> Outcome<Instant> {
    println!("ready");
    let milliseconds = input.next_line().await?.ok_or("no word came")?.parse()?;
    Ok(Instant::now() + Duration::from_millis(milliseconds))
}
