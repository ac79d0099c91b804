//! Hand-over between eight processes, one task each, on one name: from the call of `release` until the next holder knows
//! in its own process, and the rate, both against BLPOP; the commands that it takes; every process's share.

use bench_support::jain;
use redis::cmd;

use crate::turns::{Children, PROCESSES, Seen};
use crate::{Bench, Outcome, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, {PROCESSES} processes\n");
    println!("| variant | median µs | p95 µs | hand-overs/s | ÷ BLPOP | commands per hand-over | shares | Jain |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = [Seen::new("tokens")?, Seen::new("locks")?];
    for _ in 0..bench.rounds {
        for seen in &mut all {
            round(bench, seen).await?;
        }
    }
    let list = all[0].series.per_second();
    for (seen, name) in all.iter().zip(["BLPOP + RPUSH", "lock + release"]) {
        println!(
            "| {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:?} | {:.3} |",
            seen.series.micros(0.5),
            seen.series.micros(0.95),
            seen.series.per_second(),
            seen.series.per_second() / list,
            seen.commands as f64 / seen.series.count as f64,
            seen.shares,
            jain(&seen.shares)
        );
    }
    Ok(())
}

/// Has the processes take turns, and counts the server's commands meanwhile.
async fn round(bench: &Bench, seen: &mut Seen) -> Outcome {
    let children = Children::start(&bench.url, seen.variant).await?;
    let mut connection = bare::connection(bench).await?;
    if seen.variant == "tokens" {
        let _: i64 = cmd("DEL").arg("bare:tokens").query_async(&mut connection).await?;
        let _: i64 = cmd("RPUSH").arg("bare:tokens").arg("token").query_async(&mut connection).await?;
    }
    let before = bare::client_commands(&mut connection).await?;
    let turns = children.take_turns(bench.round).await?;
    seen.commands += bare::client_commands(&mut connection).await? - before;
    seen.add(&turns, bench.round);
    Ok(())
}
