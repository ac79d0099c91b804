//! One client that waits for many names.

use std::time::Instant;

use futures_util::future::join_all;
use lock_redis::MutexGuard;

use crate::server::{PROMPTLY, Server, connections_so_far, long, ms, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_many_names_keeps_its_connections_and_asks_for_few_echoes() {
    const NAMES: usize = 300;
    let Some(server) = Server::start().await else { return };
    server.knows_the_scripts().await;
    let (holder, waiter) = (server.client().await, server.client().await);
    let name = |number| format!("names{number}");
    let held =
        join_all((0..NAMES).map(async |number| holder.mutex(name(number)).with_lease(long()).lock().await.unwrap()));
    let held: Vec<MutexGuard> = held.await;
    let waiting: Vec<_> = (0..NAMES)
        .map(|number| {
            let mutex = waiter.mutex(name(number));
            tokio::spawn(async move { mutex.lock().await.unwrap() })
        })
        .collect();
    for number in 0..NAMES {
        server.until_queued(&name(number), 1).await;
    }
    let (connections, published) = (connections_so_far(&server).await, echoes(&server).await);
    let since = Instant::now();
    // Several heartbeats for each.
    tokio::time::sleep(ms(4000)).await;
    let (heartbeats, seconds) = (echoes(&server).await - published, since.elapsed().as_secs());
    assert_eq!(connections_so_far(&server).await, connections, "a connection that was sound was replaced");
    assert!(heartbeats <= 2 + seconds, "{heartbeats} echoes in {seconds} s");
    held.into_iter().for_each(drop);
    for waiter in waiting {
        soon("it is handed over", PROMPTLY, waiter).await.unwrap().release().await.unwrap();
    }
    server.has_nothing_left().await;
}

async fn echoes(server: &Server) -> u64 {
    let told = server.say("INFO commandstats").await.as_text().unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}
