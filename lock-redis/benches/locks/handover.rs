//! Hand-over between tasks of one process, each grant with its own entry at the server: from the call of `release` until
//! the next holder knows. Against a round trip of PING, and against a list of one token that tasks take by BLPOP (each
//! on a connection of its own; without owner, TTL or fencing).

use std::time::Instant;

use bench_support::{Baton, Hands, Series, jain};
use redis::cmd;

use crate::{Bench, Outcome, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, one process\n");
    println!(
        "| tasks | variant | median µs | p95 µs | ÷ PING | hand-overs/s | ÷ BLPOP | commands per hand-over | Jain |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for tasks in [16, 64] {
        let mut connection = bare::connection(bench).await?;
        let (mut ping, mut tokens, mut ours) = (Series::new()?, Hands::new(tasks)?, Hands::new(tasks)?);
        for _ in 0..bench.rounds {
            let end = Instant::now() + bench.round / 4;
            while Instant::now() < end {
                let began = Instant::now();
                let _: String = cmd("PING").query_async(&mut connection).await?;
                ping.record(began.elapsed());
            }
            token_list(bench, &mut tokens).await?;
            let before = bare::client_commands(&mut connection).await?;
            ours.pass(&bench.locks().await?.mutex("hand-over"), bench.round).await?;
            ours.requests += bare::client_commands(&mut connection).await? - before;
        }
        println!("| {tasks} | PING | {:.1} | {:.1} | 1.00 | | | | |", ping.micros(0.5), ping.micros(0.95));
        for (name, hands) in [("BLPOP + RPUSH", &tokens), ("lock + release", &ours)] {
            let series = &hands.series;
            println!(
                "| {tasks} | {name} | {:.1} | {:.1} | {:.2} | {:.0} | {:.2} | {} | {:.3} |",
                series.micros(0.5),
                series.micros(0.95),
                series.micros(0.5) / ping.micros(0.5),
                series.per_second(),
                series.per_second() / tokens.series.per_second(),
                if hands.requests == 0 {
                    "2".to_owned()
                } else {
                    format!("{:.2}", hands.requests as f64 / series.count as f64)
                },
                jain(&hands.shares),
            );
        }
    }
    Ok(())
}

async fn token_list(bench: &Bench, hands: &mut Hands) -> Outcome {
    let (tasks, baton) = (hands.shares.len(), Baton::default());
    let client = redis::Client::open(&*bench.url)?;
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connections = Vec::new();
    for _ in 0..tasks {
        connections.push(client.get_multiplexed_async_connection_with_config(&config).await?);
    }
    let _: i64 = cmd("DEL").arg("bare:tokens").query_async(&mut connections[0]).await?;
    let _: i64 = cmd("RPUSH").arg("bare:tokens").arg("token").query_async(&mut connections[0]).await?;
    let start = Instant::now();
    let end = start + bench.round;
    let mut running = Vec::new();
    for mut connection in connections {
        let baton = baton.clone();
        running.push(tokio::spawn(async move {
            let mut own = Series::new()?;
            while Instant::now() < end {
                let _: (String, String) = cmd("BLPOP").arg("bare:tokens").arg(0).query_async(&mut connection).await?;
                baton.taken(&mut own);
                baton.passing();
                let _: i64 = cmd("RPUSH").arg("bare:tokens").arg("token").query_async(&mut connection).await?;
            }
            Outcome::Ok(own)
        }));
    }
    for (task, run) in running.into_iter().enumerate() {
        hands.add(task, &run.await??)?;
    }
    hands.series.time += start.elapsed();
    Ok(())
}
