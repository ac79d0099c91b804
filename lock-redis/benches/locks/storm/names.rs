//! One client that waits for many names.

use std::time::{Duration, Instant};

use bench_support::cpu_seconds;
use futures_util::future::join_all;
use lock_redis::{LeaseOptions, RedisConfig, RedisLocks};
use tokio::time::sleep;

use super::table::{Bar, Table};
use super::truth::{Truth, server, whole};
use crate::{Bench, Outcome};

/// So many locks are taken, or begun to be waited for, at once.
const AT_ONCE: usize = 500;

#[derive(Debug, Default)]
struct Seen {
    client: f64,
    server: f64,
    connections: f64,
    never: f64,
    slowest: f64,
}

pub(super) async fn run(bench: &Bench) -> Outcome {
    let many = if bench.is_quick { 1_000 } else { 10_000 };
    let table = Table::begin(&format!("{many} names waited for by one idle client"), "one name");
    let time = super::time(bench);
    let (one, many) = (wait_for(1, time).await?, wait_for(many, time).await?);
    table.row("client, % of a core", many.client, Some(one.client), Bar::None);
    table.row("server, % of a core", many.server, Some(one.server), Bar::None);
    table.row("both", many.client + many.server, Some(one.client + one.server), Bar::AtMost(20.0));
    table.row("connections made meanwhile", many.connections, Some(one.connections), Bar::AtMost(0.0));
    table.row("never granted", many.never, Some(one.never), Bar::AtMost(0.0));
    table.row("slowest grant after its release, s", many.slowest, Some(one.slowest), Bar::AtMost(2.0));
    Ok(())
}

async fn wait_for(names: usize, time: Duration) -> Outcome<Seen> {
    let server = server().await?;
    let truth = Truth::of(&server)?;
    let config = || RedisConfig::new(server.url()).with_prefix("bench");
    let (holder, waiter) = (RedisLocks::connect_with(config()).await?, RedisLocks::connect_with(config()).await?);
    let lease = LeaseOptions::new(Duration::from_secs(300)).with_auto_renew(false);
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    let all: Vec<_> = (0..names).map(|name| format!("name {name}")).collect();
    for some in all.chunks(AT_ONCE) {
        let taking = some.iter().map(|name| holder.mutex(&**name).with_lease(lease));
        for guard in join_all(taking.map(async |mutex| mutex.lock().await)).await {
            held.push(guard?);
        }
        for name in some {
            let mutex = waiter.mutex(&**name).with_lease(lease);
            waiting.push(tokio::spawn(async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) }));
        }
        for name in some {
            truth.until_waiting(&format!("bench:mutex:{{{name}}}"), 1).await?;
        }
    }
    // Whoever has just begun to wait sends its first heartbeat early.
    sleep(Duration::from_secs(3)).await;

    let pid = server.pid().ok_or("no server")?;
    let connections = truth.connections().await?;
    let (client_before, server_before, start) = (cpu_seconds(std::process::id())?, cpu_seconds(pid)?, Instant::now());
    sleep(time).await;
    let share = |now: f64, then: f64| (now - then) / start.elapsed().as_secs_f64() * 100.0;
    let mut seen = Seen {
        client: share(cpu_seconds(std::process::id())?, client_before),
        server: share(cpu_seconds(pid)?, server_before),
        connections: truth.connections().await? - connections,
        ..Seen::default()
    };

    let released: Vec<_> = held
        .into_iter()
        .map(|guard| {
            tokio::spawn(async move {
                let began = Instant::now();
                guard.release().await.map(|()| began)
            })
        })
        .collect();
    for (released, granted) in released.into_iter().zip(waiting) {
        let released = released.await??;
        match tokio::time::timeout(Duration::from_secs(20), granted).await {
            Ok(granted) => match granted? {
                Ok((at, _guard)) => seen.slowest = f64::max(seen.slowest, at.duration_since(released).as_secs_f64()),
                Err(_) => seen.never += 1.0,
            },
            Err(_) => seen.never += 1.0,
        }
    }
    whole(server.kill())?;
    Ok(seen)
}
