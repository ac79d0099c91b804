//! Many leases of one client, and a link that loses their renewals.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lock_memcached::{MemcachedLocks, RestartGuard};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit::testing::about_time;

use crate::support::{config, eventually, server};

const LEASES: u64 = 120;

/// One round trip for each lease takes longer than what is left of them when the answers to their renewals are lost.
#[test]
fn renewals_that_were_carried_out_without_an_answer_are_found_out_together() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
        // Each unanswered request costs one, and over a new one an item is read before it is renewed.
        let mut config = config(&server).with_restart_guard(RestartGuard::Off).with_connections(200);
        config.client.op_timeout = ms(1000);
        config.url = format!("memcached://{}", link.address());
        let locks = MemcachedLocks::connect_with(config).await.unwrap();
        let ttl = ms(8000);
        let far_away =
            LinkFault::new(Toxic::Delay { by: Duration::from_millis(50), jitter: Duration::ZERO }, Direction::ToClient);
        let _far_away = link.inject(far_away);
        let old: Vec<_> = (0..LEASES + 40).map(|number| locks.mutex(format!("old/{number}"))).collect();
        let old = try_join_all(old.iter().map(|mutex| mutex.try_lock())).await.unwrap();
        try_join_all(old.into_iter().flatten().map(|guard| guard.release())).await.unwrap();
        let mutexes: Vec<_> = (0..LEASES).map(|number| locks.mutex(format!("{number}")).with_ttl(ttl)).collect();
        let guards = try_join_all(mutexes.iter().map(|mutex| mutex.lock())).await.unwrap();

        let before = numbers(&server).await;
        let silence = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient));
        eventually("every renewal is carried out", async || {
            let now = numbers(&server).await;
            before.iter().zip(now).all(|(before, now)| *before != now)
        })
        .await;
        silence.heal().unwrap();
        eventually("every lease is renewed", async || {
            assert!(guards.iter().all(|guard| guard.is_held()), "a lease ended");
            guards.iter().all(|guard| guard.remaining() > ttl * 3 / 4)
        })
        .await;
        try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
    });
}

/// The CAS number of each lease's item, which a renewal changes.
async fn numbers(server: &MemcachedServer) -> Vec<u64> {
    let client = server.client();
    let numbers =
        (0..LEASES).map(async |number| client.gets(&format!("lock:mutex:{number}")).await.unwrap().unwrap().1);
    join_all(numbers).await
}
