//! 10,000 and 100,000 held locks with a TTL of 30 s, renewed by themselves: processor time of client and server, memory,
//! connections, tasks. The baseline is the same client with one lock.

use std::time::Instant;

use bench_support::{cpu_seconds, resident_bytes};
use lock_redis::MutexGuard;
use redis::cmd;

use crate::{Bench, Outcome, bare};

const LOCKS: [usize; 3] = [1, 10_000, 100_000];

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Held locks, TTL 30 s\n");
    println!("| locks | client % of a core | server % of a core | client bytes per lock | connections | alive tasks |");
    println!("|---|---|---|---|---|---|");
    let mut connection = bare::connection(bench).await?;
    let server = bare::server_pid(&mut connection).await?;
    let others = connections(&mut connection).await?;
    let locks = bench.locks().await?;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let others_tasks = tasks();
    let before = resident_bytes()?;
    for count in LOCKS {
        let mut guards: Vec<MutexGuard> = Vec::with_capacity(count);
        for lock in 0..count {
            guards.push(locks.mutex(format!("held {lock}")).with_ttl(std::time::Duration::from_secs(30)).lock().await?);
        }
        let bytes = resident_bytes()?.saturating_sub(before);
        let (client_before, server_before, start) =
            (cpu_seconds(std::process::id())?, cpu_seconds(server)?, Instant::now());
        // Two renewals of every lock, so that the cost per second is the lasting one.
        tokio::time::sleep(bench.round * bench.rounds * 4).await;
        let seconds = start.elapsed().as_secs_f64();
        let share = |now: f64, then: f64| (now - then) / seconds * 100.0;
        println!(
            "| {count} | {:.2} | {:.2} | {} | {} | {} |",
            share(cpu_seconds(std::process::id())?, client_before),
            share(cpu_seconds(server)?, server_before),
            if count == 1 { "-".to_owned() } else { (bytes / count as u64).to_string() },
            connections(&mut connection).await? - others,
            tasks() - others_tasks,
        );
        if guards.iter().any(|guard| !guard.is_held()) {
            return Err("a lock was lost".into());
        }
        for guard in guards {
            guard.release().await?;
        }
    }
    Ok(())
}

async fn connections(connection: &mut redis::aio::MultiplexedConnection) -> Outcome<usize> {
    let list: String = cmd("CLIENT").arg("LIST").query_async(connection).await?;
    Ok(list.lines().count())
}
