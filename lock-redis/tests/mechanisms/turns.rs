//! Many requests of one client at once: the most that are on their way, and what passes those that wait for their turn.

use std::cell::Cell;

use futures_util::future::join_all;
use lock_redis::{ClientOptions, ErrorKind, LeaseOptions, RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::resp::Value;

use crate::server::{PROMPTLY, Server, configured, eventually, key, ms, obtain};

/// Far more tries than may be on their way, and the most of them that may.
const TRIES: usize = 4000;
const MOST: u64 = 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_has_a_thousand_requests_before_it_at_most_however_many_tasks_ask() {
    let Some(server) = Server::start().await else { return };
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (ms(30_000), ms(60_000));
    let url = format!("redis://{}", link.address());
    let locks = configured(RedisConfig::new(url).with_client(options)).await.unwrap();
    let lease = LeaseOptions::new(ms(120_000)).with_renew_every(ms(200));
    let held = locks.mutex("held").with_lease(lease).lock().await.unwrap();
    let last = Cell::new(i64::MAX);
    // What is left of a lease grows by a renewal only.
    let is_renewed = async || {
        let left = server.run(&["PTTL", &key("held")]).await.as_int().unwrap();
        (left > last.replace(left)).then_some(())
    };
    eventually("the lease is renewed", PROMPTLY, is_renewed).await;
    teach(&locks).await;

    let unanswered = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let tries: Vec<_> = (0..TRIES)
        .map(|name| {
            let mutex = locks.mutex(format!("try {name}"));
            tokio::spawn(async move { mutex.try_lock().await.map(|granted| granted.is_some()) })
        })
        .collect();
    // Those that go together count as many as they are.
    let on_their_way = async || granted(&server).await;
    eventually("some are on their way", PROMPTLY, async || (on_their_way().await >= MOST).then_some(())).await;
    last.set(i64::MAX);
    eventually("the lease is renewed meanwhile", PROMPTLY, is_renewed).await;
    let on_their_way = on_their_way().await;
    assert!(on_their_way <= MOST, "{on_their_way} requests are on their way");

    unanswered.heal().unwrap();
    for granted in join_all(tries).await {
        assert!(granted.unwrap().unwrap(), "a free lock was not granted");
    }
    assert!(held.is_held());
    held.release().await.unwrap();
}

/// From then on the server knows the scripts, those of many locks too.
async fn teach(locks: &RedisLocks) {
    for _ in 0..2 {
        let pairs = (0..64).map(async |name| {
            let first = obtain(locks, format!("first {name}"), PROMPTLY).await;
            first.release().await.unwrap();
        });
        join_all(pairs).await;
    }
}

/// The number of tries that the server has granted: it answers each at once, whoever hears of it.
async fn granted(server: &Server) -> u64 {
    match server.run(&["KEYS", "lock:mutex:{try *}"]).await {
        Value::Array(keys) => keys.len() as u64,
        other => panic!("{other:?}"),
    }
}

/// A server of a test's own, a link to it, and a client over that with this operation timeout.
async fn behind_a_link(op_timeout: u64) -> Option<(Server, Proxy, RedisLocks)> {
    let server = Server::start().await?;
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (ms(op_timeout), ms(60_000));
    let config = RedisConfig::new(format!("redis://{}", link.address())).with_client(options);
    let locks = configured(config).await.unwrap();
    teach(&locks).await;
    Some((server, link, locks))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_turn_does_not_come_was_not_sent_and_says_so() {
    let Some((_server, link, locks)) = behind_a_link(4_000).await else { return };
    let silent = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let tries = (0..TRIES).map(|name| {
        let mutex = locks.mutex(format!("try {name}"));
        tokio::spawn(async move { mutex.try_lock().await.map(|granted| granted.is_some()) })
    });
    let (mut unsent, mut crowded, mut unknown) = (0, 0, 0);
    for tried in join_all(tries.collect::<Vec<_>>()).await {
        let error = tried.unwrap().unwrap_err();
        match error.kind() {
            // Those of the last tasks that have come about may wait when the silent connection is given up: for the next one.
            ErrorKind::Unavailable => {
                unsent += 1;
                crowded += usize::from(error.to_string().contains("wait for their turn"));
            }
            ErrorKind::Indeterminate => unknown += 1,
            _ => panic!("{error}"),
        }
    }
    assert!(crowded > 0, "none of them says that it waited for its turn");
    assert!(unsent >= TRIES - 2 * MOST as usize, "{unsent} were not sent");
    assert!(unknown >= MOST as usize, "{unknown} may have been carried out");
    silent.heal().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_with_thousands_in_line_costs_none_of_them() {
    let Some((server, link, locks)) = behind_a_link(30_000).await else { return };
    let silent = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
    let tries = (0..TRIES).map(|name| {
        let mutex = locks.mutex(format!("try {name}"));
        tokio::spawn(async move { mutex.try_lock().await.map(|granted| granted.is_some()) })
    });
    let tries: Vec<_> = tries.collect();
    eventually("some are on their way", PROMPTLY, async || (granted(&server).await >= MOST).then_some(())).await;
    assert!(server.say("CLIENT KILL TYPE normal SKIPME yes").await.as_int() > Some(0));
    silent.heal().unwrap();
    for granted in join_all(tries).await {
        assert!(granted.unwrap().unwrap(), "a free lock was not granted");
    }
    locks.close().await.unwrap();
    server.has_nothing_left().await;
}
