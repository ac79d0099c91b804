//! Many requests of one client at once: the most that are on their way, and what passes those that wait for their turn.

use std::cell::Cell;

use futures_util::future::join_all;
use lock_redis::{ClientOptions, LeaseOptions, RedisConfig};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{PROMPTLY, Server, configured, eventually, key, ms};

/// Far more tries than may be on their way, and the most of them that may.
const TRIES: usize = 4000;
const MOST: u64 = 1024;
/// Renewals meanwhile.
const OTHERS: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_has_a_thousand_requests_before_it_at_most_however_many_tasks_ask() {
    let Some(server) = Server::start().await else { return };
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (ms(30_000), ms(60_000));
    let url = format!("redis://{}", link.address());
    let locks = configured(RedisConfig::new(url).with_client(options)).await.unwrap();
    let lease = LeaseOptions::with_ttl(ms(120_000)).renewed_every(ms(200));
    let held = locks.mutex("held").with_lease(lease).lock().await.unwrap();
    let last = Cell::new(i64::MAX);
    // What is left of a lease grows by a renewal only.
    let is_renewed = async || {
        let left = server.run(&["PTTL", &key("held")]).await.as_int().unwrap();
        (left > last.replace(left)).then_some(())
    };
    // From then on the server knows the script.
    eventually("the lease is renewed", PROMPTLY, is_renewed).await;

    let unanswered = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let before = link.requests();
    let tries: Vec<_> = (0..TRIES)
        .map(|name| {
            let mutex = locks.mutex(format!("try {name}"));
            tokio::spawn(async move { mutex.try_lock().await.map(|granted| granted.is_some()) })
        })
        .collect();
    eventually("some are on their way", PROMPTLY, async || (link.requests() - before >= MOST).then_some(())).await;
    last.set(i64::MAX);
    eventually("the lease is renewed meanwhile", PROMPTLY, is_renewed).await;
    let on_their_way = link.requests() - before;
    assert!(on_their_way <= MOST + OTHERS, "{on_their_way} requests are on their way");

    unanswered.heal().unwrap();
    for granted in join_all(tries).await {
        assert!(granted.unwrap().unwrap(), "a free lock was not granted");
    }
    assert!(held.is_held());
    held.release().await.unwrap();
}
